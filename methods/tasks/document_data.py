"""Documents of one split, ready to be read: tokenised, with the labels of their candidate pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from corpora.document import entropy
from corpora.document.table import Document
from models.document_pieces import Batch, Pieces, tokenise

__all__ = ["Data", "Knobs", "Labelled", "LazyKeys", "Ready", "keys_of", "pair_types", "prepare"]


@dataclass(frozen=True)
class Knobs:
    """The task's own settings, the same for every method that is compared on it."""

    head: str = ""  #: softmax2, bce or atl; empty: softmax2 for one relation, bce for several
    #: dimensions of a group of the bilinear classifier; 0: 64, or 16 where only biases are trained
    block: int = 0
    window: int = 0  #: pieces read at once; 0: 512, or what the encoder has positions for
    #: pieces of a document, markers included; two windows hold at most 2 window - 2
    max_length: int = 1024
    #: bilinear, or linear: one layer on standardised features; empty: linear where DP=record trains
    #: a head, else bilinear
    classifier: str = ""
    #: none: no attention is dropped in training, which is then about twice as fast; empty: as the
    #: checkpoint's config says
    attention_dropout: str = ""
    mesh: str = ""  #: a MeSH tree file, for the hypernym filter of PubTator corpora


@dataclass(frozen=True)
class Ready:
    """One split, ready to be read. Labels and crossings are by candidate pair, in the order of
    `pieces.pairs`.
    """

    pieces: Pieces
    labels: np.ndarray  #: (pairs, relations) bool
    crosses: np.ndarray  #: (pairs,) bool


@dataclass(frozen=True)
class Data:
    """Some documents of one split: what a silo holds."""

    split: Ready
    indices: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return self.split.pieces.lengths[self.indices]

    @property
    def pair_rows(self) -> np.ndarray:
        """The pairs of these documents, in their order: positions in the split's labels."""
        at = self.split.pieces.pair_at
        return np.concatenate(
            [np.zeros(0, np.int64), *(np.arange(at[i], at[i + 1]) for i in self.indices)]
        )


#: A batch of documents, and the labels of their pairs, (pairs, relations).
Labelled = tuple[Batch, torch.Tensor]


class LazyKeys(Mapping[str, np.ndarray]):
    """What partitions cut by, computed when it is asked for: the graphs of a large corpus take a
    while.
    """

    def __init__(self, made: Mapping[str, Callable[[], np.ndarray]]) -> None:
        self._made = made
        self.done: dict[str, np.ndarray] = {}

    def __getitem__(self, key: str) -> np.ndarray:
        if key not in self.done:
            self.done[key] = self._made[key]()
        return self.done[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


def prepare(
    documents: Sequence[Document], relations: Sequence[str], tokenizer: Any, limit: int
) -> Ready:
    """Documents of at most `limit` pieces, the rest cut off; labels by the order of `relations`."""
    pieces = tokenise(map(_marked, documents), tokenizer, limit)
    number = {r: i for i, r in enumerate(relations)}
    pairs = [(d, p) for d in documents for p in d.candidates]
    labels = np.zeros((len(pairs), len(relations)), bool)
    for row, (_, p) in enumerate(pairs):
        labels[row, [number[r] for r in p.relations]] = True
    crosses = np.array([d.crosses(p) for d, p in pairs], bool)
    return Ready(pieces, labels, crosses)


def _marked(
    document: Document,
) -> tuple[str, list[tuple[tuple[int, int], ...]], list[tuple[int, int]]]:
    """The text, the mentions of the entities that are in some pair, and the candidate pairs of
    those.
    """
    used = sorted({e for p in document.pairs for e in (p.head, p.tail)})
    number = {e: i for i, e in enumerate(used)}
    pairs = [(number[p.head], number[p.tail]) for p in document.candidates]
    return document.text, [document.entities[e].mentions for e in used], pairs


def pair_types(documents: Iterable[Document]) -> list[list[str]]:
    """The types, head and tail, of which these documents (the training split, or what a coordinator
    scores on) have candidate pairs: what a model can be asked for.
    """
    seen = {
        (d.entities[p.head].type, d.entities[p.tail].type) for d in documents for p in d.candidates
    }
    return [list(pair) for pair in sorted(seen)]


def keys_of(train: Ready, documents: Callable[[], Sequence[Document]]) -> LazyKeys:
    """What training documents are partitioned by."""

    def label() -> np.ndarray:
        """The relation that a document has most of; 0 if none."""
        at = train.pieces.pair_at
        counts = np.array([train.labels[a:b].sum(axis=0) for a, b in zip(at, at[1:])])
        return np.where(counts.any(axis=1), counts.argmax(axis=1) + 1, 0)

    def measured(kind: str) -> Callable[[], np.ndarray]:
        return lambda: np.array([entropy.KINDS[kind](d) for d in documents()])

    return LazyKeys({"label": label, **{kind: measured(kind) for kind in entropy.KINDS}})
