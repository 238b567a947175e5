"""A coordinator that asks silos for the wrong sum, or for a sum again: refused by name over real sockets, and seen to
succeed once the defence is gone. (Its lies about keys and survivors are in test_attacks_on_silos.py.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crypto.encoding import Encoding
from crypto.records import UploadRecord
from crypto.silo_sum import SiloSum
from methods.base import Answer, ArraySpec
from silo.session import Session
from tests.system.liar import Held, Liar, refused, same
from tests.system.stage import CARRIED, METHOD, ONES, REPORT, SIZE
from tests.system.test_attacks_on_silos import Log, Make, Patch, make
from wire import messages as m
from wire.bundle import Bundle, broadcast_digest, pack

__all__ = ["make"]
ZEROS = np.zeros(SIZE, np.float32)


# The same thing again


def test_replay(make: Make, caplog: Log) -> None:
    liar = make().enrol()
    held = liar.gather()
    for header in (held.header, replace(held.header, number=1), replace(held.header, sid=bytes(32), number=2**62)):
        with refused("replay", caplog):
            liar.ask("silo-000", header)
    with refused("replay", caplog):  # an exchange's number again
        liar.ask("silo-000", liar.header(), number=1)
    held = liar.gather()
    other = replace(held.header, number=7)
    with refused("replay", caplog):  # a proposal of another sum
        liar.certify(replace(held, header=other), liar.names, ["silo-000"])
    with refused("replay", caplog):  # the upload once more
        liar.say("silo-000", m.Send(liar.told["silo-000"].number))
        liar.hear("silo-000", m.SumStart)
    liar.all_is_well()


def test_replay_without_a_note_of_the_last_sum(make: Make, monkeypatch: Patch) -> None:
    """Two uploads under the same pairwise masks, and two survivor sets certified for the same h."""
    liar = make().enrol()
    first = liar.gather()
    one = liar.certify(first, liar.names)
    monkeypatch.setattr(SiloSum, "_last", lambda self: (-1, 0))
    second = liar.gather(first.header)
    two = liar.certify(second, liar.names[1:])
    assert len(one) == len(two) == 4 and {e.h for e in (*one, *two)} == {first.header.h}
    for name in liar.names:
        assert first.records[name].commitments[1:] == second.records[name].commitments[1:]  # the pairwise seeds


def test_round_regression(make: Make, caplog: Log) -> None:
    liar = make().enrol()
    liar.round = 5
    liar.gather()
    with refused("round-regression", caplog):
        liar.ask("silo-000", liar.header(round=4))
    with refused("round-regression", caplog):  # the header says one round, the exchange another
        liar.ask("silo-000", liar.header(), round=4)
    with refused("round-regression", caplog):
        liar.ask("silo-000", liar.header(exchange="both"))
    liar.stage.stop()
    liar.stage.start()
    liar.enrol()
    with refused("round-regression", caplog):  # remembered over a restart
        liar.ask("silo-000", liar.header(round=4))
    liar.all_is_well()


def test_second_sum(make: Make, caplog: Log) -> None:
    liar = make().enrol()
    rest = liar.names[1:]
    liar.sum(liar.gather())
    with refused("second-sum", caplog):
        liar.ask(rest[0], liar.header(alive=rest))
    with refused("second-sum", caplog):  # nor over another model in the same round
        liar.ask(rest[0], liar.header(2 * ONES, alive=rest), 2 * ONES)
    liar.stage.stop()
    liar.stage.start()
    liar.enrol()
    with refused("second-sum", caplog):
        liar.ask(rest[0], liar.header(alive=rest))
    liar.all_is_well()


def test_second_sum_under_the_name_of_another_run(make: Make, caplog: Log) -> None:
    liar = make().enrol()
    liar.sum(liar.gather())
    with refused("second-sum", caplog):
        liar.enrol(run=b"q" * 32)
    liar.stage.stop()
    liar.stage.start()
    with refused("second-sum", caplog):
        liar.enrol(run=b"q" * 32)
    liar.enrol().all_is_well()


@pytest.mark.parametrize("how", ["memory", "restart", "another run"])
def test_second_sum_without_a_note_of_what_was_released(make: Make, monkeypatch: Patch, how: str) -> None:
    """The same payload over all, and over all but one: the difference is that one's vector."""
    liar = make().enrol()
    victim, rest = liar.names[0], liar.names[1:]
    if how == "another run":
        monkeypatch.setattr("silo.process._join_once", lambda *_: None)
    else:
        monkeypatch.setattr(SiloSum, "_payload", lambda self, header: f"unseen/{header.number}")
    everybody = liar.sum(liar.gather())
    if how != "memory":
        liar.stage.stop()
        liar.stage.start()
        liar.enrol(run=b"q" * 32 if how == "another run" else b"r" * 32)
    without = liar.sum(liar.gather(liar.header(alive=rest)))
    assert same(everybody - without, liar.stage.data[victim])


