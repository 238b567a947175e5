"""Shamir's secret sharing of many 16-byte seeds at once, over the prime 2**128 + 51.

Holder i (from 0) has the point x = i + 1. One holder's shares of all secrets are one evaluation: the
coefficients of one degree of all polynomials stand in one big integer with wide gaps, so that Horner's rule (or
the Lagrange sum) is a few long multiplications by a small number instead of many short ones, and the reduction
modulo the prime comes once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

__all__ = ["PRIME", "SEED_BYTES", "SHARE_BYTES", "rebuild", "split"]

PRIME = 2**128 + 51
SEED_BYTES = 16
SHARE_BYTES = 17
#: Coefficients are drawn from 24 bytes and reduced: the bias is below 2**-63.
_DRAW_BYTES = 24


def split(
    secrets: Sequence[bytes], threshold: int, holders: int, random: Callable[[int], bytes]
) -> list[list[bytes]]:
    """Shares of every secret for every holder: result[holder][secret], 17 bytes each, little-endian.

    Any `threshold` of them rebuild a secret; fewer are independent of it.
    """
    if not 1 <= threshold <= holders:
        raise ValueError(f"a threshold of {threshold} for {holders} holders")
    if any(len(secret) != SEED_BYTES for secret in secrets):
        raise ValueError(f"secrets are {SEED_BYTES} bytes")
    count = len(secrets)
    # The value of a polynomial at x <= holders, unreduced, is below PRIME * (x**threshold) * 2.
    slot = (PRIME.bit_length() + threshold * holders.bit_length() + 8) // 8
    raw = random(_DRAW_BYTES * count * (threshold - 1))
    packed = []
    for degree in range(threshold - 1):
        base = degree * count * _DRAW_BYTES
        row = [
            (int.from_bytes(raw[base + i * _DRAW_BYTES : base + (i + 1) * _DRAW_BYTES], "little") % PRIME)
            for i in range(count)
        ]
        packed.append(_pack([value.to_bytes(SHARE_BYTES, "little") for value in row], slot))
    constant = _pack(secrets, slot)
    result = []
    for x in range(1, holders + 1):
        total = 0
        for coefficient in packed:
            total = (total + coefficient) * x
        result.append(_unpack(total + constant, slot, count, SHARE_BYTES))
    return result


def rebuild(shares: Mapping[int, Sequence[bytes]]) -> list[bytes | None]:
    """The secrets from exactly `threshold` holders' shares: shares[holder][secret] -> 16 bytes each.

    None stands for a secret whose shares meet in a number above 2**128: somebody's share was wrong.
    """
    if not shares:
        raise ValueError("no shares to rebuild from")
    counts = {len(row) for row in shares.values()}
    if len(counts) != 1:
        raise ValueError("every holder must give a share of every secret")
    (count,) = counts
    weights = _lagrange(tuple(holder + 1 for holder in shares))
    slot = 2 * SHARE_BYTES + (len(shares).bit_length() + 7) // 8 + 1
    total = 0
    for weight, row in zip(weights, shares.values()):
        total += weight * _pack(row, slot)
    rebuilt = _unpack(total, slot, count, SHARE_BYTES)
    return [secret[:SEED_BYTES] if secret[SEED_BYTES] == 0 else None for secret in rebuilt]


def _lagrange(points: tuple[int, ...]) -> list[int]:
    """The weights w with f(0) = sum of w_i f(x_i), for every polynomial of degree below len(points)."""
    if len(set(points)) != len(points) or min(points) < 1:
        raise ValueError("holders must be distinct and not negative")
    weights = []
    for i, x in enumerate(points):
        above, below = 1, 1
        for j, other in enumerate(points):
            if j != i:
                above = above * other % PRIME
                below = below * (other - x) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return weights


def _pack(values: Sequence[bytes], slot: int) -> int:
    return int.from_bytes(b"".join([bytes(value).ljust(slot, b"\0") for value in values]), "little")


def _unpack(total: int, slot: int, count: int, size: int) -> list[bytes]:
    raw = total.to_bytes(slot * count, "little")
    return [
        (int.from_bytes(raw[i : i + slot], "little") % PRIME).to_bytes(size, "little")
        for i in range(0, slot * count, slot)
    ]
