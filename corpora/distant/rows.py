"""Rows of a distant-supervision corpus, collected from its files: checked, held out by pair, and
numbered.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from config.errors import UserError
from corpora.distant.table import NA, Content, Sentences, pack
from corpora.holding import may_lack, now
from corpora.notes import Notes, Reading
from corpora.relations import is_none, nones

__all__ = ["Row", "Rows", "held_out", "parsed"]


@dataclass(frozen=True)
class Row:
    words: list[str]
    head_at: int  #: word where the head entity's mention starts
    tail_at: int
    head: str  #: the entity's name in the knowledge base
    tail: str
    relation: str


def parsed(
    path: Path, rows: Iterable[tuple[int, Any]], parse: Callable[[Any], Iterable[Row]]
) -> Iterator[Row]:
    """Every row of a file, from its numbered lines or objects; one that `parse` refuses is named."""
    for number, given in rows:
        try:
            yield from _checked(parse(given))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as e:
            what = f"missing {e}" if isinstance(e, KeyError) else str(e)
            raise UserError(f"{path}, line {number}: not a row of this format: {what}.") from None


def _checked(rows: Iterable[Row]) -> Iterator[Row]:
    for row in rows:
        if not row.words:
            raise ValueError("the sentence is empty")
        if not (0 <= row.head_at < len(row.words) and 0 <= row.tail_at < len(row.words)):
            raise ValueError("an entity lies outside the sentence")
        yield row


def held_out(row: Row, percent: int, of: str) -> bool:
    """Whether a row's pair belongs to a held-out split of about `percent` of the pairs.

    Decided by the pair's name alone, so that the split is the same in every run and at every silo.
    """
    digest = hashlib.blake2b("\x1f".join((of, row.head, row.tail)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") % 100 < percent


@dataclass
class Rows:
    """Numbers words, entities and relations as rows come in. Relations have the names of the files;
    `content` makes NA of those that say there is none.
    """

    relations: dict[str, int] = field(default_factory=dict)
    words: dict[str, int] = field(default_factory=dict)
    entities: dict[str, int] = field(default_factory=dict)
    splits: dict[str, list[tuple[list[int], int, int, int, int, int]]] = field(
        default_factory=lambda: {"train": [], "dev": [], "test": []}
    )

    def add(self, split: str, row: Row) -> None:
        words, entities = self.words, self.entities
        self.splits[split].append(
            (
                [words.setdefault(w.lower(), len(words)) for w in row.words],
                row.head_at,
                row.tail_at,
                entities.setdefault(row.head, len(entities)),
                entities.setdefault(row.tail, len(entities)),
                self.relations.setdefault(row.relation, len(self.relations)),
            )
        )

    def name(self, relations: Iterable[str]) -> None:
        """Relations in the publisher's order."""
        for relation in relations:
            self.relations.setdefault(relation, len(self.relations))

    def rename(self, name: str, notes: Notes) -> None:
        """To the study's names and numbers, where one party's part was read."""
        if (holding := now()) is None:
            return
        names = list(self.relations)
        found = Counter(names[row[-1]] for rows in self.splits.values() for row in rows)
        no_fact = {r for r in found if r == NA or (is_none(r) and r not in holding.classes)}
        some = {r: n for r, n in found.items() if r not in no_fact}
        to = {**dict.fromkeys(no_fact, NA), **holding.names(some, name, notes)}
        self.relations = {
            r: i for i, r in enumerate((NA, *(c for c in holding.classes if c != NA)))
        }
        for split, rows in self.splits.items():
            self.splits[split] = [
                (*row[:-1], self.relations[to[names[row[-1]]]])
                for row in rows
                if to[names[row[-1]]]
            ]

    def content(self, name: str, reading: Reading, auc_points: int) -> Content:
        for split, rows in self.splits.items():
            if not rows and not may_lack(split):
                raise UserError(f'The corpus "{name}" has no rows for {split}.')
        notes = Notes()
        notes.take(reading.notes)
        none = nones(self.relations, NA, notes) if now() is None else {NA}
        kept = [NA, *(r for r in self.relations if r not in none and r != NA)]
        number = {r: 0 if r in none else kept.index(r) for r in self.relations}
        new = [number[r] for r in self.relations]  # by the number that rows were given
        packed = {
            split: pack([(*row[:-1], new[row[-1]]) for row in rows])
            for split, rows in self.splits.items()
        }
        return Content(
            name=name,
            note=f"read as {reading.format}",
            words=tuple(self.words),
            entities=tuple(self.entities),
            relations=tuple(kept),
            splits=packed,
            gold={split: _facts(packed[split]) for split in ("dev", "test")},
            auc_points=auc_points,
            reading=replace(reading, notes=notes.all()),
        )


def _facts(s: Sentences) -> np.ndarray:
    """Distinct facts other than NA of a split: (facts, 3)."""
    some = s.relation > 0
    facts = np.stack([s.head[some], s.tail[some], s.relation[some]], axis=1)
    return np.unique(facts, axis=0).astype(np.int32).reshape(-1, 3)
