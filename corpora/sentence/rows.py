"""Sentence relations in rows with named fields: TACRED, OpenNRE's supervised corpora, texts with
marks, and any table of CSV, TSV, Parquet or `datasets` whose columns say what they are.

A parser takes a row and gives its example. `Columns` says which column is which: by the names that
such tables usually have, or as `SET=columns=text:note,head:drug,tail:effect,relation:label` says.
An entity that is given by its words alone is looked for in the sentence; where it stands there twice,
nobody can tell which is meant, and the row is left out and counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from config.errors import UserError, nearest
from corpora.notes import Notes
from corpora.sentence.marks import has_marks, unmarked
from corpora.sentence.table import Example
from corpora.standoff.offsets import located

__all__ = [
    "Columns",
    "Parse",
    "is_marked",
    "is_opennre",
    "is_tacred",
    "marked",
    "opennre",
    "tacred",
]

Span = tuple[int, int]
#: a row and its place -> its example; None: left out and noted
Parse = Callable[[Mapping[str, Any], str, Notes], "Example | None"]
#: what a table calls things, the likeliest first
_TEXT = ("text", "sentence", "sent", "context")
_RELATION = ("relation", "label", "rel", "relation_type", "class")
_HEAD = ("head", "e1", "subj", "subject", "entity1", "entity_1", "h")
_TAIL = ("tail", "e2", "obj", "object", "entity2", "entity_2", "t")
_DOCUMENT = ("document", "document_id", "doc_id", "docid", "pmid", "file_id")
_FIELDS = ("text", "relation", "head", "tail", "head_start", "head_end", "tail_start", "tail_end",
           "head_type", "tail_type", "document")  # fmt: skip


def is_tacred(row: Mapping[str, Any]) -> bool:
    return {"token", "subj_start", "subj_end", "obj_start", "obj_end", "relation"} <= set(row)


def tacred(row: Mapping[str, Any], place: str, notes: Notes) -> Example:
    """The subject is the head. Ends include the last word."""
    spans = [(int(row[f"{w}_start"]), int(row[f"{w}_end"]) + 1) for w in ("subj", "obj")]
    kinds = [str(row.get(f"{w}_type") or "entity") for w in ("subj", "obj")]
    return _of_words(row["token"], spans, kinds, str(row["relation"]))


def is_opennre(row: Mapping[str, Any]) -> bool:
    ends = [row.get("h"), row.get("t")]
    return "relation" in row and all(isinstance(e, dict) and "pos" in e for e in ends)


def opennre(row: Mapping[str, Any], place: str, notes: Notes) -> Example:
    """wiki80, TACRED and SemEval as OpenNRE passes them on: `token` with word offsets, or `text`."""
    spans = [(int(row[w]["pos"][0]), int(row[w]["pos"][1])) for w in ("h", "t")]
    kinds = [str(row[w].get("type") or "entity") for w in ("h", "t")]
    if "token" in row:
        return _of_words(row["token"], spans, kinds, str(row["relation"]))
    return Example(str(row["text"]), spans[0], spans[1], kinds[0], kinds[1], str(row["relation"]))


def _of_words(
    words: Iterable[Any], spans: Sequence[Span], kinds: Sequence[str], relation: str
) -> Example:
    text, places = "", []
    for word in map(str, words):
        start = len(text) + bool(text)
        text = f"{text} {word}" if text else word
        places.append((start, len(text)))
    for first, after in spans:
        if not 0 <= first < after <= len(places):
            raise ValueError(f"an entity at words {first}-{after} of a sentence of {len(places)}")
    head, tail = ((places[a][0], places[b - 1][1]) for a, b in spans)
    return Example(text, head, tail, kinds[0], kinds[1], relation)


def is_marked(row: Mapping[str, Any]) -> bool:
    text = next((row[t] for t in _TEXT if isinstance(row.get(t), str)), "")
    return has_marks(text) and any(isinstance(row.get(r), str | int) for r in _RELATION)


def marked(row: Mapping[str, Any], place: str, notes: Notes) -> Example:
    text = next(row[t] for t in _TEXT if isinstance(row.get(t), str))
    relation = next(row[r] for r in _RELATION if row.get(r) is not None)
    return Example(*unmarked(str(text)), _one(relation))


def _one(relation: Any) -> str:
    """One relation by name. A list of one is its member; several would need several examples."""
    if isinstance(relation, list):
        if len(relation) != 1:
            raise ValueError(f"{len(relation)} relations in a list, where one is expected")
        relation = relation[0]
    if isinstance(relation, bool):
        return str(relation).lower()
    return str(relation).strip()


@dataclass(frozen=True)
class Columns:
    """Which column of a table is which of `_FIELDS`."""

    names: Mapping[str, str]

    @staticmethod
    def of(columns: Sequence[str], said: str = "") -> Columns | None:
        """By the usual names, then as the user says; None: this is no table of relations."""
        lower = {c.lower(): c for c in columns}
        wanted = {"text": _TEXT, "relation": _RELATION, "document": _DOCUMENT}
        for end, usual in (("head", _HEAD), ("tail", _TAIL)):
            wanted[end] = usual
            for part in ("start", "end", "type"):
                wanted[f"{end}_{part}"] = tuple(f"{u}_{part}" for u in usual)
        found = {
            f: next((lower[u] for u in usual if u in lower), "") for f, usual in wanted.items()
        }
        names = {field: column for field, column in found.items() if column}
        names |= _said(said, columns)
        return Columns(names) if {"text", "relation"} <= set(names) else None

    def fits(self, row: Mapping[str, Any]) -> bool:
        """Whether a row says where its entities stand."""
        n = self.names
        offsets = {"head_start", "head_end", "tail_start", "tail_end"} <= set(n)
        words = "head" in n and "tail" in n
        return offsets or words or has_marks(str(row[n["text"]]))

    def document(self, row: Mapping[str, Any]) -> str:
        """Rows of one document stay on one side of a split that we make."""
        return str(row[self.names["document" if "document" in self.names else "text"]])

    def example(self, row: Mapping[str, Any], place: str, notes: Notes) -> Example | None:
        n = self.names
        text, relation = str(row[n["text"]]), row[n["relation"]]
        if relation is None or not str(relation).strip():
            notes.add("skipped", "rows without a relation", example=text, place=place)
            return None
        if "head_start" not in n and "head" not in n:
            return Example(*unmarked(text), _one(relation))
        spans = [self._span(row, which, text, place, notes) for which in ("head", "tail")]
        if None in spans:
            return None
        kinds = [str(row.get(n.get(f"{w}_type", ""), "") or "entity") for w in ("head", "tail")]
        head, tail = (s for s in spans if s is not None)
        return Example(text, head, tail, kinds[0], kinds[1], _one(relation))

    def _span(
        self, row: Mapping[str, Any], which: str, text: str, place: str, notes: Notes
    ) -> Span | None:
        n = self.names
        words = str(row[n[which]]) if isinstance(row.get(n.get(which, "")), str) else ""
        if f"{which}_start" in n:
            a, b = int(row[n[f"{which}_start"]]), int(row[n[f"{which}_end"]])
            if words and text[a:b] != words and text[a : b + 1] == words:
                notes.add("repaired", "ends that include the last sign", example=words, place=place)
                return a, b + 1
            return located(text, a, b, words, notes, place) if words else (a, b)
        found = (
            [m.span() for m in re.finditer(rf"(?<!\w){re.escape(words)}(?!\w)", text)]
            if words
            else []
        )
        if len(found) == 1:
            return found[0]
        said = "rows whose entities stand nowhere in the text, or more than once"
        notes.add("skipped", said, example=f'"{words}" in: {text}', place=place)
        return None


def _said(said: str, columns: Sequence[str]) -> dict[str, str]:
    names: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in said.split(","))):
        field, colon, column = (x.strip() for x in part.partition(":"))
        if not colon or field not in _FIELDS:
            raise UserError(
                f'Option "columns": "{part}" is not field:column; fields are {", ".join(_FIELDS)}.'
            )
        if column not in columns:
            raise UserError(
                f'Option "columns": the table has no column "{column}".{nearest(column, columns)}'
            )
        names[field] = column
    return names
