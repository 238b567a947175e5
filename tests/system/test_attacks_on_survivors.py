"""A coordinator that lies about who survived, over real sockets: refused by name, and seen to
succeed undefended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import crypto.sum.silo
from crypto.sum.graph import Topology
from crypto.sum.opening import Opening
from crypto.sum.params import Policy, parameters
from crypto.sum.records import KeyList, ShareRelease, UnmaskRequest
from crypto.sum.silo import SiloSum
from crypto.sum.silo_states import TRANSITIONS, Call, SiloState
from silo.journal import FileJournal
from tests.conftest import wait_for
from tests.system.attacks import gains, refuses, without
from tests.system.liar import Held, Liar, refused, same
from tests.system.opened import bare, seed_of
from wire import messages as m

Log = pytest.LogCaptureFixture
Patch = pytest.MonkeyPatch
Make = Callable[..., Liar]


def _allow(patch: Patch, *more: tuple[SiloState, Call, SiloState]) -> None:
    table = dict(TRANSITIONS) | {(state, call): after for state, call, after in more}
    patch.setattr(crypto.sum.silo, "TRANSITIONS", table)


def _both(liar: Liar, held: Held, victim: str, all_in: Opening, without_it: Opening) -> np.ndarray:
    """b_u because u survived, and every r_uv because u dropped: together they lay u's vector
    bare.
    """
    edges = {other: seed_of(without_it, other, victim) for other in liar.names if other != victim}
    return bare(liar, held, victim, seed_of(all_in, victim), edges)


@refuses("split-view")
def test_split_view(make: Make, caplog: Log) -> None:
    liar = make().enrol()
    held = liar.gather()
    h, everybody, rest = held.header.h, liar.names, liar.names[1:]
    signed = liar.certify(held, everybody)
    with refused("split-view", caplog):  # another set to sign
        liar.certify(held, rest, ["silo-001"])
    for false in (
        UnmaskRequest(h, rest, signed, ()),  # signatures on another set
        UnmaskRequest(h, everybody, signed[:2], ()),  # too few
        UnmaskRequest(h, everybody, signed[:1] * 4, ()),  # one four times
        UnmaskRequest(h, everybody, tuple(replace(e, signature=bytes(64)) for e in signed), ()),
    ):
        with refused("split-view", caplog):
            liar.step("silo-001", "unmask", false)
    opening = liar.open(held, everybody, signed)
    assert same(liar.unmasked(held, everybody, opening.seeds()), sum(liar.stage.data.values()))
    liar.all_is_well()


@refuses("both-shares")
def test_both_shares(make: Make, caplog: Log) -> None:
    liar = make().enrol()
    held = liar.gather()
    rest = liar.names[1:]
    liar.sum(held)
    with refused("both-shares", caplog):  # released once, asked again
        liar.step("silo-001", "unmask", UnmaskRequest(held.header.h, rest, (), ()))
    liar.round += 1
    held = liar.gather()
    signed = liar.certify(held, rest)
    blobs = tuple(
        (d, dict(held.records[d].blobs)["silo-001"]) for d in liar.names if d != "silo-001"
    )
    with refused("both-shares", caplog):  # with a share of the one that is said to have dropped
        liar.step("silo-001", "unmask", UnmaskRequest(held.header.h, rest, signed, blobs))
    liar.all_is_well()


@refuses("both-shares")
def test_the_same_question_has_the_same_answer_and_no_other(make: Make, caplog: Log) -> None:
    """What a coordinator that crashed may do, and no more: also after the silo's own restart."""
    liar = make().enrol()
    held = liar.gather()
    signed = liar.certify(held, liar.names)
    assert liar.certify(held, liar.names, ["silo-001"]) == signed[1:2]
    request = liar.request(held, "silo-001", liar.names, signed)
    first = liar.step("silo-001", "unmask", request)
    assert liar.step("silo-001", "unmask", request) == first
    other = replace(request, survivors=liar.names[1:], blobs=request.blobs[1:])
    with refused("both-shares", caplog):
        liar.step("silo-001", "unmask", other)
    _restart(liar, "silo-001")
    assert liar.step("silo-001", "unmask", request) == first
    with refused("replay", caplog):
        liar.step("silo-001", "unmask", other)
    # it has forgotten the sum, and not what makes a certificate
    with refused("split-view", caplog):
        liar.step("silo-001", "unmask", replace(request, endorsements=request.endorsements[:2]))
    liar.enrol()
    liar.all_is_well()


