"""Each attack by name: refused; and, with the one defence taken away, seen to succeed. So the tests bite.

Here the coordinator (and sometimes a few silos) plays false against the state machines. The same attacks are played
over real sockets elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding as Raw
from cryptography.hazmat.primitives.serialization import PublicFormat

import crypto.silo_sum
from crypto.coordinator_sum import OpenSum
from crypto.derive import Label, derive, digest
from crypto.encoding import Encoding
from crypto.errors import Refusal
from crypto.graph import Topology, beacon, topology
from crypto.keys import Identity
from crypto.limits import Limits
from crypto.opening import Opening
from crypto.params import Policy
from crypto.prg import Mask, add_masks
from crypto.records import (
    Endorsement,
    KeyList,
    KeyOffer,
    NonceList,
    NonceReveal,
    Proposal,
    SumHeader,
    UnmaskRequest,
    agreement,
    session_id,
    survivors_digest,
)
from crypto.shamir import rebuild
from crypto.silo_states import TRANSITIONS, Call, SiloState
from tests.crypto.world import RUN, World, plain, vectors

SIZES = (40,)
Patch = pytest.MonkeyPatch


def encoding(n: int) -> Encoding:
    return Encoding(32, n, SIZES, (2.0,))


def refused(attack: str, act: Callable[[], object], culprit: str | None = None) -> None:
    with pytest.raises(Refusal) as caught:
        act()
    assert caught.value.attack == attack, caught.value
    assert str(caught.value).startswith(f"refused ({attack}): ")
    if culprit is not None:
        assert caught.value.culprit == culprit


def allow(patch: Patch, *more: tuple[SiloState, Call, SiloState]) -> None:
    """Take a row of the transition table away from the defence."""
    table = dict(TRANSITIONS) | {(state, call): after for state, call, after in more}
    patch.setattr(crypto.silo_sum, "TRANSITIONS", table)


def until_keys(n: int = 4) -> tuple[World, KeyList]:
    world = World(n)
    for silo in world.silos.values():
        world.setup.receive_offer(silo.offer())
    return world, world.setup.key_list()


# Keys and the graph


def test_key_substitution(monkeypatch: Patch) -> None:
    world, keys = until_keys()
    victim, posed = world.silos["silo-000"], "silo-001"
    mine = X25519PrivateKey.generate()
    public = mine.public_key().public_bytes(Raw.Raw, PublicFormat.Raw)
    false = KeyList(tuple(replace(o, public=public) if o.silo == posed else o for o in keys.offers))
    refused("key-substitution", lambda: victim.receive_keys(false), posed)

    monkeypatch.setattr(crypto.silo_sum, "verify", lambda *_: True)
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
    """A silo with a weaker policy or another roster cannot be slipped in: its signature is over something else."""
    world, keys = until_keys()
    weak = World(4, policy=Policy(corrupt_among="cohort"))
    false = KeyList((*keys.offers[:3], weak.silos["silo-003"].offer()))
    refused("key-substitution", lambda: world.silos["silo-000"].receive_keys(false), "silo-003")


def test_unknown_silo() -> None:
    world, keys = until_keys()
    identity = Identity.generate()
    agreed = agreement(world.policy.digest, world.roster)
    public, commitment = X25519PrivateKey.generate().public_key().public_bytes(Raw.Raw, PublicFormat.Raw), bytes(32)
    parts = KeyOffer.signed_parts(RUN, agreed, "zz-mallory", public, commitment)
    offer = KeyOffer("zz-mallory", public, commitment, identity.sign(Label.OFFER, *parts))
    refused("unknown-silo", lambda: World(4).setup.receive_offer(offer), "zz-mallory")
    refused("key-substitution", lambda: world.setup.receive_offer(keys.offers[0]), "silo-000")  # the list is closed
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
        lambda: crypto.silo_sum.SiloSum("silo-000", one._identity, twice, RUN, Limits(), world.journals["silo-000"]),
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
    """A silo that may choose its nonce after seeing the others' puts its friends around a victim."""
    world, keys = until_keys(8)
    reveals = {name: silo.receive_keys(keys) for name, silo in world.silos.items()}
    sid = session_id(RUN, keys.offers)
    victim, corrupt = "silo-000", "silo-007"
    policy = Policy(complete_up_to=5, security=2, correctness=2, ring_corrupt=0.1, dropout=0.1)
    found = None
    for attempt in range(3000):
        nonces = {name: reveal.nonce for name, reveal in reveals.items()} | {corrupt: attempt.to_bytes(32, "big")}
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

    silo._commitments[corrupt] = digest(Label.NONCE, corrupt.encode(), found)  # as if nothing had been committed to
    silo.receive_nonces(false)
    assert silo.state is SiloState.READY


