"""A coordinator that wants to know which bags stand behind the names, with a friend among the silos,
over real sockets: refused by name, and seen to succeed undefended.

Four silos, of which one may be corrupt: two hold the names' key. silo-000 is an honest holder,
silo-001 the victim, silo-003 the coordinator's friend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from crypto.oprf import committee as oprf
from crypto.oprf import group, voprf
from crypto.oprf.committee import Evaluation, Request
from crypto.oprf.peers import Peers
from crypto.sum.silo_limits import MemoryJournal
from methods.common.bag_names import keyed_names
from silo.home import Home
from tests.system.attacks import gains, refuses, without
from tests.system.liar import Liar, refused
from tests.system.stage import BAGS, BLIND, EVALUATE, NAMES, QUERIES, RUN
from wire import messages as m
from wire.bundle import Inbox, pack, pieces

Make = Callable[..., Liar]
Patch = pytest.MonkeyPatch
Log = pytest.LogCaptureFixture
Arrays = Mapping[str, np.ndarray]

HOLDER, VICTIM, FRIEND = "silo-000", "silo-001", "silo-003"
COMMITTEE = (0, 3)
#: What the coordinator would like to know of: some are among the victim's bags, some are not.
GUESSES = (b"aspra causes febra", *BAGS[:2], b"aspra treats gripa")


def said(liar: Liar, silo: str, index: int, common: Arrays, private: Arrays) -> dict:
    """One exchange with one silo: what it sends back, readable by the coordinator."""
    liar._number += 1
    number, bundles = liar._number, {"common": pack(common), "private": pack(private)}
    told = m.Broadcast(
        number=number,
        round=liar.round,
        exchange=index,
        cohort=list(range(len(liar.names))),
        common=bundles["common"].layout,
        private=bundles["private"].layout,
        header={},
        encoding={},
    )
    liar.say(silo, told)
    for stream, bundle in bundles.items():
        for k, piece in enumerate(pieces(bundle.buffer)):
            liar.say(silo, m.Chunk(number, stream, k), piece)
    liar.say(silo, m.Go(number))
    liar.hear(silo, m.Ready)
    liar.say(silo, m.Send(number))
    inbox = Inbox(liar.hear(silo, m.SealedStart)[0].arrays, 1 << 20)
    while not inbox.complete:
        message, payload = liar.hear(silo, m.Chunk)
        inbox.add(message.index, payload)
    return dict(inbox.arrays())


def rows(items: Sequence[bytes], width: int = 32) -> np.ndarray:
    return np.frombuffer(b"".join(items), np.uint8).reshape(-1, width)


def _told(committee: Sequence[int]) -> Arrays:
    return {"committee": np.array(committee, np.int32), "named": np.zeros(0, np.int32)}


def friend_of(liar: Liar) -> Peers:
    """All that the friend has: its identity, and nobody who counts."""
    identities = [liar.stage.roster[name] for name in sorted(liar.stage.roster)]
    identity = liar.stage.identity(FRIEND)
    return Peers(3, identity, identities, lambda: RUN, MemoryJournal())


def question(liar: Liar, committee: Sequence[int] = COMMITTEE) -> list[bytes]:
    """The victim's blinded points."""
    asked = said(liar, VICTIM, BLIND, _told(committee), {})
    return [p.tobytes() for p in asked["points/blinded"]]


def put(liar: Liar, asked: Request) -> Evaluation:
    """A question to the honest holder, and its part."""
    private = {
        "committee": np.array(COMMITTEE, np.int32),
        "silos": np.array([asked.silo], np.int32),
        "counts": np.array([len(asked.points)], np.int32),
        "points": rows(asked.points),
        "signatures": rows([asked.signature], 64),
    }
    parts = said(liar, HOLDER, EVALUATE, {}, private)
    points = tuple(p.tobytes() for p in parts["parts/evaluated"])
    rest = (parts[f"parts/{name}"][0].tobytes() for name in ("proofs", "key", "signature"))
    return Evaluation(0, points, *rest)


