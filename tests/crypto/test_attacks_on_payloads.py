"""The same thing asked for again, of the state machines; over sockets:
tests/system/test_attacks_on_payloads.py.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

import crypto.sum.silo
from crypto.sum.coordinator import OpenSum
from crypto.sum.records import Proposal, UnmaskRequest
from crypto.sum.silo_kept import KeptAnswer
from tests.crypto.attacks import SIZES, Patch, encoding, refused, released, run_to_proposal
from tests.crypto.world import RUN, World, plain, vectors


def test_replay() -> None:
    """The same header twice would put two vectors under the same pairwise masks: their difference
    shows.
    """
    world = World(4).enrol()
    header = world.header(encoding(4))
    silo = world.silos["silo-000"]
    silo.begin(header, header.broadcast, SIZES)
    first, _ = silo.upload(vectors(world.names, SIZES)["silo-000"])
    refused("replay", lambda: silo.upload(vectors(world.names, SIZES)["silo-000"]))
    refused("replay", lambda: silo.begin(header, header.broadcast, SIZES))
    older = replace(header, number=0)
    refused("replay", lambda: silo.begin(older, header.broadcast, SIZES))
    refused(
        "replay",
        lambda: silo.begin(replace(header, sid=bytes(32), number=9), header.broadcast, SIZES),
    )
    refused("replay", lambda: silo.endorse(Proposal(older.h, world.names, ())))

    world.journals["silo-000"].entries.clear()  # as if nothing were written down
    silo.begin(header, header.broadcast, SIZES)
    second, _ = silo.upload(vectors(world.names, SIZES, 1)["silo-000"])
    # the same pair masks, over another vector
    assert second.commitments[1:] == first.commitments[1:]
    assert second.commitments[0] != first.commitments[0]


def test_replay_to_the_coordinator() -> None:
    world = World(4).enrol()
    opened, data, _ = run_to_proposal(world)
    fresh = OpenSum(world.header(encoding(4)), world.setup)
    refused("replay", lambda: fresh.begin_upload(opened._records["silo-000"]), "silo-000")
    refused("second-sum", lambda: opened.begin_upload(opened._records["silo-000"]), "silo-000")
    proposals = opened.propose()
    signed = {name: world.silos[name].endorse(proposals[name]) for name in world.names}
    refused(
        "split-view",
        lambda: opened.receive_endorsement(replace(signed["silo-000"], silo="silo-001")),
    )
    refused(
        "unknown-silo", lambda: opened.receive_endorsement(replace(signed["silo-000"], silo="x"))
    )
    for endorsement in signed.values():
        opened.receive_endorsement(endorsement)
    requests = opened.unmask_requests()
    release = world.silos["silo-000"].release(requests["silo-000"])
    # Before the true one: a second release of the same silo is a replay by itself, and would hide
    # this check.
    refused("replay", lambda: opened.receive_release(replace(release, h=bytes(32))))
    opened.receive_release(release)
    refused("replay", lambda: opened.receive_release(release), "silo-000")


def test_second_sum_begun_before_the_first_was_said() -> None:
    """A silo that was killed with its answer on disk says it after its restart; a sum begun in
    between stays shut.
    """
    world = World(4).enrol()
    opened, _, _ = run_to_proposal(world)
    proposals = opened.propose()
    silo, kept = world.silos["silo-000"], list[KeptAnswer]()
    for name in world.names:
        opened.receive_endorsement(world.silos[name].endorse(proposals[name], kept.append))
    request, mine = opened.unmask_requests()["silo-000"], kept[0]
    journal, key = world.journals["silo-000"], silo.payload(opened.header)
    assert mine.payload == key and mine.answers(request) and journal.get(key) is None
    for noted in ("the survivors of the first", f"{bytes(32).hex()} {mine.note.partition(' ')[2]}"):
        journal.put(key, noted)  # another sum over the payload, also one over the same survivors
        refused("second-sum", lambda: silo.release(request))
        refused("second-sum", lambda: mine.say(request, world.roster, journal))
    del journal.entries[key]
    refused(
        "split-view", lambda: mine.say(replace(request, endorsements=()), world.roster, journal)
    )
    assert journal.get(key) is None
    released = silo.release(request, kept.append)
    assert released.self_shares == mine.release.self_shares and journal.get(key) == mine.note
    # what is kept is kept once
    assert mine.say(request, world.roster, journal) == released and len(kept) == 4


def test_a_holder_that_did_not_sign_is_sent_its_blobs_with_the_request() -> None:
    world = World(4).enrol()
    opened, data, _ = run_to_proposal(world)
    proposals, kept = opened.propose(), list[KeptAnswer]()
    for name in world.names[:3]:
        opened.receive_endorsement(world.silos[name].endorse(proposals[name]))
    requests = opened.unmask_requests()
    assert (
        requests["silo-003"].blobs == proposals["silo-003"].blobs and not requests["silo-000"].blobs
    )
    opened.receive_release(world.silos["silo-003"].release(requests["silo-003"], kept.append))
    assert [k.release.holder for k in kept] == ["silo-003"]
    for name in ("silo-000", "silo-001"):
        opened.receive_release(world.silos[name].release(requests[name]))
    survivors, total = opened.result()
    assert np.array_equal(total[0], plain(encoding(4), data, survivors)[0])


def test_round_regression() -> None:
    world = World(4).enrol()
    silo = world.silos["silo-000"]
    header = world.header(encoding(4), round=5)
    silo.begin(header, header.broadcast, SIZES)
    silo.end_round()
    for round in (4, 5):
        back = world.header(encoding(4), round=round)
        refused("round-regression", partial(silo.begin, back, back.broadcast, SIZES))
    # A restarted silo has no ratchet to compare with, and remembers all the same.
    again = World(4, seed="1")
    again.journals["silo-000"] = world.journals["silo-000"]
    again.silos["silo-000"]._notes.journal = world.journals["silo-000"]
    again.enrol()
    again.number = 10
    back = again.header(encoding(4), round=4)
    refused("round-regression", lambda: again.silos["silo-000"].begin(back, back.broadcast, SIZES))

    del world.journals["silo-000"].entries[f"last/{RUN.hex()}"]
    again.silos["silo-000"].begin(back, back.broadcast, SIZES)


def test_the_ratchet_goes_one_way_and_keeps_step() -> None:
    world = World(3).enrol()
    one, two = world.silos["silo-000"], world.silos["silo-001"]
    before = one._pairs["silo-001"]
    for round in range(3):
        header = world.header(encoding(3), round=round)
        one.begin(header, header.broadcast, SIZES)
        one.end_round()
    assert one._pairs["silo-001"] != before and before not in one._pairs.values()
    assert one._setup.key is None  # nor is the key kept that all of them came from
    header = world.header(encoding(3), round=7)
    for silo in (one, two):
        silo.begin(header, header.broadcast, SIZES)
    assert one._pairs["silo-001"] == two._pairs["silo-000"]
    far = world.header(encoding(3), round=10**9)
    refused("oversize", lambda: one.begin(far, far.broadcast, SIZES))


def test_second_sum() -> None:
    """The same payload over all, and over all but one: the difference is that one's vector."""
    world = World(6).enrol()
    data = vectors(world.names, SIZES)
    e = encoding(6)
    _, everyone = world.whole(e, data)
    victim, rest = world.names[0], world.names[1:]
    refused("second-sum", lambda: world.whole(e, data, alive=rest))
    # Also for a restarted silo in a new session.
    again = World(6, seed="1")
    for name in rest:
        again.silos[name]._notes.journal = world.journals[name]
    again.enrol()
    again.number = 10
    refused("second-sum", lambda: again.whole(e, data, alive=rest))

    for journal in world.journals.values():
        for key in [key for key in journal.entries if key.startswith("released/")]:
            del journal.entries[key]
    _, others = world.whole(e, data, alive=rest)
    assert np.abs(everyone[0] - others[0] - data[victim][0]).max() <= 12 * e.error_bound()[0]


