"""A coordinator, or a silo, that sends what nobody foresaw, over real sockets: refused by name, and
seen to succeed undefended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from config.errors import UserError
from coordinator.exchange import RoundFailed
from coordinator.gather import Gather
from crypto.numbers.encoding import Encoding
from crypto.sum.silo_limits import Limits
from tests.system.attacks import gains, refuses, without
from tests.system.liar import Liar, refused
from tests.system.play import HONEST, LIAR, Play, on
from tests.system.stage import SIZE
from tests.system.test_attacks_on_a_bare_coordinator import (
    without_the_door as coordinator_without_its_door,
)
from tests.system.test_attacks_on_requests import ended, without_the_door
from wire import messages as m

Make = Callable[..., Liar]
Perform = Callable[[], Play]
Patch = pytest.MonkeyPatch
Log = pytest.LogCaptureFixture
Crashes = list[type[BaseException]]
E = Encoding(32, 4, (SIZE,), (8.0,))

# Messages that nobody foresaw


def _beyond_all_floats(liar: Liar) -> m.Broadcast:
    """A model so large that the update is still finite, and its rotation is not."""
    model = np.full(SIZE, 1e38, np.float32)
    told = liar.tell("silo-000", liar.header(model, encoding=replace(E, rotate=True)), model)
    liar.say("silo-000", m.Go(told.number))
    liar.hear("silo-000", m.Ready)
    liar.say("silo-000", m.Send(told.number))
    return told


@refuses("bad-field")
def test_bad_field(make: Make, caplog: Log) -> None:
    liar = make().enrol()
    liar.stage.data["silo-000"][:] = 3.0
    with refused("bad-field", caplog):
        _beyond_all_floats(liar)
        liar.hear("silo-000", m.SumStart)
    liar.settle()
    liar.enrol().all_is_well()


@gains("bad-field")
def test_bad_field_without_the_door(make: Make, monkeypatch: Patch, crashes: Crashes) -> None:
    """One message ends the silo."""
    without_the_door(monkeypatch)
    liar = make().enrol()
    liar.stage.data["silo-000"][:] = 3.0
    _beyond_all_floats(liar)
    ended(liar, crashes, ValueError)


@refuses("far-number")
def test_far_number_of_a_sum(make: Make, caplog: Log) -> None:
    """A sum numbered in the far future would be the last that the silo ever joins."""
    liar = make().enrol()
    with refused("far-number", caplog):
        liar.ask("silo-000", liar.header(number=(1 << 62) - 1))
    liar.all_is_well()


@gains("far-number")
def test_far_number_of_a_sum_without_a_clock(make: Make, monkeypatch: Patch, caplog: Log) -> None:
    without(monkeypatch, Limits, "check_order", "far-number")
    liar = make().enrol()
    liar.gather(liar.header(number=(1 << 62) - 1))
    with refused("replay", caplog):  # every honest number after it
        liar.ask("silo-000", liar.header())


# The same of silos that lie to the coordinator


@refuses("far-number")
def test_far_number_of_a_greeting(perform: Perform, crashes: Crashes) -> None:
    """A silo that says it heard of a sum in the far future is not let in, and the others go on."""
    crashes.append(UserError)  # how a silo's program ends that was turned away
    play = perform()
    play.lie(on("hello", lambda x, p: [(replace(x, last=(1 << 62) - 1), p)]))
    play.enrol()
    assert play.perform().survivors == HONEST
    play.refused("far-number")


@refuses("bad-field")
def test_bad_field_at_the_coordinator(perform: Perform, monkeypatch: Patch) -> None:
    """An exception that nobody foresaw costs its sender the exchange, and nobody else anything."""
    stumble(monkeypatch)
    play = perform().enrol()
    assert play.perform().survivors == HONEST
    play.refused("bad-field")


def stumble(monkeypatch: Patch) -> None:
    """The coordinator's code cannot work with what the liar says, and raises."""
    real = Gather._heard

    def heard(self: Gather, silo: str, message: m.Message, payload: Any) -> None:
        if silo == LIAR and message.kind == "ready":
            raise KeyError(message.kind)
        real(self, silo, message, payload)

    monkeypatch.setattr(Gather, "_heard", heard)


@gains("far-number")
def test_far_number_of_a_greeting_that_is_believed(perform: Perform, monkeypatch: Patch) -> None:
    """Every honest silo is asked under a number of the far future, and refuses it."""
    monkeypatch.setattr("coordinator.membership.tomorrow", lambda: 1 << 62)
    play = perform()
    play.lie(on("hello", lambda x, p: [(replace(x, last=(1 << 62) - 1), p)]))
    play.enrol()
    with pytest.raises(RoundFailed):
        play.perform()


@gains("bad-field")
def test_bad_field_without_the_coordinators_door(perform: Perform, monkeypatch: Patch) -> None:
    """One message ends the coordinator."""

    coordinator_without_its_door(monkeypatch)
    stumble(monkeypatch)
    play = perform().enrol()
    with pytest.raises(KeyError):
        play.perform()
