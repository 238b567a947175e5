"""A text with marks on it: what BRAT, BioC, Label Studio and their like all hold.

Every parser of this package yields `Marked`. Three tasks are read from it: named entities and
relations in sentences (`to_sentences`), and relations in documents (`to_documents`).
Offsets count characters from the beginning of the text; ends are exclusive.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, replace

from corpora.notes import Notes

__all__ = ["Link", "Marked", "Mention", "Span", "kept"]

Span = tuple[int, int]


@dataclass(frozen=True)
class Mention:
    id: str  #: unique in its text
    type: str
    spans: tuple[Span, ...]  #: in the order of the text; several: the mention has gaps
    concepts: tuple[str, ...] = ()  #: of a knowledge base; none: nobody said

    @property
    def start(self) -> int:
        return self.spans[0][0]

    @property
    def end(self) -> int:
        return self.spans[-1][1]


@dataclass(frozen=True)
class Link:
    """A relation, from one end to the other. An end is a mention's id, or a concept."""

    name: str
    head: str
    tail: str


@dataclass(frozen=True)
class Marked:
    id: str
    text: str
    mentions: tuple[Mention, ...]
    links: tuple[Link, ...] = ()  #: between mentions
    facts: tuple[Link, ...] = ()  #: between concepts
    sentences: tuple[Span, ...] = ()  #: none: the format does not say, we cut
    words: tuple[Span, ...] = ()  #: likewise
    same: tuple[tuple[str, str], ...] = ()  #: mentions of one thing, where the format says so
    place: str = ""  #: file, and line where it has one

    def by_id(self) -> dict[str, Mention]:
        return {m.id: m for m in self.mentions}

    def quoted(self, mention: Mention) -> str:
        return " … ".join(self.text[a:b] for a, b in mention.spans)


def kept(document: Marked, notes: Notes) -> Marked:
    """The document without what cannot be: mentions outside of the text, two with one id, relations
    of ends that are not there. All of it is counted.
    """
    mentions: dict[str, Mention] = {}
    for m in document.mentions:
        if not all(0 <= a < b <= len(document.text) for a, b in m.spans) or not m.spans:
            where = ";".join(f"{a}-{b}" for a, b in m.spans)
            _skip(notes, document, "mentions that do not lie in their text", f"{m.type} {where}")
        elif not document.quoted(m).strip():
            _skip(notes, document, "mentions of blanks alone", f"{m.type} {m.start}-{m.end}")
        elif m.id in mentions:
            _skip(notes, document, "mentions whose id stands twice in one document", m.id)
        else:
            mentions[m.id] = m
    concepts = {c for m in mentions.values() for c in m.concepts}
    words = tuple(sorted(document.words))
    if words and not _covers(document.text, words):
        said = (
            "documents whose own words leave out a part of the text, and were cut into words by us"
        )
        notes.add("repaired", said, example=document.id, place=document.place)
        words = ()
    return replace(
        document,
        words=words,
        mentions=tuple(mentions.values()),
        links=tuple(_held(document, document.links, mentions, notes)),
        facts=tuple(_held(document, document.facts, concepts, notes)),
        same=tuple(p for p in document.same if p[0] in mentions and p[1] in mentions),
    )


def _covers(text: str, words: tuple[Span, ...]) -> bool:
    """Whether nothing but blanks stands between words."""
    at = 0
    for a, b in words:
        if text[at:a].strip():
            return False
        at = max(at, b)
    return not text[at:].strip()


def _held(
    document: Marked, links: tuple[Link, ...], ends: Container[str], notes: Notes
) -> Iterator[Link]:
    for link in links:
        if link.head in ends and link.tail in ends:
            yield link
        else:
            example = f"{link.name} {link.head} {link.tail}"
            _skip(notes, document, "relations of ends that are not mentioned", example)


def _skip(notes: Notes, document: Marked, what: str, example: str) -> None:
    notes.add("skipped", what, example=f"{document.id}: {example}", place=document.place)
