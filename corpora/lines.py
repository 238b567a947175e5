"""The files of a corpus: the folder and the format that the user names, and the text of plain or
gzipped files.

Text is UTF-8, with or without a byte-order mark. Two other encodings are read, and the notes say
so: UTF-16 that begins with its mark, and Windows-1252 (which has Latin-1 in it) where no line of
the file is UTF-8 beyond ASCII. A file that is UTF-8 in one line and not in another is refused.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree

from config.errors import UserError, nearest
from corpora.notes import Notes

__all__ = [
    "beginning",
    "corpus_folder",
    "file_hash",
    "first_line",
    "format_and_place",
    "lines",
    "parse_xml",
    "plain_name",
    "read_bytes",
    "read_json",
    "read_text",
]

_UTF8_MARK, _UTF16_MARKS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")
_ENTITY_DECLARATION = re.compile(rb"<!ENTITY", re.I)
_OTHER = "files are not UTF-8 and were read as Windows-1252"


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


def plain_name(path: Path) -> str:
    """In lower case, without the ending of a gzipped file."""
    return path.name.lower().removesuffix(".gz")


def _open(path: Path) -> IO[bytes]:
    if path.suffix != ".gz":
        return path.open("rb")
    # buffered: its own lines are cut in Python, which takes longer than to unpack them
    return io.BufferedReader(gzip.open(path, "rb"), 1 << 17)


def lines(path: Path, notes: Notes | None = None) -> Iterator[tuple[int, str]]:
    """(line number from one, text without its newline). What is not UTF-8 is told to `notes`;
    without notes it is refused.
    """
    number = 0
    encoding = "utf-8"
    try:
        with _open(path) as f:
            for number, raw in enumerate(f, start=1):
                if number == 1 and raw[:2] in _UTF16_MARKS:
                    break
                if number == 1 and raw.startswith(_UTF8_MARK):
                    raw = raw[len(_UTF8_MARK) :]
                try:
                    text = raw.decode(encoding)
                except UnicodeDecodeError as e:
                    if encoding == "utf-8":
                        _not_utf8(path, number, e, notes)
                        encoding = "cp1252"
                    text = _windows(raw)
                yield number, text.rstrip("\r\n")
            else:
                return
        for number, line in enumerate(_utf16(path, notes).split("\n"), start=1):
            yield number, line.rstrip("\r")
    except (OSError, EOFError, gzip.BadGzipFile) as e:
        where = f"after line {number}" if number else "from its beginning"
        raise UserError(f"{path} cannot be read {where} ({e}).") from None


def _not_utf8(path: Path, number: int, error: UnicodeDecodeError, notes: Notes | None) -> None:
    """Tells `notes` that the file is in the other encoding, or refuses it: without notes, and where
    an earlier line is UTF-8 beyond ASCII.
    """
    with _open(path) as f:
        before = all(raw.isascii() for raw in itertools.islice(f, number - 1))
    if notes is None or not before or not error.object[: error.start].isascii():
        byte = error.object[error.start]
        raise UserError(
            f"{path}, line {number}: the byte 0x{byte:02x} is not UTF-8; save the file as UTF-8."
        ) from None
    shown = _windows(error.object.splitlines()[-1]).strip()
    notes.add("repaired", _OTHER, example=shown, place=f"{path}, line {number}")


def _windows(raw: bytes) -> str:
    try:
        return raw.decode("cp1252")
    except UnicodeDecodeError:  # five bytes that Windows-1252 has no sign for
        return raw.decode("latin-1")


def _utf16(path: Path, notes: Notes | None) -> str:
    with _open(path) as f:
        raw = f.read()
    try:
        text = raw.decode("utf-16")
    except UnicodeDecodeError as e:
        raise UserError(f"{path}: begins as UTF-16 and is not ({e.reason}).") from None
    if notes is not None:
        notes.add("repaired", "files are UTF-16 and were read as such", place=str(path))
    return text.removesuffix("\n")


def first_line(path: Path) -> str:
    """The first line with anything in it, for telling a format, and of a long one its first million
    characters. Empty where the file cannot be read, which its reader will say better.
    """
    text = beginning(path, 1 << 20)
    return next((line for line in text.split("\n") if line.strip()), "").rstrip("\r")


def beginning(path: Path, size: int) -> str:
    """The first bytes of a file as text, or all of it (-1); empty where it cannot be read."""
    try:
        with _open(path) as f:
            raw = f.read(size)
    except (OSError, EOFError, gzip.BadGzipFile):
        return ""
    if raw[:2] in _UTF16_MARKS:
        return raw.decode("utf-16", errors="ignore")
    return raw.removeprefix(_UTF8_MARK).decode("utf-8", errors="ignore")


def read_bytes(path: Path) -> bytes:
    """All of a plain or gzipped file, for what says its encoding itself (XML)."""
    try:
        with _open(path) as f:
            return f.read()
    except (OSError, EOFError, gzip.BadGzipFile) as e:
        raise UserError(f"{path} cannot be read ({e}).") from None


def read_text(path: Path, notes: Notes | None = None) -> str:
    """All of a file, its carriage returns kept: offsets may count them."""
    raw = read_bytes(path)
    if raw[:2] in _UTF16_MARKS:
        return _utf16(path, notes)
    try:
        return raw.removeprefix(_UTF8_MARK).decode("utf-8")
    except UnicodeDecodeError:
        # line by line: the same rule, and the line is named
        for _ in lines(path, notes):
            pass
        return _windows(raw)


def read_json(path: Path, notes: Notes | None = None) -> Any:
    try:
        return json.loads(read_text(path, notes))
    except ValueError as e:
        line = getattr(e, "lineno", None)
        where = f"{path}, line {line}" if line else f"{path}"
        raise UserError(f"{where}: not JSON ({getattr(e, 'msg', e)}).") from None


def parse_xml(path: Path) -> ElementTree.Element:
    """The root of an XML file. Python's own parser resolves no external entity and opens no address;
    a file that declares entities of its own, which may grow without end, is refused.
    """
    raw = read_bytes(path)
    if _ENTITY_DECLARATION.search(raw):
        raise UserError(f"{path}: the file declares XML entities, which are not read.")
    try:
        return ElementTree.fromstring(raw)
    except (ElementTree.ParseError, ValueError, LookupError) as e:  # the others: its encoding
        where = f", line {e.position[0]}" if isinstance(e, ElementTree.ParseError) else ""
        raise UserError(f"{path}{where}: not XML that can be read ({e}).") from None


def file_hash(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
