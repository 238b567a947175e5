"""FedAtt over real sockets: a coordinator that wants one silo to weigh so much that the others vanish.
Refused by name, and seen to succeed undefended.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from methods import fedatt
from methods.base import Answer, Heard, SiloView
from tests.system.attacks import gains, refuses
from tests.system.liar import Liar, refused
from tests.system.stage import METHOD, SIZE, TRAIN
from wire.bundle import Bundle

Make = Callable[..., Liar]
Patch = pytest.MonkeyPatch
Log = pytest.LogCaptureFixture


def _level(level: float) -> np.ndarray:
    return np.full(SIZE, level, np.float32)


@pytest.fixture(autouse=True)
def attentive() -> Iterator[None]:
    """The toy's first exchange with FedAtt's own weight: e times the silo's vector. What is broadcast
    is the level.
    """

    def answer(silo: SiloView[Any, Any], heard: Heard) -> Answer:
        update = silo.data.vector
        e = fedatt.attention(fedatt.norms({"w": update}), heard.common["model"][:1])
        return Answer({"update": e * update})

    exchange = METHOD.exchanges[TRAIN]
    was = exchange.answer
    object.__setattr__(exchange, "answer", answer)
    yield
    object.__setattr__(exchange, "answer", was)


def _one_level_each(liar: Liar) -> np.ndarray:
    """A level far above all norms silences whoever hears it; the victim hears its own norm."""
    victim = liar.names[0]
    own = float(np.linalg.norm(liar.stage.data[victim]))
    levels = {name: _level(own if name == victim else 60.0) for name in liar.names}
    return liar.sum(liar.gather(liar.header(levels[victim]), models=levels))


@refuses("model-inconsistency")
def test_model_inconsistency_by_a_level_for_each(make: Make, caplog: Log) -> None:
    """The level is in the sum's context: silos that hear another one are in another sum."""
    liar = make().enrol()
    with refused("model-inconsistency", caplog):
        _one_level_each(liar)


@gains("model-inconsistency")
def test_model_inconsistency_by_a_level_for_each_outside_of_h(
    make: Make, monkeypatch: Patch
) -> None:
    """With neither the level in h nor the weights bounded, the sum is the victim's vector."""
    monkeypatch.setattr(Bundle, "digest", property(lambda self: bytes(32)))
    monkeypatch.setattr(fedatt, "_REACH", math.inf)
    liar = make().enrol()
    assert np.abs(_one_level_each(liar) - liar.stage.data[liar.names[0]]).max() < 1e-6


def test_no_silo_outweighs_another_by_more_than_e_squared(make: Make) -> None:
    """One that moves ten times as far as the others, and the level that serves a liar best."""
    liar = make().enrol()
    victim, *rest = liar.names
    liar.stage.data[victim] *= np.float32(2)  # the vectors of the silos that run are views of these
    moved = {name: float(np.linalg.norm(v)) for name, v in liar.stage.data.items()}
    level = _level(moved[victim] - 1.0)
    held = liar.gather(liar.header(level), models=dict.fromkeys(liar.names, level))
    weights = {n: math.exp(min(max(moved[n] - float(level[0]), -1.0), 1.0)) for n in liar.names}
    assert max(weights.values()) <= math.e**2 * min(weights.values()) * (1 + 1e-6)
    expected = sum(weights[name] * liar.stage.data[name] for name in liar.names)
    assert np.abs(liar.sum(held) - expected).max() < 1e-5
    assert all(weights[name] >= math.exp(-1) for name in rest)