def test_split_key_lists_are_seen() -> None:
    """Two silos that were shown different lists have different session ids, and neither accepts the other's nonce."""
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


def test_graph_steering_by_a_chosen_cohort() -> None:
    policy = Policy(corrupt_among="cohort")
    strict = World(9, policy=policy, limits=Limits(policy=policy, drawn_cohorts=True)).enrol()
    from crypto.graph import draw_cohort

    drawn = draw_cohort(strict.setup.beacon, strict.names, 0, 4)
    other = tuple(sorted(set(strict.names) - set(drawn)))[:4]
    silo = strict.silos[other[0]]
    refused("graph-steering", lambda: silo.begin(strict.header(encoding(9), other), b"", SIZES))
    header = strict.header(encoding(9), drawn)
    strict.silos[drawn[0]].begin(header, header.broadcast, SIZES)
    loose = World(9, policy=policy).enrol()
    header = loose.header(encoding(9), other)
    loose.silos[other[0]].begin(header, header.broadcast, SIZES)
    few = World(9, limits=Limits(min_alive_share=0.9)).enrol()
    refused("graph-steering", lambda: few.silos["silo-000"].begin(few.header(encoding(9), few.names[:8]), b"", SIZES))


# One survivor set


def run_to_proposal(world: World) -> tuple[OpenSum, dict[str, list[np.ndarray]], dict[str, np.ndarray]]:
    """Everybody has uploaded; the coordinator kept a copy of each masked vector."""
    data = vectors(world.names, SIZES)
    opened = world.begin(world.header(encoding(len(world.names))))
    kept = {}
    for name in world.names:
        record, frames = world.silos[name].upload(data[name])
        opened.begin_upload(record)
        words = next(frames)
        kept[name] = words.copy()
        opened.add_frame(name, 0, words)
        opened.finish_upload(name)
    return opened, data, kept


def certificate(
    world: World, h: bytes, survivors: tuple[str, ...], signers: tuple[str, ...]
) -> tuple[Endorsement, ...]:
    return tuple(world.silos[name].endorse(Proposal(h, survivors)) for name in signers)


def test_split_view(monkeypatch: Patch) -> None:
    world = World(10).enrol()
    opened, _, _ = run_to_proposal(world)
    h, everyone, fewer = opened.header.h, world.names, world.names[1:]
    certificate(world, h, everyone, world.names)
    refused("split-view", lambda: world.silos["silo-004"].endorse(Proposal(h, fewer)))

    allow(monkeypatch, (SiloState.ENDORSED, Call.ENDORSE, SiloState.ENDORSED))
    second = certificate(world, h, fewer, world.names)
    assert len(second) >= opened.needed  # two sets are certified


