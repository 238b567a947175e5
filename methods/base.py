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
from crypto.identity.statements import Signer, simulated_signer
from crypto.oprf.peers import Peers
from methods.declared import Privacy, RecordPrivacy, Release, Unit
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
Channel = Literal["masked", "sealed", "signed"]
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
    "signed": "the coordinator and the silos of the sum",
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
    #: The most that a length only the silo knows may be, for each `None` in the shape. The
    #: coordinator refuses more before it keeps a byte.
    most: int = 1 << 20

    @property
    def most_bytes(self) -> int:
        """Of an array with every unknown length at its most, in a buffer that keeps it aligned."""
        numbers = prod(self.most if n is None else n for n in self.shape)
        return numbers * np.dtype(self.dtype).itemsize + 64

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
    #: silo index -> arrays for that silo alone. Silos take them only where the exchange declares
    #: `contributors`, or where nothing of the method is masked.
    private: Mapping[int, Arrays] = field(default_factory=dict)


@dataclass(frozen=True)
class Heard:
    """What one silo was told in one exchange."""

    round: int
    cohort: tuple[int, ...]  #: indices of the silos taking part in this exchange
    common: Arrays
    private: Arrays = field(default_factory=dict)
    #: Hash of the run and of all broadcasts of this round that the answer stands on, this one
    #: included: the same at every silo that heard the same. What a silo signs is bound to it.
    context: bytes = b""


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
    #: Whether others can hide behind what this silo put into the sum. Signed and sent where the
    #: exchange asks for contributors, and only there.
    contributes: bool = False


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
    secret: bytes  #: shared by the silos, unknown to the coordinator
    memory: Arrays = field(default_factory=dict)
    carry: Mapping[str, Any] = field(default_factory=dict)
    spend: Spend = _uncharged
    privacy: Privacy | None = None  #: the method's own declaration
    #: KEEP_OPTIMIZER: round -> the state that this silo's optimizer was left with before it, and
    #: what takes the state after it. Kept on the silo's disk, never sent.
    kept_optimizer: Callable[[int], Arrays] = lambda round: {}
    keep_optimizer: Callable[[int, Callable[[], Arrays]], None] = lambda round, state: None
    #: (round, purpose) -> 32 bytes for privacy noise and secret sampling. None: from the run's
    #: seed, which is right in a simulation and nowhere else, because whoever knows the seed can
    #: subtract the noise.
    secret_bytes: Callable[[int, str], bytes] | None = None
    #: Signs under this silo's pinned identity. None: identities from the run's seed, as above.
    signer: Signer | None = None
    #: What it can prove to the other silos in this run, and check of them. None: as for `signer`.
    peers: Peers | None = None
    #: Exchange of this round -> whose answers are in its sum, where this silo has seen that enough
    #: holders signed exactly those. Nothing that a coordinator says alone gets in here.
    certified: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def sign(self, purpose: str, data: bytes) -> bytes:
        """A statement to the other silos, which the coordinator carries and cannot change."""
        return self._signer.sign(purpose, data)

    def verify(self, index: int, purpose: str, data: bytes, signature: bytes) -> bool:
        """Whether silo `index` made this statement."""
        return self._signer.verify(silo_name(index), purpose, data, signature)

    @property
    def among(self) -> Peers:
        s = self.settings
        return self.peers or Peers.simulated(s.seed, self.index, s.silos)

    @property
    def _signer(self) -> Signer:
        names = tuple(map(silo_name, range(self.settings.silos)))
        return self.signer or simulated_signer(self.settings.seed, silo_name(self.index), names)

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
    #: Of what its answer leaves for later exchanges (`Answer.carry`), what those compute again where
    #: it is missing: a silo that was restarted has the rest from its disk (silo.round_file).
    computed_again: tuple[str, ...] = ()
    #: Whether later exchanges of the round find the silo's masked arrays as they are in the sum,
    #: rounded to its encoding, in `carry["coded"]`: for a silo that takes its own part out again.
    keep_coded: bool = False
    #: Whether the sum must hide behind signed contributors (crypto/sum/contribution.py): wherever
    #: what a silo is told alone (`Broadcast.private`) could make it send nothing. Needs a
    #: `Disclosure` "contributes", signed.
    contributors: bool = False
    #: (silo, heard) -> sealed arrays of the size that the silo would send, made without a model:
    #: what planning counts. Only where a length in `sealed` is the silo's own. Never sent.
    rehearsed: Callable[[SiloView[Any, Any], Heard], Arrays] | None = None
    #: Whether all silos that are here are asked, and not only the round's cohort. Nothing of it may
    #: be masked, nor be carried to the round's later exchanges. What a silo keeps of it on its disk
    #: decides no sum, unless the sum's broadcasts name it by its hash.
    everyone: bool = False
    #: Whether `QUORUM` does not end it: it needs the answers of certain silos, however many are in.
    patient: bool = False
    #: (state, round, who would be asked) -> whether there is nothing to ask. Then no message is
    #: sent, and nothing folded.
    skip: Callable[[State, int, tuple[int, ...]], bool] = lambda state, round, asked: False

    @property
    def sealed_bytes(self) -> int:
        """The most that a silo's sealed arrays may take."""
        return sum(spec.most_bytes for spec in self.sealed.values())


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
