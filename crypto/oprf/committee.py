"""An oblivious function whose key is shared among some silos: F(k_1 + … + k_c, x), relayed by a
coordinator that may lie.

Each of the c holders of a committee has a key of its own, k_j, made of its identity's seed for this
run and this committee; it is never sent. A silo that wants F of its inputs blinds them and signs
the batch; every holder multiplies by its k_j and proves it; the silo adds up what came back and
takes the blinding out. With one k_j missing the function cannot be computed, nor a guess tested. c
is one more than the silos that may side with the coordinator, so one holder at least is honest, no
matter who chose the committee.

What a lying coordinator can do, and why not:

* It evaluates with a key of its own: holders sign their public part K_j with their pinned identity,
  and nobody believes an evaluation without a proof under that K_j (`oprf-proof`). A proof needs k_j,
  so no holder can make its K_j of the others' either.
* It asks in a silo's name, or for another committee, run or roster: a batch is signed with all of
  these (`oprf-request`).
* It has its own silos ask for its guesses: each holder counts what each silo was given, on disk,
  and refuses more than the study declares (`oprf-quota`).
* It names a committee of too few, or of one silo several times: refused (`oprf-committee`).
* It passes points that are none, or the identity: refused (`oprf-request`, `oprf-proof`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crypto.derive import Label, digest, number
from crypto.errors import Refusal
from crypto.oprf import group, voprf
from crypto.oprf.peers import Peers
from crypto.sum.params import most_corrupt

__all__ = [
    "OUTPUT_BYTES",
    "SIGNATURE_BYTES",
    "Evaluation",
    "Request",
    "committee_size",
    "elect",
    "evaluate",
    "finish",
    "public_part",
    "request",
]

SIGNATURE_BYTES = 64
OUTPUT_BYTES = 32


@dataclass(frozen=True)
class Request:
    """One silo's blinded points, signed by it."""

    silo: int
    points: tuple[bytes, ...]
    signature: bytes


@dataclass(frozen=True)
class Evaluation:
    """What one holder made of one request."""

    holder: int
    points: tuple[bytes, ...]
    proof: bytes
    public: bytes  #: K_j
    signature: bytes  #: the holder's, on K_j


def committee_size(silos: int) -> int:
    """One more than may be corrupt, and two wherever there are two."""
    return max(most_corrupt(silos) + 1, min(2, silos))


def elect(present: Sequence[int], silos: int, turn: int) -> tuple[int, ...]:
    """A committee of those who are here, another one each turn; nobody where they are too few.

    Who is not in it can come and go without changing it.
    """
    size = committee_size(silos)
    order = [(turn * size + i) % silos for i in range(silos)]
    chosen = [i for i in order if i in set(present)][:size]
    return tuple(sorted(chosen)) if len(chosen) == size else ()


# The silo that asks


def request(peers: Peers, committee: Sequence[int], inputs: Sequence[bytes]) -> Request:
    _check(peers, committee)
    points = tuple(map(voprf.blinded, inputs, _factors(peers, committee, inputs)))
    signature = peers.sign(Label.OPRF_ASK, _named(committee), _hashed(points))
    return Request(peers.index, points, signature)


def finish(
    peers: Peers,
    committee: Sequence[int],
    inputs: Sequence[bytes],
    evaluations: Sequence[Evaluation],
) -> list[bytes]:
    """F of each input, cut to 32 bytes, after every holder's proof has been checked."""
    _check(peers, committee)
    if [e.holder for e in evaluations] != list(committee):
        raise Refusal("oprf-proof", "evaluations of others than the holders of the key")
    factors = _factors(peers, committee, inputs)
    asked = tuple(map(voprf.blinded, inputs, factors))
    for e in evaluations:
        _check_evaluation(peers, committee, asked, e)
    outputs = []
    for x, factor, parts in zip(inputs, factors, zip(*(e.points for e in evaluations))):
        try:
            element = voprf.unblinded(group.total(parts), factor)
        except group.BadPoint:
            raise Refusal("oprf-proof", "the holders' parts add up to nothing") from None
        outputs.append(voprf.finalized(x, element)[:OUTPUT_BYTES])
    return outputs


