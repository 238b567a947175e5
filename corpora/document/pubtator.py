"""PubTator: the format of CDR, GDA and BioRED.

    227508|t|title            227508|a|abstract
    227508 <tab> 49 <tab> 58 <tab> clonidine <tab> Chemical <tab> D003000        a mention, with its concept
    227508 <tab> CID <tab> D008750 <tab> D007022                                 a relation between two concepts

Offsets count the title, one character, then the abstract. A mention of several concepts
(`D003|D004`) belongs to each of them; a seventh column names its parts, which have no offsets. `-1`
is a mention of no known concept. Where text and offsets disagree, the nearest place that holds the
mention's words is taken, and it is counted; a mention whose words are nowhere in its document is
refused by line. A concept with stray letters behind it (`D003000f`, once in CDR) is read as the
concept that the same words have elsewhere in the document, and it is counted.

Candidate pairs are not in the format: they are all pairs of concepts of those types between which
the training split has a relation, in the order of types that it mostly has; of two of the same type
the one that comes first is the head.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from config.errors import UserError
from corpora.document.table import UNLINKED, Document, Entity, Pair
from corpora.lines import lines
from corpora.notes import Notes
from corpora.splitting import sentence_spans

__all__ = ["Raw", "documents", "entities_of", "pair_types", "read"]

Types = tuple[str, str]
_STRAY = re.compile(r"([CD]\d{6,9})[A-Za-z]+")  #: a MeSH concept and a slip of the keyboard


@dataclass
class Raw:
    """One document as it stands in the file."""

    id: str
    number: str = ""  #: as the file has it; two documents may have the same
    title: str = ""
    abstract: str = ""
    #: start, end, type, concepts
    mentions: list[tuple[int, int, str, tuple[str, ...]]] = field(default_factory=list)
    #: relation, concept, concept
    relations: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return f"{self.title} {self.abstract}" if self.abstract else self.title

    @property
    def types(self) -> dict[str, str]:
        return {c: kind for _, _, kind, concepts in reversed(self.mentions) for c in concepts}


_MOVED = "mentions stood elsewhere than their offsets say and were found by their words"
_MENDED = "mentions had stray letters behind their concept and got that of the same words elsewhere"
_UNLINKED = "mentions have no concept and are in no pair"
_LOST = "relations are of concepts that form no candidate pair and were left out"
_TWICE = "documents have the number of an earlier one and are read as documents of their own"


def _concepts(field: str) -> tuple[str, ...]:
    """`D003|D004` and `1,2` are several; BioRED's `p|SUB|V|600|E` is one: not all of its parts hold
    a digit.
    """
    parts = [p.strip() for p in field.replace(";", ",").replace(",", "|").split("|")]
    several = all(any(c.isdigit() for c in p) for p in parts)
    return tuple(dict.fromkeys(p for p in parts if p != UNLINKED)) if several else (field.strip(),)


def read(path: Path, notes: Notes) -> list[Raw]:
    """Every document of a file, in its order. An annotation is of the last document with its
    number.
    """
    found: dict[str, Raw] = {}
    documents: list[Raw] = []
    for number, line in lines(path, notes):
        if not line.strip():
            continue
        head = line.split("|", 2)
        fields = line.split("\t")
        try:
            if len(fields) < 4 and len(head) == 3 and head[1] in ("t", "a"):
                raw = found.get(head[0])
                again = raw is not None and (raw.title if head[1] == "t" else raw.abstract)
                if raw is None or again:
                    raw = Raw(head[0])
                    if again:
                        raw.id = f"{head[0]} ({sum(d.number == head[0] for d in documents) + 1})"
                        place = f"{path}, line {number}"
                        notes.add("repaired", _TWICE, example=head[0], place=place)
                    raw.number = head[0]
                    found[head[0]] = raw
                    documents.append(raw)
                if head[1] == "t":
                    raw.title = head[2]
                else:
                    raw.abstract = head[2]
            elif fields[0] not in found:
                raise ValueError(
                    f'an annotation of the document "{fields[0]}", of which there is no text before it'
                )
            elif len(fields) >= 5 and fields[1].isdigit() and fields[2].isdigit():
                _mention(found[fields[0]], fields, (path, number), notes)
            elif len(fields) >= 4:  # BioRED has a fifth column: novel or not
                for a in _concepts(fields[2]):
                    for b in _concepts(fields[3]):
                        found[fields[0]].relations.append((fields[1], a, b))
            else:
                raise ValueError("neither text, nor a mention, nor a relation")
        except ValueError as e:
            raise UserError(f"{path}, line {number}: not a line of this format: {e}.") from None
    for raw in documents:
        _mend(raw, str(path), notes)
    return documents


def _mend(raw: Raw, place: str, notes: Notes) -> None:
    """A mistyped concept would be an entity of its own, with wrong negatives; the same words tell
    what was meant.
    """
    text = raw.text
    known = {
        (text[a:b].lower(), kind, c) for a, b, kind, concepts in raw.mentions for c in concepts
    }
    for i, (a, b, kind, concepts) in enumerate(raw.mentions):
        stems = {c: m[1] for c in concepts if (m := _STRAY.fullmatch(c))}
        stems = {c: stem for c, stem in stems.items() if (text[a:b].lower(), kind, stem) in known}
        if stems:
            raw.mentions[i] = (a, b, kind, tuple(dict.fromkeys(stems.get(c, c) for c in concepts)))
            notes.add("repaired", _MENDED, example=" ".join(stems), place=place)


def _mention(raw: Raw, fields: list[str], at: tuple[Path, int], notes: Notes) -> None:
    start, end, words = int(fields[1]), int(fields[2]), fields[3]
    text = raw.text
    if text[start:end] != words:
        places = [i for i in range(len(text)) if text.startswith(words, i)] if words else []
        if not places:
            raise ValueError(
                f'the mention "{words}" at {start}-{end} is nowhere in document {raw.id}'
            )
        start = min(places, key=lambda i: abs(i - int(fields[1])))
        end = start + len(words)
        shown = f"{words!r} at {fields[1]}, found at {start}"
        notes.add("repaired", _MOVED, example=shown, place=f"{at[0]}, line {at[1]}")
    concepts = _concepts(fields[5]) if len(fields) > 5 and fields[5].strip() else ()
    if not concepts:
        notes.add("skipped", _UNLINKED, example=words, place=f"{at[0]}, line {at[1]}")
    raw.mentions.append((start, end, fields[4].strip(), concepts))


def pair_types(train: Sequence[Raw]) -> list[Types]:
    """The pairs of types that have relations, each in the order that most of its relations have."""
    seen: Counter[Types] = Counter()
    for raw in train:
        types = raw.types
        seen.update((types[a], types[b]) for _, a, b in raw.relations if a in types and b in types)
    return sorted(
        t for t, n in seen.items() if n > seen[t[::-1]] or (n == seen[t[::-1]] and t <= t[::-1])
    )


def documents(raws: Sequence[Raw], types: Sequence[Types], notes: Notes) -> Iterator[Document]:
    for raw in raws:
        entities = entities_of(raw)
        pairs = list(_pairs(entities, types))
        at = {(entities[h].id, entities[t].id): (h, t) for h, t in pairs}
        relations: dict[tuple[int, int], list[str]] = {}
        for name, a, b in raw.relations:
            pair = at.get((a, b)) or at.get((b, a))
            if pair is None:
                shown = f"{name} {a} {b} of document {raw.id}"
                notes.add("skipped", _LOST, example=shown)
            else:
                relations.setdefault(pair, []).append(name)
        spans = [(a, b) for a, b, _, _ in raw.mentions]
        yield Document(
            raw.id,
            raw.text,
            sentence_spans(raw.text, spans, cuts=(len(raw.title) + 1,)),
            tuple(entities),
            tuple(Pair(h, t, tuple(dict.fromkeys(relations.get((h, t), ())))) for h, t in pairs),
        )


def entities_of(raw: Raw) -> list[Entity]:
    """One per concept and type, in the order of first mention; a mention without a concept is one
    of its own.
    """
    spans: dict[tuple[str, str], list[tuple[int, int]]] = {}
    alone: list[Entity] = []
    for start, end, kind, concepts in sorted(raw.mentions):
        for c in concepts:
            spans.setdefault((c, kind), []).append((start, end))
        if not concepts:
            alone.append(Entity(UNLINKED, kind, ((start, end),)))
    linked = [Entity(c, kind, tuple(dict.fromkeys(where))) for (c, kind), where in spans.items()]
    return [*linked, *alone]


def _pairs(entities: Sequence[Entity], types: Sequence[Types]) -> Iterator[tuple[int, int]]:
    linked = [i for i, e in enumerate(entities) if e.id != UNLINKED]
    wanted = set(types)
    for i in linked:
        for j in linked:
            kinds = (entities[i].type, entities[j].type)
            if (
                i != j
                and kinds in wanted
                and (i < j or kinds[0] != kinds[1])
                and entities[i].id != entities[j].id
            ):
                yield i, j
