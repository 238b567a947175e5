"""A coordinator that lies, over real sockets, to silos that run as they always do: each attack by name is refused, said
to be refused and logged, and the silo lives on. Then the one defence is taken away, and the attack is seen to succeed.

Where a test has no such second half, tests/crypto/test_attacks.py has it, under the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding as Raw
from cryptography.hazmat.primitives.serialization import PublicFormat

import crypto.silo_sum
from crypto.coordinator_sum import OpenSum
from crypto.derive import Label
from crypto.graph import Topology
from crypto.keys import Identity
from crypto.limits import Limits, MemoryJournal
from crypto.opening import Opening
from crypto.params import Policy
from crypto.records import KeyList, KeyOffer, NonceList, NonceReveal, UnmaskRequest, agreement
from crypto.shamir import rebuild
from crypto.silo_states import TRANSITIONS, Call, SiloState
from crypto.silo_sum import SiloSum
from tests.system.liar import Held, Liar, refused, same
from tests.system.stage import RUN, SIZE, Stage
from wire import messages as m

Log = pytest.LogCaptureFixture
Patch = pytest.MonkeyPatch
Make = Callable[..., Liar]
ZEROS = np.zeros(SIZE, np.float32)


@pytest.fixture
def make(tmp_path: Any, monkeypatch: Patch) -> Iterator[Make]:
    """A liar and its silos, greeted and waiting; closed whatever happens."""
    stages = []

    def build(*args: Any, **changes: Any) -> Liar:
        stages.append(Stage(tmp_path, monkeypatch, *args, **changes))
        stages[-1].start()
        return Liar(stages[-1])

    yield build
    for stage in stages:
        stage.close()
    assert not any(stage.crashes for stage in stages)


# Keys and the graph


def _public() -> bytes:
    return X25519PrivateKey.generate().public_key().public_bytes(Raw.Raw, PublicFormat.Raw)


def test_key_substitution(make: Make, caplog: Log) -> None:
    liar = make()
    victim, posed = liar.names[:2]
    for change in ({"public": _public()}, {"signature": bytes(64)}, {"commitment": bytes(32)}):
        keys = liar.offers().key_list()
        false = KeyList(tuple(replace(o, **change) if o.silo == posed else o for o in keys.offers))
        with refused("key-substitution", caplog):
            liar.step(victim, "keys", false)
    liar.enrol().all_is_well()


def test_key_substitution_without_signatures(make: Make, monkeypatch: Patch) -> None:
    """The coordinator is everybody else in the victim's session, and the sum is the victim's vector."""
    liar = make()
    victim, others = liar.names[0], liar.names[1:]
    monkeypatch.setattr(crypto.silo_sum, "verify", lambda *_: True)
    monkeypatch.setattr("crypto.coordinator_setup.verify", lambda *_: True)
    monkeypatch.setattr("crypto.coordinator_sum.verify", lambda *_: True)
    mine = {name: Identity.generate() for name in others}
    roster = liar.stage.roster | {name: identity.public for name, identity in mine.items()}
    puppets = {n: SiloSum(n, mine[n], roster, RUN, Limits(), MemoryJournal()) for n in others}
    setup = liar.offers()
    for puppet in puppets.values():
        setup.receive_offer(puppet.offer())  # in place of the honest ones
    setup.receive_reveal(NonceReveal.from_record(liar.step(victim, "keys", setup.key_list())))
    for puppet in puppets.values():
        setup.receive_reveal(puppet.receive_keys(setup.key_list()))
    liar.say(victim, m.SumStep("nonces", setup.nonce_list().to_record()))
    liar.setup = setup
    header = liar.header()
    record, words = liar.collect(victim, liar.tell(victim, header))
    opened = OpenSum(header, setup, staging=4)
    opened.begin_upload(crypto.silo_sum.UploadRecord.from_record(record))
    opened.add_frame(victim, 0, words)
    opened.finish_upload(victim)
    for name, puppet in puppets.items():
        puppet.receive_nonces(setup.nonce_list())
        puppet.begin(header, header.broadcast, (SIZE,))
        said, frames = puppet.upload([ZEROS])
        opened.begin_upload(said)
        opened.add_frame(name, 0, next(frames))
        opened.finish_upload(name)
    proposal = opened.propose()
    for puppet in puppets.values():
        opened.receive_endorsement(puppet.endorse(proposal))
    requests = opened.unmask_requests()
    for name, puppet in puppets.items():  # three of four are enough: the victim is not even asked
        opened.receive_release(puppet.release(requests[name]))
    assert same(opened.result()[1][0], liar.stage.data[victim])


def test_unknown_silo(make: Make, caplog: Log) -> None:
    liar = make(roster=5)
    keys = liar.offers().key_list()
    agreed, identity = agreement(liar.stage.policy.digest, liar.stage.roster), Identity.generate()
    parts = KeyOffer.signed_parts(RUN, agreed, "silo-999", public := _public(), bytes(32))
    stranger = KeyOffer("silo-999", public, bytes(32), identity.sign(Label.OFFER, *parts))
    with refused("unknown-silo", caplog):
        liar.step(liar.names[0], "keys", KeyList((*keys.offers, stranger)))
    liar.enrol()
    with refused("unknown-silo", caplog):  # in the roster, but never in this session
        alive = (*liar.names, "silo-004")
        liar.ask(liar.names[0], liar.header(alive=alive), cohort=[0, 1, 2, 3, 4])
    liar.all_is_well()


def test_sybil_majority(make: Make, caplog: Log) -> None:
    """Eight in the roster, of whom two may be corrupt; four are here."""
    liar = make(roster=8)
    keys = liar.offers().key_list()
    with refused("sybil-majority", caplog):
        liar.step(liar.names[0], "keys", KeyList(keys.offers[:3]))
    liar.enrol()
    with refused("sybil-majority", caplog):
        liar.ask(liar.names[0], liar.header(alive=liar.names[:3]))
    liar.all_is_well()


def test_graph_steering(make: Make, caplog: Log) -> None:
    """A corrupt silo that lets the coordinator choose its nonce after all the others are known."""
    liar = make()
    victim, corrupt = liar.names[0], liar.names[3]

    def reveals() -> tuple[NonceReveal, ...]:
        keys = liar.offers().key_list()
        liar.sid = crypto.silo_sum.session_id(RUN, keys.offers)  # type: ignore[attr-defined]
        return tuple(NonceReveal.from_record(liar.step(name, "keys", keys)) for name in liar.names)

    def later(nonce: bytes) -> NonceReveal:
        parts = NonceReveal.signed_parts(liar.sid, corrupt, nonce)  # type: ignore[attr-defined]
        return NonceReveal(corrupt, nonce, liar.stage.identity(corrupt).sign(Label.REVEAL, *parts))

    with refused("graph-steering", caplog):
        liar.step(victim, "nonces", NonceList((*reveals()[:3], later(b"x" * 32))))
    with refused("graph-steering", caplog):
        liar.step(victim, "nonces", NonceList(reveals()[:3]))
    liar.enrol().all_is_well()


# One survivor set


def _allow(patch: Patch, *more: tuple[SiloState, Call, SiloState]) -> None:
    table = dict(TRANSITIONS) | {(state, call): after for state, call, after in more}
    patch.setattr(crypto.silo_sum, "TRANSITIONS", table)


def _seed(opening: Opening, *key: Any) -> bytes:
    shares = dict(list(opening._shares[key].items())[: opening._threshold])
    (seed,) = rebuild({point: [share] for point, share in shares.items()})
    assert seed is not None
    return seed


def _bare(liar: Liar, held: Held, victim: str, all_in: Opening, without: Opening) -> np.ndarray:
    """b_u because u survived, and every r_uv because u dropped: together they lay u's vector bare."""
    masks = [(_seed(all_in, victim, None), 1)]
    masks += [(_seed(without, v, victim), 1 if victim < v else -1) for v in liar.names if v != victim]
    return liar.unmasked(held, [victim], masks)


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
    blobs = tuple((d, dict(held.records[d].blobs)["silo-001"]) for d in liar.names if d != "silo-001")
    with refused("both-shares", caplog):  # with a share of the one that is said to have dropped
        liar.step("silo-001", "unmask", UnmaskRequest(held.header.h, rest, signed, blobs))
    liar.all_is_well()


def test_split_view_and_both_shares_without_one_answer_per_sum(make: Make, monkeypatch: Patch) -> None:
    liar = make().enrol()
    held, victim = liar.gather(), liar.names[0]
    again = [(state, Call.ENDORSE, SiloState.ENDORSED) for state in (SiloState.ENDORSED, SiloState.RELEASED)]
    _allow(monkeypatch, *again)
    first = liar.open(held, liar.names, liar.certify(held, liar.names))
    second = liar.open(held, liar.names[1:], liar.certify(held, liar.names[1:]))
    assert same(_bare(liar, held, victim, first, second), liar.stage.data[victim])


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


def test_tiny_sum_without_a_floor(make: Make, monkeypatch: Patch) -> None:
    liar = make().enrol()
    monkeypatch.setattr(Topology, "check_survivors", lambda *_: None)
    held, victim = liar.gather(), liar.names[0]
    assert same(liar.sum(held, (victim,)), liar.stage.data[victim])  # a "sum" over one


def test_ring_gap(make: Make, caplog: Log) -> None:
    """Two neighbours of a ring of eight, each joined to two on either side, dropped: enough are left, but not there."""
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
