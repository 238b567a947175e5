"""ristretto255 and the two hashes into it, as RFC 9497 wants them.

The arithmetic is libsodium's, by way of rbcl. Points and scalars are their 32 bytes. Whatever comes
from another party goes through `point`, which refuses what is no point and the identity: libsodium's
addition does not look.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import rbcl

__all__ = [
    "BASE",
    "BYTES",
    "ORDER",
    "BadPoint",
    "add",
    "hash_to_point",
    "hash_to_scalar",
    "inverse",
    "multiply",
    "multiply_base",
    "point",
    "scalar",
    "total",
]

BYTES = 32
ORDER = 2**252 + 27742317777372353535851937790883648493
_IDENTITY = bytes(BYTES)
_BLOCK = 128  #: of SHA-512


class BadPoint(ValueError):
    """Bytes that are no element of the group, or its identity."""


def scalar(value: int) -> bytes:
    return (value % ORDER).to_bytes(BYTES, "little")


#: the generator
BASE = rbcl.crypto_scalarmult_ristretto255_base(scalar(1))


def point(data: bytes) -> bytes:
    """What another party says is a point: checked once, where it comes in."""
    data = bytes(data)
    if (
        len(data) != BYTES
        or data == _IDENTITY
        or not rbcl.crypto_core_ristretto255_is_valid_point(data)
    ):
        raise BadPoint("it is not a point of ristretto255, or it is the identity")
    return data


def multiply(k: bytes, p: bytes) -> bytes:
    """k·p. Refuses a result that is the identity, so k = 0 too."""
    try:
        return rbcl.crypto_scalarmult_ristretto255(k, p)
    except RuntimeError:
        raise BadPoint("a product that is no point, or the identity") from None


def multiply_base(k: bytes) -> bytes:
    try:
        return rbcl.crypto_scalarmult_ristretto255_base(k)
    except RuntimeError:
        raise BadPoint("a product that is the identity") from None


def add(p: bytes, q: bytes) -> bytes:
    """p + q, of points that were checked."""
    return rbcl.crypto_core_ristretto255_add(p, q)


def total(points: Iterable[bytes]) -> bytes:
    """The sum of points that were checked; the identity is its empty sum."""
    out = _IDENTITY
    for p in points:
        out = add(out, p)
    return out


def inverse(k: bytes) -> bytes:
    return rbcl.crypto_core_ristretto255_scalar_invert(k)


def hash_to_point(message: bytes, tag: bytes) -> bytes:
    return rbcl.crypto_core_ristretto255_from_hash(_expand(message, tag))


def hash_to_scalar(message: bytes, tag: bytes) -> bytes:
    return scalar(int.from_bytes(_expand(message, tag), "little"))


def _expand(message: bytes, tag: bytes) -> bytes:
    """expand_message_xmd of RFC 9380 with SHA-512, for the 64 bytes that are one block of it."""
    suffix = tag + bytes([len(tag)])
    first = hashlib.sha512(bytes(_BLOCK) + message + b"\x00\x40\x00" + suffix).digest()
    return hashlib.sha512(first + b"\x01" + suffix).digest()
