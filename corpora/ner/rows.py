"""Named entities in rows with named fields: our own JSON lines, and tables of words and tags as
`datasets` has them.

Our own: `{"words": ["Xolidan", "eased", "it"], "entities": [{"start": 0, "end": 1, "type": "Drug"}],
"document": "note 7", "domain": "ward"}`. `start` and `end` count words, the end is exclusive.
`document` and `domain` may be left out. What a tool wrote with characters instead of words is read as
that tool's export (`corpora.standoff`).

Words and tags: `tokens` (or `words`) and `ner_tags` (or `tags`, `labels`, `ner`), one tag a word, as
in CoNLL. Tags that are numbers need the names that `datasets` keeps beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from config.errors import UserError
from corpora.ner.conll import entities_of_tags
from corpora.ner.table import Found, Sentence
from corpora.notes import Notes
from corpora.records import records

__all__ = ["is_own", "is_tagged", "own", "read_rows", "tagged"]

_WORDS = ("tokens", "words", "token")
_TAGS = ("ner_tags", "ner", "tags", "labels", "ner_labels")
_DOCUMENT = ("document", "document_id", "doc_id", "docid", "pmid")


def is_own(row: Mapping[str, Any]) -> bool:
    return isinstance(row.get("words"), list) and isinstance(row.get("entities"), list)


def own(row: Mapping[str, Any], domain: str) -> Sentence:
    words = tuple(str(w) for w in row["words"])
    entities = []
    for e in row["entities"]:
        if type(e["start"]) is not int or type(e["end"]) is not int:
            raise ValueError("start and end of an entity must be whole numbers")
        entities.append((e["start"], e["end"], str(e["type"])))
    return Sentence(words, tuple(entities), str(row.get("domain") or domain))


def is_tagged(row: Mapping[str, Any]) -> bool:
    words, tags = _field(row, _WORDS), _field(row, _TAGS)
    return isinstance(words, list) and isinstance(tags, list)


def _field(row: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((row[n] for n in names if row.get(n) is not None), None)


def tagged(row: Mapping[str, Any], domain: str) -> Sentence:
    words = [str(w) for w in _field(row, _WORDS)]
    tags = _field(row, _TAGS)
    if len(words) != len(tags):
        raise ValueError(f"{len(words)} words and {len(tags)} tags")
    if any(isinstance(t, int) for t in tags):
        raise ValueError("the tags are numbers, and nothing says which tag each stands for")
    joined = tuple("_".join(w.split()) or "_" for w in words)
    entities = entities_of_tags([str(t) for t in tags])
    return Sentence(joined, tuple(entities), str(row.get("domain") or domain))


def read_rows(path: Path, kind: str, domain: str, notes: Notes) -> Iterator[Found]:
    """`kind`: entities or tokens."""
    parse = own if kind == "entities" else tagged
    for place, row in records(path, notes):
        try:
            sentence = parse(row, domain)
            if not sentence.words:
                notes.add("skipped", "rows without words", place=place)
                continue
            if sentence.problem():
                raise ValueError(sentence.problem())
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            what = f"missing {e}" if isinstance(e, KeyError) else str(e)
            raise UserError(f"{place}: not a sentence of this format: {what}.") from None
        document = _field(row, _DOCUMENT)
        yield Found(sentence, str(document) if document is not None else place)
