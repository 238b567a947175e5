"""Sentences with named entities at rest: packed arrays for training, Arrow tables for people.

A sentence is a list of words; an entity is a run of words with a type. Every sentence belongs to a
domain (a genre, a writing style, a corpus), and a corpus says for each domain which types its
annotation covers: where a type is not covered, its absence means nothing, neither in training nor
in scoring. Spans are half-open and count words.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from config.errors import UserError
from corpora.cache import Kept, array_bytes, kept, load_arrays, save_arrays, save_table
from corpora.holding import may_lack
from corpora.notes import Reading

__all__ = [
    "SPLITS",
    "Content",
    "Entity",
    "Found",
    "NerCorpus",
    "Rows",
    "Sentence",
    "cached",
    "pack",
]

SPLITS = ("train", "dev", "test")
_FORMAT = 2  #: part of every cache key: bump it when the files below change
Entity = tuple[int, int, str]  #: first word, word after the last, type


@dataclass(frozen=True)
class Sentence:
    words: tuple[str, ...]
    entities: tuple[Entity, ...]
    domain: str

    def problem(self) -> str:
        """What is wrong with it, or nothing."""
        if not self.words:
            return "the sentence has no words"
        if " ".join(self.words).split() != list(self.words):
            odd = next(w for w in self.words if w.split() != [w])
            return f"the word {odd!r} is empty or holds a space"
        for start, end, kind in self.entities:
            if not 0 <= start < end <= len(self.words):
                return f"the {kind} span {start}-{end} does not lie in a sentence of {len(self.words)} words"
        return ""


@dataclass(frozen=True)
class Found:
    """A sentence as a reader yields it."""

    sentence: Sentence
    document: str  #: sentences of one document stay on one side of a split that we make


@dataclass(frozen=True)
class Rows:
    """One split, packed. Sentence i is `text[at[i]:at[i + 1]]`, UTF-8, words joined by single
    spaces; its entities are rows `entity_at[i]` to `entity_at[i + 1]` of `entities`.
    """

    text: np.ndarray  #: uint8
    at: np.ndarray  #: int64, rows + 1
    #: int32 (entities, 3): first word, word after the last, number of the type
    entities: np.ndarray
    entity_at: np.ndarray  #: int64, rows + 1
    domain: np.ndarray  #: int32: number of the domain

    def __len__(self) -> int:
        return len(self.at) - 1

    def words(self, row: int) -> list[str]:
        return bytes(self.text[self.at[row] : self.at[row + 1]]).decode("utf-8").split(" ")

    def spans(self, row: int) -> list[tuple[int, int, int]]:
        """(first word, word after the last, number of the type), ordered by position."""
        found = self.entities[self.entity_at[row] : self.entity_at[row + 1]]
        return [(int(a), int(b), int(t)) for a, b, t in found]


@dataclass(frozen=True)
class Content:
    """A corpus as a generator or reader hands it over."""

    name: str
    note: str  #: what a report must say about it
    types: tuple[str, ...]
    domains: tuple[str, ...]
    covered: Mapping[str, frozenset[str]]  #: domain -> the types that its annotation covers
    splits: Mapping[str, Sequence[Sentence]]
    reading: Reading = field(default_factory=Reading)


@dataclass(frozen=True)
class NerCorpus(Kept):
    splits: Mapping[str, Rows]

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(self.meta["types"])

    @property
    def domains(self) -> tuple[str, ...]:
        return tuple(self.meta["domains"])

    @cached_property
    def covered(self) -> np.ndarray:
        """(domains, types) bool: whose annotation covers what."""
        table = self.meta["covered"]
        return np.array([[t in table[d] for t in self.types] for d in self.domains], dtype=bool)


def pack(sentences: Sequence[Sentence], types: Sequence[str], domains: Sequence[str]) -> Rows:
    type_number = {t: i for i, t in enumerate(types)}
    domain_number = {d: i for i, d in enumerate(domains)}
    encoded = [" ".join(s.words).encode("utf-8") for s in sentences]
    spans = [sorted((a, b, type_number[t]) for a, b, t in s.entities) for s in sentences]
    flat = [e for some in spans for e in some]
    return Rows(
        text=np.frombuffer(b"".join(encoded), dtype=np.uint8),
        at=np.concatenate([[0], np.cumsum([len(t) for t in encoded])]).astype(np.int64),
        entities=np.array(flat, dtype=np.int32).reshape(len(flat), 3),
        entity_at=np.concatenate([[0], np.cumsum([len(e) for e in spans])]).astype(np.int64),
        domain=np.array([domain_number[s.domain] for s in sentences], dtype=np.int32),
    )


def meta_of(content: Content, digest: str) -> dict[str, Any]:
    return {
        "name": content.name,
        "note": content.note,
        "reading": content.reading.as_meta(),
        "hash": digest,
        "types": list(content.types),
        "domains": list(content.domains),
        "covered": {d: sorted(content.covered[d]) for d in content.domains},
    }


def cached(source: Mapping[str, Any], build: Callable[[], Content]) -> NerCorpus:
    """The corpus made from `source` (a description that decides it entirely): from the cache, or
    built now.
    """
    return kept({"ner format": _FORMAT, **source}, _open, lambda folder: _write(folder, build()))


def _open(place: Path) -> NerCorpus:
    meta = json.loads((place / "meta.json").read_text("utf-8"))
    return NerCorpus(place, meta, {s: load_arrays(place, s, Rows) for s in SPLITS})


def _write(folder: Path, content: Content) -> None:
    for split in SPLITS:
        if not content.splits[split] and not may_lack(split):
            raise UserError(f'The corpus "{content.name}" has no {split} sentences.')
        for s in content.splits[split]:
            if s.problem():
                raise UserError(
                    f'The corpus "{content.name}", {split}: {s.problem()}: "{" ".join(s.words)[:60]}".'
                )
    digest = hashlib.sha256(
        json.dumps([content.types, content.domains, meta_of(content, "")["covered"]]).encode()
    )
    for split in SPLITS:
        rows = pack(content.splits[split], content.types, content.domains)
        digest.update(array_bytes(rows))
        save_arrays(folder, split, rows)
        save_table(folder / "table" / split, _columns(content.splits[split]))
    (folder / "meta.json").write_text(
        json.dumps(meta_of(content, digest.hexdigest()), indent=1), "utf-8"
    )


def _columns(sentences: Sequence[Sentence]) -> dict[str, list[Any]]:
    return {
        "words": [list(s.words) for s in sentences],
        "starts": [[e[0] for e in s.entities] for s in sentences],
        "ends": [[e[1] for e in s.entities] for s in sentences],
        "types": [[e[2] for e in s.entities] for s in sentences],
        "domain": [s.domain for s in sentences],
    }
