"""A coordinator that asks for something else, or for more, than was declared, and a method that
answers so, over real sockets: refused by name, and seen to succeed once the defence is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import silo.gate
from crypto.numbers.encoding import Encoding
from crypto.sum.records import SumHeader
from crypto.sum.silo import SiloSum
from crypto.sum.silo_limits import Limits
from methods.base import Answer, ArraySpec
from study.sizes import broadcast_bytes
from tests.conftest import wait_for
from tests.system import stage
from tests.system.attacks import gains, refuses, without
from tests.system.liar import Liar, refused, same
from tests.system.stage import AGREED_CAP, METHOD, ONES, PATIENCE, SIZE, TRAIN, WEIGHED
from wire import messages as m
from wire.bundle import broadcast_digest, pack

Log = pytest.LogCaptureFixture
Patch = pytest.MonkeyPatch
Make = Callable[..., Liar]
Crashes = list[type[BaseException]]

E = Encoding(32, 4, (SIZE,), (8.0,))
HUGE = [["model", "<f4", [1 << 20, 1 << 12]]]


@refuses("undeclared-upload", "wrong-shape", "range-widening", "weight-hog", "oversize")
@pytest.mark.parametrize(
    ("attack", "header", "told"),
    [
        ("undeclared-upload", {}, {"exchange": len(METHOD.exchanges)}),
        ("undeclared-upload", {"alive": ("silo-001", "silo-002", "silo-003")}, {}),
        ("wrong-shape", {"encoding": replace(E, sizes=(SIZE + 1,))}, {}),
        ("wrong-shape", {"encoding": Encoding(32, 4, (SIZE, 1), (8.0, 8.0))}, {}),
        ("wrong-shape", {}, {"cohort": ["silo-000"]}),
        ("wrong-shape", {}, {"common": [["model", "object", [1]]]}),
        ("wrong-shape", {}, {"header": {"sid": 1}, "exchange": 0}),
        ("range-widening", {"encoding": replace(E, ranges=(1e6,))}, {}),
        ("range-widening", {"encoding": replace(E, lane_bits=16)}, {}),
        ("range-widening", {"encoding": replace(E, parties=2)}, {}),
        ("range-widening", {"encoding": replace(E, parties=5)}, {}),
        ("weight-hog", {"weight_cap": 1e6}, {}),
        ("weight-hog", {"weight_cap": 0.5}, {}),
        ("oversize", {}, {"common": HUGE}),
        ("oversize", {}, {"private": HUGE}),
        ("oversize", {}, {"common": [["model", "|u1", [broadcast_bytes(METHOD, None) + 1]]]}),
        ("oversize", {"round": 10**6}, {}),
    ],
)
def test_exchanges_that_ask_too_much(
    make: Make, caplog: Log, attack: str, header: dict, told: dict
) -> None:
    liar = make().enrol()
    with refused(attack, caplog):
        made = liar.header(**header)
        liar.ask("silo-000", made, **told)
    liar.all_is_well()


@refuses("oversize")
def test_oversize_pieces(make: Make, caplog: Log) -> None:
    liar = make().enrol()
    with refused("oversize", caplog):
        layout = [["model", "|u1", [3 << 20]]]
        told = liar.tell("silo-000", liar.header(), common=layout)
        liar.say("silo-000", m.Chunk(told.number, "common", 0), bytes((1 << 20) + 64))
        liar.hear("silo-000", m.Ready)
    liar.all_is_well()


# The gate on the way out


@contextmanager
def _answering(said: Answer, exchange: int = TRAIN) -> Iterator[None]:
    """A method whose code answers this, whatever it declared."""
    changed = METHOD.exchanges[exchange]
    good = changed.answer
    object.__setattr__(changed, "answer", lambda silo, heard: said)
    try:
        yield
    finally:
        object.__setattr__(changed, "answer", good)


@refuses("undeclared-upload", "wrong-shape")
@pytest.mark.parametrize(
    ("attack", "said"),
    [
        ("undeclared-upload", Answer({"update": ONES, "sentences": ONES})),
        ("undeclared-upload", Answer({"update": ONES}, {"update": ONES})),
        # masked by declaration, sealed by what the code does
        ("undeclared-upload", Answer({}, {"update": ONES})),
        ("wrong-shape", Answer({"update": np.ones(SIZE + 1, np.float32)})),
        ("wrong-shape", Answer({"update": np.full(SIZE, np.nan, np.float32)})),
    ],
)
def test_a_method_that_answers_otherwise_than_declared(
    make: Make, caplog: Log, attack: str, said: Answer
) -> None:
    """The gate stands in the silo, whatever the method's own code does."""
    liar = make().enrol()
    assert METHOD.exchanges[TRAIN].masked == {"update": ArraySpec((SIZE,))}
    with _answering(said):
        told = liar.tell("silo-000", liar.header())
        with refused(attack, caplog):
            liar.say("silo-000", m.Go(told.number))
            liar.hear("silo-000", m.Ready)
    liar.all_is_well()