def test_late_share(make: Make, caplog: Log) -> None:
    """Shares of a sum of a round that is over, asked for while something else goes on."""
    liar = make().enrol()
    held = liar.gather()
    signed = liar.certify(held, liar.names)
    for name in liar.names:
        liar.say(name, m.Closed(liar.told[name].number, False))
        liar.say(name, m.RoundOver(0))
    liar.tell("silo-000", None, exchange=REPORT)
    for step, record in (
        ("unmask", liar.request(held, "silo-000", liar.names, signed)),
        ("propose", liar.proposal(held, liar.names)),
    ):
        with refused("late-share", caplog):
            liar.step("silo-000", step, record)
    liar.all_is_well()


# What is summed


def test_model_inconsistency(make: Make, caplog: Log) -> None:
    """A model that silences everybody but the victim: a sum of one."""
    liar = make().enrol()
    victim, rest = liar.names[0], liar.names[1:]
    with refused("model-inconsistency", caplog):  # one header, two models
        liar.ask(rest[0], liar.header(ONES), ZEROS)
    with refused("model-inconsistency", caplog):  # one header, two cohorts
        liar.ask(rest[0], liar.header(), cohort=[0, 1, 2])
    # A header for each: every silo uploads, but the victim's masks belong to another sum and its signature too.
    common = liar.header(ZEROS)
    special = replace(common, broadcast=liar.header(ONES).broadcast)
    told = {n: liar.tell(n, special if n == victim else common, ONES if n == victim else ZEROS) for n in liar.names}
    for name in liar.names:
        liar.collect(name, told[name])
    with refused("replay", caplog):
        liar.certify(liar.held(common), liar.names, [victim])
    liar.all_is_well()


def test_model_inconsistency_without_the_broadcast_in_h(make: Make, monkeypatch: Patch) -> None:
    liar = make().enrol()
    victim = liar.names[0]
    monkeypatch.setattr(Bundle, "digest", property(lambda self: bytes(32)))
    held = liar.gather(models={name: ONES if name == victim else ZEROS for name in liar.names})
    assert same(liar.sum(held), liar.stage.data[victim])


def _carried(liar: Liar, models: dict[str, np.ndarray], common: np.ndarray, off: int = 0) -> Held:
    """Models shown in an exchange without a sum, and then a sum over what the silos made of them."""
    liar.settle()
    for name in liar.names:
        told = liar.tell(name, None, models[name], exchange=REPORT)
        liar.say(name, m.Go(told.number))
        liar.hear(name, m.Ready)
    nothing = pack({})
    said = {REPORT: (liar.round + off, pack({"model": common}).digest), CARRIED: (liar.round, nothing.digest)}
    held = liar.held(liar.header(exchange="carried", broadcast=broadcast_digest(said)))
    for name in liar.names:
        told = liar.tell(name, held.header, exchange=CARRIED, common=nothing.layout)
        record, held.words[name] = liar.collect(name, told)
        held.records[name] = UploadRecord.from_record(record)
    return held


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
    liar.say(rest[0], m.Chunk(told.number, "common", 0), layout.buffer.data)
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


def test_model_inconsistency_with_only_the_sums_own_broadcast_in_h(make: Make, monkeypatch: Patch) -> None:
    liar = make().enrol()
    victim = liar.names[0]
    own = broadcast_digest
    monkeypatch.setattr("silo.session.broadcast_digest", lambda said: own({3: said[3]}))
    split = {name: ONES if name == victim else ZEROS for name in liar.names}
    monkeypatch.setattr("tests.system.test_attacks_on_sums.broadcast_digest", lambda said: own({3: said[3]}))
    assert same(liar.sum(_carried(liar, split, ZEROS)), liar.stage.data[victim])


def test_channel_downgrade(make: Make, caplog: Log) -> None:
    liar = make().enrol()
    with refused("channel-downgrade", caplog):
        liar.ask("silo-000", None)
    liar.all_is_well()


def test_channel_downgrade_without_the_silos_own_say(make: Make, monkeypatch: Patch) -> None:
    """As if the coordinator decided whether a sum is masked: it reads the vector off the wire."""
    real = Session._heard_all

    def obedient(self: Session) -> Any:
        if self._told is not None and not self._told.header:
            self._party = self._new_party = None
        return real(self)

    monkeypatch.setattr(Session, "_heard_all", obedient)
    liar = make().enrol()
    _, words = liar.collect("silo-000", liar.tell("silo-000", None))
    assert same(liar.header().encoding.decode(words, 1)[0], liar.stage.data["silo-000"])


