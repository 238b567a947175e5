"""Sentences with two marked entities and a relation, at rest: packed arrays for training, Arrow
tables for people.

There are four splits. `train` is what a partition divides among the silos; `public` is D_v, the
labelled set that the coordinator and every silo can read (FedED distils on it), cut from the
training data before anything is divided; `dev` chooses the round to keep; `test` is looked at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from config.errors import UserError
from corpora.cache import Kept, array_bytes, kept, load_arrays, save_arrays, save_table
from corpora.holding import may_lack
from corpora.notes import Reading

__all__ = ["SPLITS", "Content", "Example", "Rows", "SentenceCorpus", "cached", "divide", "pack"]

SPLITS = ("train", "public", "dev", "test")
_FEW = 20  #: sentences of which a share can still be cut
_FORMAT = 2  #: part of every cache key: bump it when the files below change


@dataclass(frozen=True)
class Example:
    """One candidate pair in one sentence. Spans are half-open character offsets into `text`."""

    text: str
    head: tuple[int, int]
    tail: tuple[int, int]
    head_type: str
    tail_type: str
    relation: str

    def problem(self) -> str:
        """What is wrong with it, or nothing."""
        for name, (start, end) in (("head", self.head), ("tail", self.tail)):
            if not 0 <= start < end <= len(self.text):
                return f"the {name} span {start}-{end} does not lie in a text of {len(self.text)} characters"
            if not self.text[start:end].strip():
                return f"the {name} span {start}-{end} is blank"
        return ""


@dataclass(frozen=True)
class Rows:
    """One split, packed. The text of row i is `text[at[i]:at[i + 1]]`, UTF-8; spans count
    characters, not bytes.
    """

    text: np.ndarray  #: uint8
    at: np.ndarray  #: int64, rows + 1
    spans: np.ndarray  #: int32 (rows, 4): head start, head end, tail start, tail end
    types: np.ndarray  #: int32 (rows, 2): numbers of the entity types
    relation: np.ndarray  #: int32

    def __len__(self) -> int:
        return len(self.at) - 1

    def sentence(self, row: int) -> str:
        return bytes(self.text[self.at[row] : self.at[row + 1]]).decode("utf-8")


@dataclass(frozen=True)
class Content:
    """A corpus as a generator or reader hands it over."""

    name: str
    note: str  #: what a report must say about it
    relations: tuple[str, ...]
    none: str  #: the relation that says there is none; empty where every example has one
    splits: Mapping[str, Sequence[Example]]
    reading: Reading = field(default_factory=Reading)

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(
            sorted({t for s in self.splits.values() for e in s for t in (e.head_type, e.tail_type)})
        )


@dataclass(frozen=True)
class SentenceCorpus(Kept):
    splits: Mapping[str, Rows]

    @property
    def relations(self) -> tuple[str, ...]:
        return tuple(self.meta["relations"])

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(self.meta["types"])

    @property
    def none(self) -> int:
        """The number of the relation that says there is none; -1 where there is no such
        relation.
        """
        return self.relations.index(self.meta["none"]) if self.meta["none"] else -1

    def examples(self, split: str) -> Iterator[Example]:
        rows = self.splits[split]
        for i in range(len(rows)):
            a, b, c, d = rows.spans[i].tolist()
            head_type, tail_type = (self.types[t] for t in rows.types[i])
            yield Example(
                rows.sentence(i),
                (a, b),
                (c, d),
                head_type,
                tail_type,
                self.relations[int(rows.relation[i])],
            )


def divide(
    train: Sequence[Example],
    dev: Sequence[Example],
    public: float,
    seed: int,
    dev_share: float = 0.1,
) -> dict[str, list[Example]]:
    """Cut D_v (a share `public` of the training data) and, where a corpus has none, a dev split off
    the training data.

    Sampled at random as FedED's section 4.1 says, before any partition, from one recorded seed.
    Pairs of one sentence stay on one side, unless there are so few sentences that a tenth of them
    is none.
    """
    groups: dict[str, list[int]] = {}
    for i, e in enumerate(train):
        groups.setdefault(e.text, []).append(i)
    whole = list(groups.values()) if len(groups) >= _FEW else [[i] for i in range(len(train))]
    order = [whole[g] for g in np.random.default_rng([seed, 0x5E17]).permutation(len(whole))]
    in_dev = 0 if dev or may_lack("dev") else round(dev_share * len(train))
    in_public = round(public * (len(train) - in_dev))
    cut: dict[str, list[Example]] = {"dev": [], "public": [], "train": []}
    for group in order:
        wanted = (("dev", in_dev), ("public", in_public))
        home = next((s for s, n in wanted if len(cut[s]) < n), "train")
        cut[home] += (train[i] for i in group)
    return {"public": cut["public"], "train": cut["train"], "dev": list(dev) or cut["dev"]}


def pack(examples: Sequence[Example], types: Sequence[str], relations: Sequence[str]) -> Rows:
    type_number = {t: i for i, t in enumerate(types)}
    relation_number = {r: i for i, r in enumerate(relations)}
    encoded = [e.text.encode("utf-8") for e in examples]
    n = len(examples)
    return Rows(
        text=np.frombuffer(b"".join(encoded), dtype=np.uint8),
        at=np.concatenate([[0], np.cumsum([len(t) for t in encoded])]).astype(np.int64),
        spans=np.array([(*e.head, *e.tail) for e in examples], dtype=np.int32).reshape(n, 4),
        types=np.array(
            [(type_number[e.head_type], type_number[e.tail_type]) for e in examples], dtype=np.int32
        ).reshape(n, 2),
        relation=np.array([relation_number[e.relation] for e in examples], dtype=np.int32),
    )


def cached(source: Mapping[str, Any], build: Callable[[], Content]) -> SentenceCorpus:
    """The corpus made from `source` (a description that decides it entirely): from the cache, or
    built now.
    """
    return kept(
        {"sentence format": _FORMAT, **source}, _read, lambda folder: _write(folder, build())
    )


def _read(folder: Path) -> SentenceCorpus:
    meta = json.loads((folder / "meta.json").read_text("utf-8"))
    return SentenceCorpus(folder, meta, {s: load_arrays(folder, s, Rows) for s in SPLITS})


def _write(folder: Path, content: Content) -> None:
    for split in ("train", "dev", "test"):
        if not content.splits[split] and not may_lack(split):
            raise UserError(f'The corpus "{content.name}" has no {split} examples.')
    digest = hashlib.sha256(json.dumps([content.relations, content.types, content.none]).encode())
    for split in SPLITS:
        rows = pack(content.splits[split], content.types, content.relations)
        digest.update(array_bytes(rows))
        save_arrays(folder, split, rows)
        save_table(folder / "table" / split, _columns(content.splits[split]))
    meta = {
        "name": content.name,
        "note": content.note,
        "reading": content.reading.as_meta(),
        "hash": digest.hexdigest(),
        "relations": list(content.relations),
        "types": list(content.types),
        "none": content.none,
    }
    (folder / "meta.json").write_text(json.dumps(meta, indent=1), "utf-8")


def _columns(examples: Sequence[Example]) -> dict[str, list[Any]]:
    return {
        "text": [e.text for e in examples],
        "head": [list(e.head) for e in examples],
        "tail": [list(e.tail) for e in examples],
        "head_type": [e.head_type for e in examples],
        "tail_type": [e.tail_type for e in examples],
        "relation": [e.relation for e in examples],
    }
