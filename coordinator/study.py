"""The rounds: who takes part, what they are told, what becomes of their answers, how good it is, and where it is kept.

This loop is the same for real processes and for the in-process runner; the two differ in the `Chorus` that carries
an exchange. Everything random here comes from the run's seed, so the two give the same model, bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from config.settings import Settings
from coordinator import checkpoint
from coordinator.checkpoint import Checkpoint, model_sha256
from coordinator.runlog import RunLog
from coordinator.summary import write_summary
from crypto.encoding import Encoding, default_rounding
from methods.base import Arrays, Broadcast, Exchange, Folded, Method, State, derived_seed, silo_name
from methods.local import load
from methods.task import Evaluation, Split, Task
from wire.counter import ByteCounter

__all__ = [
    "Call",
    "Chorus",
    "Interrupted",
    "RoundFailed",
    "RoundSpent",
    "first_ranges",
    "message_bytes",
    "run_study",
    "select",
]


class RoundFailed(Exception):
    """A round that cannot be completed with the silos that are left. The run ends and can be resumed."""


class RoundSpent(Exception):
    """A round whose sum was opened by a coordinator that then died before it kept the result.

    Silos release shares for a payload once: two sums over it that differ by one silo would reveal that silo. So the
    round is given up, and the run goes on with the model it has.
    """


class BudgetsSpent(Exception):
    """So few silos have privacy budget left that no round is possible. The run ends here, in good order."""


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

    def encoding(self) -> Encoding:
        """With room for everybody who was asked: whoever is lost on the way does not change how the rest is coded."""
        parties, sizes = len(self.cohort), tuple(s.size for s in self.exchange.masked.values())
        rounding, rotate = default_rounding(self.lane_bits, parties)
        if all(s.bounded for s in self.exchange.masked.values()):
            rounding, rotate = "nearest", False
        return Encoding(self.lane_bits, parties, sizes, self.ranges, rounding, rotate)

    def total(self, sums: list[np.ndarray]) -> dict[str, np.ndarray]:
        return {n: x.reshape(s.shape) for (n, s), x in zip(self.exchange.masked.items(), sums)}  # type: ignore[arg-type]


@dataclass
class Phases:
    """Seconds of one round by what they were spent on: the coordinator's own, and all silos' added up."""

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


class Chorus(Protocol):
    """Carries exchanges. `present` are the silos that can be asked; `perform` returns what the survivors gave."""

    counter: ByteCounter
    phases: Phases
    spent: set[int]  #: silos whose privacy budget is spent; not among the present
    charged: list[dict[str, Any]]  #: what silos said of their ledgers, until the loop takes it

    def present(self) -> tuple[int, ...]: ...
    def perform(self, call: Call) -> Folded: ...
    def end_round(self, round: int) -> None: ...
    def stop(self, reason: str) -> None: ...


def select(settings: Settings, round: int, present: Collection[int]) -> tuple[int, ...]:
    """m = max(floor(C K), 1) silos, in the order of one permutation per round, passing over those that are gone."""
    m = max(int(settings.fraction * settings.silos), 1)
    rng = np.random.default_rng(derived_seed(settings.seed, "cohort", round))
    order = [int(i) for i in rng.permutation(settings.silos) if int(i) in present]
    return tuple(sorted(order[:m]))


def first_ranges(settings: Settings, exchange: Exchange) -> tuple[float, ...]:
    """Before there is an aggregate: the cap itself where 32-bit lanes make resolution free, else a guess of 1."""
    guess = settings.range or (float("inf") if settings.bits == 32 else 1.0)
    return tuple(s.cap if s.bounded else min(guess, s.cap) for s in exchange.masked.values())


def _next_ranges(settings: Settings, call: Call, folded: Folded) -> tuple[float, ...]:
    """Eight times the largest coordinate of the last mean: public, since the mean is. Fixed where the user fixed it."""
    if settings.range or settings.bits == 32:
        return call.ranges
    n = len(folded.survivors)
    return tuple(
        spec.cap
        if spec.bounded
        else float(np.clip(8 * np.abs(folded.total[name]).max(initial=0.0) / n, spec.cap / 4096, spec.cap))
        for name, spec in call.exchange.masked.items()
    )


def message_bytes(call: Call, folded: Folded) -> dict[str, int]:
    """The arrays of one exchange as they are coded, over all who took part: what a paper calls the message size.

    The same in both runners. Framing, encryption and the secure sum's own protocol are not in it; the byte counter has
    them, where there is a wire.
    """
    down = len(call.cohort) * sum(a.nbytes for a in call.broadcast.common.values())
    down += sum(a.nbytes for arrays in call.broadcast.private.values() for a in arrays.values())
    up = len(folded.survivors) * (call.encoding().bytes if call.exchange.masked else 0)
    up += sum(a.nbytes for silo in folded.survivors for a in folded.sealed.get(silo, {}).values())
    return {"up": up, "down": down}


@dataclass
class Progress:
    """What the loop carries beside the state; JSON, so that a checkpoint holds it."""

    best_value: float = float("-inf")
    best_round: int = -1
    wall: float = 0.0
    ranges: dict[str, list[float]] = field(default_factory=dict)
    #: A round whose sums are folded but which is not scored yet: who was asked, who survived, who sent what.
    pending: dict[str, Any] | None = None


class _Loop:
    """One run: its state and progress, a round at a time."""

    def __init__(self, method: Method, task: Task, settings: Settings, chorus: Chorus, runlog: RunLog) -> None:
        self.method, self.task, self.settings, self.chorus, self.runlog = method, task, settings, chorus, runlog
        seed = derived_seed(settings.seed, "init")
        self.state = method.init(seed)
        self.progress, self.best, self.finished = Progress(), self.state.model, 0
        self._network = task.new_model(seed)
        self._began, self._earlier = time.monotonic(), 0.0
        self._arrays = {"up": 0, "down": 0}

    def resume(self, kept: Checkpoint) -> None:
        # In the order that the method gave its parameters, which the file does not keep.
        self.state = State({k: kept.state.model[k] for k in self.state.model}, kept.state.memory)
        self.best, self.finished, self.progress = kept.best, kept.finished, Progress(**kept.figures)
        self._earlier = self.progress.wall
        if self.progress.pending is not None:
            self._score(self.finished - 1, time.monotonic())

    def round(self, round: int) -> None:
        began = time.monotonic()
        self.chorus.counter.round = round
        asked = select(self.settings, round, self.chorus.present())
        self.runlog.event("round", round=round, rounds=self.settings.rounds, cohort=[silo_name(i) for i in asked])
        sent: list[tuple[str, str]] = []
        before = self.state
        self._arrays = {"up": 0, "down": 0}
        cohort = asked
        try:
            for index, exchange in enumerate(self.method.exchanges):
                cohort = self._exchange(round, index, exchange, cohort)
                sent += [(silo_name(i), exchange.name) for i in cohort]
        except RoundSpent as e:
            self.runlog.event("round-spent", round=round, why=str(e))
            cohort = ()
        except RoundFailed as e:
            if not self.chorus.spent:
                raise
            # Too few silos can still pay for a round. What they paid for is whole; it is the run's result.
            self.state = before
            self.runlog.event("budgets-spent", round=round, silos=sorted(map(silo_name, self.chorus.spent)), why=str(e))
            self.runlog.privacy(self.method, round, sent, self.chorus.charged)
            raise BudgetsSpent from None
        self.chorus.end_round(round)
        charged, self.chorus.charged = self.chorus.charged, []
        self.progress.pending = {
            "asked": list(asked),
            "survivors": list(cohort),
            "sent": sent,
            "charged": charged,
            "arrays": self._arrays,
        }
        self._keep(round + 1)  # before it is scored: once shares are out, this sum can never be had again
        self._score(round, began)

    def _exchange(self, round: int, index: int, exchange: Exchange, cohort: tuple[int, ...]) -> tuple[int, ...]:
        ranges = tuple(self.progress.ranges.get(exchange.name) or first_ranges(self.settings, exchange))
        broadcast = exchange.broadcast(self.state, round, cohort)
        call = Call(round, index, exchange, broadcast, cohort, ranges, self.settings.bits)
        folded = self.chorus.perform(call)
        self.state = exchange.fold(self.state, folded)
        for direction, size in message_bytes(call, folded).items():
            self._arrays[direction] += size
        if exchange.masked:
            self.progress.ranges[exchange.name] = list(_next_ranges(self.settings, call, folded))
        return folded.survivors

    def _score(self, round: int, began: float) -> None:
        pending = self.progress.pending
        assert pending is not None
        since = time.monotonic()
        evaluation = self.evaluate(self.state.model, "dev")
        self.chorus.phases.add("evaluating", since)
        if evaluation.value > self.progress.best_value:
            self.progress.best_value, self.progress.best_round = evaluation.value, round
            self.best = self.state.model
        up, down = self.runlog.traffic(self.chorus.counter)
        self.runlog.privacy(self.method, round, pending["sent"], pending["charged"])
        wanted = set(select(self.settings, round, range(self.settings.silos))) | set(pending["asked"])
        line = {
            "round": round,
            "participants": [silo_name(i) for i in pending["asked"]],
            "survivors": [silo_name(i) for i in pending["survivors"]],
            "missed": [silo_name(i) for i in sorted(wanted - set(pending["survivors"]))],
            "metric": self.task.metric,
            "dev": evaluation.value,
            "figures": dict(evaluation.figures),
            "seconds": time.monotonic() - began,
            **self.chorus.phases.drain(),
            "bytes_up": up,
            "bytes_down": down,
            "arrays_up": pending["arrays"]["up"],
            "arrays_down": pending["arrays"]["down"],
            "model_sha256": model_sha256(self.state.model),
        }
        self.runlog.append("rounds.jsonl", line)
        self.progress.pending = None
        self._keep(round + 1)
        self.runlog.event("round-done", **{k: line[k] for k in ("round", "dev", "seconds", "bytes_up", "missed")})

    def _keep(self, finished: int) -> None:
        self.progress.wall = self._earlier + time.monotonic() - self._began
        kept = Checkpoint(finished, self.state, self.best, vars(self.progress))
        checkpoint.write(self.runlog.path / "checkpoint", kept)

    @property
    def finished_any(self) -> bool:
        return self.progress.best_round >= 0

    def evaluate(self, model: Arrays, split: Split) -> Evaluation:
        if self.method.evaluate is not None:
            return self.method.evaluate(model, split)
        load(self._network, model)
        self._network.eval()
        with torch.no_grad():
            return self.task.evaluate(self._network, split)

    def finish(self) -> dict[str, Any]:
        self.chorus.stop("the run is over")
        self.runlog.traffic(self.chorus.counter)
        test = self.evaluate(self.best, "test")
        self.progress.wall = self._earlier + time.monotonic() - self._began
        checkpoint.save_model(self.runlog.path / "model", self.best, self.task.model_files())
        return write_summary(self.runlog, self.method, self.task, self.settings, vars(self.progress), self.best, test)


def run_study(
    method: Method,
    task: Task,
    settings: Settings,
    chorus: Chorus,
    runlog: RunLog,
    resume: Checkpoint | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """All rounds, then summary.json and the model. Returns the summary."""
    loop = _Loop(method, task, settings, chorus, runlog)
    if resume is not None:
        loop.resume(resume)
    for round in range(loop.finished, settings.rounds):
        if should_stop():
            raise Interrupted
        try:
            loop.round(round)
        except BudgetsSpent:
            if not loop.finished_any:
                raise RoundFailed("No round could be made: the silos' privacy budgets are spent.") from None
            break
    return loop.finish()
