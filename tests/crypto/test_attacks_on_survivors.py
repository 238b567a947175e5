"""Attacks on the survivor set, on the state machines; over sockets:
tests/system/test_attacks_on_survivors.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

import crypto.sum.silo
from crypto.sum import silo_kept as kept_answer
from crypto.sum.graph import Topology
from crypto.sum.opening import Opening
from crypto.sum.params import Policy
from crypto.sum.records import KeyList, Proposal, UnmaskRequest
from crypto.sum.silo import SiloSum
from crypto.sum.silo_limits import Limits
from crypto.sum.silo_states import Call, SiloState
from tests.crypto.attacks import (
    SIZES,
    Patch,
    allow,
    certificate,
    dealt,
    encoding,
    gather,
    refused,
    run_to_proposal,
    seed_of,
    strip,
)
from tests.crypto.world import World, vectors


def test_split_view(monkeypatch: Patch) -> None:
    world = World(10).enrol()
    opened, _, _ = run_to_proposal(world)
    h, everyone, fewer = opened.header.h, world.names, world.names[1:]
    certificate(world, opened, everyone, world.names)
    refused("split-view", lambda: world.silos["silo-004"].endorse(Proposal(h, fewer, ())))

    allow(monkeypatch, (SiloState.ENDORSED, Call.ENDORSE, SiloState.ENDORSED))
    second = certificate(world, opened, fewer, world.names)
    assert len(second) >= opened.needed  # two sets are certified


def test_an_uncertified_set_opens_nothing(monkeypatch: Patch) -> None:
    world = World(10).enrol()
    opened, _, _ = run_to_proposal(world)
    h = opened.header.h
    signed = certificate(world, opened, world.names, world.names)
    t = opened.needed
    silo = world.silos["silo-009"]
    good = UnmaskRequest(h, world.names, signed, ())
    for false in (
        replace(good, endorsements=signed[: t - 1]),
        replace(good, endorsements=signed[:1] * 10),
        replace(good, endorsements=tuple(replace(e, signature=bytes(64)) for e in signed)),
        replace(
            good,
            endorsements=tuple(replace(e, silo=world.names[-i - 1]) for i, e in enumerate(signed)),
        ),
        replace(good, survivors=world.names[1:]),
    ):
        refused("split-view", partial(silo.release, false))
    monkeypatch.setattr(crypto.sum.silo, "check_certificate", lambda *_: None)
    # opened on the coordinator's word alone
    assert silo.release(replace(good, endorsements=())).self_shares


def test_a_certificate_of_others_does_not_move_a_silo_that_signed_another_set() -> None:
    world = World(10).enrol()
    opened, _, _ = run_to_proposal(world)
    h, rest = opened.header.h, world.names[:9]
    world.silos["silo-009"].endorse(Proposal(h, world.names, ()))
    signed = certificate(world, opened, rest, rest)
    assert len(signed) >= opened.needed
    refused(
        "split-view", lambda: world.silos["silo-009"].release(UnmaskRequest(h, rest, signed, ()))
    )
    world.silos["silo-000"].release(UnmaskRequest(h, rest, signed, ()))


def test_named_a_survivor_without_an_upload() -> None:
    world = World(4).enrol()
    opened = world.begin(world.header(encoding(4)))
    silo = world.silos["silo-000"]
    refused("second-sum", lambda: silo.endorse(Proposal(opened.header.h, world.names, ())))
    silo.state = SiloState.UPLOADED  # as if the table of states did not know
    refused("split-view", lambda: silo.endorse(Proposal(opened.header.h, world.names, ())))


def test_second_sum_opened_by_bystanders(monkeypatch: Patch) -> None:
    """Ten silos, three of them corrupt. A first sum over 3 to 9 is opened by bystanders, so that
    its members 4 to 6 are free to join a second, over all of them but silo 3: the difference is
    silo 3's vector.
    """
    world = World(10).enrol()
    data = vectors(world.names, SIZES)
    corrupt, members, again = world.names[7:], world.names[3:], world.names[4:]
    signers = (*world.names[:4], *corrupt)

    def first() -> Sequence[np.ndarray]:
        opened = world.begin(world.header(encoding(10)))
        for name in members:
            world.upload(opened, name, data[name])
        opened.propose()
        h, blobs = opened.header.h, {n: dealt(opened, n, members) for n in signers}
        signed = tuple(world.silos[n].endorse(Proposal(h, members, blobs[n])) for n in signers)
        assert len(signed) == opened.needed
        got = Opening(h, opened.topology, members, opened._records)
        for n in signers:
            got.receive(world.silos[n].release(UnmaskRequest(h, members, signed, ())))
        assert opened._running.total is not None
        return opened.header.encoding.decode(
            strip(opened._running.total, got.seeds()), len(members)
        )

    refused("second-sum", first)
    before = [
        (state, Call.ENDORSE, SiloState.ENDORSED) for state in (SiloState.OPEN, SiloState.ENDORSED)
    ]
    allow(monkeypatch, *before)
    refused("second-sum", first)  # a silo asked to sign a set that it is not in

    monkeypatch.setattr(SiloSum, "_check_set", lambda *_: None)
    monkeypatch.setattr(kept_answer, "frozenset", lambda names: _Everybody(names), raising=False)
    (all_of_them,) = first()
    for name in corrupt:  # who forget what they noted
        world.journals[name].entries.clear()
    monkeypatch.undo()
    _, (but_one,) = world.whole(encoding(10), data, alive=again)
    error = 20 * encoding(10).error_bound()[0]
    assert np.abs(all_of_them - but_one - data["silo-003"][0]).max() <= error


class _Everybody(frozenset[str]):
    """As a certificate was counted once: by whoever holds shares, in the sum or not."""

    def intersection(self, *others: object) -> frozenset[str]:
        return frozenset(self)


def test_both_shares(monkeypatch: Patch) -> None:
    """b_u because u survived, and r_uv because u dropped: together they lay u's vector bare."""
    world = World(5).enrol()
    opened, data, kept = run_to_proposal(world)
    victim, rest = world.names[0], world.names[1:]
    first = gather(world, opened, world.names)
    h = opened.header.h
    refused("both-shares", lambda: world.silos[rest[0]].release(UnmaskRequest(h, rest, (), ())))

    allow(
        monkeypatch,
        (SiloState.RELEASED, Call.ENDORSE, SiloState.ENDORSED),
        (SiloState.ENDORSED, Call.ENDORSE, SiloState.ENDORSED),
    )
    refused("second-sum", lambda: gather(world, opened, rest))
    for journal in world.journals.values():  # as if nothing were written down either
        journal.entries.clear()
    second = gather(world, opened, rest)
    masks = [(seed_of(first, (victim, None)), 1)]
    # r_uv is opened from the other end, where its sign is the other one.
    masks += [(seed_of(second, (v, victim)), 1 if victim < v else -1) for v in rest]
    (bare,) = opened.header.encoding.decode(strip(kept[victim], masks), 1)
    assert np.abs(bare - data[victim][0]).max() <= opened.header.encoding.error_bound()[0]