def test_an_uncertified_set_opens_nothing(monkeypatch: Patch) -> None:
    world = World(10).enrol()
    opened, _, _ = run_to_proposal(world)
    h = opened.header.h
    signed = certificate(world, h, world.names, world.names)
    t = opened.needed
    silo = world.silos["silo-009"]
    good = UnmaskRequest(h, world.names, signed, ())
    for false in (
        replace(good, endorsements=signed[: t - 1]),
        replace(good, endorsements=signed[:1] * 10),
        replace(good, endorsements=tuple(replace(e, signature=bytes(64)) for e in signed)),
        replace(good, endorsements=tuple(replace(e, silo=world.names[-i - 1]) for i, e in enumerate(signed))),
        replace(good, survivors=world.names[1:]),
    ):
        refused("split-view", lambda request=false: silo.release(request))
    monkeypatch.setattr(crypto.silo_sum.SiloSum, "_check_certificate", lambda *_: None)
    assert silo.release(replace(good, endorsements=())).self_shares  # opened on the coordinator's word alone


def test_a_certificate_of_others_does_not_move_a_silo_that_signed_another_set() -> None:
    world = World(10).enrol()
    opened, _, _ = run_to_proposal(world)
    h, rest = opened.header.h, world.names[:9]
    world.silos["silo-009"].endorse(Proposal(h, world.names))
    signed = certificate(world, h, rest, rest)
    assert len(signed) >= opened.needed
    refused("split-view", lambda: world.silos["silo-009"].release(UnmaskRequest(h, rest, signed, ())))
    world.silos["silo-000"].release(UnmaskRequest(h, rest, signed, ()))


def test_named_a_survivor_without_an_upload() -> None:
    world = World(4).enrol()
    opened = world.begin(world.header(encoding(4)))
    refused("split-view", lambda: world.silos["silo-000"].endorse(Proposal(opened.header.h, world.names)))
    refused("split-view", lambda: world.silos["silo-000"].endorse(Proposal(opened.header.h, ("other", *world.names))))


def gather(world: World, opened: OpenSum, survivors: tuple[str, ...]) -> Opening:
    """What a coordinator does with a survivor set of its own choosing, once the silos go along with it."""
    h = opened.header.h
    signed = certificate(world, h, survivors, opened.topology.holders)
    got = Opening(h, opened.topology, survivors, opened._records)
    for holder in opened.topology.holders:
        blobs = tuple(
            (dealer, blob) for dealer in survivors for to, blob in opened._records[dealer].blobs if to == holder
        )
        got.receive(world.silos[holder].release(UnmaskRequest(h, survivors, signed, blobs)))
    return got


def seed_of(got: Opening, key: tuple[str, str | None]) -> bytes:
    shares = dict(list(got._shares[key].items())[: got._threshold])
    (seed,) = rebuild({point: [share] for point, share in shares.items()})
    assert seed is not None
    return seed


def strip(words: np.ndarray, masks: list[tuple[bytes, int]]) -> np.ndarray:
    bare = words.copy()
    add_masks(bare, [Mask(seed, -sign) for seed, sign in masks])
    return bare


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
    signed = certificate(world, h, rest, world.names)
    dealt = dict(opened._records[world.names[0]].blobs)[rest[0]]
    request = UnmaskRequest(h, rest, signed, ((world.names[0], dealt),))
    refused("both-shares", lambda: world.silos[rest[0]].release(request))


def test_ring_gap(monkeypatch: Patch) -> None:
    """All of a victim's neighbours "dropped": its every mask is opened although it survives."""
    policy = Policy(complete_up_to=5, security=2, correctness=2, ring_corrupt=0.1, dropout=0.1, holders_up_to=9)
    world = World(40, policy=policy).enrol()
    opened, data, kept = run_to_proposal(world)
    victim = world.names[0]
    around = opened.topology.neighbours(victim)
    assert len(around) == 10
    survivors = tuple(name for name in world.names if name not in around)
    holder = world.silos[opened.topology.holders[0]]
    refused("ring-gap", lambda: holder.endorse(Proposal(opened.header.h, survivors)))

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
        proposal = Proposal(opened.header.h, world.names[:8])
        if world is careful:
            refused("tiny-sum", lambda w=world, p=proposal: w.silos["silo-000"].endorse(p))
        else:
            world.silos["silo-000"].endorse(proposal)
        below = Proposal(opened.header.h, world.names[:6])
        refused("tiny-sum", lambda w=world, p=below: w.silos["silo-001"].endorse(p))
    world = World(4).enrol()
    header = world.header(encoding(4), world.names[:2])
    refused("tiny-sum", lambda: world.silos["silo-000"].begin(header, header.broadcast, SIZES))
    two = World(3)
    for name in two.names[:2]:
        two.silos[name].offer()
    offers = KeyList(tuple(two.silos[name]._offer for name in two.names[:2]))
    refused("tiny-sum", lambda: two.silos["silo-000"].receive_keys(offers))


