"""A coordinator that lies about who is there, over real sockets: keys, names, numbers and the
graph. Each attack by name is refused, said to be refused and logged, and the silo lives on. Then
its defence is taken away, and it succeeds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding as Raw
from cryptography.hazmat.primitives.serialization import PublicFormat

import silo.process
from crypto.derive import Label, digest
from crypto.identity.keys import Identity
from crypto.sum.graph import Topology, beacon, topology
from crypto.sum.params import Policy
from crypto.sum.records import KeyList, KeyOffer, NonceList, NonceReveal, SumHeader, agreement
from crypto.sum.silo import SiloSum
from crypto.sum.silo_limits import Limits
from tests.system.attacks import gains, refuses
from tests.system.liar import Liar, refused, same
from tests.system.opened import bare, seed_of
from tests.system.puppets import Puppet
from tests.system.stage import RUN

Log = pytest.LogCaptureFixture
Patch = pytest.MonkeyPatch
Make = Callable[..., Liar]


# Somebody else's key


def _public() -> bytes:
    return X25519PrivateKey.generate().public_key().public_bytes(Raw.Raw, PublicFormat.Raw)


@refuses("key-substitution")
def test_key_substitution(make: Make, caplog: Log) -> None:
    liar = make()
    victim, posed = liar.names[:2]
    changes: list[dict[str, Any]] = [
        {"public": _public()},
        {"signature": bytes(64)},
        {"commitment": bytes(32)},
    ]
    for change in changes:
        keys = liar.offers().key_list()
        false = KeyList(tuple(replace(o, **change) if o.silo == posed else o for o in keys.offers))
        with refused("key-substitution", caplog):
            liar.step(victim, "keys", false)
    liar.enrol().all_is_well()


@gains("key-substitution")
def test_key_substitution_without_signatures(make: Make, monkeypatch: Patch) -> None:
    """The coordinator is everybody else in the victim's session, and the sum is the victim's
    vector.
    """
    liar = make()
    victim, others = liar.names[0], liar.names[1:]
    for module in ("silo_setup", "silo_kept", "coordinator_setup", "setup_records"):
        monkeypatch.setattr(f"crypto.sum.{module}.verify", lambda *_: True)
    roster, policy = liar.stage.roster, liar.stage.policy
    # the honest are not even asked
    liar.pull(*(Puppet(name, Identity.generate(), roster, policy) for name in others))
    held = liar.enrol().gather()
    signed = liar.certify(held, liar.names, others)
    opening = liar.open(held, liar.names, signed, holders=others)  # three of four are enough
    assert same(liar.unmasked(held, liar.names, opening.seeds()), liar.stage.data[victim])


# Somebody who is nobody


@refuses("unknown-silo")
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


@gains("unknown-silo")
def test_unknown_silos_without_a_pinned_roster(make: Make, monkeypatch: Patch) -> None:
    """The coordinator makes up six silos and sums one real silo with them."""
    strangers = {f"silo-{i}": Identity.generate() for i in range(900, 906)}

    class Open(dict[str, bytes]):
        """A roster that takes whoever comes."""

        def __contains__(self, name: object) -> bool:
            return True

        def __missing__(self, name: str) -> bytes:
            return strangers[name].public

    real = SiloSum.__init__

    def trusting(self: SiloSum, *arguments: Any, **named: Any) -> None:
        real(self, *arguments, **named)
        self._roster = self._setup._roster = Open(self._roster)

    monkeypatch.setattr(SiloSum, "__init__", trusting)
    # room for more vectors than the pinned roster has silos, which is a refusal of its own
    monkeypatch.setattr(Limits, "check_headroom", lambda *_: None)
    liar = make()
    victim, roster = liar.names[0], dict(liar.stage.roster)
    liar.pull(
        *(Puppet(name, identity, roster, liar.stage.policy) for name, identity in strangers.items())
    )
    monkeypatch.setattr("crypto.sum.coordinator_setup.verify", lambda *_: True)
    liar.stage.roster.update({name: identity.public for name, identity in strangers.items()})
    monkeypatch.setattr(
        "crypto.sum.coordinator_setup.agreement", lambda policy, _: agreement(policy, roster)
    )
    liar.enrol()
    liar.stage.roster = roster
    held = liar.gather(liar.header(alive=tuple(sorted((victim, *strangers)))))
    total = liar.sum(held)  # the strangers' part of it is zero
    assert same(total, liar.stage.data[victim])


# Too many friends


@refuses("sybil-majority")
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


FRIENDS = ("silo-005", "silo-006")  # two of seven: fewer than a third, which is what is allowed for


def _two_friends_and(liar: Liar, victim: str) -> SumHeader:
    return liar.header(alive=(victim, *FRIENDS))


@refuses("sybil-majority")
def test_sybil_majority_in_a_sum(make: Make, caplog: Log) -> None:
    """Two corrupt silos of seven and one victim, "alive"."""
    liar = make(7).enrol()
    with refused("sybil-majority", caplog):
        liar.ask(liar.names[0], _two_friends_and(liar, liar.names[0]))
    liar.all_is_well()


@gains("sybil-majority")
def test_sybil_majority_without_counting_the_roster(make: Make, monkeypatch: Patch) -> None:
    """As if fewer than a third of *those alive* were corrupt: what is left of the sum is the
    victim's vector.
    """

    def counted(
        source: bytes, members: Any, alive: tuple[str, ...], policy: Policy, roster: int
    ) -> Topology:
        return topology(source, members, alive, policy, len(alive))

    monkeypatch.setattr("crypto.sum.silo.topology", counted)
    monkeypatch.setattr("tests.system.liar.topology", counted)
    liar = make(7).enrol()
    victim = liar.names[0]
    total = liar.sum(liar.gather(_two_friends_and(liar, victim)))
    # they tell the coordinator what they sent
    friends = sum(liar.stage.data[friend] for friend in FRIENDS)
    assert same(total - friends, liar.stage.data[victim])


# Whom a silo is joined to

#: Ten silos on a ring, each joined to two on either side. Three, fewer than a third, are corrupt.
RING = Policy(complete_up_to=5, security=1, correctness=1, ring_corrupt=0.05, dropout=0.05)
CORRUPT = ("silo-007", "silo-008", "silo-009")


def _ring(make: Make) -> Liar:
    """Seven silos on sockets, and the three corrupt ones in the coordinator's hands."""
    liar = make(7, roster=10, policy=RING)
    return liar.pull(*(Puppet(c, liar.stage.identity(c), liar.stage.roster, RING) for c in CORRUPT))


