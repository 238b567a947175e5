"""Offsets that disagree with the words they are said to cover.

Tools count in different units: characters, UTF-16 units (whatever runs in a browser or in Java),
bytes, or characters of a text with line breaks of two signs. A format that writes a mention's words
beside its offsets tells which. The offsets are read in the unit that gives these words; else the one
place that holds them is taken; else the mention is left out. The last two are counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from corpora.notes import Notes

__all__ = ["UNPLACED", "alike", "from_utf16", "located"]

Span = tuple[int, int]
UNPLACED = "mentions whose words are not where their offsets say, nor in one other place"


def from_utf16(text: str) -> Callable[[int], int]:
    """UTF-16 units -> characters. The same, if no character needs two units."""
    if all(ord(c) < 0x10000 for c in text):
        return lambda at: at
    units: list[int] = []
    for i, c in enumerate(text):
        units += [i] * (2 if ord(c) >= 0x10000 else 1)
    units.append(len(text))
    return lambda at: units[at] if 0 <= at < len(units) else at


def _from_bytes(text: str) -> Callable[[int], int]:
    starts: list[int] = []
    for i, c in enumerate(text):
        starts += [i] * len(c.encode("utf-8", "surrogatepass"))
    starts.append(len(text))
    return lambda at: starts[at] if 0 <= at < len(starts) else at


def _from_crlf(text: str) -> Callable[[int], int]:
    """A line break counted as two signs where the text has one."""
    places = [i for i, c in enumerate(text) if c == "\n"]

    def character(at: int) -> int:
        return at - sum(i + n < at for n, i in enumerate(places))

    return character


def alike(a: str, b: str) -> bool:
    """Blanks and line breaks are written in many ways beside offsets; letters are not."""
    return a == b or a.split() == b.split()


def located(text: str, start: int, end: int, words: str, notes: Notes, place: str) -> Span | None:
    """Where a mention of these words stands; None (and counted): nobody can tell."""
    if 0 <= start < end <= len(text) and alike(text[start:end], words):
        return start, end
    for what, unit in (
        ("UTF-16 units", from_utf16(text)),
        ("bytes", _from_bytes(text)),
        ("line breaks of two signs", _from_crlf(text)),
    ):
        a, b = unit(start), unit(end)
        if 0 <= a < b <= len(text) and alike(text[a:b], words):
            said = f"mentions whose offsets count {what}"
            notes.add("repaired", said, example=words, place=place)
            return a, b
    found = _only_place(text, words)
    if found is not None:
        said = "mentions that stood elsewhere than their offsets say, found by their words"
        shown = f"{words!r} at {start}, found at {found[0]}"
        notes.add("repaired", said, example=shown, place=place)
        return found
    shown = f"{words!r} at {start}-{end}, where the text has {text[start:end]!r}"
    notes.add("skipped", UNPLACED, example=shown, place=place)
    return None


def _only_place(text: str, words: str) -> Span | None:
    """The one place that holds these words, as whole words or, where there is none, inside others."""
    pattern = r"\s+".join(map(re.escape, words.split()))
    if not pattern:
        return None
    for wanted in (rf"(?<!\w){pattern}(?!\w)", pattern):
        # a look-ahead finds places that overlap as well
        places = [m.span(1) for m in re.finditer(f"(?=({wanted}))", text)]
        if places:
            return places[0] if len(places) == 1 else None
    return None
