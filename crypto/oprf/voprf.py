"""RFC 9497, VOPRF(ristretto255, SHA-512): a function under somebody else's key, who does not see
what it is asked, and proves that it used the key it is known by.

F(k, x) = Hash(x, k·H(x)). The client blinds H(x) with a secret factor, the server multiplies by k,
the client takes the factor out again. One proof covers a whole batch. Checked against the vectors
of the RFC's appendix A.1.2.

Two things are ours. `bound` may tie a proof to a context: empty, it is the RFC's. We always give
one, and it includes a hash of the whole batch: in the RFC each coefficient of the proof's linear
combination hangs on its own pair alone, and a server that tries many wrong answers for each of
thousands of pairs can make their errors cancel (a generalised birthday). And the proof's secret
number is derived from the key and from what is proved, as in Ed25519: no bad random number can give
the key away, and the same question gets the same answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from crypto.oprf import group
from crypto.oprf.group import BASE, hash_to_point, hash_to_scalar, multiply, scalar

__all__ = [
    "PROOF_BYTES",
    "blinded",
    "derive_key",
    "evaluated",
    "finalized",
    "prove",
    "proved",
    "unblinded",
]

_CONTEXT = b"OPRFV1-\x01-ristretto255-SHA512"
_TO_GROUP = b"HashToGroup-" + _CONTEXT
_TO_SCALAR = b"HashToScalar-" + _CONTEXT
_SEED = b"Seed-" + _CONTEXT
PROOF_BYTES = 64


def derive_key(seed: bytes, info: bytes) -> bytes:
    """DeriveKeyPair: a key from 32 secret bytes and what it is for."""
    said = seed + _framed(info)
    for counter in range(256):
        key = hash_to_scalar(said + bytes([counter]), b"DeriveKeyPair" + _CONTEXT)
        if key != bytes(group.BYTES):
            return key
    raise ValueError("no key comes of this seed")  # once in 2**64000


# The client


def blinded(x: bytes, factor: bytes) -> bytes:
    """Blind, with a factor that the caller has drawn."""
    return multiply(factor, hash_to_point(x, _TO_GROUP))


def unblinded(evaluation: bytes, factor: bytes) -> bytes:
    return multiply(group.inverse(factor), evaluation)


def finalized(x: bytes, element: bytes) -> bytes:
    """The function's value, 64 bytes, from the element that unblinding gave."""
    return hashlib.sha512(_framed(x) + _framed(element) + b"Finalize").digest()


# The server


def evaluated(key: bytes, points: Sequence[bytes]) -> list[bytes]:
    """BlindEvaluate without its proof."""
    return [multiply(key, p) for p in points]


def prove(
    key: bytes,
    points: Sequence[bytes],
    evaluations: Sequence[bytes],
    bound: bytes = b"",
    number: bytes | None = None,
) -> bytes:
    """GenerateProof: that each evaluation is the key's. `number`: the RFC's random scalar, in tests."""
    public = group.multiply_base(key)
    m, _ = _composites(public, points, evaluations, bound, only_first=True)
    z = multiply(key, m)
    if number is None:
        number = hash_to_scalar(key + public + m + z + bound, b"sottovoce proof number")
    c = _challenge(public, m, z, multiply(number, BASE), multiply(number, m))
    s = scalar(_int(number) - _int(c) * _int(key))
    return c + s


def proved(
    public: bytes,
    points: Sequence[bytes],
    evaluations: Sequence[bytes],
    proof: bytes,
    bound: bytes = b"",
) -> bool:
    """VerifyProof. All points must have been checked by `group.point`."""
    if len(proof) != PROOF_BYTES or len(points) != len(evaluations) or not points:
        return False
    c, s = proof[:32], proof[32:]
    if _int(c) >= group.ORDER or _int(s) >= group.ORDER:
        return False
    try:
        m, z = _composites(public, points, evaluations, bound)
        t2 = group.add(multiply(s, BASE), multiply(c, public))
        t3 = group.add(multiply(s, m), multiply(c, z))
    except group.BadPoint:  # a factor of nothing, which no honest proof has
        return False
    return c == _challenge(public, m, z, t2, t3)


def _composites(
    public: bytes,
    points: Sequence[bytes],
    evaluations: Sequence[bytes],
    bound: bytes,
    only_first: bool = False,
) -> tuple[bytes, bytes]:
    """One random linear combination of all points, and the same of all evaluations."""
    seed = hashlib.sha512(_framed(public) + _framed(_SEED) + bound).digest()
    start = _framed(seed)
    m, z = [], []
    for i, (c, d) in enumerate(zip(points, evaluations, strict=True)):
        # two bytes in the RFC; a longer batch than it knows of cannot be taken for a shorter one
        place = i.to_bytes(2 if i < 1 << 16 else 8, "big")
        factor = hash_to_scalar(start + place + _framed(c) + _framed(d) + b"Composite", _TO_SCALAR)
        m.append(multiply(factor, c))
        if not only_first:
            z.append(multiply(factor, d))
    return group.total(m), group.total(z)


def _challenge(*elements: bytes) -> bytes:
    said = b"".join(map(_framed, elements)) + b"Challenge"
    return hash_to_scalar(said, _TO_SCALAR)


def _framed(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data


def _int(data: bytes) -> int:
    return int.from_bytes(data, "little")