def _around(source: bytes, liar: Liar, victim: str) -> tuple[str, ...]:
    return topology(source, liar.names, liar.names, RING, 10).neighbours(victim)


def _read(liar: Liar, victim: str) -> np.ndarray:
    """A victim with three corrupt neighbours: they know three of its edges; the fourth neighbour
    "drops".
    """
    held = liar.gather()
    around = held.topology.neighbours(victim)
    assert len(around) == 4 and set(CORRUPT) < set(around)
    (fourth,) = set(around) - set(CORRUPT)
    survivors = tuple(name for name in liar.names if name != fourth)
    opening = liar.open(held, survivors, liar.certify(held, survivors))
    assert opening.seeds()  # as it should be: one of ten dropped, which the ring is made for
    edges = {friend: liar.puppets[friend].edge(held.header, victim) for friend in CORRUPT}
    edges[fourth] = seed_of(opening, victim, fourth)
    return bare(liar, held, victim, seed_of(opening, victim), edges)


def _late(liar: Liar, victim: str) -> NonceList:
    """Everybody's nonce, the last corrupt silo's chosen when all the others are known."""
    liar.setup = setup = liar.offers()
    corrupt = liar.puppets[CORRUPT[-1]]
    keys = setup.key_list()
    shown = {n: NonceReveal.from_record(liar.step(n, "keys", keys)) for n in liar.names}
    nonces = {name: reveal.nonce for name, reveal in shown.items()}
    for attempt in range(10_000):
        nonces[corrupt.name] = attempt.to_bytes(32, "big")
        if set(CORRUPT) < set(_around(beacon(setup.sid, nonces), liar, victim)):
            break
    else:
        raise AssertionError("one graph in 21 would do")
    chosen = nonces[corrupt.name]
    parts = NonceReveal.signed_parts(setup.sid, corrupt.name, chosen)
    shown[corrupt.name] = NonceReveal(
        corrupt.name, chosen, corrupt.identity.sign(Label.REVEAL, *parts)
    )
    setup._beacon = beacon(setup.sid, nonces)
    return NonceList(tuple(shown[name] for name in liar.names))


@refuses("graph-steering")
def test_graph_steering(make: Make, caplog: Log) -> None:
    """A corrupt silo that lets the coordinator choose its nonce after all the others are known, or
    that has none.
    """
    liar = _ring(make)
    victim = liar.names[0]
    with refused("graph-steering", caplog):
        liar.step(victim, "nonces", _late(liar, victim))
    with refused("graph-steering", caplog):
        liar.step(victim, "nonces", NonceList(_late(liar, victim).reveals[:-1]))


@gains("graph-steering")
def test_graph_steering_without_commitments(make: Make, monkeypatch: Patch) -> None:
    """As if nobody had committed to a nonce: the victim stands among friends of the coordinator."""
    real = SiloSum.receive_nonces

    def believing(self: SiloSum, nonces: NonceList) -> None:
        self._setup.commitments = {
            r.silo: digest(Label.NONCE, r.silo.encode(), r.nonce) for r in nonces.reveals
        }
        real(self, nonces)

    monkeypatch.setattr(SiloSum, "receive_nonces", believing)
    liar = _ring(make)
    victim = liar.names[0]
    liar.show(_late(liar, victim))
    assert same(_read(liar, victim), liar.stage.data[victim])


@refuses("graph-steering")
def test_graph_steering_by_many_setups(make: Make, monkeypatch: Patch, caplog: Log) -> None:
    """A coordinator that enrols everybody anew until it likes the graph."""
    monkeypatch.setattr(silo.process, "Limits", lambda **named: Limits(max_sessions=2, **named))
    liar = make()
    liar.enrol().enrol()
    with refused("graph-steering", caplog):
        liar.enrol()


@refuses("graph-steering")
def test_graph_steering_by_setups_that_are_not_finished(
    make: Make, monkeypatch: Patch, caplog: Log
) -> None:
    """A coordinator that has all nonces, and so knows what they draw, and ends the setup there."""
    monkeypatch.setattr(silo.process, "Limits", lambda **named: Limits(max_sessions=2, **named))
    liar = make()
    for _ in range(2):
        keys = liar.offers().key_list()
        for name in liar.names:
            liar.step(name, "keys", keys)
    with refused("graph-steering", caplog):
        liar.enrol()


@gains("graph-steering")
def test_graph_steering_by_as_many_setups_as_one_likes(make: Make) -> None:
    """The limit is a thousand by default, which costs a real ring ten of its forty bits, and this
    one all it has.
    """
    liar = _ring(make)
    victim = liar.names[0]
    for _ in range(600):  # one in 21 will do
        if set(CORRUPT) < set(_around(liar.enrol().setup.beacon, liar, victim)):
            break
    assert same(_read(liar, victim), liar.stage.data[victim])