# The same thing again


def test_replay() -> None:
    """The same header twice would put two vectors under the same pairwise masks: their difference shows."""
    world = World(4).enrol()
    header = world.header(encoding(4))
    silo = world.silos["silo-000"]
    silo.begin(header, header.broadcast, SIZES)
    first, _ = silo.upload(vectors(world.names, SIZES)["silo-000"])
    refused("replay", lambda: silo.upload(vectors(world.names, SIZES)["silo-000"]))
    refused("replay", lambda: silo.begin(header, header.broadcast, SIZES))
    older = replace(header, number=0)
    refused("replay", lambda: silo.begin(older, header.broadcast, SIZES))
    refused("replay", lambda: silo.begin(replace(header, sid=bytes(32), number=9), header.broadcast, SIZES))
    refused("replay", lambda: silo.endorse(Proposal(older.h, world.names)))

    world.journals["silo-000"].entries.clear()  # as if nothing were written down
    silo.begin(header, header.broadcast, SIZES)
    second, _ = silo.upload(vectors(world.names, SIZES, 1)["silo-000"])
    assert second.commitments[1:] == first.commitments[1:]  # the same pair masks, over another vector
    assert second.commitments[0] != first.commitments[0]


def test_replay_to_the_coordinator() -> None:
    world = World(4).enrol()
    opened, data, _ = run_to_proposal(world)
    fresh = OpenSum(world.header(encoding(4)), world.setup)
    refused("replay", lambda: fresh.begin_upload(opened._records["silo-000"]), "silo-000")
    refused("second-sum", lambda: opened.begin_upload(opened._records["silo-000"]), "silo-000")
    proposal = opened.propose()
    signed = {name: world.silos[name].endorse(proposal) for name in world.names}
    refused("split-view", lambda: opened.receive_endorsement(replace(signed["silo-000"], silo="silo-001")))
    refused("unknown-silo", lambda: opened.receive_endorsement(replace(signed["silo-000"], silo="x")))
    for endorsement in signed.values():
        opened.receive_endorsement(endorsement)
    requests = opened.unmask_requests()
    release = world.silos["silo-000"].release(requests["silo-000"])
    opened.receive_release(release)
    refused("replay", lambda: opened.receive_release(release), "silo-000")
    refused("replay", lambda: opened.receive_release(replace(release, h=bytes(32))))


def test_round_regression() -> None:
    world = World(4).enrol()
    silo = world.silos["silo-000"]
    header = world.header(encoding(4), round=5)
    silo.begin(header, header.broadcast, SIZES)
    silo.end_round()
    for round in (4, 5):
        back = world.header(encoding(4), round=round)
        refused("round-regression", lambda h=back: silo.begin(h, h.broadcast, SIZES))
    # A restarted silo has no ratchet to compare with, and remembers all the same.
    again = World(4, seed="1")
    again.journals["silo-000"] = world.journals["silo-000"]
    again.silos["silo-000"]._journal = world.journals["silo-000"]
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
    assert one._key is None  # nor is the key kept that all of them came from
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
        again.silos[name]._journal = world.journals[name]
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
    proposal = opened.propose()
    world.silos["silo-000"].endorse(proposal)
    survivors, total = world.whole(encoding(6), data)  # a new header abandons the old sum by itself
    assert np.array_equal(total[0], plain(encoding(6), data, survivors)[0])
    refused("second-sum", world.silos["silo-000"].abandon)
    refused("both-shares", lambda: world.silos["silo-000"].release(UnmaskRequest(opened.header.h, (), (), ())))


