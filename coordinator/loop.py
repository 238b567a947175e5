"""The rounds: who takes part, what becomes of their answers, how good it is, and where it is kept.

This loop is the same for real processes and for the in-process runner; the two differ in the
`Carrier` that carries an exchange. Everything random here comes from the run's seed, so the two give
the same model, bit for bit. Whatever a crash interrupts is gone on with from the disk: between
rounds, between the exchanges of a round (`midway`), and, where shares of a sum were already asked
for, from that sum itself (coordinator.reopen).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from config.settings import Settings
from coordinator import checkpoint
from coordinator.checkpoint import Checkpoint, Midway
from coordinator.exchange import (
    BudgetsSpent,
    Call,
    Carrier,
    Interrupted,
    RoundFailed,
    RoundSpent,
    call_ranges,
    message_bytes,
    next_ranges,
    numbers_sent,
    select,
)
from coordinator.runlog import RunLog
from coordinator.summary import Scored, write_summary
from methods.base import Arrays, Exchange, Method, State, derived_seed, silo_name
from methods.common.arrays import model_sha256
from methods.common.training import load
from methods.tasks.base import Evaluation, Split, Task
from wire.messages import OVER

__all__ = ["run_study"]

_BEGINNINGS = 3  #: how often a round may restart when silos are lost between two exchanges


@dataclass
class Progress:
    """What the loop carries beside the state; JSON, so that a checkpoint holds it."""

    best_value: float = float("-inf")
    best_round: int = -1
    wall: float = 0.0
    ranges: dict[str, list[float]] = field(default_factory=dict)
    #: A round whose sums are folded but which is not scored yet: who was asked, who survived, who
    #: sent what.
    pending: dict[str, Any] | None = None
    #: who was in the last round: after a crash, they are waited for
    members: list[str] = field(default_factory=list)


@dataclass
class _Round:
    """A round on its way through its exchanges; JSON, likewise."""

    asked: list[int]
    cohort: list[int]
    next: int = 0  #: the exchange to come
    #: whether a sum of this round is folded: then its exchange cannot be asked for again
    opened: bool = False
    sent: list[list[str]] = field(default_factory=list)
    by_exchange: list[list[int]] = field(default_factory=list)  #: who survived each exchange
    arrays: dict[str, int] = field(default_factory=lambda: {"up": 0, "down": 0})
    #: how many numbers of each disclosure were sent
    numbers: dict[str, int] = field(default_factory=dict)
    charged: list[dict[str, Any]] = field(default_factory=list)
    ranges: dict[str, list[float]] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    traffic: list[dict[str, Any]] = field(default_factory=list)


class _Loop:
    """One run: its state and progress, a round at a time."""

    def __init__(
        self, method: Method, task: Task, settings: Settings, carrier: Carrier, runlog: RunLog
    ) -> None:
        self.method, self.task, self.settings, self.carrier, self.runlog = (
            method,
            task,
            settings,
            carrier,
            runlog,
        )
        seed = self._seed = derived_seed(settings.seed, "init")
        self.state = method.init(seed)
        self.progress, self.best, self.finished = Progress(), self.state.model, 0
        self._network = task.new_model(seed)
        self._began, self._earlier = time.monotonic(), 0.0
        self._midway: Midway | None = None

    def resume(self, kept: Checkpoint | None, midway: Midway | None) -> None:
        if kept is not None:
            self.state = self._ordered(kept.state)
            self.best, self.finished, self.progress = (
                kept.best,
                kept.finished,
                Progress(**kept.figures),
            )
            self._earlier = self.progress.wall
        if self.progress.pending is not None:
            self.carrier.counter.restore(self.progress.pending["traffic"])
            self._score(self.finished - 1, time.monotonic())
        if midway is not None and midway.round == self.finished:
            self._midway = midway

    def _ordered(self, state: State) -> State:
        """In the order that the method gave its parameters, which the file does not keep."""
        return State({k: state.model[k] for k in self.state.model}, state.memory)

    def round(self, round: int) -> None:
        began = time.monotonic()
        self.carrier.counter.round = round
        before, ranges = self.state, dict(self.progress.ranges)
        now = self._go_on(round)
        for beginning in range(_BEGINNINGS):
            now = now or self._begin(round)
            try:
                self._exchanges(round, now)
                break
            except RoundSpent as e:
                self._give_up(round, now, e)
                break
            except RoundFailed as e:
                if self.carrier.spent:
                    # Too few silos can still pay for a round. What they paid for is whole; it is
                    # the run's result.
                    self.state = before
                    silos = sorted(map(silo_name, self.carrier.spent))
                    self.runlog.event("budgets-spent", round=round, silos=silos, why=str(e))
                    self.runlog.privacy(
                        self.method, round, now.sent, now.charged + self.carrier.charged
                    )
                    raise BudgetsSpent from None
                # what was opened cannot be asked for again, and what was to follow cannot be had
                if now.opened:
                    self._give_up(round, now, e)
                    break
                if now.next == 0 or beginning == _BEGINNINGS - 1:
                    raise
                self.runlog.event("round-again", round=round, why=str(e))
                self.state, self.progress.ranges, now = before, dict(ranges), None
        assert now is not None
        self._take_note(now)
        self.progress.pending = {
            "asked": now.asked,
            "survivors": now.cohort,
            "by_exchange": now.by_exchange,
            "sent": now.sent,
            "charged": now.charged,
            "arrays": now.arrays,
            "numbers": now.numbers,
            "traffic": now.traffic,
        }
        self.progress.members = [silo_name(i) for i in now.asked]
        # before it is scored: once shares are out, this sum can never be had again
        self._keep(round + 1)
        checkpoint.forget_midway(self._folder)
        self.carrier.kept()
        self.carrier.end_round(round)
        self._score(round, began)

    def _give_up(self, round: int, now: _Round, why: Exception) -> None:
        self.runlog.event("round-spent", round=round, why=str(why))
        now.cohort = []

    def _begin(self, round: int) -> _Round:
        asked = self.carrier.begin_round(round) or select(
            self.settings, round, self.carrier.present()
        )
        self.runlog.event(
            "round", round=round, rounds=self.settings.rounds, cohort=[silo_name(i) for i in asked]
        )
        return _Round(list(asked), list(asked))

    def _go_on(self, round: int) -> _Round | None:
        """The round that a crash interrupted between two exchanges, if silos can go on with it or
        it must not be begun again.
        """
        midway, self._midway = self._midway, None
        if midway is None or midway.round != round:
            return None
        now = _Round(**midway.figures)
        able = set(self.carrier.go_on(round, now.next, now.said)) & set(now.cohort)
        if not now.opened and len(able) < len(now.cohort):
            return None  # from the beginning, nobody need be left out
        self.state, self.progress.ranges = self._ordered(midway.state), dict(now.ranges)
        self.carrier.counter.restore(now.traffic)
        self.runlog.event(
            "round",
            round=round,
            rounds=self.settings.rounds,
            cohort=[silo_name(i) for i in now.asked],
        )
        return now

    def _exchanges(self, round: int, now: _Round) -> None:
        for index, exchange in enumerate(self.method.exchanges):
            if index < now.next:
                continue
            self._exchange(round, index, exchange, now)
            if now.next < len(self.method.exchanges):
                self._take_note(now)
                checkpoint.write_midway(self._folder, Midway(round, self.state, vars(now)))
                self.carrier.kept()

    def _take_note(self, now: _Round) -> None:
        now.charged += self.carrier.charged
        self.carrier.charged = []
        now.ranges, now.said = self.progress.ranges, dict(self.carrier.said)
        now.traffic = list(self.carrier.counter.lines())

    def _exchange(self, round: int, index: int, exchange: Exchange, now: _Round) -> None:
        cohort = tuple(now.cohort)
        first = call_ranges(self.settings, self.method, exchange, len(cohort))
        exact = self.settings.dp == "silo"
        ranges = first if exact else tuple(self.progress.ranges.get(exchange.name) or first)
        broadcast = exchange.broadcast(self.state, round, cohort)
        call = Call(round, index, exchange, broadcast, cohort, ranges, self.settings.bits, exact)
        folded = self.carrier.perform(call)
        self.state = exchange.fold(self.state, folded)
        for direction, size in message_bytes(call, folded).items():
            now.arrays[direction] += size
        for name, count in numbers_sent(call, folded).items():
            now.numbers[name] = now.numbers.get(name, 0) + count
        if exchange.masked:
            self.progress.ranges[exchange.name] = list(next_ranges(self.settings, call, folded))
        now.cohort, now.next, now.opened = (
            list(folded.survivors),
            index + 1,
            now.opened or bool(exchange.masked),
        )
        now.by_exchange.append(list(folded.survivors))
        now.sent += [[silo_name(i), exchange.name] for i in folded.survivors]

    def _score(self, round: int, began: float) -> None:
        pending = self.progress.pending
        assert pending is not None
        since = time.monotonic()
        evaluation = self.evaluate(self.state.model, "dev")
        self.carrier.phases.add("evaluating", since)
        if evaluation.value > self.progress.best_value:
            self.progress.best_value, self.progress.best_round = evaluation.value, round
            self.best = self.state.model
        up, down = self.runlog.traffic(self.carrier.counter)
        self.runlog.privacy(self.method, round, pending["sent"], pending["charged"])
        wanted = set(select(self.settings, round, range(self.settings.silos))) | set(
            pending["asked"]
        )
        line = {
            "round": round,
            "participants": [silo_name(i) for i in pending["asked"]],
            "survivors": [silo_name(i) for i in pending["survivors"]],
            "survivors_by_exchange": [
                [silo_name(i) for i in who] for who in pending["by_exchange"]
            ],
            "missed": [silo_name(i) for i in sorted(wanted - set(pending["survivors"]))],
            "metric": self.task.metric,
            "dev": evaluation.value,
            "figures": dict(evaluation.figures),
            "seconds": time.monotonic() - began,
            **self.carrier.phases.drain(),
            "bytes_up": up,
            "bytes_down": down,
            "arrays_up": pending["arrays"]["up"],
            "arrays_down": pending["arrays"]["down"],
            "numbers_sent": pending.get("numbers"),
            "model_sha256": model_sha256(self.state.model),
        }
        self.runlog.append("rounds.jsonl", line)
        self.progress.pending = None
        self._keep(round + 1)
        self.runlog.event(
            "round-done", **{k: line[k] for k in ("round", "dev", "seconds", "bytes_up", "missed")}
        )

    def _keep(self, finished: int) -> None:
        self.progress.wall = self._earlier + time.monotonic() - self._began
        kept = Checkpoint(finished, self.state, self.best, vars(self.progress))
        checkpoint.write(self._folder, kept)

    @property
    def _folder(self) -> Path:
        return self.runlog.path / "checkpoint"

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
        self.carrier.stop(OVER)
        self.runlog.traffic(self.carrier.counter)
        test = self.evaluate(self.best, "test")
        # The figure to compare with: where this very model started. It chooses nothing.
        before = self.evaluate(self.method.init(self._seed).model, "test")
        self.progress.wall = self._earlier + time.monotonic() - self._began
        whole = {**self.task.frozen(), **self.best}
        checkpoint.save_model(
            self.runlog.path / "model",
            whole,
            self.task.model_files(),
            per_silo=self.method.evaluate is not None,
        )
        scored = Scored(self.best, test, before.value, self._network)
        return write_summary(
            self.runlog, self.method, self.task, self.settings, vars(self.progress), scored
        )


def run_study(
    method: Method,
    task: Task,
    settings: Settings,
    carrier: Carrier,
    runlog: RunLog,
    resume: Checkpoint | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    midway: Midway | None = None,
) -> dict[str, Any]:
    """All rounds, then summary.json and the model. Returns the summary."""
    loop = _Loop(method, task, settings, carrier, runlog)
    loop.resume(resume, midway)
    for round in range(loop.finished, settings.rounds):
        if should_stop():
            raise Interrupted
        try:
            loop.round(round)
        except BudgetsSpent:
            if not loop.finished_any:
                raise RoundFailed(
                    "No round could be made: the silos' privacy budgets are spent."
                ) from None
            break
    return loop.finish()
