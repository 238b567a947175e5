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
from pathlib import Path
from typing import Any

import torch

from config.errors import UserError
from config.settings import Settings
from coordinator import checkpoint
from coordinator.checkpoint import Checkpoint, Midway
from coordinator.cohorts import cohort_of, draws, select
from coordinator.exchange import (
    BudgetsSpent,
    Call,
    Carrier,
    CohortLost,
    Interrupted,
    RoundFailed,
    RoundSpent,
    TooFew,
    call_ranges,
    next_ranges,
)
from coordinator.progress import Progress, RoundSoFar
from coordinator.runlog import RunLog
from coordinator.summary import Scored, write_summary
from methods.base import Arrays, Exchange, Folded, Method, State, derived_seed, silo_name
from methods.common.arrays import model_sha256
from methods.common.training import load
from methods.outside import blamed
from methods.tasks.base import Evaluation, Split, Task
from report import events
from wire.messages import OVER

__all__ = ["run_study"]

_BEGINNINGS = 3  #: how often a round may restart when silos are lost between two exchanges


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
        beginnings = 0
        while True:
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
                    silos = tuple(sorted(map(silo_name, self.carrier.spent)))
                    self.runlog.event(events.BudgetsSpent(round=round, silos=silos, why=str(e)))
                    self.runlog.privacy(
                        self.method, round, now.sent, now.charged + self.carrier.charged
                    )
                    raise BudgetsSpent from None
                # what was opened cannot be asked for again, and what was to follow cannot be had
                if now.opened:
                    self._give_up(round, now, e)
                    break
                # A carrier that waits has nothing to count: every beginning follows a return.
                if not (self.carrier.patient and isinstance(e, TooFew)):
                    beginnings += 1
                    again = now.next > 0 or isinstance(e, CohortLost)
                    if not again or beginnings == _BEGINNINGS:
                        raise
                self.runlog.event(events.RoundAgain(round=round, why=str(e)))
                self.state, self.progress.ranges, now = before, dict(ranges), None
        assert now is not None
        self._take_note(now)
        self.progress.pending = now.pending()
        self.progress.members = [silo_name(i) for i in now.asked]
        # before it is scored: once shares are out, this sum can never be had again
        self._keep(round + 1)
        checkpoint.forget_midway(self._folder)
        self.carrier.kept()
        self.carrier.end_round(round)
        self._score(round, began)

    def _give_up(self, round: int, now: RoundSoFar, why: Exception) -> None:
        self.runlog.event(events.RoundSpent(round=round, why=str(why)))
        now.cohort = []

    def _begin(self, round: int) -> RoundSoFar:
        asked = self.carrier.begin_round(round) or cohort_of(self.settings, round, self.carrier)
        self.runlog.event(
            events.Round(
                round=round, rounds=self.settings.rounds, cohort=tuple(map(silo_name, asked))
            )
        )
        return RoundSoFar(list(asked), list(asked))

    def _go_on(self, round: int) -> RoundSoFar | None:
        """The round that a crash interrupted between two exchanges, if silos can go on with it or
        it must not be begun again.
        """
        midway, self._midway = self._midway, None
        if midway is None or midway.round != round:
            return None
        now = RoundSoFar(**midway.figures)
        able = set(self.carrier.go_on(round, now.next, now.said)) & set(now.cohort)
        if not now.opened and len(able) < len(now.cohort):
            return None  # from the beginning, nobody need be left out
        self.state, self.progress.ranges = self._ordered(midway.state), dict(now.ranges)
        self.carrier.counter.restore(now.traffic)
        self.runlog.event(
            events.Round(
                round=round, rounds=self.settings.rounds, cohort=tuple(map(silo_name, now.asked))
            )
        )
        return now

    def _exchanges(self, round: int, now: RoundSoFar) -> None:
        for index, exchange in enumerate(self.method.exchanges):
            asked = self.carrier.present() if exchange.everyone else tuple(now.cohort)
            if index < now.next or exchange.skip(self.state, round, asked):
                continue
            self._exchange(round, index, exchange, now, asked)
            if now.next < len(self.method.exchanges):
                self._take_note(now)
                checkpoint.write_midway(self._folder, Midway(round, self.state, vars(now)))
                self.carrier.kept()

    def _take_note(self, now: RoundSoFar) -> None:
        now.charged += self.carrier.charged
        self.carrier.charged = []
        now.ranges, now.said = self.progress.ranges, dict(self.carrier.said)
        now.traffic = list(self.carrier.counter.lines())

    def _exchange(
        self,
        round: int,
        index: int,
        exchange: Exchange,
        now: RoundSoFar,
        cohort: tuple[int, ...],
    ) -> None:
        first = call_ranges(self.settings, self.method, exchange, len(cohort))
        exact = self.settings.dp == "silo"
        ranges = first if exact else tuple(self.progress.ranges.get(exchange.name) or first)
        broadcast = exchange.broadcast(self.state, round, cohort)
        call = Call(
            round,
            index,
            exchange=exchange,
            broadcast=broadcast,
            cohort=cohort,
            ranges=ranges,
            lane_bits=self.settings.bits,
            exact=exact,
        )
        folded = self.carrier.perform(call)
        self.state = self._folded(exchange, folded)
        if exchange.masked:
            self.progress.ranges[exchange.name] = list(next_ranges(self.settings, call, folded))
        now.add(call, folded)

    def _folded(self, exchange: Exchange, folded: Folded) -> State:
        """The next state, if it is one: a model of another shape would be trained on in silence."""
        try:
            state = exchange.fold(self.state, folded)
        except Exception as e:
            raise blamed(self.settings.method, "fold", e) from None
        before = {k: (v.shape, v.dtype) for k, v in self.state.model.items()}
        after = {k: (v.shape, v.dtype) for k, v in state.model.items()}
        if before != after:
            name = next(k for k in (*before, *after) if before.get(k) != after.get(k))
            was, is_ = (
                "x".join(map(str, x[name][0])) if name in x else "nothing" for x in (before, after)
            )
            raise UserError(
                f'The method "{self.method.name}": its fold returned "{name}" as {is_}, and the model has '
                f"{was}; correct it and begin a new run."
            )
        return state

    def _score(self, round: int, began: float) -> None:
        pending = self.progress.pending
        assert pending is not None
        every = (round + 1) % self.settings.evaluate == 0 or round + 1 == self.settings.rounds
        self.progress.unscored = -1 if every else round
        evaluation = self._on_dev(round) if every else None
        dev = None if evaluation is None else evaluation.value
        up, down = self.runlog.traffic(self.carrier.counter)
        self.runlog.privacy(self.method, round, pending["sent"], pending["charged"])
        wanted = set(pending["asked"])  # who is drawn is asked, here or not
        if not draws(self.settings):
            wanted |= set(select(self.settings, round, range(self.settings.silos)))
        missed = tuple(map(silo_name, sorted(wanted - set(pending["survivors"]))))
        seconds = time.monotonic() - began
        line = {
            "round": round,
            "participants": [silo_name(i) for i in pending["asked"]],
            "survivors": [silo_name(i) for i in pending["survivors"]],
            "asked_by_exchange": [list(map(silo_name, who)) for who in pending.get("told", [])],
            "survivors_by_exchange": [list(map(silo_name, who)) for who in pending["by_exchange"]],
            "missed": list(missed),
            "metric": self.task.metric,
            "dev": dev,  # None: EVALUATE passed this round over
            "figures": {} if evaluation is None else dict(evaluation.figures),
            "seconds": seconds,
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
            events.RoundDone(round=round, dev=dev, seconds=seconds, bytes_up=up, missed=missed)
        )

    def _on_dev(self, round: int) -> Evaluation:
        since = time.monotonic()
        evaluation = self.evaluate(self.state.model, "dev")
        self.carrier.phases.add("evaluating", since)
        if evaluation.value > self.progress.best_value:
            self.progress.best_value, self.progress.best_round = evaluation.value, round
            self.best = self.state.model
        return evaluation

    def score_last(self) -> None:
        """A run that ends early ends with a model that was scored."""
        if self.progress.unscored >= 0:
            self._on_dev(self.progress.unscored)

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
        test = self.evaluate(self.best, "test")
        # The figure to compare with: where this very model started. It chooses nothing.
        before = self.evaluate(self.method.init(self._seed).model, "test")
        self.carrier.settle()
        self.runlog.traffic(self.carrier.counter)
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
    *,
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
            loop.score_last()
            if not loop.finished_any:
                raise RoundFailed(
                    "No round could be made: the silos' privacy budgets are spent."
                ) from None
            break
    return loop.finish()
