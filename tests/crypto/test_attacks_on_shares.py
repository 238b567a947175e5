"""Wrong shares, by holders and by dealers; over sockets:
tests/system/test_attacks_on_coordinator.py.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from crypto.sum.opening import Opening
from crypto.sum.records import Proposal, UnmaskRequest
from tests.crypto.attacks import Patch, certificate, encoding, refused, released, run_to_proposal
from tests.crypto.world import World, plain


def test_bad_share(monkeypatch: Patch) -> None:
    """A holder's wrong share is its own fault and nobody else's; the sum goes on without it."""
    world = World(5).enrol()
    opened, data, releases = released(world)
    liar = "silo-002"
    wrong = bytes([releases[liar].self_shares[0][1][0] ^ 1]) + releases[liar].self_shares[0][1][1:]
    false = replace(
        releases[liar], self_shares=(("silo-000", wrong), *releases[liar].self_shares[1:])
    )
    for bad in (
        false,
        replace(false, self_shares=(*releases[liar].self_shares, releases[liar].self_shares[0])),
        replace(false, self_shares=(*releases[liar].self_shares, ("mallory", wrong))),
        replace(false, pair_shares=(("silo-000", "silo-001", wrong),)),
    ):
        refused("bad-share", partial(opened.receive_release, bad), liar)
    for name in world.names:
        if name != liar:
            opened.receive_release(releases[name])
    _, total = opened.result()
    assert np.array_equal(total[0], plain(encoding(5), data, world.names)[0])

    monkeypatch.setattr(Opening, "_check_tags", lambda *_: None)
    world = World(5).enrol()
    opened, data, releases = released(world)
    opened.receive_release(false)
    for name in world.names[1:]:
        if name != liar:
            opened.receive_release(releases[name])
    opened.receive_release(releases["silo-000"])
    refused("bad-share", opened.result, "silo-000")  # an honest silo is blamed, and the sum is lost


def test_bad_share_of_a_dealer(monkeypatch: Patch) -> None:
    """A dealer that shares another seed than it committed to is named, and no wrong sum comes
    out.
    """
    import crypto.sum.dealing

    real = crypto.sum.dealing.seed_commitment

    def false(h: bytes, silo: str, index: int, seed: bytes) -> bytes:
        return real(h, silo, index, bytes(16) if silo == "silo-003" else seed)

    monkeypatch.setattr(crypto.sum.dealing, "seed_commitment", false)
    world = World(5).enrol()
    opened, _, releases = released(world)
    for release in releases.values():
        opened.receive_release(release)
    assert opened._running.total is not None
    before = opened._running.total.copy()
    refused("bad-share", opened.result, "silo-003")
    assert opened._running.total is not None and np.array_equal(before, opened._running.total)


def test_a_dealer_cannot_frame_a_holder(monkeypatch: Patch) -> None:
    """Tags that do not fit the sealed shares: the holder releases nothing of that dealer's, and
    says who it was.
    """
    import crypto.sum.dealing

    real = crypto.sum.dealing.share_tags

    def false(h: bytes, dealer: str, holder: str, shares: list) -> list[bytes]:
        tags = real(h, dealer, holder, shares)
        return (
            [bytes(8)] * len(tags)
            if (dealer, holder) == ("silo-001", "silo-004") and len(tags) == 6
            else tags
        )

    monkeypatch.setattr(crypto.sum.dealing, "share_tags", false)
    world = World(6).enrol()
    opened, data, releases = released(world)
    assert world.silos["silo-004"].complaints == ["silo-001"]
    assert [dealer for dealer, _ in releases["silo-004"].self_shares] == [
        n for n in world.names if n != "silo-001"
    ]
    for release in releases.values():
        opened.receive_release(release)
    _, total = opened.result()
    assert np.array_equal(total[0], plain(encoding(6), data, world.names)[0])


def test_blobs_open_for_their_holder_and_sum_only() -> None:
    world = World(4).enrol()
    opened, _, _ = run_to_proposal(world)
    h = opened.header.h
    mine = dict(opened._records["silo-001"].blobs)
    swapped = (
        ("silo-001", mine["silo-002"]),
        ("silo-002", dict(opened._records["silo-002"].blobs)["silo-000"]),
    )
    signed = certificate(world, opened, world.names, world.names[1:])
    signed += (world.silos["silo-000"].endorse(Proposal(h, world.names, swapped)),)
    assert world.silos["silo-000"].complaints == ["silo-001"]
    got = world.silos["silo-000"].release(UnmaskRequest(h, world.names, signed, ()))
    assert [dealer for dealer, _ in got.self_shares] == ["silo-000", "silo-002"]