def test_a_failed_sum_may_be_tried_again_while_nothing_was_released() -> None:
    world = World(6).enrol()
    data = vectors(world.names, SIZES)
    opened, _, _ = run_to_proposal(world)
    proposals = opened.propose()
    world.silos["silo-000"].endorse(proposals["silo-000"])
    survivors, total = world.whole(encoding(6), data)  # a new header abandons the old sum by itself
    assert np.array_equal(total[0], plain(encoding(6), data, survivors)[0])
    refused("second-sum", world.silos["silo-000"].abandon)
    refused(
        "both-shares",
        lambda: world.silos["silo-000"].release(UnmaskRequest(opened.header.h, (), (), ())),
    )


def test_late_share() -> None:
    world = World(5).enrol()
    opened, _, releases = released(world)
    silo = world.silos["silo-000"]
    for name in world.names[:4]:
        opened.receive_release(releases[name])
    opened.result()
    refused("late-share", lambda: opened.receive_release(releases["silo-004"]))
    silo.end_round()
    refused("late-share", lambda: silo.release(UnmaskRequest(opened.header.h, world.names, (), ())))
    refused("late-share", lambda: silo.endorse(Proposal(opened.header.h, world.names, ())))


def test_late_share_of_a_sum_that_was_given_up(monkeypatch: Patch) -> None:
    """Silos are told that a sum failed, and move on; a coordinator that kept the uploads opens it
    all the same.
    """
    world = World(5).enrol()
    opened, _, _ = run_to_proposal(world)
    for silo in world.silos.values():
        silo.abandon()
    proposals = opened.propose()
    for name, silo in world.silos.items():
        refused("late-share", partial(silo.endorse, proposals[name]))

    world = World(5).enrol()
    opened, data, _ = run_to_proposal(world)
    monkeypatch.setattr(crypto.sum.silo.SiloSum, "abandon", lambda self: None)
    for silo in world.silos.values():
        silo.abandon()
    survivors, total = world.finish(opened)
    assert survivors == world.names
    for got, want in zip(total, plain(opened.header.encoding, data, survivors)):
        np.testing.assert_array_equal(got, want)
