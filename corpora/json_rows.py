"""JSON objects of a file, each with the line on which it begins: one a line, one after another over
several lines (indented), or in a list.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from config.errors import UserError
from corpora.lines import beginning, lines, read_text
from corpora.notes import Notes

__all__ = ["first_json", "json_rows"]

_BLANK = " \t\r\n"


def json_rows(path: Path, notes: Notes | None) -> Iterator[tuple[int, Any]]:
    """(line, object). A file whose first line is no whole object is read at once."""
    first = True
    for number, line in lines(path, notes):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as e:
            if first:
                yield from _over_lines(path)
                return
            raise UserError(f"{path}, line {number}: not JSON ({e.msg}).") from None
        if first and isinstance(row, list):  # all of the file, on one line
            yield from ((number, item) for item in row)
            first = False
            continue
        first = False
        yield number, row


def first_json(path: Path) -> Any:
    """The first object of a file, for telling its format; None where there is none. Of a large file
    only the beginning is parsed.
    """
    for size in (1 << 16, 1 << 22, -1):
        text = beginning(path, size)
        at = len(text) - len(text.lstrip())
        if text[at : at + 1] == "[":
            at += 1
            at += len(text[at:]) - len(text[at:].lstrip())
        if text[at : at + 1] != "{":
            return None
        try:
            return json.JSONDecoder().raw_decode(text, at)[0]
        except json.JSONDecodeError:
            continue  # perhaps it goes on beyond what was read
    return None


def _over_lines(path: Path) -> Iterator[tuple[int, Any]]:
    # what is not UTF-8 was told when the first line was read
    text = read_text(path, Notes())
    decoder = json.JSONDecoder()
    at, number, inside = 0, 1, False
    while True:
        begin = at
        while at < len(text) and text[at] in _BLANK + ("," if inside else ""):
            at += 1
        number += text.count("\n", begin, at)
        if at == len(text):
            if inside:
                raise UserError(f"{path}, line {number}: the list that begins the file has no end.")
            return
        if text[at] == "[" and not inside and not text[:at].strip():
            at, inside = at + 1, True
            continue
        if text[at] == "]" and inside:
            rest = text[at + 1 :].strip()
            if rest:
                raise UserError(f"{path}, line {number}: something follows the end of the list.")
            return
        try:
            row, after = decoder.raw_decode(text, at)
        except json.JSONDecodeError as e:
            raise UserError(f"{path}, line {e.lineno}: not JSON ({e.msg}).") from None
        yield number, row
        number += text.count("\n", at, after)
        at = after