def test_both_shares_of_a_dropped_silo_in_one_request() -> None:
    world = World(5).enrol()
    opened, _, _ = run_to_proposal(world)
    h, rest = opened.header.h, world.names[1:]
    signed = certificate(world, opened, rest, world.names)
    dealt = dict(opened._records[world.names[0]].blobs)[rest[0]]
    request = UnmaskRequest(h, rest, signed, ((world.names[0], dealt),))
    refused("both-shares", lambda: world.silos[rest[0]].release(request))


def test_ring_gap(monkeypatch: Patch) -> None:
    """All of a victim's neighbours "dropped": its every mask is opened although it survives."""
    policy = Policy(
        complete_up_to=5, security=2, correctness=2, ring_corrupt=0.1, dropout=0.1, holders_up_to=40
    )
    world = World(40, policy=policy).enrol()
    opened, data, kept = run_to_proposal(world)
    victim = world.names[0]
    around = opened.topology.neighbours(victim)
    assert len(around) == 10
    survivors = tuple(name for name in world.names if name not in around)
    holder = world.silos[opened.topology.holders[0]]
    refused("ring-gap", lambda: holder.endorse(Proposal(opened.header.h, survivors, ())))

    monkeypatch.setattr(Topology, "thinnest", lambda *_: 99)
    got = gather(world, opened, survivors)
    masks = [(seed_of(got, (victim, None)), 1)]
    masks += [(seed_of(got, (victim, v)), 1 if victim < v else -1) for v in around]
    (bare,) = opened.header.encoding.decode(strip(kept[victim], masks), 1)
    assert np.abs(bare - data[victim][0]).max() <= opened.header.encoding.error_bound()[0]


def test_tiny_sum() -> None:
    careful, careless = (World(10, limits=Limits(min_survivors=floor)).enrol() for floor in (9, 3))
    for world in (careful, careless):
        opened, _, _ = run_to_proposal(world)
        proposal = Proposal(opened.header.h, world.names[:8], ())
        if world is careful:
            refused("tiny-sum", partial(world.silos["silo-000"].endorse, proposal))
        else:
            world.silos["silo-000"].endorse(proposal)
        below = Proposal(opened.header.h, world.names[:6], ())
        refused("tiny-sum", partial(world.silos["silo-001"].endorse, below))
    world = World(4).enrol()
    header = world.header(encoding(4), world.names[:2])
    refused("tiny-sum", lambda: world.silos["silo-000"].begin(header, header.broadcast, SIZES))
    two = World(3)
    offers = KeyList(tuple(two.silos[name].offer() for name in two.names[:2]))
    refused("tiny-sum", lambda: two.silos["silo-000"].receive_keys(offers))