@refuses("late-share")
def test_a_silo_that_was_restarted_after_it_signed_releases_once_and_not_what_was_given_up(
    make: Make, caplog: Log
) -> None:
    liar = make().enrol()
    held = liar.gather()
    signed = liar.certify(held, liar.names)
    _restart(liar, "silo-001")
    request = replace(liar.request(held, "silo-001", liar.names, signed), blobs=())
    fewer = liar.names[1:]
    with refused("replay", caplog):
        liar.step("silo-001", "unmask", replace(request, survivors=fewer))
    said = ShareRelease.from_record(liar.step("silo-001", "unmask", request))
    assert [dealer for dealer, _ in said.self_shares] == list(liar.names)
    liar.enrol()
    with refused("second-sum", caplog):  # that was this round's; no other sum over it
        liar.ask("silo-001", liar.header())
    liar.round += 1
    held = liar.gather()
    signed = liar.certify(held, liar.names)
    liar.say("silo-001", m.Closed(liar.told["silo-001"].number, False))
    _restart(liar, "silo-001")
    with refused("replay", caplog):
        liar.step("silo-001", "unmask", replace(request, h=held.header.h, endorsements=signed))
    liar.enrol()
    held = liar.gather()  # nobody said that the first was given up, but a second is begun
    signed = liar.certify(held, liar.names)
    liar.gather()
    with refused("replay", caplog):
        liar.step("silo-001", "unmask", replace(request, h=held.header.h, endorsements=signed))
    liar.all_is_well()


def _restart(liar: Liar, name: str) -> None:
    liar.stage.stop(name)
    liar.stage.start(name)
    wait_for(
        lambda: liar.stage.router.receive(0.05) is None and name in liar.stage.router.connected, 20
    )


@refuses("second-sum")
def test_a_silo_opens_only_sums_that_it_is_in(make: Make, caplog: Log) -> None:
    """Else bystanders could open one sum, and its members, free of any note, a second over all of
    them but one.
    """
    liar = make().enrol()
    held = liar.gather()
    aside, rest = liar.names[0], liar.names[1:]
    with refused("second-sum", caplog):
        liar.certify(held, rest, [aside])
    signed = liar.certify(held, rest)
    with refused("second-sum", caplog):
        liar.step(aside, "unmask", liar.request(held, aside, rest, signed))
    opening = liar.open(held, rest, signed)
    assert same(
        liar.unmasked(held, rest, opening.seeds()), liar.stage.plain(held.header.encoding, rest)
    )
    liar.all_is_well()


@gains("split-view", "both-shares")
def test_split_view_and_both_shares_without_one_answer_per_sum(
    make: Make, monkeypatch: Patch
) -> None:
    liar = make().enrol()
    held, victim = liar.gather(), liar.names[0]
    again = [
        (state, Call.ENDORSE, SiloState.ENDORSED)
        for state in (SiloState.ENDORSED, SiloState.RELEASED)
    ]
    _allow(monkeypatch, *again)
    # the other thing that stands in the way: the note that shares were released
    noted = FileJournal.get
    monkeypatch.setattr(
        FileJournal, "get", lambda j, key: None if key.startswith("released/") else noted(j, key)
    )
    first = liar.open(held, liar.names, liar.certify(held, liar.names))
    second = liar.open(held, liar.names[1:], liar.certify(held, liar.names[1:]))
    assert same(_both(liar, held, victim, first, second), liar.stage.data[victim])


