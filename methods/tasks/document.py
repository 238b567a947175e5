"""Document relations: entities with several mentions in a document, and relations between pairs of
them.

A training unit is a document. Documents are tokenised once, when the task is made, into packed
arrays that forked silos share; the tokenizer comes with the checkpoint, so the vocabulary discloses
nothing about any silo's text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from config.errors import UserError, check_choice
from config.part import ALL, BIAS, HEAD, Part
from corpora.document import entropy
from corpora.document.scores import best_threshold, facts, known_facts, score
from corpora.document.table import SPLITS, Document, DocumentCorpus
from corpora.notes import Note
from methods.tasks.base import Evaluation, Split, Task
from methods.tasks.batching import (
    LEAST_LENGTH,
    batches_by_length,
    check_length,
    chunks_by_length,
    for_each,
)
from methods.tasks.bottom import Bottom, of_documents, with_features
from methods.tasks.document_data import (
    Data,
    Knobs,
    Labelled,
    LazyKeys,
    Ready,
    keys_of,
    pair_types,
    prepare,
)
from methods.tasks.document_features import in_parts, linear_features, public_data
from models import document_heads as heads
from models.backbone import Checkpoint
from models.device import first_numbers, here, place, there
from models.document_encoder import DocumentEncoder, Reading
from models.document_pieces import assemble
from models.saved import encoder_files
from models.tuning import check_part, frozen, rows_are_records, train_part, words_of

__all__ = ["DocumentTask", "Knobs"]

#: documents read at once, without gradients: the attention of more does not stay in the cache
_SCORE_BATCH = 4
_CLIP_BATCH = 8  #: the same with DP-SGD's gradients
#: places for pairs in such a batch: as many for each document as the one that has most
_CLIP_PAIRS = 256
_MEASURED = 2_000  #: documents whose entropy a report shows though nothing was cut by it
_MOST = 4  #: relations predicted for one pair by `atl`, as for DocRED


class DocumentTask(Task[Data]):
    name = "document"
    record_unit = "document"
    metric = "f1"

    def __init__(
        self, corpus: DocumentCorpus, knobs: Knobs, checkpoint: Checkpoint, part: Part = ALL
    ) -> None:
        self.part = check_part(part, "an encoder", checkpoint.backbone)
        block, classifier = (
            knobs.block or (16 if part == BIAS else 64),
            knobs.classifier or "bilinear",
        )
        knobs = replace(knobs, block=block, classifier=classifier)
        self.corpus, self.knobs, self.checkpoint = corpus, knobs, checkpoint
        self._drops = knobs.attention_dropout != "none"  # in training, some attention
        self.corpus_name, self.corpus_hash = corpus.name, corpus.hash
        self.corpus_about = "; ".join(filter(None, (corpus.about, checkpoint.note)))
        self.reading, self.encoder_size = corpus.reading, checkpoint.size
        self.can_halve = True
        biases = ", of which only biases, layer norms and the classifier are trained"
        few = biases if part == BIAS else words_of(part)
        self.network_words = f"a document encoder, starting from {checkpoint.words}{few}"
        self.relations, self.built_in_statistics = corpus.relations, classifier == "linear"
        self.labels = ("no relation", *self.relations)
        self.head = knobs.head or ("softmax2" if len(self.relations) == 1 else "bce")
        self._check()
        self.record_rows = rows_are_records(checkpoint.backbone, part)
        if part.has_frozen_bottom:
            self.bottom = self.new_bottom()
        self._splits: dict[str, Ready] = {}
        self._documents: dict[str, list[Document]] = {}
        self._split("train")  # before silos are forked, so that they share it

    def new_bottom(self) -> Bottom:
        self.__dict__.pop("_public_features", None)
        fused = not self._drops
        return of_documents(self.checkpoint, self.part, self.window, self._special, fused)

    @property
    def _special(self) -> tuple[int, int, int]:
        t = self.checkpoint.tokenizer
        return t.cls_token_id, t.sep_token_id, t.pad_token_id

    def sibling(self, corpus: Any) -> DocumentTask:
        return DocumentTask(corpus, self.knobs, self.checkpoint)

    def _check(self) -> None:
        knobs, config = self.knobs, self.checkpoint.backbone.config
        check_choice("head", self.head, heads.HEADS)
        check_choice("classifier", knobs.classifier, ("bilinear", "linear"))
        check_choice("attention_dropout", knobs.attention_dropout, ("", "none"))
        if self.head == "softmax2" and len(self.relations) > 1:
            raise UserError(
                f'Option "head": softmax2 is for one relation, and this corpus has {len(self.relations)}.'
            )
        positions = self.checkpoint.positions(512)
        self.window = knobs.window or min(positions, 512)
        check_length("window", self.window, positions)
        if knobs.max_length < LEAST_LENGTH:
            raise UserError(
                f'Option "max_length" must be at least {LEAST_LENGTH}, not {knobs.max_length}.'
            )
        self.limit = min(knobs.max_length, 2 * self.window - 2)
        width = int(config.hidden_size if hasattr(config, "hidden_size") else config.dim)
        if knobs.block < 1 or width % knobs.block:
            raise UserError(
                f'Option "block" must divide the {width} dimensions of the encoder, not be {knobs.block}.'
            )

    def documents(self, split: str) -> list[Document]:
        if split not in self._documents:
            self._documents[split] = list(self.corpus.documents(split))
        return self._documents[split]

    def _split(self, split: str) -> Ready:
        if split not in self._splits:
            self._splits[split] = prepare(
                self.documents(split), self.relations, self.checkpoint.tokenizer, self.limit
            )
        return self._splits[split]

    def data(self, split: str) -> Data:
        """All of a split."""
        ready = self._split(split)
        return Data(ready, np.arange(len(ready.pieces)))

    def own_notes(self) -> tuple[Note, ...]:
        found = []
        for split in SPLITS:
            pieces = self._split(split).pieces
            long = f"{split} documents are longer than the {self.limit} pieces that are read"
            gone = f"mentions of {split} documents lie beyond that and are lost"
            found += [Note("cut", long, pieces.shortened), Note("cut", gone, pieces.lost)]
        return tuple(n for n in found if n.count)

    def warning(self, split: Split) -> str:
        nothing = f"the {split} split has no relation to find: its {self.metric} says nothing"
        return "" if self.corpus.counts(split).relations else nothing

    # The contract of methods.tasks.base.Task

    def new_model(self, seed: int) -> DocumentEncoder:
        with first_numbers(seed):
            outputs = heads.outputs(self.head, len(self.relations))
            linear = self.knobs.classifier == "linear"
            model = DocumentEncoder(
                self.checkpoint.backbone, outputs, self.knobs.block, linear, self._drops
            )
            train_part(model.backbone, self.part)
        if self.part == BIAS and not linear:
            model.fix_projections()
        model.cut(self.part)
        model = place(model)
        if model.standard is not None and self.bottom is not None and not self.start:
            model.standard.set(self._public_features)
        return self.started(model)

    @cached_property
    def _public_features(self) -> torch.Tensor:
        data = public_data(self.checkpoint.tokenizer, self.limit)
        return linear_features(self.batch(data, rows)[0] for rows in in_parts(data))

    def settle(self, model: nn.Module, data: Data) -> None:
        assert isinstance(model, DocumentEncoder)
        if model.standard is not None:
            batches = (self.batch(data, rows)[0] for rows in in_parts(data))
            model.standard.take(linear_features(batches, model.eval().backbone), model.linear)

    def frozen(self) -> Mapping[str, np.ndarray]:
        return frozen(self.new_model(0))

    def agreement(self) -> Mapping[str, str]:
        classes = hashlib.sha256(json.dumps([*self.relations, self.head]).encode())
        return {"encoder": self.checkpoint.sha256, "classes": classes.hexdigest()}

    def held_out(self, split: Split) -> Mapping[str, int]:
        labels = self._split(split).labels
        counts = {"documents": len(self.documents(split)), "entity pairs": len(labels)}
        return counts | {"relations to find": int(labels.sum())}

    def train_size(self) -> int:
        return self.corpus.counts("train").documents

    def partition_keys(self) -> LazyKeys:
        return self._keys

    @cached_property
    def _keys(self) -> LazyKeys:
        return keys_of(self._split("train"), lambda: self.documents("train"))

    def label_counts(self, indices: np.ndarray) -> np.ndarray:
        """Candidate pairs without a relation, and with each."""
        train = self._split("train")
        some = train.labels[self.subset(indices).pair_rows]
        return np.concatenate([[(~some.any(axis=1)).sum()], some.sum(axis=0)])

    def unit_measure(self) -> tuple[str, np.ndarray] | None:
        """Structural entropy, the paper's; of large corpora only where a partition has computed it
        anyway.
        """
        keys = self.partition_keys()
        kinds = [k for k in entropy.KINDS if k in keys.done] or ["degree_entropy"] * (
            self.train_size() <= _MEASURED
        )
        return (f"structural entropy ({kinds[0]})", keys[kinds[0]]) if kinds else None

    def subset(self, indices: np.ndarray) -> Data:
        return replace(self.data("train"), indices=np.asarray(indices, dtype=np.int64))

    def size(self, data: Data) -> int:
        return len(data.indices)

    def batches(self, data: Data, size: int, rng: np.random.Generator) -> Iterator[Labelled]:
        for chosen in batches_by_length(data.lengths, size, rng):
            yield self.batch(data, chosen)

    def loss(self, model: nn.Module, batch: Labelled) -> torch.Tensor:
        return heads.loss(self.head, model(batch[0]), batch[1])

    def record_losses(self, model: nn.Module, batch: Labelled) -> torch.Tensor:
        """The mean over each document's own pairs; 0 where it has none."""
        assert isinstance(model, DocumentEncoder)
        reading = model.read(batch[0], by_document=True)
        return batch[0].mean_of_pairs(heads.losses(self.head, reading.logits, batch[1]))

    def record_chunks(self, data: Data, chosen: np.ndarray, most: int) -> Iterator[np.ndarray]:
        """A document in two windows by itself: its windows are the first axis then. Above a frozen
        encoder nobody sees windows.
        """
        if self.part == HEAD:
            yield from chunks_by_length(data.lengths, chosen, most)
            return
        pairs = np.diff(data.split.pieces.pair_at)[data.indices]
        long = data.lengths[chosen] > self.window
        for chunk in chunks_by_length(data.lengths, chosen[~long], min(most, _CLIP_BATCH)):
            room = pairs[chunk].max() * len(chunk) <= _CLIP_PAIRS
            yield from [chunk] if room else np.split(chunk, len(chunk))
        yield from chunks_by_length(data.lengths, chosen[long], 1)

    def evaluate(self, model: nn.Module, split: Split) -> Evaluation:
        data = self.data(split)
        logits = self.read_all(model, data, lambda r: r.logits)
        predicted = there(heads.predict(self.head, logits, _MOST if self.head == "atl" else 0))
        s = score(data.split.labels, predicted, data.split.crosses, self._known[split])
        names = ("f1", "precision", "recall", "intra_f1", "inter_f1", "ign_f1")
        per_class = {r: float(f) for r, f in zip(self.relations, s.per_class) if f == f}
        figures = {n: getattr(s, n) for n in names}
        return Evaluation(s.f1, {**figures, **self._at_best(model, split, logits)}, per_class)

    def _at_best(self, model: nn.Module, split: Split, logits: torch.Tensor) -> Mapping[str, float]:
        """F1 at the threshold that is best on dev, on test too: how well pairs are ranked, apart from
        where a model that saw four negatives for each positive cuts.
        """
        labels, margins = self.data(split).split.labels, there(heads.margins(self.head, logits))
        dev = self.data("dev")
        if split == "dev":
            cut = best_threshold(labels, margins)
        else:
            ranked = self.read_all(model, dev, lambda r: heads.margins(self.head, r.logits))
            cut = best_threshold(dev.split.labels, there(ranked))
        predicted = margins > cut
        found = score(labels, predicted, self.data(split).split.crosses, self._known[split])
        return {"best_f1": found.f1, "threshold": cut}

    def model_files(self) -> Mapping[str, bytes]:
        """What `models.document_encoder.open_model` needs beside the weights."""
        config = {
            "architecture": "document-encoder",
            "relations": list(self.relations),
            "head": self.head,
            "outputs": heads.outputs(self.head, len(self.relations)),
            "block": self.knobs.block,
            "classifier": self.knobs.classifier,
            "window": self.window,
            "max_length": self.limit,
            "pair_types": pair_types(self.documents("train") or self.documents("test")),
            "encoder": self.checkpoint.name,
            "encoder_sha256": self.checkpoint.sha256,
        }
        files = {"config.json": json.dumps(config, indent=1, default=str).encode()}
        return files | encoder_files(self.checkpoint, self.part)

    # What the methods of this task use

    def batch(self, data: Data, chosen: np.ndarray) -> Labelled:
        """The documents at `chosen` of the data's list as tensors, and their pairs' labels."""
        rows, pieces = data.indices[chosen], data.split.pieces
        batch = assemble(pieces, rows, self.window, *self._special)
        if self.bottom is not None:
            texts = self.bottom.texts(pieces, data.indices, rows)
            batch = with_features(batch, self.bottom.store, texts, self.part)
        return batch, here(data.split.labels[batch.pair_rows])

    def read_all(
        self, model: nn.Module, data: Data, what: Callable[[Reading], torch.Tensor]
    ) -> torch.Tensor:
        """`what` of every pair of the data, in its order, dropout off and without gradients."""
        assert isinstance(model, DocumentEncoder)
        was = model.training
        model.eval()

        def read(chosen: np.ndarray) -> tuple[np.ndarray, torch.Tensor]:
            with torch.no_grad():
                batch, _ = self.batch(data, chosen)
                return batch.pair_rows, what(model.read(batch))

        if self.bottom is not None:
            self.bottom.prepare(data.split.pieces, data.indices)
        found = for_each(
            read, chunks_by_length(data.lengths, np.arange(self.size(data)), _SCORE_BATCH)
        )
        model.train(was)
        if not found:
            return torch.zeros(0, 1)
        place = {int(r): i for i, r in enumerate(np.concatenate([rows for rows, _ in found]))}
        return torch.cat([part for _, part in found])[[place[int(r)] for r in data.pair_rows]]

    @cached_property
    def _known(self) -> Mapping[str, np.ndarray]:
        """Per held-out split, which of its facts the training split shows (Ign-F1)."""
        seen = facts(self.documents("train"))
        return {s: known_facts(self.documents(s), self.relations, seen) for s in ("dev", "test")}
