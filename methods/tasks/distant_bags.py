"""The records of distant supervision: rows of a split, batches of them as tensors, bags of them by
entity pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import nn

from corpora.distant.scores import curve
from corpora.distant.table import Corpus, Sentences
from methods.tasks.base import Evaluation, Split
from models.bags import bag_scores
from models.device import here, there
from models.pcnn import MAX_LENGTH, PAD, PCNN

__all__ = [
    "BagBatch",
    "Bags",
    "Batch",
    "Rows",
    "drop_rare",
    "fill_scores",
    "group",
    "pad",
    "pad_together",
    "ranked",
    "sums_of",
]

_SEEN = 2  #: times that a word must be in public text to count in a sum of words
_SCORE_BAGS = 128  #: bags pooled at once


@dataclass(frozen=True)
class Rows:
    """Some rows of one split: what a silo holds, or what it chose to train on."""

    sentences: Sentences
    indices: np.ndarray  #: positions in `sentences`; a row may stand here twice

    @property
    def lengths(self) -> np.ndarray:
        return self.sentences.lengths[self.indices]


@dataclass(frozen=True)
class Batch:
    words: torch.Tensor
    lengths: torch.Tensor
    head_at: torch.Tensor
    tail_at: torch.Tensor
    relation: torch.Tensor

    @property
    def inputs(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.words, self.lengths, self.head_at, self.tail_at


@dataclass(frozen=True)
class BagBatch:
    """Sentences of some bags, bag after bag."""

    sentences: Batch
    bag: torch.Tensor  #: each sentence's bag, ascending
    labels: torch.Tensor  #: one per bag


@dataclass(frozen=True)
class Bags:
    """Rows grouped. Bag b holds `rows[starts[b]:starts[b + 1]]`, positions in the data's own list,
    ascending.
    """

    rows: np.ndarray
    starts: np.ndarray

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def sizes(self) -> np.ndarray:
        return np.diff(self.starts)

    @property
    def first(self) -> np.ndarray:
        """One row of each bag, from which head, tail and label can be read."""
        return self.rows[self.starts[:-1]]

    def of(self, bag: int) -> np.ndarray:
        """The rows of one bag."""
        return self.rows[self.starts[bag] : self.starts[bag + 1]]


def group(data: Rows, by_label: bool) -> Bags:
    """Bags by (head, tail, relation), or by (head, tail) alone, in that order."""
    s, i = data.sentences, data.indices
    keys = [s.head[i], s.tail[i]] + ([s.relation[i]] if by_label else [])
    order = np.lexsort(keys[::-1])  # stable: rows of a bag stay ascending
    changed = np.zeros(len(i), dtype=bool)
    for key in keys:
        changed[1:] |= key[order][1:] != key[order][:-1]
    if len(i):
        changed[0] = True
    return Bags(order, np.append(np.flatnonzero(changed), len(i)))


def pad(data: Rows, chosen: np.ndarray, numbers: np.ndarray) -> Batch:
    """The rows at `chosen` of the data's list as padded tensors, no longer than the longest of
    them. `numbers`: from the corpus's word numbers to the model's.
    """
    s, rows = data.sentences, data.indices[chosen]
    lengths = np.minimum(s.lengths[rows], MAX_LENGTH)
    span = np.arange(int(lengths.max(initial=1)))
    real = span < lengths[:, None]
    where = np.where(real, s.offsets[rows][:, None] + span, 0)
    words = np.where(real, numbers[s.tokens[where]], PAD) if len(s.tokens) else np.zeros_like(where)
    return Batch(
        here(words),
        here(lengths.astype(np.int64)),
        here(s.head_at[rows].astype(np.int64)),
        here(s.tail_at[rows].astype(np.int64)),
        here(s.relation[rows].astype(np.int64)),
    )


def pad_together(data: Rows, cuts: Sequence[np.ndarray], numbers: np.ndarray) -> Iterator[Batch]:
    """`pad` of each of `cuts`, cut out of one padded block: looking words up once costs less."""
    block = pad(data, np.concatenate(cuts), numbers)
    end = 0
    for cut in cuts:
        part, end = slice(end, end + len(cut)), end + len(cut)
        yield Batch(
            block.words[part, : max(1, int(block.lengths[part].max()))].contiguous(),
            block.lengths[part],
            block.head_at[part],
            block.tail_at[part],
            block.relation[part],
        )


def fill_scores(
    out: np.ndarray, rule: str, layer: nn.Linear, vectors: np.ndarray, bags: Bags
) -> None:
    """The scores of all bags by a pooling rule, from their sentences' vectors in order of bag."""
    for b in range(0, len(bags), _SCORE_BAGS):
        first, last = bags.starts[b], bags.starts[min(b + _SCORE_BAGS, len(bags))]
        sizes = bags.sizes[b : b + _SCORE_BAGS]
        bag = here(np.repeat(np.arange(len(sizes)), sizes))
        with torch.inference_mode():
            part = here(vectors[first:last])
            out[b : b + len(sizes)] = there(bag_scores(rule, layer, part, bag, len(sizes)))


def ranked(corpus: Corpus, split: Split, bags: Bags, scores: np.ndarray) -> Evaluation:
    """How well the scores of every (pair, relation) rank the facts of the split."""
    sentences = corpus.split(split)
    heads, tails = sentences.head[bags.first], sentences.tail[bags.first]
    facts = {tuple(f) for f in corpus.gold[split].tolist()}
    gold = np.zeros(scores.shape, dtype=bool)
    place = {pair: b for b, pair in enumerate(zip(heads.tolist(), tails.tolist()))}
    for head, tail, relation in facts:
        if (head, tail) in place:
            gold[place[head, tail], relation - 1] = True
    result = curve(scores.ravel(), gold.ravel(), len(facts))
    points = corpus.auc_points
    figures = {f"p@{n}": result.precision_at(n) for n in (100, 200, 300)}
    figures["p@mean"] = sum(figures.values()) / 3
    figures["auc_all"] = result.auc()
    figures["best_f1"] = result.best_f1()
    per_class = {
        corpus.relations[r + 1]: curve(scores[:, r], gold[:, r], int(gold[:, r].sum())).auc()
        for r in range(scores.shape[1])
        if gold[:, r].any()
    }
    return Evaluation(result.auc(points), figures, per_class, result.points(points))


def sums_of(model: PCNN, batches: Iterable[Batch]) -> torch.Tensor:
    """What a head on sums of word vectors reads of every row, before it is standardised."""
    with torch.no_grad():
        return torch.cat([model.pooled(*batch.inputs) for batch in batches])


def drop_rare(model: PCNN, batches: Iterable[Batch]) -> None:
    """The words of a lexicon that its own public text hardly uses count nothing: they are names,
    which are noise in a sum of words.
    """
    words = torch.cat([batch.words.flatten() for batch in batches])
    seen = torch.bincount(words, minlength=model.word.num_embeddings)
    with torch.no_grad():
        model.word.weight[seen < _SEEN] = 0.0
