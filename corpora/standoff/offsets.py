"""Offsets that disagree with the words they are said to cover.

Tools count in different units: characters, UTF-16 units (whatever runs in a browser or in Java),
bytes, or characters of a text with line breaks of two signs. A format that writes a mention's words
beside its offsets tells which. The offsets are read in the unit that gives these words; else the one
place that holds them is taken; else the mention is left out. The last two are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from corpora.notes import Notes

__all__ = ["from_utf16", "located"]

Span = tuple[int, int]


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


def _alike(a: str, b: str) -> bool:
    """Blanks and line breaks are written in many ways beside offsets; letters are not."""
    return a == b or a.split() == b.split()


def located(text: str, start: int, end: int, words: str, notes: Notes, place: str) -> Span | None:
    """Where a mention of these words stands; None (and counted): nobody can tell."""
    if 0 <= start < end <= len(text) and _alike(text[start:end], words):
        return start, end
    for what, unit in (
        ("UTF-16 units", from_utf16(text)),
        ("bytes", _from_bytes(text)),
        ("line breaks of two signs", _from_crlf(text)),
    ):
        a, b = unit(start), unit(end)
        if 0 <= a < b <= len(text) and _alike(text[a:b], words):
            said = f"mentions whose offsets count {what}"
            notes.add("repaired", said, example=words, place=place)
            return a, b
    places = _places(text, words)
    if len(places) == 1:
        said = "mentions that stood elsewhere than their offsets say, found by their words"
        notes.add("repaired", said, example=f"{words} at {start}-{end}", place=place)
        return places[0], places[0] + len(words)
    said = "mentions whose words are not where their offsets say"
    notes.add("skipped", said, example=f"{words} at {start}-{end}", place=place)
    return None


def _places(text: str, words: str) -> Sequence[int]:
    found: list[int] = []
    at = text.find(words) if words.strip() else -1
    while at >= 0:
        found.append(at)
        at = text.find(words, at + 1)
    return found
