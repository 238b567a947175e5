"""Distant supervision: sentences labelled by a public knowledge base, bags of them judged by entity
pair.

A training unit is a row (sentence, head, tail, relation). Training bags are rows of one silo with
the same (head, tail, relation), NA included; a test bag is all rows with the same (head, tail)
(docs/methods.md, "Lazy MIL").

**The vocabulary discloses nothing.** A word list collected from the silos' sentences would tell
everybody which words some silo has. So the model's vocabulary is one of three public things: the
lexicon of a built-in corpus; the words of the word-vector file that was given; or, for a real
corpus without vectors, `hash_words` slots into which every silo hashes its words alike (two words
may then share a vector, which costs a little accuracy).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from config.errors import check_choice
from config.part import ALL, HEAD, Part
from corpora.distant.generate import load as load_built_in
from corpora.distant.table import SPLITS, Corpus
from corpora.notes import Note
from methods.tasks.base import Evaluation, Split, Task
from methods.tasks.batching import batches_by_length, chunks_by_length, for_each
from methods.tasks.distant_bags import (
    BagBatch,
    Bags,
    Batch,
    Rows,
    drop_rare,
    fill_scores,
    group,
    pad,
    pad_together,
    ranked,
    sums_of,
)
from models.bags import bag_logits
from models.device import first_numbers, here, place, there
from models.pcnn import MAX_LENGTH, PARTS, PCNN, UNKNOWN, hashed_word
from models.pcnn_step import written_gradient
from models.tuning import check_part, frozen

__all__ = ["DistantTask", "Knobs"]

_SCORE_BATCH = 512  #: rows scored at once, without gradients
_GATHER = 32  #: training batches whose words are looked up together: little dearer than for one
_WIDER = 6  #: times as many dimensions where word vectors are random and only added up
_Compute = Callable[[Batch], torch.Tensor]
_PUBLIC, _PUBLIC_SEED = "distant:sentences=600", 0x57A7


@dataclass(frozen=True)
class Knobs:
    """The task's own settings, the same for every method that is compared on it."""

    dropout: float = 0.2
    word_dim: int = 50  #: of word vectors that are not given; six times as many for `sums`
    #: pcnn, or sums: of fixed word vectors in each piece; empty: sums where DP=record trains a head
    encoder: str = ""
    hash_words: int = 30_000  #: slots of a hashed vocabulary
    vector_words: int = 50_000  #: how many words of a word-vector file are used, from its start