@gains("undeclared-upload")
def test_undeclared_upload_without_the_gate(make: Make, monkeypatch: Patch) -> None:
    """A method whose code sends sealed what it declared masked: the coordinator reads it."""
    without(monkeypatch, silo.gate, "_check", "undeclared-upload")
    liar = make().enrol()
    with _answering(Answer({}, {"update": liar.stage.data["silo-000"]})):
        told = liar.tell("silo-000", liar.header())
        liar.say("silo-000", m.Go(told.number))
        liar.hear("silo-000", m.Ready)
    liar.say("silo-000", m.Send(told.number))
    assert liar.hear("silo-000", m.SealedStart)[0].arrays == [["update", "<f4", [SIZE]]]
    payload = liar.hear("silo-000", m.Chunk)[1]
    assert same(np.frombuffer(payload, "<f4")[:SIZE], liar.stage.data["silo-000"])


# What the checks are good for


def without_the_door(monkeypatch: Patch) -> None:
    """An exception out of a message ends the silo, as it did before it was made a refusal."""

    def ends(number: int, kind: str, error: Exception) -> m.Refused:
        raise error

    monkeypatch.setattr("silo.session.unforeseen", ends)


def ended(liar: Liar, crashes: Crashes, error: type[BaseException]) -> None:
    """The silo's process is gone."""
    crashes.append(error)
    wait_for(lambda: liar.stage.crashes, PATIENCE)
    assert isinstance(liar.stage.crashes[0], error)


@gains("wrong-shape")
def test_wrong_shape_without_the_declared_sizes(
    make: Make, monkeypatch: Patch, crashes: Crashes
) -> None:
    """A sum over one number more than the method makes: the encoder will not have it, and that ends
    the silo.
    """
    without(monkeypatch, Limits, "check_header", "wrong-shape")
    without_the_door(monkeypatch)
    liar = make().enrol()
    told = liar.tell("silo-000", liar.header(encoding=replace(E, sizes=(SIZE + 1,))))
    liar.say("silo-000", m.Go(told.number))
    liar.hear("silo-000", m.Ready)
    liar.say("silo-000", m.Send(told.number))
    ended(liar, crashes, ValueError)


@gains("wrong-shape")
def test_wrong_shape_of_an_answer_without_the_gate(
    make: Make, monkeypatch: Patch, crashes: Crashes
) -> None:
    """NaN: refused a second time where numbers become words, which ends the silo; no word of it is
    sent.
    """
    without(monkeypatch, silo.gate, "_check", "wrong-shape")
    without_the_door(monkeypatch)
    liar = make().enrol()
    with _answering(Answer({"update": np.full(SIZE, np.nan, np.float32)})):
        told = liar.tell("silo-000", liar.header())
        liar.say("silo-000", m.Go(told.number))
        liar.hear("silo-000", m.Ready)
    liar.say("silo-000", m.Send(told.number))
    ended(liar, crashes, ValueError)
    assert not liar._heard["silo-000"]


#: what the victim's first number becomes under the model of the next test; the declared cap is 8
LARGE = 300.0


def _outlier(liar: Liar, reach: float) -> float:
    """The sum's first number, where the victim's is far beyond the cap and everybody else's is
    small.
    """
    model = np.full(SIZE, LARGE / liar.stage.data["silo-000"][0], np.float32)
    header = liar.header(model, encoding=replace(E, ranges=(reach,)))
    for name in liar.names[1:]:
        liar.stage.data[name][0] = 0.001
    held = liar.gather(header, dict.fromkeys(liar.names, model))
    return float(liar.sum(held)[0])


@gains("range-widening")
def test_range_widening_by_room_for_nobody(make: Make, monkeypatch: Patch) -> None:
    """With room for thousands of vectors, small silos round to nothing beside a large one."""
    monkeypatch.setattr(Limits, "check_headroom", lambda *_: None)
    liar = make().enrol()
    for name in liar.names[1:]:
        liar.stage.data[name] *= np.float32(1e-6)
    held = liar.gather(liar.header(encoding=replace(E, parties=4096)))
    alone = liar.stage.plain(held.header.encoding, ["silo-000"])
    assert np.array_equal(liar.sum(held), alone)


@gains("range-widening")
def test_range_widening_without_the_methods_caps(make: Make, monkeypatch: Patch) -> None:
    """A number that only one silo has is clipped to the cap, whatever it is. Without caps it is
    read off the sum.
    """
    liar = make().enrol()
    assert 7.9 < _outlier(liar, 8.0) < 3 * 8.1
    without(monkeypatch, Limits, "check_header", "range-widening")
    liar.round += 1
    assert abs(_outlier(liar, 400.0) - LARGE) < 0.01 * LARGE