@gains("split-view")
def test_split_view_without_certificates(make: Make, monkeypatch: Patch) -> None:
    """Half of the holders hear that the victim survived, and half that it dropped; nobody signs
    anything.

    Each still answers only once, and 2t > n + m: with nothing but certificates gone, too few shares
    of either kind come together. So the threshold is lowered as well, to what half of the holders
    can meet.
    """
    monkeypatch.setattr("crypto.sum.silo.check_certificate", lambda *_: None)
    liar = make(6).enrol()
    victim, rest = liar.names[0], liar.names[1:]
    for threshold, read in ((4, False), (3, True)):
        with monkeypatch.context() as patch:
            patch.setattr(
                "crypto.sum.graph.parameters",
                lambda *a, t=threshold: replace(parameters(*a), threshold=t),
            )
            held = liar.gather()
            there = liar.open(held, liar.names, (), liar.names[::2])
            gone = liar.open(held, rest, (), liar.names[1::2])
        assert there.enough is gone.enough is read
        if read:
            assert same(_both(liar, held, victim, there, gone), liar.stage.data[victim])
        liar.round += 1


@refuses("tiny-sum")
def test_tiny_sum(make: Make, caplog: Log) -> None:
    liar = make().enrol()
    with refused("tiny-sum", caplog):
        liar.ask("silo-000", liar.header(alive=liar.names[:2]))
    held = liar.gather()
    for few in (liar.names[:2], liar.names[:1], ()):
        with refused("tiny-sum", caplog):
            liar.certify(held, few, ["silo-001"])
    keys = liar.offers().key_list()
    with refused("tiny-sum", caplog):
        liar.step("silo-000", "keys", KeyList(keys.offers[:2]))
    liar.enrol().all_is_well()


@gains("tiny-sum")
def test_tiny_sum_without_a_floor(make: Make, monkeypatch: Patch) -> None:
    liar = make().enrol()
    without(monkeypatch, Topology, "check_survivors", "tiny-sum")
    held, victim = liar.gather(), liar.names[0]
    # What else stands in the way: only survivors sign, and one is not enough.
    without(monkeypatch, SiloSum, "_check_set", "second-sum")
    monkeypatch.setattr("crypto.sum.silo.check_certificate", lambda *_: None)
    signed = liar.certify(held, (victim,), liar.names)
    opening = liar.open(held, (victim,), signed, liar.names)
    # a "sum" over one
    assert same(liar.unmasked(held, (victim,), opening.seeds()), liar.stage.data[victim])


@refuses("ring-gap")
def test_ring_gap(make: Make, caplog: Log) -> None:
    """Two neighbours of a ring of eight, each joined to two on either side, dropped: enough are
    left, but not there.
    """
    policy = Policy(complete_up_to=5, security=2, correctness=2, ring_corrupt=0.1, dropout=0.1)
    liar = make(8, policy=policy).enrol()
    held = liar.gather()
    ring, parameters = held.topology.ring, held.topology.parameters
    assert not parameters.complete and parameters.n_min == 6 and parameters.stretch == 2
    assert any(len(held.topology.neighbours(name)) == 4 for name in ring)
    with refused("ring-gap", caplog):
        liar.certify(held, sorted(set(ring) - set(ring[:2])), [ring[3]])
    apart = sorted(set(ring) - {ring[0], ring[4]})
    assert same(liar.sum(held, apart), liar.stage.plain(held.header.encoding, apart))
    liar.all_is_well()


#: Twelve silos on a ring, each joined to two on either side; eight survivors are enough.
RING = Policy(complete_up_to=5, security=1, correctness=1, ring_corrupt=0.05, dropout=0.05)


@refuses("ring-gap")
@gains("ring-gap")
def test_ring_gap_around_one_silo(make: Make, monkeypatch: Patch, caplog: Log) -> None:
    """All four neighbours of the victim "dropped": every mask of its is opened although it
    survives.
    """
    liar = make(12, policy=RING).enrol()
    held, victim = liar.gather(), liar.names[0]
    around = held.topology.neighbours(victim)
    survivors = tuple(name for name in liar.names if name not in around)
    assert len(around) == 4 and len(survivors) == held.topology.parameters.n_min
    for name in liar.names:
        with refused("ring-gap", caplog):
            liar.certify(held, survivors, [name])
    without(monkeypatch, Topology, "check_survivors", "ring-gap")
    opening = liar.open(held, survivors, liar.certify(held, survivors))
    edges = {other: seed_of(opening, victim, other) for other in around}
    assert same(bare(liar, held, victim, seed_of(opening, victim), edges), liar.stage.data[victim])