class DistantTask(Task[Rows]):
    name = "distant"
    record_unit, record_rows = "sentence", True
    metric = "auc"

    def __init__(
        self,
        corpus: Corpus,
        knobs: Knobs,
        bag_rule: str = "one",
        vectors: tuple[tuple[str, ...], np.ndarray] | None = None,
        part: Part = ALL,
    ) -> None:
        self.part = check_part(part, "a PCNN", layers=1)
        check_choice("encoder", knobs.encoder or "pcnn", ("pcnn", "sums"))
        self.corpus, self.knobs, self.bag_rule = corpus, knobs, bag_rule
        self.corpus_name, self.corpus_hash = corpus.name, corpus.hash
        self.corpus_about, self.reading = corpus.about, corpus.reading
        self.labels, self.built_in_statistics = corpus.relations, knobs.encoder == "sums"
        self._vectors: np.ndarray | None = None
        self.vocabulary_kind, words = "hashed", tuple[str, ...]()
        if vectors is not None:
            (words, matrix), self.vocabulary_kind = vectors, "vectors"
            self._vectors = np.concatenate([np.zeros((2, matrix.shape[1]), np.float32), matrix])
        elif corpus.public_words:
            self.vocabulary_kind, words = "lexicon", tuple(corpus.words)
        self._known = {w: i for i, w in enumerate(words, start=2)}
        slots = knobs.hash_words if self.vocabulary_kind == "hashed" else len(words)
        self._vocabulary_size = 2 + slots
        start = f"starting from {'random numbers' if vectors is None else 'given word vectors'}"
        start += PARTS["sums" if knobs.encoder == "sums" else part.kind]
        self.network_words = (
            f"a piecewise convolutional network (PCNN) over words, {start}; no pretrained encoder"
        )

    def sibling(self, corpus: Any) -> DistantTask:
        made = DistantTask(corpus, self.knobs, self.bag_rule)
        made._known, made._vocabulary_size = self._known, self._vocabulary_size
        made._vectors, made.vocabulary_kind = self._vectors, self.vocabulary_kind
        return made

    # The vocabulary

    def word_number(self, word: str) -> int:
        """A word's place in the model's vocabulary."""
        if self.vocabulary_kind == "hashed":
            return hashed_word(word, self.knobs.hash_words)
        return self._known.get(word.lower(), UNKNOWN)

    def use_vocabulary(self, words: tuple[str, ...]) -> None:
        """That of a trained model, to score it on a corpus whose public words are others."""
        self._known = {w: i for i, w in enumerate(words, start=2)}
        self._vocabulary_size = len(words) + 2
        self.__dict__.pop("_lookup", None)

    @cached_property
    def _lookup(self) -> np.ndarray:
        """From the corpus's word numbers to the model's."""
        return np.array([self.word_number(w) for w in self.corpus.words], dtype=np.int64)

    # The contract of methods.tasks.base.Task

    def new_model(self, seed: int) -> PCNN:
        with first_numbers(seed):
            sums = self.knobs.encoder == "sums"
            drawn = self.knobs.word_dim * (_WIDER if sums else 1)
            model = PCNN(
                words=self._vocabulary_size,
                relations=len(self.labels),
                word_dim=drawn if self._vectors is None else self._vectors.shape[1],
                dropout=self.knobs.dropout,
                vectors=self._vectors,
                sums=sums,
            )
        model = place(model.train_part(self.part, given=self._vectors is not None))
        if model.standard is not None and self.part == HEAD and not self.start:
            other, rows = self._public_rows
            if self.vocabulary_kind == "lexicon":
                drop_rare(model, other.in_parts(rows))
            model.standard.set(sums_of(model, other.in_parts(rows)))
        return self.started(model)

    @cached_property
    def _public_rows(self) -> tuple[DistantTask, Rows]:
        other = self.sibling(load_built_in(_PUBLIC, _PUBLIC_SEED))
        return other, other.subset(np.arange(other.train_size()))

    def settle(self, model: nn.Module, data: Rows) -> None:
        assert isinstance(model, PCNN)
        if model.standard is not None:
            model.standard.take(sums_of(model.eval(), self.in_parts(data)), model.out)

    def in_parts(self, data: Rows) -> Iterator[Batch]:
        for chosen in chunks_by_length(data.lengths, np.arange(self.size(data)), _SCORE_BATCH):
            yield self.batch(data, chosen)

    def frozen(self) -> Mapping[str, np.ndarray]:
        return frozen(self.new_model(0))

    def agreement(self) -> Mapping[str, str]:
        """Relations in order, and the vocabulary by its words or its number of slots."""
        words = json.dumps([self.vocabulary_kind, self._vocabulary_size, list(self._known)])
        relations = json.dumps(list(self.labels))
        content = {"classes": relations, "vocabulary": words}
        return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in content.items()}

    def held_out(self, split: Split) -> Mapping[str, int]:
        rows = self.corpus.split(split)
        pairs = np.unique(np.stack([np.asarray(rows.head), np.asarray(rows.tail)]), axis=1).shape[1]
        facts = len(np.unique(self.corpus.gold[split], axis=0))
        return {"sentences": len(rows), "entity pairs": pairs, "facts to find": facts}

    def own_notes(self) -> tuple[Note, ...]:
        text = f"sentences are longer than the {MAX_LENGTH} words that the network reads"
        long = {s: int((self.corpus.split(s).lengths > MAX_LENGTH).sum()) for s in SPLITS}
        return tuple(Note("cut", f"{s} {text}", n) for s, n in long.items() if n)

    def warning(self, split: Split) -> str:
        if len(self.corpus.gold[split]):
            return ""
        return f"the {split} split has no fact to find: its {self.metric} says nothing"

    def train_size(self) -> int:
        return len(self.corpus.train)

    def partition_keys(self) -> Mapping[str, np.ndarray]:
        t = self.corpus.train
        return {
            "label": np.asarray(t.relation),
            "pair": t.head.astype(np.int64) << 32 | t.tail.astype(np.int64),
        }

    def subset(self, indices: np.ndarray) -> Rows:
        return Rows(self.corpus.train, np.asarray(indices, dtype=np.int64))

    def size(self, data: Rows) -> int:
        return len(data.indices)

    def batches(self, data: Rows, size: int, rng: np.random.Generator) -> Iterator[Batch]:
        cuts = list(batches_by_length(data.lengths, size, rng))
        for c in range(0, len(cuts), _GATHER):
            yield from pad_together(data, cuts[c : c + _GATHER], self._lookup)

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        return F.cross_entropy(model(*batch.inputs), batch.relation)

    def gradients(self, model: nn.Module) -> _Compute | None:
        return written_gradient(model)

    def record_losses(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        return F.cross_entropy(model(*batch.inputs), batch.relation, reduction="none")

    def evaluate(self, model: nn.Module, split: Split) -> Evaluation:
        """Rank every (pair, relation); equal scores keep the order (head, tail, relation)."""
        sentences = self.corpus.split(split)
        data = Rows(sentences, np.arange(len(sentences)))
        bags = self.bags(data, by_label=False)
        scores = self.bag_scores(model, data, bags)[:, 1:]
        return ranked(self.corpus, split, bags, scores)

    def majority(self, split: Split) -> Evaluation:
        """Every pair alike: relations ranked by how many training sentences they have."""
        sentences = self.corpus.split(split)
        bags = self.bags(Rows(sentences, np.arange(len(sentences))), by_label=False)
        counts = np.bincount(self.corpus.train.relation, minlength=len(self.labels))[1:]
        return ranked(self.corpus, split, bags, np.tile(counts.astype(np.float32), (len(bags), 1)))

    def model_files(self) -> Mapping[str, bytes]:
        config = {
            "architecture": "pcnn",
            "relations": list(self.labels),
            "vocabulary": self.vocabulary_kind,
            "vocabulary_size": self._vocabulary_size,
            "max_length": MAX_LENGTH,
            "bag_rule": self.bag_rule,
            "knobs": asdict(self.knobs),
        }
        files = {"config.json": json.dumps(config, indent=1).encode()}
        if self.vocabulary_kind != "hashed":
            files["vocabulary.txt"] = "\n".join(["[PAD]", "[UNK]", *self._known]).encode()
        return files

    # What the methods of this task use

    def batch(self, data: Rows, chosen: np.ndarray) -> Batch:
        """The rows at `chosen` of the data's list."""
        return pad(data, chosen, self._lookup)

    def bags(self, data: Rows, by_label: bool = True) -> Bags:
        """Bags by (head, tail, relation) for training, or by (head, tail) for testing."""
        return group(data, by_label)

    def triples(self, data: Rows, rows: np.ndarray) -> list[bytes]:
        """The public names of each row's head, relation and tail: what every silo calls the same
        bag.
        """
        s, i = data.sentences, data.indices[rows]
        names = self.corpus.entities
        columns = (s.head[i].tolist(), s.relation[i].tolist(), s.tail[i].tolist())
        return [
            f"{names[h]}\x1f{self.labels[r]}\x1f{names[t]}".encode() for h, r, t in zip(*columns)
        ]

    def probabilities(self, model: nn.Module, data: Rows) -> np.ndarray:
        """p(r | s) of every row and relation (equation 1), dropout off: (rows, relations)."""
        out = np.empty((len(data.indices), len(self.labels)), dtype=np.float32)
        self._sweep(data, model, lambda batch: F.softmax(model(*batch.inputs), dim=-1), out)
        return out

    def label_probabilities(self, model: nn.Module, data: Rows) -> np.ndarray:
        """p(r | s) of every row's own label r, dropout off: (rows,) float32."""
        out = np.empty(len(data.indices), dtype=np.float32)

        def own(batch: Batch) -> torch.Tensor:
            return F.softmax(model(*batch.inputs), dim=-1).gather(1, batch.relation[:, None])[:, 0]

        self._sweep(data, model, own, out)
        return out

    def vectors_of(self, model: PCNN, data: Rows) -> np.ndarray:
        """Sentence vectors of every row, dropout off."""
        out = np.empty((len(data.indices), model.out.in_features), dtype=np.float32)
        self._sweep(data, model, lambda batch: model.encode(*batch.inputs), out)
        return out

    def bag_scores(self, model: nn.Module, data: Rows, bags: Bags) -> np.ndarray:
        """Score of every relation for every bag by the method's rule (for ONE and Lazy MIL: per
        relation, the best sentence's probability).
        """
        out = np.zeros((len(bags), len(self.labels)), dtype=np.float32)
        if len(bags) == 0:
            return out
        if self.bag_rule == "one":  # needs no sentence vectors, which are large
            p = self.probabilities(model, data)
            return np.maximum.reduceat(p[bags.rows], bags.starts[:-1], axis=0)
        assert isinstance(model, PCNN)
        vectors = self.vectors_of(model, data)[bags.rows]
        fill_scores(out, self.bag_rule, model.out, vectors, bags)
        return out

    def bag_batches(self, data: Rows, size: int, rng: np.random.Generator) -> Iterator[BagBatch]:
        """One shuffled epoch of training bags, `size` bags at a time."""
        bags = self.bags(data)
        order = rng.permutation(len(bags))
        for b in range(0, len(order), size):
            yield self.bag_batch(data, bags, order[b : b + size])

    def bag_batch(self, data: Rows, bags: Bags, chosen: np.ndarray) -> BagBatch:
        """The bags at `chosen`."""
        rows = np.concatenate([bags.of(c) for c in chosen])
        sentences = self.batch(data, rows)
        bag = here(np.repeat(np.arange(len(chosen)), bags.sizes[chosen]))
        first = data.indices[bags.first[chosen]]
        return BagBatch(sentences, bag, here(data.sentences.relation[first].astype(np.int64)))

    def bag_loss(self, model: PCNN, batch: BagBatch) -> torch.Tensor:
        """Cross-entropy of the bags' labels under the method's rule, mean over bags."""
        vectors = model.encode(*batch.sentences.inputs)
        logits = bag_logits(
            self.bag_rule, model.out, model.dropout, vectors, batch.bag, batch.labels
        )
        return F.cross_entropy(logits, batch.labels)

    def _sweep(self, data: Rows, model: nn.Module, compute: _Compute, out: np.ndarray) -> None:
        """Fill `out` batch by batch, rows sorted by length; the model's mode is put back."""
        was = model.training
        model.eval()

        def score(chosen: np.ndarray) -> None:
            with torch.inference_mode():
                out[chosen] = there(compute(self.batch(data, chosen)))

        for_each(score, chunks_by_length(data.lengths, np.arange(self.size(data)), _SCORE_BATCH))
        model.train(was)
