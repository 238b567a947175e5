"""What a method needs to know of a task: a network, its examples, its loss, its metric.

A task is one of distant supervision, sentence relations, document relations or NER. It joins a
corpus from `corpora` to a network from `models`; methods are written against this class and so run
on any task that fits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Literal, Protocol

import numpy as np
import torch
from torch import nn
from typing_extensions import TypeVar

from config.part import ALL, Part
from corpora.notes import Note, Reading, sentence_of
from methods.tasks.bottom import Bottom
from methods.tasks.start import plain_name, put, with_start
from models.backbone import Checkpoint
from models.precision import set_precision
from models.tuning import frozen

__all__ = ["Evaluation", "Examples", "Loss", "Split", "Task"]

Split = Literal["dev", "test"]
#: What a user of own text must know of a head that is trained with noise.
_ODD_STATISTICS = Note(
    "said",
    "features below the head are standardised by built-in text, which is unlike this corpus: some "
    "hundred public texts of its own kind (PUBLIC=folder, or for sentences SET=public=0.1) fit better",
)
#: (network, batch) -> a loss. Which network and which batch is between a task and its methods.
Loss = Callable[[Any, Any], torch.Tensor]


@dataclass(frozen=True)
class Evaluation:
    value: float  #: the task's headline metric
    figures: Mapping[str, float] = field(default_factory=dict)  #: every other scalar, by name
    per_class: Mapping[str, float] = field(default_factory=dict)
    curve: Sequence[tuple[float, float]] = ()  #: (recall, precision) where the task has one


class Examples(Protocol):
    """The training units of one silo: which they are, and whatever else its task keeps beside."""

    @property
    def indices(self) -> np.ndarray: ...


D = TypeVar("D", bound=Examples, default=Any)
M = TypeVar("M", bound=nn.Module)


class Task(ABC, Generic[D]):
    """One corpus and the network trained on it. Holds the held-out splits; training data are handed
    in.
    """

    name: ClassVar[str]
    metric: str
    corpus_name: str  #: as the user named it
    corpus_hash: str  #: hash of the content, so that two runs can be told to be on the same data
    #: what it is ("synthetic, made from seed 0": not comparable with a paper), and its encoder
    corpus_about: str
    #: From which files it is, and what its reader did to them.
    reading: Reading = Reading()
    labels: tuple[str, ...]
    #: The network in words, with the encoder it starts from: for the report.
    network_words: str = ""
    #: How many parameters the encoder or language model has that the network stands on; 0: none.
    encoder_size: int = 0
    #: Whether that encoder can compute in bfloat16 (`models.precision`): one that is called whole.
    can_halve: bool = False
    checkpoint: Checkpoint  #: where it is loaded from; of tasks that have one
    #: What one record is, in words: what DP=record protects, samples and clips.
    record_unit: str = ""
    #: Whether the first axis of every layer of the network is the record, in the parts that
    #: `record_chunks` makes of a batch, so that their gradients are clipped in one pass
    #: (`methods.dp.engine`); otherwise one by one.
    record_rows: bool = False
    #: Which part of the network is trained.
    part: Part = ALL
    #: What lies below that part and is computed once; None: nothing does.
    bottom: Bottom | None = None
    #: The parameters, by name, that models begin with since public text was trained on: all of them
    #: at the coordinator, at a silo those that it does not train. Empty: there is no public text.
    start: Mapping[str, np.ndarray] = MappingProxyType({})
    #: whether a head reads features that are standardised by built-in text
    built_in_statistics: bool = False

    def start_from(self, start: Mapping[str, np.ndarray]) -> None:
        """Every model that is made from now on begins with these parameters, and frozen features
        are computed from them.
        """
        self.start = start
        if hasattr(self, "checkpoint"):
            self.use_checkpoint(with_start(self.checkpoint, start))

    def use_checkpoint(self, checkpoint: Checkpoint) -> None:
        """The same encoder with other weights."""
        self.checkpoint = checkpoint
        if self.bottom is not None:
            before, self.bottom = self.bottom, self.new_bottom()
            if before.folder is not None:
                self.bottom.keep_in(before.folder, before.lasting)

    def new_bottom(self) -> Bottom:
        """Of tasks with a frozen bottom: that of the checkpoint."""
        raise NotImplementedError(f"{self.name} has no frozen bottom")

    def started(self, model: M) -> M:
        """A model that was just made, with the parameters that public text gave."""
        put(model, self.start)
        return model

    def not_trained(self) -> Mapping[str, np.ndarray]:
        """The parameters that silos never train, as they are at the start: what a silo has to be
        told where public text decided them.
        """
        return {plain_name(k): v for k, v in frozen(self.new_model(0)).items()}

    def sibling(self, corpus: Any) -> Task:
        """The same network on another corpus of the task, with every parameter trained: what the
        coordinator trains on public text.
        """
        raise NotImplementedError(f"{self.name} has no network of which all is trained")

    def settle(self, model: nn.Module, data: D) -> None:
        """Of a `sibling`: what is left to do once all parameters are trained on `data`."""

    def keep_features_in(self, folder: Path, lasting: bool = False) -> None:
        """Where the features of the frozen bottom are kept, of the texts that this process reads.
        They are as private as the texts. A silo that shares its process with others says so at
        each of its turns. `lasting`: they are not forgotten, because other runs of
        a simulation read them too.
        """
        if self.bottom is not None:
            self.bottom.keep_in(folder, lasting)

    def forget_features(self) -> None:
        """The run is over: nothing of them stays."""
        if self.bottom is not None:
            self.bottom.forget()

    def majority(self, split: Split) -> Evaluation | None:
        """What the most frequent answer of the training data would score, always given: a reference.
        None: where that answer is "nothing", which scores 0.
        """
        return None

    def compute_in(self, precision: str) -> None:
        """In which numbers the encoders of all models that are made from now on compute."""
        if self.can_halve:
            set_precision(self.checkpoint.backbone, precision)

    def notes(self) -> tuple[Note, ...]:
        """All that was done to the data: by the reader, by setting some aside, by the network's
        window. Held-out splits are prepared for it, if they were not.
        """
        built_in = self.reading.format == "built-in"
        odd = () if built_in or not self.built_in_statistics else (_ODD_STATISTICS,)
        return (*self.reading.notes, *self.own_notes(), *odd)

    def own_notes(self) -> tuple[Note, ...]:
        """What this task adds to the reader's notes."""
        return ()

    @property
    def corpus_note(self) -> str:
        """What a report must say of the corpus, in one line."""
        return "; ".join(filter(None, (self.corpus_about, sentence_of(self.notes()))))

    def warning(self, split: Split) -> str:
        """Why the metric on a split says little, or nothing."""
        return ""

    @abstractmethod
    def new_model(self, seed: int) -> nn.Module:
        """The network before any training, decided by `seed` alone."""

    @abstractmethod
    def train_size(self) -> int:
        """How many training units (sentences, documents) a partition divides. 0 on a coordinator
        without data.
        """

    @abstractmethod
    def partition_keys(self) -> Mapping[str, np.ndarray]:
        """Per training unit, what partitions cut by: "label" always, "pair" or "entropy" where the
        task has them.
        """

    def agreement(self) -> Mapping[str, str]:
        """What coordinator and silos must have alike, by name: hashes of public content (a
        checkpoint, the public set).

        Compared when a silo enrols, which is refused by that name. Nothing of a silo's own data may
        be in it.
        """
        return {}

    def label_counts(self, indices: np.ndarray) -> np.ndarray:
        """How often each label occurs in these units: for the picture of a simulation's partition,
        and nothing else.
        """
        return np.bincount(
            np.asarray(self.partition_keys()["label"])[indices], minlength=len(self.labels)
        )

    def unit_measure(self) -> tuple[str, np.ndarray] | None:
        """A name and a number per training unit whose histogram a simulation's report shows by
        silo; None: nothing.
        """
        return None

    def held_out(self, split: Split) -> Mapping[str, int]:
        """How large a held-out split is, in the things that are judged: words -> number."""
        return {}

    def natural_silos(self) -> int:
        """How many silos the corpus suggests where the user names no number."""
        return 10

    def divided(self, indices: Sequence[np.ndarray]) -> None:
        """The partition, once it is cut, for tasks in which it matters who holds a training
        unit.
        """
        return

    @abstractmethod
    def subset(self, indices: np.ndarray) -> D:
        """The examples of one silo. Cheap to hold: indices into arrays that forked silos share."""

    @abstractmethod
    def size(self, data: D) -> int:
        """How many training units `data` holds."""

    @abstractmethod
    def batches(self, data: D, size: int, rng: np.random.Generator) -> Iterator[Any]:
        """One shuffled epoch. The last batch is kept however small; no data, no batch."""

    @abstractmethod
    def batch(self, data: D, chosen: np.ndarray) -> Any:
        """The training units at these positions of `data`, as `loss` takes them."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        """The task's plain loss, mean over the batch."""

    def gradients(self, model: nn.Module) -> Callable[[Any], torch.Tensor] | None:
        """Where there is a quicker way to them than autograd's, to the same bits: what leaves those
        of `loss` for a batch in the parameters, and returns the loss. Asked once for many batches,
        of a model that is in training.
        """
        return None

    def record_losses(self, model: nn.Module, batch: Any) -> torch.Tensor:
        """The same loss for each record of the batch by itself, (records,): what DP-SGD clips one
        by one.
        """
        raise NotImplementedError(f"{self.name} has no losses by record")

    def record_chunks(self, data: D, chosen: np.ndarray, most: int) -> Iterator[np.ndarray]:
        """The records of a DP-SGD step in parts of at most `most` that are computed at once: order
        does not matter to their sum.
        """
        for at in range(0, len(chosen), most):
            yield chosen[at : at + most]

    @abstractmethod
    def evaluate(self, model: nn.Module, split: Split) -> Evaluation: ...

    def frozen(self) -> Mapping[str, np.ndarray]:
        """Weights that are not trained and belong into a saved model all the same, by name."""
        return {}

    @abstractmethod
    def model_files(self) -> Mapping[str, bytes]:
        """What beside the weights makes a saved model usable: config, vocabulary, label names."""
