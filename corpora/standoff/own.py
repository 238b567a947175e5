"""Our own JSON lines for documents: an object a line.

    {"id": "note 7", "text": "Xolidan eased the cough.",
     "entities": [{"id": "D1", "type": "Drug", "mentions": [[0, 7]]},
                  {"id": "S1", "type": "Symptom", "mentions": [[18, 23]]}],
     "relations": [{"head": "D1", "tail": "S1", "relation": "eases"}]}

Offsets count characters, ends are exclusive. Entities without a relation to each other are candidates
if the training split has relations between their types. Who knows the candidate pairs writes `pairs`
in place of `relations`, by position in the list of entities: `[{"head": 0, "tail": 1, "relations":
["eases"], "counted": true}]`; a pair without relations is a negative one, a pair that is not counted is
left out. `sentences`, a list of spans, may be given as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from corpora.document.table import UNLINKED, Document, Entity, Pair
from corpora.notes import Notes
from corpora.splitting import sentence_spans
from corpora.standoff.table import Link, Marked, Mention, Span

__all__ = ["has_pairs", "is_own", "own", "own_document", "own_row"]


def is_own(row: Mapping[str, Any]) -> bool:
    entities = row.get("entities")
    return (
        isinstance(row.get("text"), str)
        and isinstance(entities, list)
        and ("pairs" in row or "relations" in row)
        and all(isinstance(e, dict) and "mentions" in e and "type" in e for e in entities)
    )


def has_pairs(row: Mapping[str, Any]) -> bool:
    return is_own(row) and isinstance(row.get("pairs"), list)


def _spans(value: Any) -> tuple[Span, ...]:
    found = []
    for pair in value:
        a, b = pair
        if type(a) is not int or type(b) is not int:
            raise ValueError("offsets must be whole numbers")
        found.append((a, b))
    return tuple(found)


def own(row: Mapping[str, Any], place: str, notes: Notes) -> Iterator[Marked]:
    ids = [str(e.get("id", f"e{i}")) for i, e in enumerate(row["entities"])]
    named = [i for i in ids if i != UNLINKED]
    if len(set(named)) < len(named) and not row.get("pairs"):
        twice = next(i for i in named if named.count(i) > 1)
        kinds = [e["type"] for i, e in zip(ids, row["entities"]) if i == twice]
        if len(set(kinds)) < len(kinds):
            raise ValueError(f'two entities have the id "{twice}" and one type')
    mentions = [
        Mention(f"{i}.{j}", str(e["type"]), (span,), (id,) if id != UNLINKED else ())
        for i, (id, e) in enumerate(zip(ids, row["entities"]))
        for j, span in enumerate(_spans(e["mentions"]))
    ]
    facts = [
        Link(str(r["relation"]), str(r["head"]), str(r["tail"])) for r in row.get("relations") or []
    ]
    for p in row.get("pairs") or []:
        facts += [Link(str(r), ids[p["head"]], ids[p["tail"]]) for r in p["relations"]]
    sentences = _spans(row.get("sentences") or [])
    yield Marked(
        str(row.get("id", place)),
        row["text"],
        tuple(mentions),
        facts=tuple(facts),
        sentences=sentences,
        place=place,
    )


def own_document(row: Mapping[str, Any], place: str) -> Document:
    """A row with `pairs`, exactly as it stands."""
    text = str(row["text"])
    entities = tuple(
        Entity(str(e.get("id", f"e{i}")), str(e["type"]), _spans(e["mentions"]))
        for i, e in enumerate(row["entities"])
    )
    pairs = []
    for p in row["pairs"]:
        if type(p["head"]) is not int or type(p["tail"]) is not int:
            raise ValueError("head and tail of a pair are positions in the list of entities")
        names = tuple(str(r) for r in p.get("relations") or ())
        pairs.append(Pair(p["head"], p["tail"], names, bool(p.get("counted", True))))
    whole = [m for e in entities for m in e.mentions]
    sentences = _spans(row.get("sentences") or []) or sentence_spans(text, whole)
    found = Document(str(row.get("id", place)), text, sentences, entities, tuple(pairs))
    if found.problem():
        raise ValueError(found.problem())
    return found


def own_row(d: Document) -> dict[str, Any]:
    """The row that `own_document` reads as this document."""
    return {
        "id": d.id,
        "text": d.text,
        "sentences": [list(s) for s in d.sentences],
        "entities": [
            {"id": e.id, "type": e.type, "mentions": [list(m) for m in e.mentions]}
            for e in d.entities
        ],
        "pairs": [
            {
                "head": p.head,
                "tail": p.tail,
                "relations": list(p.relations),
                **({} if p.counted else {"counted": False}),
            }
            for p in d.pairs
        ],
    }
