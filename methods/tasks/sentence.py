"""Sentence relations: two marked entities in a sentence, one relation between them, or none.

A training unit is an example. Beside what the silos hold there is D_v, a labelled public set that
the coordinator and every silo can read (`public`): FedED distils on it, `public_only` trains on
nothing else, the others leave it alone.

Sentences are tokenised once, when the task is made, into packed arrays that forked silos share. The
tokenizer comes with the checkpoint, so the vocabulary discloses nothing about any silo's sentences.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from config.errors import check_choice
from config.part import ALL, HEAD, Part
from corpora.notes import Note
from corpora.sentence.generate import public_examples
from corpora.sentence.table import Example, SentenceCorpus
from methods.tasks.base import Evaluation, Split, Task
from methods.tasks.batching import batches_by_length, check_length, chunks_by_length, for_each
from methods.tasks.bottom import Bottom, of_sentences
from methods.tasks.sentence_scores import scored
from methods.tasks.sentence_style import style_of
from models.backbone import Checkpoint
from models.device import first_numbers, here, place, there
from models.marking import Packed, tokenise
from models.saved import encoder_files
from models.sentence_encoder import SentenceEncoder, Style
from models.tuning import check_part, frozen, rows_are_records, train_part, words_of

__all__ = ["Batch", "Data", "Knobs", "SentenceTask", "style_of"]

_SCORE_BATCH = 128  #: rows scored at once, without gradients, by an encoder of few dimensions
_SCORE_NUMBERS = 1 << 14  #: rows times dimensions at most: beyond, they leave a core's cache
_ENOUGH = 400  #: public sentences whose features are standardised by


@dataclass(frozen=True)
class Knobs:
    """The task's own settings, the same for every method that is compared on it."""

    model: str = ""  #: feded or fedcmc; empty: the one of the method's own paper
    blinding: str = ""  #: yes or no; empty: as the model has it
    pooling: str = ""  #: cls ([CLS; e1; e2]) or entities ([e1; e2]); empty: as the model has it
    bias: str = ""  #: yes or no; empty: as the model has it
    projection: int = 0  #: outputs of MOON's projection head; 0: none
    dropout: float = 0.1
    max_length: int = 128  #: word pieces, markers included
    #: the share of the training data that becomes D_v: of methods that use one, and where it is given
    public: float = 0.2
    columns: str = ""  #: which column of a table is which, as text:note,relation:label
    metric: str = "micro_f1"  #: or macro_f1: what a report leads with and what chooses the round


@dataclass(frozen=True)
class Data:
    """Some rows of one split: what a silo holds, or D_v."""

    packed: Packed
    relation: np.ndarray  #: of every row of `packed`
    indices: np.ndarray

    @property
    def labels(self) -> np.ndarray:
        return np.asarray(self.relation)[self.indices]


