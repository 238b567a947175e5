"""What a method is: a short list of exchanges, and for each what travels, how, and what it tells
whom.

A round of every method in this package is the same dance. The coordinator says something
(`Broadcast`), each silo computes (`Answer`), the answers come back *masked* (only their sum over
the surviving silos is ever readable) or *sealed* (readable by the coordinator alone), and the
coordinator folds them (`Folded`) into its next `State`.

Everything that crosses a boundary is a mapping from names to numpy arrays, so that checkpoints,
both runners and the silo's refusals need no code of any one method. States are frozen; functions
return new ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Generic, Literal

import numpy as np
from typing_extensions import TypeVar

from config.settings import Settings
from privacy.events import Event

if TYPE_CHECKING:
    from methods.tasks.base import Evaluation, Examples, Split, Task

__all__ = [
    "Answer",
    "ArraySpec",
    "Arrays",
    "Broadcast",
    "Contradiction",
    "Disclosure",
    "Exchange",
    "Folded",
    "Heard",
    "Method",
    "Privacy",
    "RecordPrivacy",
    "Release",
    "SiloView",
    "State",
    "Unit",
    "derived_seed",
    "silo_name",
]

Arrays = Mapping[str, np.ndarray]
Channel = Literal["masked", "sealed"]
#: (what is paid for, event): charged to the silo's ledger before it returns, or refused.
Spend = Callable[[str, Event], None]
#: The task and the examples that a silo half works on. A method for one task alone names them:
#: `SiloView[DistantTask, Rows]`; one that says nothing gets what every task offers.
T_co = TypeVar("T_co", bound="Task", default="Task", covariant=True)
D_co = TypeVar("D_co", bound="Examples", default="Examples", covariant=True)

_SUM = "the coordinator reads only the sum over the surviving silos"
READABLE_BY = {
    "masked": f"nobody; {_SUM}",
    "sealed": "the coordinator alone",
}


@dataclass(frozen=True)
class Disclosure:
    """One thing a silo sends, in words its data-protection officer can sign."""

    #: the name, or the first part ("update" of "update/fc.weight"), of the arrays it covers
    name: str
    channel: Channel
    shape: str  #: what it consists of, in words: "one number per model parameter"
    reveals: str  #: what it tells whoever can read it
    privacy: str  #: how it is charged to the privacy budget
    #: of a masked one: the lie by which a coordinator could make the sum one silo's own
    unless: str = ""

    @property
    def readable_by(self) -> str:
        return f"nobody, unless {self.unless}; {_SUM}" if self.unless else READABLE_BY[self.channel]


@dataclass(frozen=True)
class ArraySpec:
    """What one array of an answer must look like. `None` in a shape is a length that only the silo
    knows.
    """

    shape: tuple[int | None, ...]
    dtype: str = "float32"
    #: Masked arrays only: magnitudes above this are clipped, whatever range the coordinator
    #: proposes.
    cap: float = 8.0
    #: Masked arrays only: values fill [-cap, cap] by construction (log-probabilities, not updates).
    #: They are coded over that range from the first round on, and are never rotated, which would
    #: carry them out of it.
    bounded: bool = False
    #: Masked arrays only: a silo's number of examples as a share of `Exchange.weight_cap`, so from 0
    #: to 1; more is refused. DP=silo adds no noise to it and wants it to be one at every silo.
    public_count: bool = False

    @property
    def size(self) -> int:
        """Elements of an array whose shape is fully declared."""
        return prod(n for n in self.shape if n is not None)


@dataclass(frozen=True)
class State:
    """All that the coordinator carries from one exchange to the next: enough to go on after a
    crash.
    """

    model: Arrays  #: the global model's trainable parameters, float32
    memory: Arrays = field(default_factory=dict)  #: whatever else the method keeps


@dataclass(frozen=True)
class Broadcast:
    common: Arrays  #: for every participant, serialised once
    #: silo index -> arrays for that silo alone
    private: Mapping[int, Arrays] = field(default_factory=dict)


@dataclass(frozen=True)
class Heard:
    """What one silo was told in one exchange."""

    round: int
    cohort: tuple[int, ...]  #: indices of the silos taking part in this exchange
    common: Arrays
    private: Arrays = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    masked: Arrays = field(default_factory=dict)
    sealed: Arrays = field(default_factory=dict)
    #: Kept by the silo in memory until the round ends, for its next exchange. Never sent.
    carry: Mapping[str, Any] = field(default_factory=dict)
    #: Kept on the silo's disk between rounds (previous model, instance weights). None: unchanged.
    #: Never sent.
    memory: Arrays | None = None
    #: Figures for the silo's own log (losses, sizes). Never sent.
    notes: Mapping[str, float] = field(default_factory=dict)


class Contradiction(Exception):
    """What was broadcast cannot be true, by what this silo knows of itself: it takes no part."""


@dataclass(frozen=True)
class Folded:
    """What the coordinator learns from one exchange."""

    round: int
    survivors: tuple[int, ...]  #: those whose answers are in `total`, sorted
    total: Arrays  #: sum over the survivors of each masked array, float64
    sealed: Mapping[int, Arrays] = field(default_factory=dict)


def _uncharged(what: str, event: Event) -> None:
    """Outside a gate there is no ledger, and nothing leaves."""


@dataclass(frozen=True)
class SiloView(Generic[T_co, D_co]):
    """What the silo half of a method may use: its own data, its own memory, and nobody else's."""

    index: int
    task: T_co
    data: D_co  #: this silo's own examples, in whatever form the task keeps them
    settings: Settings
    secret: bytes  #: shared by the silos, unknown to the coordinator (keyed names)
    memory: Arrays = field(default_factory=dict)
    carry: Mapping[str, Any] = field(default_factory=dict)
    spend: Spend = _uncharged
    privacy: Privacy | None = None  #: the method's own declaration
    #: (round, purpose) -> 32 bytes for privacy noise and secret sampling. None: from the run's
    #: seed, which is right in a simulation and nowhere else, because whoever knows the seed can
    #: subtract the noise.
    secret_bytes: Callable[[int, str], bytes] | None = None

    def noise_key(self, round: int, purpose: str) -> bytes:
        if self.secret_bytes is not None:
            return self.secret_bytes(round, purpose)
        parts = (self.settings.seed, "noise", self.index, round, purpose)
        return hashlib.sha256("/".join(map(str, parts)).encode()).digest()

    def seed(self, round: int, purpose: str) -> int:
        return derived_seed(self.settings.seed, "silo", self.index, round, purpose)

    def rng(self, round: int, purpose: str) -> np.random.Generator:
        return np.random.default_rng(self.seed(round, purpose))


