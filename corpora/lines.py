"""The files of a corpus: the folder and the format that the user names, which file is which, and
the lines of plain or gzipped ones.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Collection, Iterator
from pathlib import Path

from config.errors import UserError, nearest

__all__ = ["corpus_folder", "file_hash", "find", "format_and_place", "lines"]


def format_and_place(spec: str, formats: Collection[str]) -> tuple[str, str]:
    """ "format:place" in its two parts; the format is empty where only a place is given."""
    kind, colon, place = spec.partition(":")
    if not colon or Path(spec).exists():
        return "", spec
    if kind not in formats:
        raise UserError(f'Unknown corpus format "{kind}".{nearest(kind, formats)}')
    return kind, place


def corpus_folder(place: str) -> Path:
    folder = Path(place)
    if not folder.is_dir():
        raise UserError(f'The corpus "{place}" is not a folder.')
    return folder


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """(line number from one, text without its newline); a file that is cut short or not text is the
    user's to mend.
    """
    number = 0
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8") as f
        ):
            for number, line in enumerate(f, start=1):
                yield number, line.rstrip("\r\n")
    except (OSError, EOFError, UnicodeDecodeError, gzip.BadGzipFile) as e:
        raise UserError(f"{path}, after line {number}: the file cannot be read ({e}).") from None


def find(folder: Path, *stems: str) -> Path | None:
    """The one file of a folder whose name holds one of `stems`, plain or gzipped; None if there is
    none.
    """
    for stem in stems:
        found = sorted(p for p in folder.iterdir() if p.is_file() and stem in p.name.lower())
        if len(found) > 1:
            names = ", ".join(p.name for p in found)
            raise UserError(f'{folder} has several files for "{stem}" ({names}); keep one.')
        if found:
            return found[0]
    return None


def file_hash(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
