"""Attacks on keys, membership and the graph, on the state machines; over sockets: tests/system has
the same modules.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding as Raw
from cryptography.hazmat.primitives.serialization import PublicFormat

import crypto.sum.silo
import crypto.sum.silo_setup
from crypto.derive import Label, derive, digest
from crypto.identity.keys import Identity
from crypto.sum.graph import beacon, topology
from crypto.sum.params import Policy
from crypto.sum.records import (
    Endorsement,
    KeyList,
    KeyOffer,
    NonceList,
    NonceReveal,
    agreement,
    session_id,
    survivors_digest,
)
from crypto.sum.silo_limits import Limits
from crypto.sum.silo_states import SiloState
from tests.crypto.attacks import SIZES, Patch, encoding, refused, run_to_proposal, until_keys
from tests.crypto.world import RUN, World, plain, vectors


def test_key_substitution(monkeypatch: Patch) -> None:
    world, keys = until_keys()
    victim, posed = world.silos["silo-000"], "silo-001"
    mine = X25519PrivateKey.generate()
    public = mine.public_key().public_bytes(Raw.Raw, PublicFormat.Raw)
    false = KeyList(tuple(replace(o, public=public) if o.silo == posed else o for o in keys.offers))
    refused("key-substitution", lambda: victim.receive_keys(false), posed)

    monkeypatch.setattr(crypto.sum.silo_setup, "verify", lambda *_: True)
    victim.receive_keys(false)
    shared = mine.exchange(X25519PublicKey.from_public_bytes(keys.offers[0].public))
    sid = session_id(RUN, false.offers)
    stolen = derive(shared, Label.PAIR, sid, b"silo-000", b"silo-001")
    assert stolen == victim._pairs[posed]  # the coordinator now reads that silo's masks and blobs


def test_own_key_replaced_or_left_out() -> None:
    world, keys = until_keys()
    victim = world.silos["silo-000"]
    refused("key-substitution", lambda: victim.receive_keys(KeyList(keys.offers[1:])), "silo-000")


def test_another_policy_is_another_key() -> None:
    """A silo with a weaker policy or another roster cannot be slipped in: its signature is over
    something else.
    """
    world, keys = until_keys()
    weak = World(4, policy=Policy(corrupt_among="cohort"))
    false = KeyList((*keys.offers[:3], weak.silos["silo-003"].offer()))
    refused("key-substitution", lambda: world.silos["silo-000"].receive_keys(false), "silo-003")


def test_unknown_silo() -> None:
    world, keys = until_keys()
    identity = Identity.generate()
    agreed = agreement(world.policy.digest, world.roster)
    public, commitment = (
        X25519PrivateKey.generate().public_key().public_bytes(Raw.Raw, PublicFormat.Raw),
        bytes(32),
    )
    parts = KeyOffer.signed_parts(RUN, agreed, "zz-mallory", public, commitment)
    offer = KeyOffer("zz-mallory", public, commitment, identity.sign(Label.OFFER, *parts))
    refused("unknown-silo", lambda: World(4).setup.receive_offer(offer), "zz-mallory")
    # the list is closed
    refused("key-substitution", lambda: world.setup.receive_offer(keys.offers[0]), "silo-000")
    victim = world.silos["silo-000"]
    false = KeyList((*keys.offers, offer))
    refused("unknown-silo", lambda: victim.receive_keys(false), "zz-mallory")

    victim._roster["zz-mallory"] = identity.public  # as if the roster were not pinned
    victim.receive_keys(false)
    assert "zz-mallory" in victim._pairs


def test_sybil_majority_in_the_roster() -> None:
    world = World(4)
    twice = world.roster | {"silo-003": world.roster["silo-002"]}
    one = world.silos["silo-000"]
    refused(
        "sybil-majority",
        lambda: crypto.sum.silo.SiloSum(
            "silo-000",
            one._identity,
            roster=twice,
            run_id=RUN,
            limits=Limits(),
            journal=world.journals["silo-000"],
        ),
    )


def test_sybil_majority_in_a_session() -> None:
    world = World(10)
    for name in world.names[:4]:
        world.setup.receive_offer(world.silos[name].offer())
    refused("sybil-majority", lambda: world.silos["silo-000"].receive_keys(world.setup.key_list()))


def test_sybil_majority_in_a_sum() -> None:
    """Three corrupt silos of ten and one victim, "alive": the sum would be the victim's vector."""
    names = World(10).names
    corrupt, victim = names[7:], names[0]

    def play(policy: Policy) -> np.ndarray:
        world = World(10, policy=policy).enrol()
        data = vectors(names, SIZES)
        _, total = world.whole(encoding(10), data, alive=(victim, *corrupt))
        return total[0] - plain(encoding(10), data, corrupt)[0] - data[victim][0]

    refused("sybil-majority", lambda: play(Policy()))
    assert np.abs(play(Policy(corrupt_among="cohort"))).max() < 1e-6


