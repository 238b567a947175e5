"""A coordinator that shows different silos different things, or asks for another channel, over real
sockets: refused by name, and seen to succeed once the defence is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crypto.sum.records import UploadRecord
from silo.gate import Gate
from silo.session import Session
from tests.system.attacks import gains, refuses
from tests.system.liar import Held, Liar, refused, same
from tests.system.stage import CARRIED, ONES, REPORT, SIZE
from wire import messages as m
from wire.bundle import Bundle, broadcast_digest, pack

Log = pytest.LogCaptureFixture
Patch = pytest.MonkeyPatch
Make = Callable[..., Liar]
ZEROS = np.zeros(SIZE, np.float32)


@refuses("model-inconsistency")
def test_model_inconsistency(make: Make, caplog: Log) -> None:
    """A model that silences everybody but the victim: a sum of one."""
    liar = make().enrol()
    victim, rest = liar.names[0], liar.names[1:]
    with refused("model-inconsistency", caplog):  # one header, two models
        liar.ask(rest[0], liar.header(ONES), ZEROS)
    with refused("model-inconsistency", caplog):  # one header, two cohorts
        liar.ask(rest[0], liar.header(), cohort=[0, 1, 2])
    # A header for each: every silo uploads, but the victim's masks belong to another sum and its
    # signature too.
    common = liar.header(ZEROS)
    special = replace(common, broadcast=liar.header(ONES).broadcast)
    told = {
        n: liar.tell(n, special if n == victim else common, ONES if n == victim else ZEROS)
        for n in liar.names
    }
    for name in liar.names:
        liar.collect(name, told[name])
    with refused("replay", caplog):
        liar.certify(liar.held(common), liar.names, [victim])
    liar.all_is_well()


@gains("model-inconsistency")
def test_model_inconsistency_without_the_broadcast_in_h(make: Make, monkeypatch: Patch) -> None:
    liar = make().enrol()
    victim = liar.names[0]
    monkeypatch.setattr(Bundle, "digest", property(lambda self: bytes(32)))
    held = liar.gather(models={name: ONES if name == victim else ZEROS for name in liar.names})
    assert same(liar.sum(held), liar.stage.data[victim])


def _carried(liar: Liar, models: dict[str, np.ndarray], common: np.ndarray, off: int = 0) -> Held:
    """Models shown in an exchange without a sum, and then a sum over what the silos made of
    them.
    """
    liar.settle()
    for name in liar.names:
        told = liar.tell(name, None, models[name], exchange=REPORT)
        liar.say(name, m.Go(told.number))
        liar.hear(name, m.Ready)
    nothing = pack({})
    said = {
        REPORT: (liar.round + off, pack({"model": common}).digest),
        CARRIED: (liar.round, nothing.digest),
    }
    held = liar.held(liar.header(exchange="carried", broadcast=broadcast_digest(said)))
    for name in liar.names:
        told = liar.tell(name, held.header, exchange=CARRIED, common=nothing.layout)
        record, held.words[name] = liar.collect(name, told)
        held.records[name] = UploadRecord.from_record(record)
    return held


@refuses("model-inconsistency")
def test_model_inconsistency_in_an_earlier_exchange(make: Make, caplog: Log) -> None:
    """The sum's own broadcast is empty and the same for all; what was told before it is not."""
    liar = make().enrol()
    victim, rest = liar.names[0], liar.names[1:]
    split = {name: ONES if name == victim else ZEROS for name in liar.names}
    with refused("model-inconsistency", caplog):
        _carried(liar, split, ZEROS)
    with refused("model-inconsistency", caplog):
        _carried(liar, split, ONES)
    with refused("model-inconsistency", caplog):  # nor in the name of another round
        _carried(liar, dict.fromkeys(liar.names, ONES), ONES, off=1)
    # A broadcast that could not be answered on does not stand for the one that was.
    liar.settle()
    told = liar.tell(rest[0], None, ONES, exchange=REPORT)
    liar.say(rest[0], m.Go(told.number))
    liar.hear(rest[0], m.Ready)
    layout = pack({"other": ZEROS})
    told = liar.tell(rest[0], None, exchange=REPORT, common=layout.layout)
    liar.say(rest[0], m.Chunk(told.number, "common", 0), np.asarray(layout.buffer).data)
    with refused("wrong-shape", caplog):
        liar.say(rest[0], m.Go(told.number))
        liar.hear(rest[0], m.Ready)
    said = {REPORT: (0, layout.digest), CARRIED: (0, pack({}).digest)}
    with refused("model-inconsistency", caplog):
        header = liar.header(exchange="carried", broadcast=broadcast_digest(said))
        liar.ask(rest[0], header, exchange=CARRIED, common=[])
    for name in liar.names:
        liar.say(name, m.Closed(liar.told[name].number, False))
        liar.say(name, m.RoundOver(0))
    liar.round += 1
    held = _carried(liar, dict.fromkeys(liar.names, ONES), ONES)
    assert same(liar.sum(held), sum(liar.stage.data.values()))