@dataclass(frozen=True)
class Batch:
    #: (rows, longest), padded; or what the frozen part of the network made of them
    ids: torch.Tensor
    real: torch.Tensor
    flags: torch.Tensor
    relation: torch.Tensor

    @property
    def inputs(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.ids, self.real, self.flags


class SentenceTask(Task[Data]):
    name = "sentence"
    record_unit = "sentence"
    metric = "micro_f1"

    def __init__(
        self,
        corpus: SentenceCorpus,
        knobs: Knobs,
        style: Style,
        checkpoint: Checkpoint,
        part: Part = ALL,
    ) -> None:
        check_choice("metric", knobs.metric, ("micro_f1", "macro_f1"))
        check_length("max_length", knobs.max_length, checkpoint.positions(knobs.max_length))
        self.corpus, self.knobs, self.style, self.checkpoint = corpus, knobs, style, checkpoint
        self.corpus_name, self.corpus_hash = corpus.name, corpus.hash
        self.corpus_about = "; ".join(filter(None, (corpus.about, checkpoint.note)))
        self.reading, self.encoder_size = corpus.reading, checkpoint.size
        self.can_halve = True
        self.labels, self.none = corpus.relations, corpus.none
        self.part = check_part(part, "an encoder", checkpoint.backbone)
        self.record_rows = rows_are_records(checkpoint.backbone, part)
        self.network_words = f"a sentence encoder, starting from {checkpoint.words}{words_of(part)}"
        self.metric = knobs.metric
        self.built_in_statistics = style.standard and len(corpus.splits["public"]) < _ENOUGH
        self._packed: dict[str, Packed] = {}
        if part.has_frozen_bottom:
            self.bottom = self.new_bottom()
        self._packed_now("train")  # before silos are forked, so that they share it

    def new_bottom(self) -> Bottom:
        self.__dict__.pop("_public_features", None)
        return of_sentences(self.checkpoint, self.part, self.style)

    def sibling(self, corpus: Any) -> SentenceTask:
        return SentenceTask(corpus, self.knobs, self.style, self.checkpoint)

    def settle(self, model: nn.Module, data: Data) -> None:
        """A head that reads standardised features: by those of `data`, with the same answers."""
        assert isinstance(model, SentenceEncoder)
        if model.standard is not None:
            model.eval()
            rows = [np.arange(len(data.indices))[k : k + 64] for k in range(0, self.size(data), 64)]
            with torch.no_grad():
                made = [model.pool(*self.batch(data, chosen).inputs) for chosen in rows]
            model.standardise(torch.cat(made))

    def _packed_now(self, split: str) -> Packed:
        if split not in self._packed:
            self._packed[split] = self._tokenised(self.corpus.examples(split))
        return self._packed[split]

    def _tokenised(self, examples: Iterable[Example]) -> Packed:
        mentions = ((e.text, e.head, e.tail, e.head_type, e.tail_type) for e in examples)
        t, limit = self.checkpoint.tokenizer, self.knobs.max_length
        return tokenise(mentions, t, self.style.blinding, limit)

    def data(self, split: str) -> Data:
        """All of a split."""
        rows = self.corpus.splits[split]
        return Data(self._packed_now(split), rows.relation, np.arange(len(rows)))

    @cached_property
    def public(self) -> Data:
        """D_v: labelled, and readable by everybody."""
        return self.data("public")

    def own_notes(self) -> tuple[Note, ...]:
        found = []
        public, train = len(self.corpus.splits["public"]), len(self.corpus.splits["train"])
        if public and self.reading.files.get("public"):
            text = "examples of a file of their own are the public set, which everybody reads"
            found.append(Note("set aside", text, public))
        elif public:
            text = (
                f"of {public + train} training examples are the public set, which everybody reads: "
                f"drawn from the data of all silos before it is divided; {train} are trained on"
            )
            found.append(Note("set aside", text, public))
        text = f"sentences are longer than the window of {self.knobs.max_length} pieces"
        for split in ("train", "dev", "test"):
            cut = self._packed_now(split).shortened
            found += [Note("cut", f"{split} {text}", cut)] if cut else []
        return tuple(found)

    def warning(self, split: Split) -> str:
        there = np.unique(self.corpus.splits[split].relation)
        if len(there) != 1:
            return ""
        only = self.labels[int(there[0])]
        return f'all of the {split} split is of the class "{only}": its {self.metric} says nothing'

    # The contract of methods.tasks.base.Task

    def new_model(self, seed: int) -> SentenceEncoder:
        with first_numbers(seed):
            own = self.part != HEAD
            backbone = self.checkpoint.backbone if own else self._untrained_backbone
            model = SentenceEncoder(backbone, len(self.labels), self.style, shared=not own)
            train_part(model.backbone, self.part)
        model.cut(self.part)
        model = place(model)
        if model.standard is not None and self.bottom is not None and not self.start:
            model.standard.set(self._public_features)
        return self.started(model)

    @cached_property
    def _untrained_backbone(self) -> Any:
        """Of all models of which only the head is trained. Another than the one that makes their
        features: a model that is trained puts it into training mode.
        """
        return copy.deepcopy(self.checkpoint.backbone)

    def use_checkpoint(self, checkpoint: Checkpoint) -> None:
        self.__dict__.pop("_untrained_backbone", None)
        super().use_checkpoint(checkpoint)

    @cached_property
    def _public_features(self) -> torch.Tensor:
        """What a frozen encoder makes of sentences that everybody may know: those of the public set
        where there is one, else some that are built in.
        """
        assert self.bottom is not None
        if len(self.public.indices) >= _ENOUGH:
            return self.batch(self.public, np.arange(len(self.public.indices))).ids
        packed = self._tokenised(public_examples(_ENOUGH))
        rows = np.arange(len(packed))
        return self.bottom.store.rows(self.bottom.texts(packed, rows, rows))

    def frozen(self) -> Mapping[str, np.ndarray]:
        return frozen(self.new_model(0))

    def held_out(self, split: Split) -> Mapping[str, int]:
        return {"sentences": len(self.corpus.splits[split])}

    def train_size(self) -> int:
        return len(self.corpus.splits["train"])

    def partition_keys(self) -> Mapping[str, np.ndarray]:
        return {"label": np.asarray(self.corpus.splits["train"].relation)}

    def subset(self, indices: np.ndarray) -> Data:
        return replace(self.data("train"), indices=np.asarray(indices, dtype=np.int64))

    def size(self, data: Data) -> int:
        return len(data.indices)

    def batches(self, data: Data, size: int, rng: np.random.Generator) -> Iterator[Batch]:
        """Shuffled, then sorted by length within groups of batches so that little is padded, then
        shuffled again.
        """
        for chosen in self.batch_rows(data, size, rng):
            yield self.batch(data, chosen)

    def batch_rows(self, data: Data, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """The batches of one epoch as positions in the data's own list."""
        yield from batches_by_length(data.packed.lengths[data.indices], size, rng)

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        return F.cross_entropy(model(*batch.inputs), batch.relation)

    def record_losses(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        return F.cross_entropy(model(*batch.inputs), batch.relation, reduction="none")

    def record_chunks(self, data: Data, chosen: np.ndarray, most: int) -> Iterator[np.ndarray]:
        return chunks_by_length(data.packed.lengths[data.indices], chosen, most)

    def evaluate(self, model: nn.Module, split: Split) -> Evaluation:
        predicted = self.log_probabilities(model, self.data(split)).argmax(axis=1)
        return scored(self.data(split).labels, predicted, self.labels, self.none, self.metric)

    def majority(self, split: Split) -> Evaluation:
        """Always the relation that is most frequent in training; None is no relation."""
        counts = self.class_counts(self.data("train"))
        if self.none >= 0:
            counts[self.none] = 0
        gold = self.data(split).labels
        always = np.full(len(gold), counts.argmax())
        return scored(gold, always, self.labels, self.none, self.metric)

    def agreement(self) -> Mapping[str, str]:
        rows = self.corpus.splits["public"]
        public = hashlib.sha256(
            b"".join(np.ascontiguousarray(getattr(rows, f.name)).tobytes() for f in fields(rows))
        )
        classes = hashlib.sha256(json.dumps([*self.labels, self.none]).encode())
        return {
            "encoder": self.checkpoint.sha256,
            "classes": classes.hexdigest(),
            "public set": public.hexdigest(),
        }

    def model_files(self) -> Mapping[str, bytes]:
        """What `models.sentence_encoder.open_model` needs beside the weights."""
        config = {
            "architecture": "sentence-encoder",
            "relations": list(self.labels),
            "none": self.none,
            "style": asdict(self.style),
            "max_length": self.knobs.max_length,
            "encoder": self.checkpoint.name,
            "encoder_sha256": self.checkpoint.sha256,
        }
        files = {"config.json": json.dumps(config, indent=1, default=str).encode()}
        return files | encoder_files(self.checkpoint, self.part)

    # What the methods of this task use

    def batch(self, data: Data, chosen: np.ndarray) -> Batch:
        """The rows at `chosen` of the data's list as padded tensors, no longer than the longest of
        them.
        """
        p, rows = data.packed, data.indices[chosen]
        lengths = p.lengths[rows]
        span = np.arange(int(lengths.max(initial=1)))
        real = span < lengths[:, None]
        where = np.where(real, p.at[rows][:, None] + span, 0)
        pad = self.checkpoint.tokenizer.pad_token_id
        ids = here(np.where(real, p.ids[where], pad).astype(np.int64))
        if self.bottom is not None:
            texts = self.bottom.texts(p, data.indices, rows)
            store = self.bottom.store
            ids = store.rows(texts) if self.part == HEAD else store.padded(texts, len(span))
        return Batch(
            ids,
            here(real),
            here(np.where(real, p.flags[where], 0).astype(np.int64)),
            here(data.relation[rows].astype(np.int64)),
        )

    def features(self, model: SentenceEncoder, batch: Batch) -> torch.Tensor:
        """h, the pooled representation of every row, (rows, 2d or 3d)."""
        return model.encode(*batch.inputs)

    def class_counts(self, data: Data) -> np.ndarray:
        """n_c: how many of the rows have each class."""
        return np.bincount(data.labels, minlength=len(self.labels))

    def log_probabilities(self, model: nn.Module, data: Data) -> np.ndarray:
        """log p(y | s) of every row and class, dropout off: (rows, classes) float32."""
        out = np.empty((len(data.indices), len(self.labels)), dtype=np.float32)
        order = np.argsort(data.packed.lengths[data.indices], kind="stable")
        was = model.training
        model.eval()

        def score(chosen: np.ndarray) -> None:
            with torch.inference_mode():
                scores = F.log_softmax(model(*self.batch(data, chosen).inputs), dim=-1)
                out[chosen] = there(scores)

        if self.bottom is not None:
            self.bottom.prepare(data.packed, data.indices)
        dimensions = int(self.checkpoint.backbone.config.hidden_size)
        rows = min(_SCORE_BATCH, max(1, _SCORE_NUMBERS // dimensions))
        for_each(score, (order[b : b + rows] for b in range(0, len(order), rows)))
        model.train(was)
        return out