def test_graph_steering_by_a_late_nonce() -> None:
    """A silo that may choose its nonce after seeing the others' puts its friends around a
    victim.
    """
    world, keys = until_keys(8)
    reveals = {name: silo.receive_keys(keys) for name, silo in world.silos.items()}
    sid = session_id(RUN, keys.offers)
    victim, corrupt = "silo-000", "silo-007"
    policy = Policy(complete_up_to=5, security=2, correctness=2, ring_corrupt=0.1, dropout=0.1)
    found = None
    for attempt in range(3000):
        nonces = {name: reveal.nonce for name, reveal in reveals.items()} | {
            corrupt: attempt.to_bytes(32, "big")
        }
        made = topology(beacon(sid, nonces), world.names, world.names, policy, 8)
        if set(made.neighbours(victim)) == {"silo-004", "silo-005", "silo-006", "silo-007"}:
            found = attempt.to_bytes(32, "big")
            break
    assert found is not None  # 70 graphs to choose from, and each nonce is one
    parts = NonceReveal.signed_parts(sid, corrupt, found)
    steered = NonceReveal(corrupt, found, world.identities[corrupt].sign(Label.REVEAL, *parts))
    false = NonceList(tuple(steered if r.silo == corrupt else r for r in reveals.values()))
    silo = world.silos[victim]
    refused("graph-steering", lambda: silo.receive_nonces(false), corrupt)
    refused("graph-steering", lambda: world.setup.receive_reveal(steered), corrupt)
    refused("graph-steering", lambda: silo.receive_nonces(NonceList(tuple(reveals.values())[:-1])))

    # as if nothing had been committed to
    silo._setup.commitments[corrupt] = digest(Label.NONCE, corrupt.encode(), found)
    silo.receive_nonces(false)
    assert silo.state is SiloState.READY


def test_split_key_lists_are_seen() -> None:
    """Two silos that were shown different lists have different session ids, and neither accepts the
    other's nonce.
    """
    world, keys = until_keys(5)
    short = KeyList(keys.offers[:4])
    reveal = world.silos["silo-001"].receive_keys(short)
    others = [world.silos[name].receive_keys(keys) for name in world.names if name != "silo-001"]
    nonces = NonceList(tuple(sorted((*others, reveal), key=lambda r: r.silo)))
    refused("key-substitution", lambda: world.silos["silo-000"].receive_nonces(nonces), "silo-001")


def test_graph_steering_by_many_setups() -> None:
    limits = Limits(max_sessions=1)
    world = World(3, limits=limits).enrol()
    again = World(3, limits=limits, seed="1")
    again.journals["silo-000"].entries.update(world.journals["silo-000"].entries)
    refused("graph-steering", again.enrol)


def test_graph_steering_by_a_setup_that_is_ended_when_the_nonces_are_seen() -> None:
    """Whoever has all nonces knows what they draw: a setup counts from then on, also one that is
    never finished.
    """
    world, keys = until_keys()
    for silo in world.silos.values():
        silo.receive_keys(keys)
    again = World(4, limits=Limits(max_sessions=1), seed="1")
    again.journals["silo-000"].entries.update(world.journals["silo-000"].entries)
    refused("graph-steering", again.enrol)


def test_hand_picked_cohort_of_the_right_size() -> None:
    policy = Policy(corrupt_among="cohort")
    strict = World(12, policy=policy, limits=Limits(policy=policy, cohort=6)).enrol()
    from crypto.sum.graph import draw_cohort

    drawn = draw_cohort(strict.setup.beacon, strict.names, 0, 6)
    other = tuple(sorted(set(strict.names) - set(drawn)))
    # one of those drawn "is gone", and another stands in for it
    for alive in (other, tuple(sorted((*drawn[:5], other[0])))):
        silo, header = strict.silos[alive[0]], strict.header(encoding(12), alive)
        refused("hand-picked-cohort", lambda s=silo, h=header: s.begin(h, b"", SIZES))  # type: ignore[misc]
    for alive in (drawn, drawn[:5]):
        header = strict.header(encoding(12), alive)
        strict.silos[drawn[0]].begin(header, header.broadcast, SIZES)
    refused(
        "hand-picked-cohort",
        lambda: strict.silos[drawn[0]].begin(strict.header(encoding(12), drawn[:4]), b"", SIZES),
    )
    # of the next round, others are drawn
    later = replace(strict.header(encoding(12), drawn), round=1)
    refused("hand-picked-cohort", lambda: strict.silos[drawn[0]].begin(later, b"", SIZES))


def test_graph_steering_by_a_few_of_the_members() -> None:
    policy = Policy(corrupt_among="cohort")
    other = World(9).names[:4]
    loose = World(9, policy=policy).enrol()
    header = loose.header(encoding(9), other)
    loose.silos[other[0]].begin(header, header.broadcast, SIZES)
    few = World(9, limits=Limits(min_alive_share=0.9)).enrol()
    refused(
        "graph-steering",
        lambda: few.silos["silo-000"].begin(few.header(encoding(9), few.names[:8]), b"", SIZES),
    )


def test_only_holders_sign_and_release() -> None:
    policy = Policy(
        complete_up_to=5, security=2, correctness=2, ring_corrupt=0.1, dropout=0.1, holders_up_to=9
    )
    world = World(20, policy=policy).enrol()
    opened, _, _ = run_to_proposal(world)
    outsider = next(name for name in world.names if name not in opened.topology.point)
    proposal = opened.propose()[opened.topology.holders[0]]
    refused("graph-steering", lambda: world.silos[outsider].endorse(proposal))
    parts = Endorsement.signed_parts(proposal.h, outsider, survivors_digest(proposal.survivors))
    forged = Endorsement(
        proposal.h, outsider, world.identities[outsider].sign(Label.ENDORSE, *parts)
    )
    refused("unknown-silo", lambda: opened.receive_endorsement(forged), outsider)