# What is summed


def test_model_inconsistency(monkeypatch: Patch) -> None:
    """A victim that was shown another model: its masks belong to another sum, and nothing adds up."""
    world = World(4).enrol()
    data = vectors(world.names, SIZES)
    common = world.header(encoding(4))
    special = replace(common, broadcast=digest(Label.CONTEXT, b"a model made for one"))
    victim = world.silos["silo-000"]
    refused("model-inconsistency", lambda: victim.begin(special, common.broadcast, SIZES))

    def play() -> np.ndarray:
        """The coordinator shows each silo a header that fits what it showed, and adds up whatever comes."""
        total = np.zeros(common.encoding.words, np.uint64)
        for name in world.names:
            shown = special if name == victim.silo else common
            silo = World(4).enrol().silos[name]
            silo.begin(shown, shown.broadcast, SIZES)
            _, frames = silo.upload(data[name])
            total += next(frames)
            # Give the attacker all the self masks for nothing: only the pairwise ones stand in its way.
            add_masks(total, [Mask(seeds[name], -1)])
        return common.encoding.decode(total, 4)[0]

    seeds = {}
    real = crypto.silo_sum.deal

    def spy(h: bytes, name: str, dealt: list[bytes], *rest: object) -> object:
        seeds[name] = dealt[0]
        return real(h, name, dealt, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(crypto.silo_sum, "deal", spy)
    right = plain(common.encoding, data, world.names)[0]
    assert np.abs(play() - right).min() > 0

    monkeypatch.setattr(SumHeader, "h", property(lambda self: digest(Label.CONTEXT, self.sid)))
    assert np.array_equal(play(), right)  # with the broadcast not in h, the split goes unnoticed


def test_undeclared_upload(monkeypatch: Patch) -> None:
    world = World(5).enrol()
    silo = world.silos["silo-000"]
    refused("undeclared-upload", lambda: silo.upload(vectors(world.names, SIZES)["silo-000"]))
    without = world.header(encoding(5), world.names[1:])
    refused("undeclared-upload", lambda: silo.begin(without, without.broadcast, SIZES))
    opened = world.begin(world.header(encoding(5)))
    words = np.zeros(opened.header.encoding.words, np.uint64)
    refused("undeclared-upload", lambda: opened.add_frame("silo-000", 0, words), "silo-000")
    refused("undeclared-upload", lambda: opened.finish_upload("silo-000"), "silo-000")

    monkeypatch.setattr(crypto.silo_sum.SiloSum, "_check_alive", lambda *_: None)
    without = world.header(encoding(5), world.names[1:])
    silo.begin(without, without.broadcast, SIZES)
    silo.upload(vectors(world.names, SIZES)["silo-000"])


def header_attacks(world: World) -> list[tuple[str, SumHeader]]:
    e = encoding(4)
    return [
        ("wrong-shape", world.header(replace(e, sizes=(41,)))),
        ("wrong-shape", world.header(Encoding(32, 4, (40, 1), (1.0, 1.0)))),
        ("oversize", world.header(replace(e, sizes=(2**33,)))),
        ("range-widening", world.header(replace(e, ranges=(1e6,)))),
        ("range-widening", world.header(replace(e, lane_bits=16))),
        ("range-widening", world.header(replace(e, parties=3))),
        ("weight-hog", world.header(e, weight_cap=1e12)),
        ("weight-hog", world.header(e, weight_cap=float("nan"))),
        ("unknown-silo", world.header(e, alive=("mallory", *world.names))),
        ("unknown-silo", world.header(e, alive=world.names)),
    ]


@pytest.mark.parametrize("index", range(10))
def test_headers_that_ask_too_much(index: int, monkeypatch: Patch) -> None:
    limits = Limits(lane_bits=frozenset({32, 21}))
    world = World(4, limits=limits).enrol()
    attack, header = header_attacks(world)[index]
    if index == 9:
        header = replace(header, alive=(*header.alive, header.alive[0]))  # unsorted, and one twice
    silo = world.silos["silo-000"]
    sizes = (2**33,) if attack == "oversize" else SIZES
    refused(attack, lambda: silo.begin(header, header.broadcast, sizes))
    assert silo.state is SiloState.READY

    monkeypatch.setattr(Limits, "check_header", lambda *_: None)
    monkeypatch.setattr(crypto.silo_sum.SiloSum, "_check_alive", lambda *_: None)
    silo.begin(header, header.broadcast, sizes)
    assert silo.state is SiloState.OPEN


def test_range_caps_of_the_method_come_before_the_silos_default() -> None:
    world = World(4).enrol()
    header = world.header(encoding(4))
    silo = world.silos["silo-000"]
    refused("range-widening", lambda: silo.begin(header, header.broadcast, SIZES, caps=(1.0,)))
    refused("wrong-shape", lambda: silo.begin(header, header.broadcast, SIZES, caps=(9.0, 9.0)))
    silo.begin(header, header.broadcast, SIZES, caps=(2.0,))


def test_wrong_shape_of_an_upload() -> None:
    world = World(4).enrol()
    opened = world.begin(world.header(encoding(4)))
    record, frames = world.silos["silo-000"].upload(vectors(world.names, SIZES)["silo-000"])
    words = next(frames)
    for false in (
        replace(record, commitments=record.commitments[:-1]),
        replace(record, blobs=record.blobs[1:]),
        replace(record, blobs=((record.blobs[0][0], b""), *record.blobs[1:])),
    ):
        refused("wrong-shape", lambda r=false: opened.begin_upload(r), "silo-000")
    refused("key-substitution", lambda: opened.begin_upload(replace(record, signature=bytes(64))), "silo-000")
    refused("unknown-silo", lambda: opened.begin_upload(replace(record, silo="mallory")), "mallory")
    opened.begin_upload(record)
    refused("wrong-shape", lambda: opened.finish_upload("silo-000"), "silo-000")
    refused("wrong-shape", lambda: opened.add_frame("silo-000", 1, words), "silo-000")
    refused("wrong-shape", lambda: opened.add_frame("silo-000", 0, words[:-1]), "silo-000")
    refused("wrong-shape", lambda: opened.add_frame("silo-000", 0, words.view(np.int64)), "silo-000")
    opened.add_frame("silo-000", 0, words)
    refused("wrong-shape", lambda: opened.add_frame("silo-000", 1, words), "silo-000")


# Shares


def released(world: World) -> tuple[OpenSum, dict, dict]:
    opened, data, _ = run_to_proposal(world)
    proposal = opened.propose()
    for name in world.names:
        opened.receive_endorsement(world.silos[name].endorse(proposal))
    return opened, data, {n: world.silos[n].release(r) for n, r in opened.unmask_requests().items()}


def test_bad_share(monkeypatch: Patch) -> None:
    """A holder's wrong share is its own fault and nobody else's; the sum goes on without it."""
    world = World(5).enrol()
    opened, data, releases = released(world)
    liar = "silo-002"
    wrong = bytes([releases[liar].self_shares[0][1][0] ^ 1]) + releases[liar].self_shares[0][1][1:]
    false = replace(releases[liar], self_shares=(("silo-000", wrong), *releases[liar].self_shares[1:]))
    for bad in (
        false,
        replace(false, self_shares=(*releases[liar].self_shares, releases[liar].self_shares[0])),
        replace(false, self_shares=(*releases[liar].self_shares, ("mallory", wrong))),
        replace(false, pair_shares=(("silo-000", "silo-001", wrong),)),
    ):
        refused("bad-share", lambda r=bad: opened.receive_release(r), liar)
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
    """A dealer that shares another seed than it committed to is named, and no wrong sum comes out."""
    import crypto.dealing

    real = crypto.dealing.seed_commitment

    def false(h: bytes, silo: str, index: int, seed: bytes) -> bytes:
        return real(h, silo, index, bytes(16) if silo == "silo-003" else seed)

    monkeypatch.setattr(crypto.dealing, "seed_commitment", false)
    world = World(5).enrol()
    opened, _, releases = released(world)
    for release in releases.values():
        opened.receive_release(release)
    before = opened._total.copy()
    refused("bad-share", opened.result, "silo-003")
    assert np.array_equal(before, opened._total)


def test_a_dealer_cannot_frame_a_holder(monkeypatch: Patch) -> None:
    """Tags that do not fit the sealed shares: the holder releases nothing of that dealer's, and says who it was."""
    import crypto.dealing

    real = crypto.dealing.share_tags

    def false(h: bytes, dealer: str, holder: str, shares: list) -> list[bytes]:
        tags = real(h, dealer, holder, shares)
        return [bytes(8)] * len(tags) if (dealer, holder) == ("silo-001", "silo-004") and len(tags) == 6 else tags

    monkeypatch.setattr(crypto.dealing, "share_tags", false)
    world = World(6).enrol()
    opened, data, releases = released(world)
    assert world.silos["silo-004"].complaints == ["silo-001"]
    assert [dealer for dealer, _ in releases["silo-004"].self_shares] == [n for n in world.names if n != "silo-001"]
    for release in releases.values():
        opened.receive_release(release)
    _, total = opened.result()
    assert np.array_equal(total[0], plain(encoding(6), data, world.names)[0])


def test_blobs_open_for_their_holder_and_sum_only() -> None:
    world = World(4).enrol()
    opened, _, _ = run_to_proposal(world)
    h = opened.header.h
    signed = certificate(world, h, world.names, world.names)
    mine = dict(opened._records["silo-001"].blobs)
    swapped = (("silo-001", mine["silo-002"]), ("silo-002", dict(opened._records["silo-002"].blobs)["silo-000"]))
    got = world.silos["silo-000"].release(UnmaskRequest(h, world.names, signed, swapped))
    assert [dealer for dealer, _ in got.self_shares] == ["silo-000", "silo-002"]
    assert world.silos["silo-000"].complaints == ["silo-001"]


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
    refused("late-share", lambda: silo.endorse(Proposal(opened.header.h, world.names)))


def test_late_share_of_a_sum_that_was_given_up(monkeypatch: Patch) -> None:
    """Silos are told that a sum failed, and move on; a coordinator that kept the uploads opens it all the same."""
    world = World(5).enrol()
    opened, _, _ = run_to_proposal(world)
    for silo in world.silos.values():
        silo.abandon()
    proposal = opened.propose()
    for silo in world.silos.values():
        refused("late-share", lambda silo=silo: silo.endorse(proposal))

    world = World(5).enrol()
    opened, data, _ = run_to_proposal(world)
    monkeypatch.setattr(crypto.silo_sum.SiloSum, "abandon", lambda self: None)
    for silo in world.silos.values():
        silo.abandon()
    survivors, total = world.finish(opened)
    assert survivors == world.names
    for got, want in zip(total, plain(opened.header.encoding, data, survivors)):
        np.testing.assert_array_equal(got, want)


def test_only_holders_sign_and_release() -> None:
    policy = Policy(complete_up_to=5, security=2, correctness=2, ring_corrupt=0.1, dropout=0.1, holders_up_to=9)
    world = World(20, policy=policy).enrol()
    opened, _, _ = run_to_proposal(world)
    outsider = next(name for name in world.names if name not in opened.topology.point)
    proposal = opened.propose()
    refused("graph-steering", lambda: world.silos[outsider].endorse(proposal))
    parts = Endorsement.signed_parts(proposal.h, outsider, survivors_digest(proposal.survivors))
    forged = Endorsement(proposal.h, outsider, world.identities[outsider].sign(Label.ENDORSE, *parts))
    refused("unknown-silo", lambda: opened.receive_endorsement(forged), outsider)


def test_refusals_have_names() -> None:
    with pytest.raises(ValueError):
        Refusal("no such attack", "x")
