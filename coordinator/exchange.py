"""What a round is made of, whoever carries it: an exchange to perform, who takes part, how answers
are coded, how it can end. The rounds themselves are in coordinator.loop; real processes and the
in-process runner differ in the `Carrier`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from config.settings import Settings
from crypto.numbers.encoding import Encoding, steps_of
from crypto.numbers.rounding import default_rounding
from crypto.sum.params import least_honest, policy_for
from methods.base import Broadcast, Exchange, Folded, Method
from methods.dp.sum_noise import ranges_of, sum_noise_of
from wire.counter import ByteCounter
from wire.stored import Lazily

__all__ = [
    "BudgetsSpent",
    "Call",
    "Carrier",
    "CohortLost",
    "Interrupted",
    "NothingToSpend",
    "Phases",
    "RoundFailed",
    "RoundSpent",
    "TooFew",
    "WaitedInVain",
    "call_ranges",
    "first_ranges",
    "message_bytes",
    "next_ranges",
    "numbers_sent",
]


class RoundFailed(Exception):
    """A round that cannot be completed with the silos that are left. The run ends and can be
    resumed.
    """


class TooFew(RoundFailed):
    """Silos that were asked are gone, and the round needs them. A carrier that waits for silos asks
    again once they are back.
    """


class WaitedInVain(RoundFailed):
    """The stated time is up, and silos that a round needs did not come back: it cannot begin without
    them, or cannot begin again, because shares of a sum are out or a sum is in the model. What is
    finished or opened is on disk: a coordinator that is started again goes on waiting.
    """


class NothingToSpend(RoundFailed):
    """The silos are here, and their privacy budgets do not allow a round: waiting mends nothing."""


class CohortLost(RoundFailed):
    """A round whose silos were drawn, and of whom too few are left before anything is opened. It
    begins again, with a draw among those who are here then.
    """


class RoundSpent(Exception):
    """A round whose sum cannot be had any more: it was opened by a coordinator that then died before
    it kept the result, or too few silos contribute for it ever to be opened.

    Silos release shares for a payload once: two sums over it that differ by one silo would reveal
    that silo. So the round is given up, and the run goes on with the model it has.
    """


class BudgetsSpent(Exception):
    """So few silos have privacy budget left that no round is possible. The run ends here, in good
    order.
    """


class Interrupted(Exception):
    """The operator asked to stop. What is finished is kept."""


@dataclass(frozen=True)
class Call:
    """One exchange, to be carried to the cohort and back."""

    round: int
    index: int
    exchange: Exchange
    broadcast: Broadcast
    cohort: tuple[int, ...]
    ranges: tuple[float, ...]
    lane_bits: int
    #: the arrays are on the encoding's grid already (DP=silo): neither dice nor rotation
    exact: bool = False
    opened: bool = False  #: a sum of this round is in the model: it cannot begin again

    def encoding(self) -> Encoding:
        """With room for everybody who was asked: whoever is lost on the way does not change how the
        rest is coded.
        """
        parties, sizes = len(self.cohort), tuple(s.size for s in self.exchange.masked.values())
        rounding, rotate = default_rounding(self.lane_bits, parties)
        if self.exact or all(s.bounded for s in self.exchange.masked.values()):
            rounding, rotate = "nearest", False
        return Encoding(self.lane_bits, parties, sizes, self.ranges, rounding, rotate)

    def total(self, sums: Sequence[np.ndarray]) -> Mapping[str, np.ndarray]:
        """By name, each decoded when it is looked up."""
        declared = self.exchange.masked
        number = {name: i for i, name in enumerate(declared)}
        return Lazily(number, lambda n: sums[number[n]].reshape(declared[n].shape))  # type: ignore[arg-type]


@dataclass
class Phases:
    """Seconds of one round by what they were spent on: the coordinator's own, and all silos' added
    up.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    silo_seconds: dict[str, float] = field(default_factory=dict)

    def add(self, phase: str, since: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.monotonic() - since

    def add_silo(self, stage: str, seconds: float) -> None:
        self.silo_seconds[stage] = self.silo_seconds.get(stage, 0.0) + seconds

    def drain(self) -> dict[str, dict[str, float]]:
        taken = {"phases": self.seconds, "silo_seconds": self.silo_seconds}
        self.seconds, self.silo_seconds = {}, {}
        return {name: {k: round(v, 4) for k, v in table.items()} for name, table in taken.items()}


class Carrier(Protocol):
    """Carries exchanges. `present` are the silos that can be asked; `perform` returns what the
    survivors gave.
    """

    counter: ByteCounter
    phases: Phases
    spent: set[int]  #: silos whose privacy budget is spent; not among the present
    charged: list[dict[str, Any]]  #: what silos said of their ledgers, until the loop takes it
    patient: bool  #: whether `begin_round` waits until enough silos are here

    @property
    def said(self) -> Mapping[str, str]:
        """Exchange -> digest of what was broadcast in it this round."""
        ...

    @property
    def source(self) -> bytes:
        """What small cohorts are drawn from."""
        ...

    def present(self) -> tuple[int, ...]: ...
    def session(self) -> tuple[int, ...]:
        """Those among whom small cohorts are drawn; some of them may be gone by now."""
        ...

    def renew(self, round: int) -> None:
        """Set up a session with those who are here and can take part."""
        ...

    def begin_round(self, round: int) -> tuple[int, ...]:
        """Let in whoever came. Returns who was asked, where a sum of the first exchange survived a
        crash.
        """
        ...

    def go_on(self, round: int, index: int, said: Mapping[str, str]) -> tuple[int, ...]:
        """After a crash between two exchanges: the silos that can go on with this exchange of this
        round.
        """
        ...

    def perform(self, call: Call) -> Folded: ...
    def kept(self) -> None:
        """What `perform` returned last is on disk."""
        ...

    def end_round(self, round: int) -> None: ...
    def stop(self, reason: str) -> None: ...
    def settle(self) -> None:
        """After the end: read what silos sent and nobody needed, so that it is counted."""
        ...


def call_ranges(
    settings: Settings, method: Method, exchange: Exchange, parties: int
) -> tuple[float, ...]:
    """The first round's; with DP=silo every round's: the grid on which the silos' noise is made."""
    if settings.dp == "silo" and exchange.masked:
        return _noise_ranges(settings, method, exchange, parties)
    return first_ranges(settings, exchange)


def first_ranges(settings: Settings, exchange: Exchange) -> tuple[float, ...]:
    """Before there is an aggregate: the cap itself where 32-bit lanes make resolution free, else a
    guess of 1.
    """
    guess = settings.range or (float("inf") if settings.bits == 32 else 1.0)
    return tuple(s.cap if s.bounded else min(guess, s.cap) for s in exchange.masked.values())


def _noise_ranges(
    settings: Settings, method: Method, exchange: Exchange, parties: int
) -> tuple[float, ...]:
    """DP=silo: the grid on which the silos' noise is made; they check it."""
    try:
        honest = least_honest(
            parties, policy_for(settings.fraction, settings.silos), settings.silos
        )
    except ValueError as e:
        raise RoundFailed(f"A sum over {parties} silos is not possible: {e}.") from None
    steps = steps_of(settings.bits, parties)
    return ranges_of(sum_noise_of(settings, method, honest, steps), exchange, steps)


def next_ranges(settings: Settings, call: Call, folded: Folded) -> tuple[float, ...]:
    """Eight times the largest coordinate of the last mean: public, since the mean is. Fixed where
    the user fixed it.
    """
    if settings.range or settings.bits == 32:
        return call.ranges
    n = len(folded.survivors)
    return tuple(
        spec.cap
        if spec.bounded
        else float(
            np.clip(8 * np.abs(folded.total[name]).max(initial=0.0) / n, spec.cap / 4096, spec.cap)
        )
        for name, spec in call.exchange.masked.items()
    )


def message_bytes(call: Call, folded: Folded) -> dict[str, int]:
    """The arrays of one exchange as they are coded, over all who took part: what a paper calls the
    message size.

    The same in both runners. Framing, encryption and the secure sum's own protocol are not in it;
    the byte counter has them, where there is a wire.
    """
    down = len(call.cohort) * sum(a.nbytes for a in call.broadcast.common.values())
    down += sum(a.nbytes for arrays in call.broadcast.private.values() for a in arrays.values())
    up = len(folded.survivors) * (call.encoding().bytes if call.exchange.masked else 0)
    up += sum(a.nbytes for silo in folded.survivors for a in folded.sealed.get(silo, {}).values())
    return {"up": up, "down": down}


def numbers_sent(call: Call, folded: Folded) -> dict[str, int]:
    """Per disclosure of one exchange, how many numbers the survivors sent. An exchange can pass and
    carry nothing.
    """
    found = {d.name: 0 for d in call.exchange.disclosures}

    def add(array: str, numbers: int) -> None:
        name = array if array in found else array.partition("/")[0]
        found[name] = found.get(name, 0) + numbers

    for array, spec in call.exchange.masked.items():
        add(array, spec.size * len(folded.survivors))
    if call.exchange.contributors:
        found["contributes"] = len(folded.survivors)
    for silo in folded.survivors:
        for array, values in folded.sealed.get(silo, {}).items():
            add(array, int(values.size))
    return found
