"""The rounds: who takes part, what becomes of their answers, how good it is, and where it is kept.

This loop is the same for real processes and for the in-process runner; the two differ in the
`Carrier` that carries an exchange. Everything random here comes from the run's seed, so the two give
the same model, bit for bit. Whatever a crash interrupts is gone on with from the disk: between
rounds, between the exchanges of a round (`midway`), and, where shares of a sum were already asked
for, from that sum itself (coordinator.reopen).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from config.errors import UserError
from config.settings import Settings
from coordinator import checkpoint
from coordinator.checkpoint import Checkpoint, Midway, read_model
from coordinator.cohorts import cohort_of, draws, select
from coordinator.evaluation import Evaluator, Inline, scorer
from coordinator.exchange import (
    BudgetsSpent,
    Call,
    Carrier,
    CohortLost,
    Interrupted,
    NothingToSpend,
    RoundFailed,
    RoundSpent,
    TooFew,
    WaitedInVain,
    call_ranges,
    next_ranges,
)
from coordinator.progress import Progress, RoundSoFar
from coordinator.runlog import RunLog
from coordinator.scores import Scores, unscored
from coordinator.summary import Scored, write_summary
from methods.base import Arrays, Exchange, Folded, Method, State, derived_seed, silo_name
from methods.common.arrays import model_sha256
from methods.outside import blamed
from methods.tasks.base import Task
from report import events
from wire.messages import OVER
from wire.stored import give_back

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
        self.progress, self.finished = Progress(), 0
        self._began, self._earlier = time.monotonic(), 0.0
        self._midway: Midway | None = None

    def resume(self, kept: Checkpoint | None, midway: Midway | None, evaluator: Evaluator) -> None:
        if kept is not None:
            self.state = State(self._ordered(kept.state.model), kept.state.memory)
            self.finished, self.progress = kept.finished, Progress(**kept.figures)
            self._earlier = self.progress.wall
        self.progress.pending = unscored(self.runlog.path, vars(self.progress))
        self.scores = Scores(evaluator, self.runlog, self.progress, self._is_scored)
        for entry in list(self.progress.pending):
            self.runlog.append("traffic.jsonl", *entry["traffic"])
            self._score(entry)
        if midway is not None and midway.round == self.finished:
            self._midway = midway

    def _ordered(self, model: Arrays) -> Arrays:
        """In the order that the method gave its parameters, which the file does not keep."""
        return {k: model[k] for k in self.state.model}

    def _score(self, entry: dict[str, Any]) -> None:
        line = entry["line"]
        self.runlog.privacy(self.method, line["round"], entry["sent"], entry["charged"])
        self.scores.add(line)

    def round(self, round: int) -> None:
        began = time.monotonic()
        # silos will train for a while: what making or folding a model took is not held meanwhile
        give_back(sum(a.nbytes for a in self.state.model.values()))
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
            except WaitedInVain:
                raise  # the round is not lost: it is on disk
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
        entry = self._entry(round, now, began)
        self.progress.pending.append(entry)
        self.progress.members = [silo_name(i) for i in now.asked]
        # before it is scored: once shares are out, this sum can never be had again
        self._keep(round + 1)
        self.finished = round + 1
        checkpoint.forget_midway(self._folder)
        self.carrier.kept()
        self.carrier.end_round(round)
        up, down = self.runlog.traffic(self.carrier.counter)
        seconds = time.monotonic() - began
        entry["line"] |= {"seconds": seconds, "bytes_up": up, "bytes_down": down}
        self._score(entry)

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
        self.state = State(self._ordered(midway.state.model), midway.state.memory)
        self.progress.ranges = dict(now.ranges)
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
            opened=now.opened,
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

    def _entry(self, round: int, now: RoundSoFar, began: float) -> dict[str, Any]:
        """What a checkpoint keeps of a round until it is scored."""
        wanted = set(now.asked)  # who is drawn is asked, here or not
        if not draws(self.settings):
            wanted |= set(select(self.settings, round, range(self.settings.silos)))
        missed = tuple(map(silo_name, sorted(wanted - set(now.cohort))))
        line = {
            "round": round,
            **now.line(missed),
            "metric": self.task.metric,
            "seconds": time.monotonic() - began,
            **self.carrier.phases.drain(),
            **_bytes(now.traffic),
            "model_sha256": model_sha256(self.state.model),
        }
        return {"line": line, "traffic": now.traffic, "sent": now.sent, "charged": now.charged}

    def _is_scored(self, round: int) -> bool:
        """EVALUATE: every so many rounds, and the last."""
        s = self.settings
        return (round + 1) % s.evaluate == 0 or round + 1 == s.rounds

    def _keep(self, finished: int) -> None:
        self.progress.wall = self._earlier + time.monotonic() - self._began
        checkpoint.write(self._folder, Checkpoint(finished, self.state, vars(self.progress)))

    @property
    def _folder(self) -> Path:
        return self.runlog.path / "checkpoint"

    def finish(self) -> dict[str, Any]:
        self.carrier.stop(OVER)
        file, test = self.scores.finish()
        best = read_model(file) if file else self.method.init(self._seed).model
        self.carrier.settle()
        self.runlog.traffic(self.carrier.counter)
        self.progress.wall = self._earlier + time.monotonic() - self._began
        checkpoint.save_model(
            self.runlog.path / "model",
            {**self.task.frozen(), **best},
            self.task.model_files(),
            per_silo=self.method.evaluate is not None,
        )
        self.task.forget_features()
        assert self.progress.before is not None
        network = self.task.new_model(self._seed)
        scored = Scored(best, test, self.progress.before, network)
        return write_summary(
            self.runlog, self.method, self.task, self.settings, vars(self.progress), scored
        )


def _bytes(traffic: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    sums = {"bytes_up": 0, "bytes_down": 0}
    for line in traffic:
        sums[f"bytes_{line['direction']}"] += line["wire_bytes"]
    return sums


def run_study(
    method: Method,
    task: Task,
    *,
    settings: Settings,
    carrier: Carrier,
    runlog: RunLog,
    evaluator: Evaluator | None = None,
    resume: Checkpoint | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    midway: Midway | None = None,
) -> dict[str, Any]:
    """All rounds, then summary.json and the model. Returns the summary. `evaluator`: None to score
    here, between the rounds.
    """
    loop = _Loop(method, task, settings, carrier, runlog)
    here = Inline(scorer(method, task, settings.seed))
    loop.resume(resume, midway, evaluator or here)
    for round in range(loop.finished, settings.rounds):
        if should_stop():
            raise Interrupted
        try:
            loop.round(round)
        except BudgetsSpent:
            if not loop.finished:
                raise NothingToSpend(
                    "No round could be made: the silos' privacy budgets are spent."
                ) from None
            break
    return loop.finish()