@gains("range-widening")
def test_range_widening_without_headroom(make: Make, monkeypatch: Patch) -> None:
    """An encoding with room for two, in a sum over four: it overflows from lane to lane, and the
    sum is wrong.
    """
    without(monkeypatch, Limits, "check_header", "range-widening")
    liar = make().enrol()
    for vector in liar.stage.data.values():
        np.abs(vector, out=vector)
    # everybody's numbers are above the range, and clipped to it
    narrow = replace(E, parties=2, ranges=(0.001,))
    held = liar.gather(liar.header(encoding=narrow))
    opening = liar.open(held, liar.names, liar.certify(held, liar.names))
    total = liar.stripped(held, liar.names, opening.seeds())
    lanes = np.concatenate([total & np.uint64(2**32 - 1), total >> np.uint64(32)]).astype(
        np.float64
    )
    read = (lanes - 4 * narrow.steps) * 0.001 / narrow.steps
    assert (np.abs(read - 4 * 0.001) > 0.001).all()


# Weights


def _weighed(liar: Liar, cap: float) -> np.ndarray:
    """The sum of everybody's vector times its weight."""
    said = {WEIGHED: (liar.round, pack({"model": ONES}).digest)}
    encoding = Encoding(32, 4, (1, SIZE), (1.0, 8.0))
    header = liar.header(
        exchange="weighed", encoding=encoding, weight_cap=cap, broadcast=broadcast_digest(said)
    )
    held = liar.gather(header, exchange=WEIGHED)
    opening = liar.open(held, liar.names, liar.certify(held, liar.names))
    return liar.unmasked(held, liar.names, opening.seeds())


@refuses("weight-hog")
@gains("weight-hog")
def test_weight_hog_by_another_cap(make: Make, monkeypatch: Patch, caplog: Log) -> None:
    """A cap so high that all but the largest silo vanish: the sum would be that one's vector.

    The silo refuses, and would not use the coordinator's cap if it did not: its own is in the study
    it agreed to. With both gone, the coordinator reads the large silo's vector off a sum over four.
    """
    liar = make().enrol()
    assert same(_weighed(liar, AGREED_CAP), sum(liar.stage.data.values()))
    liar.round += 1
    for cap in (1e6, 1.0):
        with refused("weight-hog", caplog):
            _weighed(liar, cap)
        liar.settle()
    without(monkeypatch, Limits, "check_header", "weight-hog")
    assert same(_weighed(liar, 1e6), sum(liar.stage.data.values()))  # the silo's own cap
    caps: list[float] = []
    begin = SiloSum.begin

    def obedient(self: SiloSum, header: SumHeader, *rest: Any, **terms: Any) -> None:
        caps.append(header.weight_cap)
        begin(self, header, *rest, **terms)

    monkeypatch.setattr(SiloSum, "begin", obedient)
    monkeypatch.setattr(
        stage, "weight_of", lambda silo: min(stage.EXAMPLES[silo.index], caps[-1]) / caps[-1]
    )
    liar.round += 1
    assert np.abs(_weighed(liar, 1e6) - liar.stage.data["silo-000"]).max() < 1e-4


@refuses("weight-hog")
@gains("weight-hog")
def test_weight_hog_that_does_not_stop_at_the_cap(
    make: Make, monkeypatch: Patch, caplog: Log
) -> None:
    """A large silo whose method weighs it with all of its examples: its own gate refuses. With the
    gate gone, its vector outweighs the others' by far more than the agreed weight of one.
    """
    liar = make().enrol()
    liar.stage.data["silo-000"][:] = 1e-4  # times its weight: far above what anybody else may say
    monkeypatch.setattr(stage, "weight_of", lambda silo: stage.EXAMPLES[silo.index] / AGREED_CAP)
    with refused("weight-hog", caplog):
        _weighed(liar, AGREED_CAP)
    liar.settle()
    without(monkeypatch, silo.gate, "_check", "weight-hog")
    fair = sum(liar.stage.data.values())
    # its clip range, not the 1e-4 that a weight of one gives
    assert (_weighed(liar, AGREED_CAP) - fair > 7.9).all()


# Sizes


@gains("oversize")
def test_oversize_without_a_limit_on_broadcasts(
    make: Make, monkeypatch: Patch, crashes: Crashes
) -> None:
    """One small message that announces a petabyte ends the silo before a byte of it has come: where
    there is no room for it on a disk, in memory.
    """
    monkeypatch.setattr("silo.process.broadcast_bytes", lambda *_: 1 << 62)
    monkeypatch.setattr("wire.bundle.Stored.pays", lambda *_: False)
    without_the_door(monkeypatch)
    liar = make().enrol()
    liar.tell("silo-000", liar.header(), common=[["model", "|u1", [1 << 50]]])
    ended(liar, crashes, MemoryError)