def names(liar: Liar, parts: Sequence[Evaluation], committee: Sequence[int] = COMMITTEE) -> set:
    """The victim is given these parts, and says the names of its bags."""
    private = {
        "names/committee": np.array(committee, np.int32),
        "names/parts": np.stack([rows(e.points) for e in parts]),
        "names/proofs": rows([e.proof for e in parts], 64),
        "names/keys": rows([e.public for e in parts]),
        "names/signatures": rows([e.signature for e in parts], 64),
    }
    return {n.tobytes() for n in said(liar, VICTIM, NAMES, {}, private)["names"]}


def looked_up(liar: Liar, sent: set, values: Sequence[bytes]) -> list[bytes]:
    """The guesses whose names are among the victim's, if `values` is the function of each. The
    friend knows the silos' common secret.
    """
    secret = Home(liar.stage.path / "silos" / FRIEND).secret
    tried = keyed_names(secret, liar.round, values)
    return [guess for guess, name in zip(GUESSES, tried) if name.tobytes() in sent]


def under(key: bytes, inputs: Sequence[bytes]) -> list[bytes]:
    """The function of each, by whoever knows the whole key."""
    elements = (voprf.blinded(x, key) for x in inputs)
    return [voprf.finalized(x, e)[:32] for x, e in zip(inputs, elements)]


def named_by_friend(liar: Liar, asked: Request) -> list[bytes]:
    """The friend's guesses, with the honest holder's help."""
    friend = friend_of(liar)
    points, proof = oprf.evaluate(friend, COMMITTEE, own_request(liar), 1000)
    own = Evaluation(3, points, proof, *oprf.public_part(friend, COMMITTEE))
    return oprf.finish(friend, COMMITTEE, GUESSES, [put(liar, asked), own])


def own_request(liar: Liar) -> Request:
    return oprf.request(friend_of(liar), COMMITTEE, GUESSES)


def honestly_named(liar: Liar) -> set:
    """The victim's names, come about as they should."""
    asked = said(liar, VICTIM, BLIND, _told(COMMITTEE), {})
    points = tuple(p.tobytes() for p in asked["points/blinded"])
    request = Request(1, points, asked["points/signature"][0].tobytes())
    friend = friend_of(liar)
    evaluated = oprf.evaluate(friend, COMMITTEE, request, QUERIES)
    own = Evaluation(3, *evaluated, *oprf.public_part(friend, COMMITTEE))
    return names(liar, [put(liar, request), own])


# A key of the coordinator's own choosing


def forged(liar: Liar, points: Sequence[bytes]) -> list[Evaluation]:
    """Parts under known keys, one in the place of the honest holder's, with good proofs of them."""
    friend, made = friend_of(liar), []
    for holder in COMMITTEE:
        key = group.scalar(7 + holder)
        evaluated = tuple(voprf.evaluated(key, points))
        public = group.multiply_base(key)
        signature = friend.sign("oprf-key", oprf._named(COMMITTEE), public)
        bound = oprf._bound(friend, COMMITTEE, (holder, 1), points, evaluated)
        proof = voprf.prove(key, points, evaluated, bound)
        made.append(Evaluation(holder, evaluated, proof, public, signature))
    return made


@refuses("oprf-proof")
def test_oprf_proof(make: Make, caplog: Log) -> None:
    """Neither a key that the holder did not sign, nor its signed key with an evaluation by
    another one, nor another silo's evaluation.
    """
    liar = make().enrol()
    points = question(liar)
    fake = forged(liar, points)
    with refused("oprf-proof", caplog):
        names(liar, fake)
    real = put(liar, own_request(liar))  # the honest holder's key, signature, and a proof by it
    signed = Evaluation(0, fake[0].points, fake[0].proof, real.public, real.signature)
    with refused("oprf-proof", caplog):
        names(liar, [signed, fake[1]])
    swapped = Evaluation(0, real.points[:3], real.proof, real.public, real.signature)
    with refused("oprf-proof", caplog):
        names(liar, [swapped, fake[1]])
    liar.all_is_well()


