"""A corpus at rest: one `datasets` table per split for people, packed integer arrays for training.

Both stand in a folder of the cache (corpora.cache). The Arrow table keeps the sentences as text and
is opened only when somebody wants to read them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from corpora.cache import Kept, array_bytes, kept, load_arrays, save_arrays, save_table
from corpora.notes import Reading

__all__ = ["NA", "SPLITS", "Content", "Corpus", "Sentences", "cached", "content_hash", "pack"]

#: relation 0 of every distant-supervision corpus: the pair is in no fact of the knowledge base
NA = "NA"
SPLITS = ("train", "dev", "test")
_FORMAT = 2  #: part of every cache key: bump it when the files below change


@dataclass(frozen=True)
class Sentences:
    """The rows of one split, packed. Row i is (sentence, head, tail, relation); its words are
    `tokens[offsets[i]:offsets[i + 1]]`, numbers of the corpus's own word list (not of a model's
    vocabulary).
    """

    tokens: np.ndarray  #: int32, all rows one after another
    offsets: np.ndarray  #: int64, rows + 1
    head_at: np.ndarray  #: int32: token where the head entity's mention starts
    tail_at: np.ndarray
    head: np.ndarray  #: int32: number of the entity
    tail: np.ndarray
    relation: np.ndarray  #: int32: the distant label
    #: int8: 1 the sentence expresses its label, 0 it does not, -1 unknown (real corpora). For
    #: analysis and tests only: nothing that trains may read it.
    expresses: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def take(self, rows: np.ndarray) -> Sentences:
        """The given rows as a packed split of their own."""
        lengths = self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        where = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - self.offsets[rows], lengths)
        rest = {
            f.name: getattr(self, f.name)[rows]
            for f in fields(self)
            if f.name not in ("tokens", "offsets")
        }
        return Sentences(tokens=self.tokens[where], offsets=offsets, **rest)


@dataclass(frozen=True)
class Content:
    """A corpus as a reader or generator hands it over, before it is written."""

    name: str
    note: str  #: what a report must say about it
    words: tuple[str, ...]
    entities: tuple[str, ...]
    relations: tuple[str, ...]  #: NA first
    splits: Mapping[str, Sentences]
    #: "dev", "test" -> int32 (facts, 3): head, tail, relation, none of them NA
    gold: Mapping[str, np.ndarray]
    #: the word list is public, so that a model's vocabulary may be made of it
    public_words: bool = False
    auc_points: int = 0  #: how many points of the curve count; 0 means all
    figures: Mapping[str, float] = field(default_factory=dict)
    reading: Reading = field(default_factory=Reading)


@dataclass(frozen=True)
class Corpus(Kept):
    """A corpus in the cache. Arrays are memory-mapped; word and entity lists are read when first
    asked for.
    """

    train: Sentences
    dev: Sentences
    test: Sentences
    gold: Mapping[str, np.ndarray]

    @property
    def public_words(self) -> bool:
        return bool(self.meta["public_words"])

    @property
    def auc_points(self) -> int:
        return int(self.meta["auc_points"])

    @property
    def relations(self) -> tuple[str, ...]:
        return tuple(self.meta["relations"])

    @cached_property
    def words(self) -> tuple[str, ...]:
        return _read_lines(self.folder / "words.txt")

    @cached_property
    def entities(self) -> tuple[str, ...]:
        return _read_lines(self.folder / "entities.txt")

    def split(self, name: str) -> Sentences:
        return {"train": self.train, "dev": self.dev, "test": self.test}[name]


def pack(rows: list[tuple[list[int], int, int, int, int, int]]) -> Sentences:
    """Rows of (word numbers, head start, tail start, head, tail, relation), as readers collect
    them.
    """
    lengths = np.array([len(r[0]) for r in rows], dtype=np.int64)
    tokens = np.fromiter((t for r in rows for t in r[0]), dtype=np.int32, count=int(lengths.sum()))
    columns = np.array([r[1:] for r in rows], dtype=np.int32).reshape(len(rows), 5)
    head_at, tail_at, head, tail, relation = (np.ascontiguousarray(c) for c in columns.T)
    return Sentences(
        tokens=tokens,
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        head_at=head_at,
        tail_at=tail_at,
        head=head,
        tail=tail,
        relation=relation,
        expresses=np.full(len(rows), -1, dtype=np.int8),
    )


def content_hash(content: Content) -> str:
    """Over everything that training or evaluation can see; the same for the same data on every
    machine.
    """
    digest = hashlib.sha256()
    for text in (content.words, content.entities, content.relations):
        digest.update("\n".join(text).encode() + b"\0")
    for split in SPLITS:
        digest.update(array_bytes(content.splits[split]))
    for split in ("dev", "test"):
        digest.update(np.ascontiguousarray(content.gold[split]).tobytes())
    return digest.hexdigest()


def cached(source: Mapping[str, Any], build: Callable[[], Content]) -> Corpus:
    """The corpus made from `source` (a description that decides it entirely): from the cache, or
    built now.
    """
    return kept({"format": _FORMAT, **source}, _read, lambda folder: _write(folder, build()))


def _read(folder: Path) -> Corpus:
    meta = json.loads((folder / "meta.json").read_text("utf-8"))
    gold = {s: np.load(folder / f"{s}.gold.npy") for s in ("dev", "test")}
    return Corpus(
        folder=folder,
        meta=meta,
        gold=gold,
        **{s: load_arrays(folder, s, Sentences) for s in SPLITS},
    )


def _write(folder: Path, content: Content) -> None:
    for split in SPLITS:
        save_arrays(folder, split, content.splits[split])
        save_table(folder / "table" / split, _arrow(content, content.splits[split]))
    for split in ("dev", "test"):
        np.save(folder / f"{split}.gold.npy", np.ascontiguousarray(content.gold[split]))
    (folder / "words.txt").write_text("\n".join(content.words), encoding="utf-8")
    (folder / "entities.txt").write_text("\n".join(content.entities), encoding="utf-8")
    meta = {
        "name": content.name,
        "note": content.note,
        "reading": content.reading.as_meta(),
        "hash": content_hash(content),
        "relations": list(content.relations),
        "public_words": content.public_words,
        "auc_points": content.auc_points,
        "figures": dict(content.figures),
    }
    (folder / "meta.json").write_text(json.dumps(meta, indent=1), "utf-8")


def _arrow(content: Content, split: Sentences) -> Any:
    import pyarrow as pa

    words = np.array(content.words, dtype=object)
    entities, relations = (
        np.array(content.entities, dtype=object),
        np.array(content.relations, dtype=object),
    )
    spelled, offsets = words[split.tokens], split.offsets
    text = [" ".join(spelled[a:b]) for a, b in zip(offsets[:-1], offsets[1:])]
    return pa.table(
        {
            "sentence": pa.array(text, pa.string()),
            "head": pa.array(entities[split.head], pa.string()),
            "head_at": pa.array(split.head_at),
            "tail": pa.array(entities[split.tail], pa.string()),
            "tail_at": pa.array(split.tail_at),
            "relation": pa.array(relations[split.relation], pa.string()),
            "expresses": pa.array(split.expresses),
        }
    )


def _read_lines(path: Path) -> tuple[str, ...]:
    text = path.read_text(encoding="utf-8")
    return tuple(text.split("\n")) if text else ()
