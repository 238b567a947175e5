"""The real coordinator with five silos on real sockets, one of which can be made to lie."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from coordinator.exchange import Call
from coordinator.network import NetworkCarrier
from coordinator.runlog import RunLog
from coordinator.turns import Slots
from methods.base import Folded, State
from report.files import read_lines
from study.agreement import study_hash
from tests.conftest import wait_for
from tests.system.stage import METHOD, ONES, PATIENCE, RUN, TRAIN, Lie, Outgoing, Stage
from wire import messages as m

__all__ = ["ALL", "HONEST", "LIAR", "Change", "Play", "kind_of", "on", "record"]

LIAR = "silo-004"
HONEST = (0, 1, 2, 3)
ALL = (*HONEST, 4)
Log = pytest.LogCaptureFixture
Change = Callable[[Any, Any], Iterable[Outgoing]]


class Play:
    """Five silos and their coordinator; four of them are enough for a sum."""

    def __init__(self, stage: Stage, log: Log) -> None:
        self.stage, self.log = stage, log
        path = stage.path / "run"
        path.mkdir()
        self.runlog = RunLog(path)
        self.carrier = NetworkCarrier(
            stage.router,
            stage.settings,
            identities=stage.roster,
            run_id=RUN,
            study=study_hash(stage.settings, {}),
            runlog=self.runlog,
            slots=Slots(len(stage.names)),
            should_stop=lambda: False,
            content={},
        )
        self.round = -1

    def enrol(self) -> Play:
        self.carrier.enrol(PATIENCE, 0)
        return self

    def perform(self, index: int = TRAIN, exact: bool = True) -> Folded:
        """The next round's exchange; what comes out is exact, whoever is in it (unless a defence is
        missing).
        """
        self.round += 1
        exchange = METHOD.exchanges[index]
        self.carrier.begin_round(self.round)
        told = exchange.broadcast(State({"model": ONES}), self.round, ALL)
        call = Call(
            self.round,
            index,
            exchange=exchange,
            broadcast=told,
            cohort=self.carrier.present(),
            ranges=(8.0,) * len(exchange.masked),
            lane_bits=32,
        )
        folded = self.carrier.perform(call)
        if exchange.masked:
            names = [self.stage.names[i] for i in folded.survivors]
            assert (
                np.array_equal(folded.total["update"], self.stage.plain(call.encoding(), names))
                is exact
            )
        if exchange.sealed:
            assert {i: float(a["count"][0]) for i, a in folded.sealed.items()} == {
                i: i for i in folded.survivors
            }
        return folded

    def lie(self, lie: Lie) -> None:
        self.stage.lies[LIAR] = lie

    def wait_for_refusal(self, attack: str, kind: str, *silos: str) -> None:
        """Honest silos whose messages of this kind wait until the lie was met: it cannot come too
        late.
        """

        def patient(message: m.Message, payload: Any) -> Iterable[Outgoing]:
            if kind_of(message) == kind:
                wait_for(lambda: f"refused ({attack}): {LIAR}" in self.log.text, PATIENCE)
            yield message, payload

        self.stage.lies.update(dict.fromkeys(silos, patient))

    def refused(self, attack: str) -> None:
        assert f"refused ({attack}): {LIAR}: " in self.log.text
        events = [
            e for e in read_lines(self.runlog.path / "events.jsonl") if e["event"] == "refused"
        ]
        assert {(e["silo"], e["attack"]) for e in events} == {(LIAR, attack)}

    def all_is_well(self, silos: tuple[int, ...] = ALL) -> None:
        self.stage.lies.clear()
        assert self.perform().survivors == silos
        assert not self.stage.crashes


def kind_of(message: m.Message) -> str:
    return message.step if isinstance(message, m.SumStep) else message.kind


def on(kind: str, change: Change) -> Lie:
    """A lie about one kind of message; the rest is as it should be."""

    def lie(message: m.Message, payload: Any) -> Iterable[Outgoing]:
        return change(message, payload) if kind_of(message) == kind else [(message, payload)]

    return lie


def record(**changes: Any) -> Change:
    """The message with its record changed."""
    return lambda message, payload: [(replace(message, record=message.record | changes), payload)]
