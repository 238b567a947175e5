"""A coordinator that asks silos for the same thing again, over real sockets: a header, a round, a
payload, a sum that is over. Refused by name, and seen to succeed once the defence is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import silo.told
from crypto.sum.records import SumHeader
from crypto.sum.silo import SiloSum
from crypto.sum.silo_notes import RunNotes
from silo.told import ToldRound
from tests.system.attacks import gains, refuses, without
from tests.system.liar import Liar, Turned, refused, same
from tests.system.opened import bare, seed_of
from tests.system.stage import ONES, REPORT, TRAIN
from wire import messages as m
from wire.bundle import broadcast_digest, pack

Log = pytest.LogCaptureFixture
Patch = pytest.MonkeyPatch
Make = Callable[..., Liar]


def _forget_releases(patch: Patch) -> None:
    """As if silos did not write down for which payload they released shares."""
    patch.setattr(RunNotes, "payload", lambda self, header: f"unseen/{header.number}/{id(header)}")


# A header again


@refuses("replay")
def test_replay(make: Make, caplog: Log) -> None:
    liar = make().enrol()
    held = liar.gather()
    for header in (
        held.header,
        replace(held.header, number=1),
        replace(held.header, sid=bytes(32), number=2**62),
    ):
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


@gains("replay")
def test_replay_without_a_note_of_the_last_sum(make: Make, monkeypatch: Patch, caplog: Log) -> None:
    """Two uploads under the same pairwise masks: the first sum opens the victim's own mask, the
    second its edges.

    With only the note of the last sum's number gone, the note of what was released still stands in
    the way.
    """
    liar = make().enrol()
    victim, rest = liar.names[0], liar.names[1:]
    monkeypatch.setattr(RunNotes, "last", lambda self: (-1, 0))
    first = liar.gather()
    all_in = liar.open(first, liar.names, liar.certify(first, liar.names))
    with refused("second-sum", caplog):
        liar.ask(victim, first.header)
    _forget_releases(monkeypatch)
    liar.round += 1
    first = liar.gather()
    all_in = liar.open(first, liar.names, liar.certify(first, liar.names))
    second = liar.gather(first.header)
    for name in liar.names:
        # the same seeds of edges
        assert first.records[name].commitments[1:] == second.records[name].commitments[1:]
    gone = liar.open(second, rest, liar.certify(second, rest))
    edges = {other: seed_of(gone, other, victim) for other in rest}
    assert same(bare(liar, first, victim, seed_of(all_in, victim), edges), liar.stage.data[victim])


# A round again


@refuses("round-regression")
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


def _disguised(liar: Liar, alive: tuple[str, ...], round: int) -> SumHeader:
    """A header of this round for an exchange that says it is of another."""
    said = {TRAIN: (round, pack({"model": ONES}).digest)}
    return liar.header(alive=alive, broadcast=broadcast_digest(said))


@refuses("round-regression")
@gains("round-regression")
def test_round_regression_under_a_later_rounds_header(
    make: Make, monkeypatch: Patch, caplog: Log
) -> None:
    """Round 0 once more, in a sum that calls itself round 1: the note of what was released for
    round 0 says nothing about it. With the check gone, the difference of the two sums is the
    victim's vector.
    """
    liar = make().enrol()
    victim, rest = liar.names[0], liar.names[1:]
    everybody = liar.sum(liar.gather())
    liar.round += 1
    with refused("round-regression", caplog):
        liar.ask(rest[0], _disguised(liar, rest, 0), round=0)
    without(monkeypatch, silo.told, "_check_told", "round-regression")
    held = liar.gather(_disguised(liar, rest, 0), round=0)
    assert same(everybody - liar.sum(held), liar.stage.data[victim])


@gains("round-regression")
def test_round_regression_without_a_note_of_the_last_round(
    make: Make, monkeypatch: Patch, caplog: Log
) -> None:
    """An earlier round again, as such: the note of what was released catches it too, so both have
    to go.
    """
    liar = make().enrol()
    victim, rest = liar.names[0], liar.names[1:]
    everybody = liar.sum(liar.gather())
    liar.all_is_well()
    assert liar.round == 1
    numbers = RunNotes.last
    monkeypatch.setattr(RunNotes, "last", lambda self: (numbers(self)[0], 0))
    liar.enrol()  # in the session before, the secrets have moved on
    with refused("second-sum", caplog):
        liar.ask(rest[0], liar.header(alive=rest, round=0), round=0)
    _forget_releases(monkeypatch)
    liar.round = 0
    others = liar.sum(liar.gather(liar.header(alive=rest)))
    assert same(everybody - others, liar.stage.data[victim])


# A payload again


@refuses("second-sum")
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


@refuses("second-sum")
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


@gains("second-sum")
@pytest.mark.parametrize("how", ["memory", "restart", "another run"])
def test_second_sum_without_a_note_of_what_was_released(
    make: Make, monkeypatch: Patch, how: str
) -> None:
    """The same payload over all, and over all but one: the difference is that one's vector."""
    liar = make().enrol()
    victim, rest = liar.names[0], liar.names[1:]
    if how == "another run":
        monkeypatch.setattr("silo.process._join_once", lambda *_: None)
    else:
        _forget_releases(monkeypatch)
    everybody = liar.sum(liar.gather())
    if how != "memory":
        liar.stage.stop()
        liar.stage.start()
        liar.enrol(run=b"q" * 32 if how == "another run" else b"r" * 32)
    others = liar.sum(liar.gather(liar.header(alive=rest)))
    assert same(everybody - others, liar.stage.data[victim])


# A sum that is over


@refuses("late-share")
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
        ("propose", liar.proposal(held, "silo-001", liar.names)),
    ):
        with refused("late-share", caplog):
            liar.step("silo-000", step, record)
    liar.all_is_well()


@gains("late-share")
def test_late_share_without_an_end_of_the_round(make: Make, monkeypatch: Patch) -> None:
    """A sum that silos were told had been given up, in a round that is over: the coordinator kept
    the uploads, and reads what everybody believes was never opened.
    """
    liar = make().enrol()
    monkeypatch.setattr(SiloSum, "end_round", lambda self, round=None: None)
    monkeypatch.setattr(SiloSum, "abandon", lambda self: None)
    held = liar.gather()
    for name in liar.names:
        liar.say(name, m.Closed(liar.told[name].number, False))
        liar.say(name, m.RoundOver(0))
        liar.tell(name, None, exchange=REPORT)
    assert same(liar.sum(held), sum(liar.stage.data.values()))


# Memory


@refuses("oversize")
def test_refused_broadcasts_are_not_kept(make: Make, monkeypatch: Patch) -> None:
    """Two dozen broadcasts as large as the study allows, each for a sum that is refused: the silo has
    one of them when the round goes on, and not all.
    """
    rounds: list[ToldRound] = []
    begin = ToldRound.__init__

    def watched(self: ToldRound, folder: Path | None = None) -> None:
        begin(self, folder)
        rounds.append(self)

    monkeypatch.setattr(ToldRound, "__init__", watched)
    liar = make().enrol()
    for number in range(24):
        model = np.full(250_000, number, np.float32)
        with pytest.raises(Turned):
            liar.ask("silo-000", liar.header(weight_cap=7.0), model)
        with pytest.raises(Turned):
            liar.ask("silo-000", liar.header(), model, exchange=50 + number)
    kept = [bundle.buffer.nbytes for r in rounds for _, bundle in r._held.values()]
    assert len(kept) == 1 and sum(kept) < 1_100_000
