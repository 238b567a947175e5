"""Marked texts as documents with entities and candidate pairs.

Mentions of one concept and type are one entity. A corpus without any concept has the words instead:
mentions of one type with the same words, and those that the format says are one thing. In a corpus
with concepts a mention without one is an entity of its own, in no pair, unless a relation names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from corpora.document.table import UNLINKED, Document, Entity, Pair
from corpora.notes import Notes
from corpora.splitting import sentence_spans
from corpora.standoff.candidates import Rule, rule_of
from corpora.standoff.table import Marked, Mention

__all__ = ["documents", "entities_of", "has_concepts", "rule"]

Key = tuple[str, str]  #: concept or words, and type


def has_concepts(marked: Sequence[Marked]) -> bool:
    return any(m.concepts for d in marked for m in d.mentions)


def _groups(document: Marked, linked: bool) -> dict[str, list[Key]]:
    """mention -> the entities it belongs to. Without concepts: one each, by words or `same`."""
    joined = {e for link in document.links for e in (link.head, link.tail)}
    found: dict[str, list[Key]] = {}
    for m in document.mentions:
        if m.concepts:
            found[m.id] = [(c, m.type) for c in m.concepts]
        elif not linked or m.id in joined:
            words = " ".join(document.quoted(m).lower().split())
            found[m.id] = [(f"words:{words}", m.type)]
        else:
            found[m.id] = [(f"{UNLINKED}:{m.id}", m.type)]
    for a, b in document.same:
        if not any(m.concepts for m in document.mentions if m.id in (a, b)):
            old, new = found[b], found[a]
            found = {k: new if v == old else v for k, v in found.items()}
    return found


def entities_of(document: Marked, linked: bool) -> tuple[list[Entity], dict[str, list[int]]]:
    """The entities in the order of first mention, and where each mention's are."""
    groups = _groups(document, linked)
    at: dict[Key, int] = {}
    members: list[list[Mention]] = []
    places: dict[str, list[int]] = {}
    for m in sorted(document.mentions, key=lambda m: (m.start, m.end, m.id)):
        for key in groups[m.id]:
            if key not in at:
                at[key] = len(members)
                members.append([])
            members[at[key]].append(m)
            places.setdefault(m.id, []).append(at[key])
    entities = []
    for (name, kind), some in zip(at, members):
        id = name
        if name.startswith("words:"):
            id = some[0].id
        elif name.startswith(f"{UNLINKED}:"):
            id = UNLINKED
        spans = tuple(sorted({(m.start, m.end) for m in some}))
        entities.append(Entity(id, kind, spans))
    return entities, places


def _related(
    document: Marked, linked: bool
) -> tuple[list[Entity], dict[tuple[int, int], list[str]], list[str]]:
    """Entities; (head, tail) -> relations; relations of a thing with itself."""
    entities, places = entities_of(document, linked)
    by_concept: dict[str, list[int]] = {}
    for i, e in enumerate(entities):
        by_concept.setdefault(e.id, []).append(i)
    ends = [(link.name, places[link.head], places[link.tail]) for link in document.links]
    ends += [(f.name, by_concept[f.head], by_concept[f.tail]) for f in document.facts]
    found: dict[tuple[int, int], list[str]] = {}
    own: list[str] = []
    for name, heads, tails in ends:
        for h in heads:
            for t in tails:
                if entities[h].id == entities[t].id:
                    own.append(f"{name} of {entities[h].id}")
                    continue
                names = found.setdefault((h, t), [])
                if name not in names:
                    names.append(name)
    return entities, found, own


def rule(train: Sequence[Marked], linked: bool) -> Rule:
    """The candidate pairs, from the relations of the training split."""
    seen = []
    for document in train:
        entities, found, _ = _related(document, linked)
        seen += [((entities[h].type, entities[t].type), h < t) for h, t in found]
    return rule_of(seen)


def documents(
    marked: Sequence[Marked], asked: Rule, linked: bool, notes: Notes
) -> Iterator[Document]:
    for document in marked:
        entities, found, own = _related(document, linked)
        for example in own:
            said = "relations of a thing with itself"
            notes.add("skipped", said, example=f"{document.id}: {example}", place=document.place)
        pairs = []
        for h, head in enumerate(entities):
            for t, tail in enumerate(entities):
                names = tuple(found.get((h, t), ()))
                possible = h != t and UNLINKED not in (head.id, tail.id) and head.id != tail.id
                if possible and asked.asks((head.type, tail.type), h < t):
                    pairs.append(Pair(h, t, names))
                elif names:
                    said = "relations of types that have none in the training split"
                    example = f"{document.id}: {names[0]} of {head.type} and {tail.type}"
                    notes.add("skipped", said, example=example, place=document.place)
        gaps = [m for m in document.mentions if len(m.spans) > 1]
        if gaps:
            said = "spans with gaps, read from their first word to their last"
            shown = document.quoted(gaps[0])
            notes.add("repaired", said, example=shown, place=document.place, count=len(gaps))
        whole = [(m.start, m.end) for m in document.mentions]
        sentences = document.sentences or sentence_spans(document.text, whole)
        yield Document(document.id, document.text, tuple(sentences), tuple(entities), tuple(pairs))