def _factors(peers: Peers, committee: Sequence[int], inputs: Sequence[bytes]) -> list[bytes]:
    """Of the silo's own secret: asked again, it sends the same points, and needs to keep nothing."""
    secret = peers.own(b"oprf blinding", _named(committee))
    return [group.hash_to_scalar(secret + x, b"sottovoce oprf blinding") for x in inputs]


def _check_evaluation(
    peers: Peers, committee: Sequence[int], asked: tuple[bytes, ...], e: Evaluation
) -> None:
    who = f"what is said to be the evaluation by silo {e.holder}"
    if not peers.signed(e.holder, e.signature, Label.OPRF_KEY, _named(committee), e.public):
        raise Refusal("oprf-proof", f"{who} names a key that this silo did not sign")
    try:
        public, points = group.point(e.public), tuple(map(group.point, e.points))
    except group.BadPoint as bad:
        raise Refusal("oprf-proof", f"{who}: {bad}") from None
    bound = _bound(peers, committee, (e.holder, peers.index), asked, points)
    if not voprf.proved(public, asked, points, e.proof, bound):
        raise Refusal("oprf-proof", f"{who} was not made of this batch with its key")


# The holder of a part of the key


def public_part(peers: Peers, committee: Sequence[int]) -> tuple[bytes, bytes]:
    """K_j, and this silo's signature on it."""
    _check(peers, committee)
    public = group.multiply_base(_key(peers, committee))
    return public, peers.sign(Label.OPRF_KEY, _named(committee), public)


def evaluate(
    peers: Peers, committee: Sequence[int], asked: Request, most: int
) -> tuple[tuple[bytes, ...], bytes]:
    """This holder's part of every point asked for, and the proof. Counted on disk before it is
    computed: no silo gets more than `most` in a run.
    """
    _check(peers, committee)
    if peers.index not in committee:
        raise Refusal("oprf-committee", "this silo is asked as a holder of a key, and is none")
    batch = _hashed(asked.points)
    if not asked.points or not peers.signed(
        asked.silo, asked.signature, Label.OPRF_ASK, _named(committee), batch
    ):
        raise Refusal("oprf-request", f"silo {asked.silo} did not sign what is asked in its name")
    try:
        points = tuple(map(group.point, asked.points))
    except group.BadPoint as bad:
        raise Refusal("oprf-request", f"a point of silo {asked.silo}: {bad}") from None
    peers.count(asked.silo, digest(Label.OPRF_ASK, _named(committee), batch), len(points), most)
    key = _key(peers, committee)
    evaluations = tuple(voprf.evaluated(key, points))
    bound = _bound(peers, committee, (peers.index, asked.silo), points, evaluations)
    return evaluations, voprf.prove(key, points, evaluations, bound)


def _key(peers: Peers, committee: Sequence[int]) -> bytes:
    return voprf.derive_key(peers.own(b"oprf key", _named(committee)), b"sottovoce names")


# What both bind their words to


def _check(peers: Peers, committee: Sequence[int]) -> None:
    size = committee_size(peers.silos)
    members = set(committee)
    if (
        len(members) < size
        or list(committee) != sorted(members)
        or not members <= set(range(peers.silos))
    ):
        raise Refusal(
            "oprf-committee", f"the key of names is held by {size} silos at least, each named once"
        )


def _named(committee: Sequence[int]) -> bytes:
    return b"".join(map(number, committee))


def _hashed(points: Sequence[bytes]) -> bytes:
    return digest(Label.OPRF_PROOF, *points)


def _bound(
    peers: Peers,
    committee: Sequence[int],
    pair: tuple[int, int],
    points: Sequence[bytes],
    evaluations: Sequence[bytes],
) -> bytes:
    """A proof is of one holder to one silo, of the whole batch, in this run."""
    parts = (*map(number, pair), _named(committee), _hashed(points), _hashed(evaluations))
    return digest(Label.OPRF_PROOF, peers.context, *parts)
