"""Documents with entities, their mentions, and candidate pairs of entities, at rest: one Arrow
table per split.

A candidate pair carries the relations that hold between its two entities; none is a negative pair.
A pair that is left out (`counted` false: CDR's hypernym filter calls it "not_include") is neither
trained on nor scored, but its entities stay in the document.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from config.errors import UserError
from corpora.cache import Kept, kept, save_table
from corpora.holding import may_lack
from corpora.notes import Reading

__all__ = [
    "SPLITS",
    "UNLINKED",
    "Content",
    "Counts",
    "Document",
    "DocumentCorpus",
    "Entity",
    "Pair",
    "cached",
    "count",
]

SPLITS = ("train", "dev", "test")
#: the identifier of a mention that belongs to no concept: an entity of its own, in no pair
UNLINKED = "-1"
_FORMAT = 2  #: part of every cache key: bump it when the files below change
_AT_ONCE = 100  #: documents that are turned into a table's rows together
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Entity:
    id: str
    type: str
    mentions: tuple[Span, ...]  #: half-open character spans, in the order of the text


@dataclass(frozen=True, slots=True)
class Pair:
    head: int  #: position in the document's entities
    tail: int
    relations: tuple[str, ...]  #: empty: a negative pair
    counted: bool = True


@dataclass(frozen=True)
class Document:
    id: str
    text: str
    sentences: tuple[Span, ...]
    entities: tuple[Entity, ...]
    pairs: tuple[Pair, ...]

    @property
    def candidates(self) -> tuple[Pair, ...]:
        """The pairs that are trained on and scored."""
        return tuple(p for p in self.pairs if p.counted)

    def sentence_of(self, span: Span) -> int:
        """The sentence in which a mention starts."""
        starts = [s for s, _ in self.sentences]
        return max(int(np.searchsorted(starts, span[0], side="right")) - 1, 0)

    @cached_property
    def sentences_of(self) -> tuple[frozenset[int], ...]:
        """Per entity, the sentences that mention it."""
        return tuple(frozenset(self.sentence_of(m) for m in e.mentions) for e in self.entities)

    def crosses(self, pair: Pair) -> bool:
        """Whether no sentence mentions both entities of a pair."""
        return not self.sentences_of[pair.head] & self.sentences_of[pair.tail]

    def problem(self) -> str:
        """What is wrong with it, or nothing."""
        for e in self.entities:
            for start, end in e.mentions:
                if not 0 <= start < end <= len(self.text):
                    return f"the mention {start}-{end} of {e.id} does not lie in a text of {len(self.text)} characters"
        for p in self.pairs:
            if not (0 <= p.head < len(self.entities) and 0 <= p.tail < len(self.entities)):
                return f"the pair {p.head}-{p.tail} is of entities that are not there"
        return ""


@dataclass(frozen=True)
class Counts:
    documents: int
    mentions: int  #: places in the text; one that stands for two concepts is one
    entities: int  #: concepts of a document, unlinked mentions left aside
    positive: int  #: candidate pairs with a relation
    negative: int
    left_out: int  #: pairs that are not counted
    relations: int


def count(documents: Sequence[Document]) -> Counts:
    pairs = [p for d in documents for p in d.candidates]
    return Counts(
        documents=len(documents),
        mentions=sum(len({(e.type, m) for e in d.entities for m in e.mentions}) for d in documents),
        entities=sum(e.id != UNLINKED for d in documents for e in d.entities),
        positive=sum(bool(p.relations) for p in pairs),
        negative=sum(not p.relations for p in pairs),
        left_out=sum(not p.counted for d in documents for p in d.pairs),
        relations=sum(len(p.relations) for p in pairs),
    )


@dataclass(frozen=True)
class Content:
    """A corpus as a generator or reader hands it over."""

    name: str
    note: str  #: what a report must say about it
    relations: tuple[str, ...]
    splits: Mapping[str, Sequence[Document]]
    reading: Reading = field(default_factory=Reading)


@dataclass(frozen=True)
class DocumentCorpus(Kept):
    @property
    def relations(self) -> tuple[str, ...]:
        return tuple(self.meta["relations"])

    def counts(self, split: str) -> Counts:
        return Counts(**self.meta["counts"][split])

    def documents(self, split: str) -> Iterator[Document]:
        if not self.counts(split).documents:  # `datasets` does not open a table without rows
            return
        for row in self.table(split):
            entities = tuple(
                Entity(e["id"], e["type"], _spans(e["mentions"])) for e in row["entities"]
            )
            pairs = tuple(
                Pair(p["head"], p["tail"], tuple(p["relations"]), p["counted"])
                for p in row["pairs"]
            )
            yield Document(row["id"], row["text"], _spans(row["sentences"]), entities, pairs)


def _spans(rows: Sequence[Sequence[int]]) -> tuple[Span, ...]:
    return tuple((a, b) for a, b in rows)


def cached(source: Mapping[str, Any], build: Callable[[], Content]) -> DocumentCorpus:
    """The corpus made from `source` (a description that decides it entirely): from the cache, or
    built now.
    """
    return kept(
        {"document format": _FORMAT, **source}, _read, lambda folder: _write(folder, build())
    )


def _read(folder: Path) -> DocumentCorpus:
    corpus = DocumentCorpus(folder, json.loads((folder / "meta.json").read_text("utf-8")))
    some = [s for s in SPLITS if corpus.counts(s).documents]
    if any(len(corpus.table(s)) != corpus.counts(s).documents for s in some):
        raise ValueError(f"{folder} does not have as many documents as it says")
    return corpus


def _write(folder: Path, content: Content) -> None:
    for split in SPLITS:
        if not content.splits[split] and not may_lack(split):
            raise UserError(f'The corpus "{content.name}" has no {split} documents.')
        for d in content.splits[split]:
            if d.problem():
                raise UserError(f'The corpus "{content.name}", document {d.id}: {d.problem()}.')
    digest = hashlib.sha256(json.dumps(content.relations).encode())
    for split in SPLITS:
        save_table(folder / "table" / split, _arrow(split, content.splits[split], digest))
    meta = {
        "name": content.name,
        "note": content.note,
        "reading": content.reading.as_meta(),
        "hash": digest.hexdigest(),
        "relations": list(content.relations),
        "counts": {s: asdict(count(content.splits[s])) for s in SPLITS},
    }
    (folder / "meta.json").write_text(json.dumps(meta, indent=1), "utf-8")


def _row(d: Document) -> dict[str, Any]:
    return {
        "id": d.id,
        "text": d.text,
        "sentences": d.sentences,
        "entities": [{"id": e.id, "type": e.type, "mentions": e.mentions} for e in d.entities],
        "pairs": [
            {"head": p.head, "tail": p.tail, "relations": p.relations, "counted": p.counted}
            for p in d.pairs
        ],
    }


def _arrow(split: str, documents: Sequence[Document], digest: Any) -> Any:
    """A table with its types spelled out: a split whose lists are all empty has the same as the
    others. It is made from a few documents at a time, as a corpus may have a million pairs. `digest`
    takes the split's name and all rows, as JSON.
    """
    import pyarrow as pa
    from datasets import Features, List, Value

    number, text = Value("int32"), Value("string")
    features = Features(
        {
            "id": text,
            "text": text,
            "sentences": List(List(number)),
            "entities": List({"id": text, "type": text, "mentions": List(List(number))}),
            "pairs": List(
                {"head": number, "tail": number, "relations": List(text), "counted": Value("bool")}
            ),
        }
    )
    batches = []
    digest.update(f"[{json.dumps(split)}, [".encode())
    for at in range(0, len(documents), _AT_ONCE):
        rows = [_row(d) for d in documents[at : at + _AT_ONCE]]
        digest.update((", " * bool(at) + json.dumps(rows, sort_keys=True)[1:-1]).encode())
        batches.append(pa.RecordBatch.from_pylist(rows, schema=features.arrow_schema))
    digest.update(b"]]")
    return pa.Table.from_batches(batches, schema=features.arrow_schema)