E = Encoding(32, 4, (SIZE,), (8.0,))
HUGE = [["model", "<f4", [1 << 20, 1 << 12]]]


@pytest.mark.parametrize(
    ("attack", "header", "told"),
    [
        ("undeclared-upload", {}, {"exchange": 7}),
        ("undeclared-upload", {"alive": ("silo-001", "silo-002", "silo-003")}, {}),
        ("wrong-shape", {"encoding": replace(E, sizes=(SIZE + 1,))}, {}),
        ("wrong-shape", {"encoding": Encoding(32, 4, (SIZE, 1), (8.0, 8.0))}, {}),
        ("wrong-shape", {}, {"cohort": ["silo-000"]}),
        ("wrong-shape", {}, {"common": [["model", "object", [1]]]}),
        ("wrong-shape", {}, {"header": {"sid": 1}, "exchange": 0}),
        ("range-widening", {"encoding": replace(E, ranges=(1e6,))}, {}),
        ("range-widening", {"encoding": replace(E, lane_bits=16)}, {}),
        ("range-widening", {"encoding": replace(E, parties=2)}, {}),
        ("weight-hog", {"weight_cap": 1e12}, {}),
        ("oversize", {}, {"common": HUGE}),
        ("oversize", {}, {"private": HUGE}),
        ("oversize", {"round": 10**6}, {}),
    ],
)
def test_exchanges_that_ask_too_much(make: Make, caplog: Log, attack: str, header: dict, told: dict) -> None:
    """Without the defence: tests/crypto/test_attacks.py, test_headers_that_ask_too_much."""
    liar = make().enrol()
    with refused(attack, caplog):
        made = liar.header(**header)
        liar.ask("silo-000", made, **told)
    liar.all_is_well()


def test_oversize_pieces(make: Make, caplog: Log) -> None:
    liar = make().enrol()
    with refused("oversize", caplog):
        layout = [["model", "|u1", [3 << 20]]]
        told = liar.tell("silo-000", liar.header(), common=layout)
        liar.say("silo-000", m.Chunk(told.number, "common", 0), bytes((1 << 20) + 64))
        liar.hear("silo-000", m.Ready)
    liar.all_is_well()


@pytest.mark.parametrize(
    ("attack", "said"),
    [
        ("undeclared-upload", Answer({"update": ONES, "sentences": ONES})),
        ("undeclared-upload", Answer({"update": ONES}, {"update": ONES})),
        ("undeclared-upload", Answer({}, {"update": ONES})),  # masked by declaration, sealed by what the code does
        ("wrong-shape", Answer({"update": np.ones(SIZE + 1, np.float32)})),
        ("wrong-shape", Answer({"update": np.full(SIZE, np.nan, np.float32)})),
    ],
)
def test_a_method_that_answers_otherwise_than_declared(
    make: Make, caplog: Log, monkeypatch: Patch, attack: str, said: Answer
) -> None:
    """The gate stands in the silo, whatever the method's own code does."""
    liar = make().enrol()
    train = METHOD.exchanges[0]
    assert train.masked == {"update": ArraySpec((SIZE,))}
    good = train.answer
    object.__setattr__(train, "answer", lambda silo, heard: said)
    try:
        told = liar.tell("silo-000", liar.header())
        with refused(attack, caplog):
            liar.say("silo-000", m.Go(told.number))
            liar.hear("silo-000", m.Ready)
    finally:
        object.__setattr__(train, "answer", good)
    liar.all_is_well()


def test_undeclared_upload_without_the_gate(make: Make, monkeypatch: Patch) -> None:
    """A method whose code sends sealed what it declared masked: the coordinator reads it."""
    monkeypatch.setattr("silo.desk._check", lambda exchange, answer: None)
    monkeypatch.setattr(Answer, "__init__", _sealed_instead(Answer.__init__))
    liar = make().enrol()
    told = liar.tell("silo-000", liar.header())
    liar.say("silo-000", m.Go(told.number))
    liar.hear("silo-000", m.Ready)
    liar.say("silo-000", m.Send(told.number))
    assert liar.hear("silo-000", m.SealedStart)[0].arrays == [["update", "<f4", [SIZE]]]
    payload = liar.hear("silo-000", m.Chunk)[1]
    assert same(np.frombuffer(payload, "<f4")[:SIZE], liar.stage.data["silo-000"])


def _sealed_instead(real: Any) -> Any:
    return lambda self, masked=None, sealed=None, **rest: real(self, {}, {**(masked or {}), **(sealed or {})}, **rest)