def _told_twice(liar: Liar, computed: bool = False) -> Held:
    """The victim answers on a model and the others on one that silences them. Then an earlier
    exchange is told again and never computed, and the sum's header speaks of its own broadcast alone.
    `computed`: a sum with the whole truth in its header was begun before, and the answer is there.
    """
    liar.settle()
    nothing = pack({})
    for name in liar.names:
        model = ONES if name == liar.names[0] else ZEROS
        told = liar.tell(name, None, model, exchange=REPORT)
        liar.say(name, m.Go(told.number))
        liar.hear(name, m.Ready)
        if computed:
            said = {REPORT: (liar.round, pack({"model": model}).digest)}
            whole = broadcast_digest({**said, CARRIED: (liar.round, nothing.digest)})
            header = liar.header(exchange="carried", broadcast=whole)
            liar.collect(name, liar.tell(name, header, exchange=CARRIED, common=nothing.layout))
        liar.tell(name, None, ONES, exchange=REPORT)
    liar.settle()
    alone = broadcast_digest({CARRIED: (liar.round, nothing.digest)})
    held = liar.held(liar.header(exchange="carried", broadcast=alone))
    for name in liar.names:
        told = liar.tell(name, held.header, exchange=CARRIED, common=nothing.layout)
        record, held.words[name] = liar.collect(name, told)
        held.records[name] = UploadRecord.from_record(record)
    return held


@refuses("model-inconsistency")
def test_model_inconsistency_by_an_exchange_that_is_told_twice(make: Make, caplog: Log) -> None:
    liar = make().enrol()
    with refused("model-inconsistency", caplog):
        _told_twice(liar)
    with refused("model-inconsistency", caplog):
        _told_twice(liar, computed=True)
    liar.all_is_well()


@gains("model-inconsistency")
def test_model_inconsistency_where_a_silo_still_carries_what_h_forgot(
    make: Make, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(Gate, "ask_again", lambda self, index: None)
    liar = make().enrol()
    assert same(liar.sum(_told_twice(liar)), liar.stage.data[liar.names[0]])
    liar.round += 1
    held = _told_twice(liar, computed=True)
    assert same(liar.sum(held), liar.stage.data[liar.names[0]])


@gains("model-inconsistency")
def test_model_inconsistency_with_only_the_sums_own_broadcast_in_h(
    make: Make, monkeypatch: Patch
) -> None:
    liar = make().enrol()
    victim = liar.names[0]
    own = broadcast_digest
    monkeypatch.setattr(
        "silo.told.broadcast_digest", lambda said: own({max(said): said[max(said)]})
    )
    split = {name: ONES if name == victim else ZEROS for name in liar.names}
    monkeypatch.setattr(
        "tests.system.test_attacks_on_models.broadcast_digest", lambda said: own({3: said[3]})
    )
    assert same(liar.sum(_carried(liar, split, ZEROS)), liar.stage.data[victim])


@refuses("channel-downgrade")
def test_channel_downgrade(make: Make, caplog: Log) -> None:
    liar = make().enrol()
    with refused("channel-downgrade", caplog):
        liar.ask("silo-000", None)
    liar.all_is_well()


@gains("channel-downgrade")
def test_channel_downgrade_without_the_silos_own_say(make: Make, monkeypatch: Patch) -> None:
    """As if the coordinator decided whether a sum is masked: it reads the vector off the wire."""
    real = Session._heard_all

    def obedient(self: Session) -> Any:
        if self._told is not None and not self._told.message.header:
            self._party = self._new_party = None
        return real(self)

    monkeypatch.setattr(Session, "_heard_all", obedient)
    liar = make().enrol()
    _, words = liar.collect("silo-000", liar.tell("silo-000", None))
    assert same(liar.header().encoding.decode(words, 1)[0], liar.stage.data["silo-000"])
