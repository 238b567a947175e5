"""Word vectors from a file: text (a word and its numbers a line, with or without a first line of
counts) or the binary format of word2vec. Plain or gzipped.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Protocol

import numpy as np

from config.errors import UserError

__all__ = ["read_vectors"]


class _Bytes(Protocol):
    """What plain and gzipped files have in common."""

    def read(self, size: int = -1, /) -> bytes: ...
    def readline(self, size: int = -1, /) -> bytes: ...
    def seek(self, offset: int, whence: int = 0, /) -> int: ...


def read_vectors(file: str, most: int) -> tuple[tuple[str, ...], np.ndarray]:
    """The first `most` distinct lower-cased words of the file (files list frequent words first),
    and their vectors.
    """
    path = Path(file)
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as f:
            words, rows = _binary(path, f, most) if _is_binary(f) else _text(path, f, most)
    except (OSError, EOFError) as e:
        raise UserError(f"The word vectors {path} cannot be read: {e}.") from None
    if not words:
        raise UserError(f"The word vectors {path} hold no word.")
    return tuple(words), np.stack(rows).astype(np.float32)


def _is_binary(f: _Bytes) -> bool:
    """Word2vec's binary files open with a line of two counts and go on with bytes that are no
    text.
    """
    start = f.read(4096)
    f.seek(0)
    counts, newline, rest = start.partition(b"\n")
    if not newline or len(counts.split()) != 2:
        return False
    return any(b < 9 for b in rest)  # control characters: floats have them, words and digits do not


def _text(path: Path, f: _Bytes, most: int) -> tuple[list[str], list[np.ndarray]]:
    found: dict[str, np.ndarray] = {}
    width = 0
    for number, line in enumerate(iter(f.readline, b""), start=1):
        fields = line.decode("utf-8", "replace").rstrip().split(" ")
        if number == 1 and len(fields) == 2 and all(x.isdigit() for x in fields):
            width = int(fields[1])
            continue
        if len(fields) < 2:
            continue
        width = width or len(fields) - 1
        try:
            # A word may hold blanks; the numbers are the last `width` fields.
            vector = np.array(fields[-width:], dtype=np.float32)
        except ValueError:
            raise UserError(f"{path}, line {number}: not a word and {width} numbers.") from None
        if len(fields) <= width:
            raise UserError(f"{path}, line {number}: not a word and {width} numbers.")
        found.setdefault(" ".join(fields[:-width]).lower(), vector)
        if len(found) >= most:
            break
    return list(found), list(found.values())


def _binary(path: Path, f: _Bytes, most: int) -> tuple[list[str], list[np.ndarray]]:
    count, width = (int(x) for x in f.readline().split())
    found: dict[str, np.ndarray] = {}
    for number in range(1, count + 1):
        name = bytearray()
        while (c := f.read(1)) not in (b" ", b""):
            if c != b"\n":
                name += c
        raw = f.read(4 * width)
        if len(raw) < 4 * width:
            raise UserError(f"{path}, word {number} of {count}: the file is cut short.")
        found.setdefault(name.decode("utf-8", "replace").lower(), np.frombuffer(raw, dtype="<f4"))
        if len(found) >= most:
            break
    return list(found), list(found.values())