@gains("oprf-proof")
def test_oprf_proof_unseen(make: Make, monkeypatch: Patch) -> None:
    """Who chose the key looks every guess up."""
    without(monkeypatch, oprf, "_check_evaluation", "oprf-proof")
    liar = make().enrol()
    sent = names(liar, forged(liar, question(liar)))
    assert looked_up(liar, sent, under(group.scalar(7 + 7 + 3), GUESSES)) == list(BAGS[:2])


# More guesses than the study allows


def spent(liar: Liar) -> None:
    """The friend has had all the names that a silo may have."""
    others = [b"guess %d" % i for i in range(QUERIES)]
    put(liar, oprf.request(friend_of(liar), COMMITTEE, others))


@refuses("oprf-quota")
def test_oprf_quota(make: Make, caplog: Log) -> None:
    """What the holder gave is on its disk: a restart does not help."""
    liar = make().enrol()
    spent(liar)
    with refused("oprf-quota", caplog):
        put(liar, own_request(liar))
    spent(liar)  # the same once more has the same answer, and is not counted again
    liar.settle()
    liar.stage.stop(HOLDER)
    liar.stage.start(HOLDER)
    liar.enrol()
    with refused("oprf-quota", caplog):
        put(liar, own_request(liar))
    liar.all_is_well()


@gains("oprf-quota")
def test_oprf_quota_uncounted(make: Make, monkeypatch: Patch) -> None:
    """Guess after guess, as many as it likes."""
    without(monkeypatch, Peers, "count", "oprf-quota")
    liar = make().enrol()
    sent = honestly_named(liar)
    spent(liar)
    assert looked_up(liar, sent, named_by_friend(liar, own_request(liar))) == list(BAGS[:2])


# In another silo's name


@refuses("oprf-request")
def test_oprf_request(make: Make, caplog: Log) -> None:
    """Neither what the friend signed in the victim's name, nor points that are none."""
    liar = make().enrol()
    asked = own_request(liar)
    with refused("oprf-request", caplog):
        put(liar, Request(1, asked.points, asked.signature))
    friend = friend_of(liar)
    for nothing in (bytes(32), b"\xff" * 32):
        signature = friend.sign("oprf-ask", oprf._named(COMMITTEE), oprf._hashed([nothing]))
        with refused("oprf-request", caplog):
            put(liar, Request(3, (nothing,), signature))
    liar.all_is_well()


@gains("oprf-request")
def test_oprf_request_unsigned(make: Make, monkeypatch: Patch) -> None:
    """The friend's own guesses are used up; the other silos' are not."""
    liar = make().enrol()
    sent = honestly_named(liar)
    spent(liar)
    monkeypatch.setattr(Peers, "signed", lambda *anything: True)
    monkeypatch.setattr(oprf, "_check_evaluation", lambda *anything: None)  # the friend's own
    asked = Request(2, own_request(liar).points, bytes(64))
    assert looked_up(liar, sent, named_by_friend(liar, asked)) == list(BAGS[:2])


# A committee of friends


@refuses("oprf-committee")
def test_oprf_committee(make: Make, caplog: Log) -> None:
    liar = make().enrol()
    for wrong in ((3,), (3, 3), (3, 0), (0, 9), (), (-1, 3)):
        with refused("oprf-committee", caplog):
            question(liar, wrong)
    liar.all_is_well()


@gains("oprf-committee")
def test_oprf_committee_of_a_friend(make: Make, monkeypatch: Patch) -> None:
    """Who holds the whole key looks every guess up."""
    without(monkeypatch, oprf, "_check", "oprf-committee")
    liar = make().enrol()
    alone, friend = (3,), friend_of(liar)
    asked = said(liar, VICTIM, BLIND, _told(alone), {})
    points = tuple(p.tobytes() for p in asked["points/blinded"])
    request = Request(1, points, asked["points/signature"][0].tobytes())
    own = Evaluation(
        3, *oprf.evaluate(friend, alone, request, QUERIES), *oprf.public_part(friend, alone)
    )
    sent = names(liar, [own], alone)
    assert looked_up(liar, sent, under(oprf._key(friend, alone), GUESSES)) == list(BAGS[:2])