@dataclass(frozen=True)
class Exchange:
    name: str
    disclosures: tuple[Disclosure, ...]
    broadcast: Callable[[State, int, tuple[int, ...]], Broadcast]  #: (state, round, cohort)
    answer: Callable[[SiloView[Any, Any], Heard], Answer]
    fold: Callable[[State, Folded], State]
    masked: Mapping[str, ArraySpec] = field(default_factory=dict)
    sealed: Mapping[str, ArraySpec] = field(default_factory=dict)
    #: Where silos weigh by size: the size that is a weight of one, agreed before the run. The array
    #: declared as `public_count` is then a silo's size divided by it, at most one, and the silo
    #: refuses to send more or to be summed under another.
    weight_cap: float = 1.0
    #: Whether later exchanges of the round find the silo's masked arrays as they are in the sum,
    #: rounded to its encoding, in `carry["coded"]`: for a silo that takes its own part out again.
    keep_coded: bool = False
    #: (silo, round) -> sealed arrays of the size that the silo would send, made without a model:
    #: what planning counts. Only where a length in `sealed` is the silo's own. Never sent.
    rehearsed: Callable[[SiloView[Any, Any], int], Arrays] | None = None


@dataclass(frozen=True)
class Unit:
    """What DP=record samples, clips and protects as one, where that is not the task's own training
    unit.
    """

    word: str  #: for people: "bag"
    count: Callable[[Any, Any], int]  #: (task, examples) -> how many of them


@dataclass(frozen=True)
class Release:
    """Numbers that a method gives out under DP=record beside what it trains: clipped and noised.

    The noise is such that all of these releases together would cost `share` of epsilon by
    themselves. The noise of training is then solved so that everything together meets epsilon.
    """

    what: str  #: as the ledger has it: "class counts"
    often: int  #: how many times in a whole run
    share: float = 0.1


@dataclass(frozen=True)
class RecordPrivacy:
    """Why a method may run with DP=record: what it sends is noised by DP-SGD, or by a release."""

    #: Disclosure -> why it costs nothing once training and releases are charged. A disclosure that
    #: is not here is not covered, and the method is refused.
    free: Mapping[str, str]
    unit: Unit | None = None  #: None: the task's own training unit
    release: Release | None = None
    spent: float = 1.0  #: the share of epsilon that training's noise is solved for


@dataclass(frozen=True)
class Privacy:
    """What a privacy budget covers in this method. A method that declares nothing runs without one
    only.
    """

    record: RecordPrivacy | None = None  #: None: it does not run with DP=record
    #: Whether DP=silo may put noise into every masked array but the public counts.
    silo: bool = False
    instead: str = ""  #: where something sealed stands against DP=silo: what to ask for instead


@dataclass(frozen=True)
class Method:
    name: str
    citation: str
    exchanges: tuple[Exchange, ...]
    init: Callable[[int], State]  #: seed -> the state before round 0
    #: For a method whose `State.model` is not one model of the task.
    evaluate: Callable[[Arrays, Split], Evaluation] | None = None
    privacy: Privacy | None = None  #: None: nobody has said, and no budget is accepted
    digest: str = ""  #: SHA-256 of its file, for a method from outside of this package

    @property
    def agreement(self) -> dict[str, str]:
        """What every party must have alike, by name, beside what the task says."""
        return {"method file": self.digest} if self.digest else {}

    @property
    def disclosures(self) -> tuple[Disclosure, ...]:
        return tuple(d for e in self.exchanges for d in e.disclosures)


def silo_name(index: int) -> str:
    return f"silo-{index:03d}"


def derived_seed(*parts: object) -> int:
    """A 63-bit seed from a run's one seed and what it is for; independent of process, order and
    hash salt.
    """
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
