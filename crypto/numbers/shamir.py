"""Shamir's secret sharing of many 16-byte seeds at once, over the prime 2**128 + 51.

Holder i (from 0) has the point x = i + 1, and a share is 17 bytes, little-endian.

Splitting is one matrix product: (powers of the points) x (coefficients of all polynomials), in
numbers of six 22-bit limbs. A product of limbs summed over t < 512 terms stays below 2**53, so
float64 matrix multiplication is exact, and the linear-algebra library does in milliseconds what
integers would take a second for. Rebuilding needs one number per secret only: all secrets of a
holder stand in one long integer with gaps, and the Lagrange sum is one long multiplication per
holder, reduced modulo the prime once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np

__all__ = ["MOST_THRESHOLD", "PRIME", "SEED_BYTES", "SHARE_BYTES", "rebuild", "split"]

PRIME = 2**128 + 51
SEED_BYTES = 16
SHARE_BYTES = 17
MOST_THRESHOLD = 511
_LIMBS = 6
_BITS = 22
_MASK = (1 << _BITS) - 1
_ALONE = 1 << 18  # multiplications up to which OpenBLAS stays on the calling thread


def split(
    secrets: Sequence[bytes], threshold: int, holders: int, random: Callable[[int], bytes]
) -> list[bytes]:
    """result[holder] is that holder's shares of all secrets, in order, 17 bytes each.

    Any `threshold` holders rebuild a secret; fewer are independent of it. Coefficients are uniform
    below 2**128 rather than below the prime: a statistical distance of less than 2**-122 each.
    """
    if not 1 <= threshold <= holders or threshold > MOST_THRESHOLD:
        raise ValueError(f"a threshold of {threshold} for {holders} holders")
    if any(len(secret) != SEED_BYTES for secret in secrets):
        raise ValueError(f"secrets are {SEED_BYTES} bytes")
    count = len(secrets)
    raw = b"".join(secrets) + random(SEED_BYTES * count * (threshold - 1))
    halves = np.frombuffer(raw, "<u8").reshape(threshold, count, 2)
    coefficients = _limbs(halves[..., 0], halves[..., 1])
    product = _product(
        _powers(holders, threshold), coefficients.transpose(1, 0, 2).reshape(threshold, -1)
    )
    parts = product.reshape(_LIMBS, holders, _LIMBS, count).astype(np.int64)
    columns = np.zeros((2 * _LIMBS + 1, holders, count), np.int64)
    for i in range(_LIMBS):
        for j in range(_LIMBS):
            columns[i + j] += parts[i, :, j]
    shares = _reduce(columns)
    return [row.tobytes() for row in shares]


def rebuild(shares: Mapping[int, Sequence[bytes]]) -> list[bytes | None]:
    """The secrets from exactly `threshold` holders' shares: shares[holder][secret] -> 16 bytes
    each.

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
    padding = bytes(slot - SHARE_BYTES)
    total = 0
    for weight, row in zip(weights, shares.values()):
        total += weight * int.from_bytes(padding.join(row), "little")
    raw = total.to_bytes(slot * count, "little")
    numbers = [
        int.from_bytes(raw[at : at + slot], "little") % PRIME for at in range(0, slot * count, slot)
    ]
    return [
        value.to_bytes(SEED_BYTES, "little") if value >> 128 == 0 else None for value in numbers
    ]


def _lagrange(points: tuple[int, ...]) -> list[int]:
    """The weights w with f(0) = sum of w_i f(x_i), for every polynomial of degree below
    len(points).
    """
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


def _product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """left @ right, in pieces so small that the linear-algebra library wakes no second thread.

    Its threads spin for milliseconds after each product, which costs more than they save and
    starves other silos.
    """
    right = np.ascontiguousarray(right, np.float64)
    out = np.empty((left.shape[0], right.shape[1]))
    step = max(_ALONE // right.size, 1)
    for at in range(0, len(left), step):
        np.matmul(left[at : at + step], right, out=out[at : at + step])
    return out


@lru_cache(maxsize=16)
def _powers(holders: int, threshold: int) -> np.ndarray:
    """x**j modulo the prime for every holder's x and j < threshold, limb by limb: (limbs * holders,
    threshold).
    """
    table = np.empty((_LIMBS, holders, threshold))
    for holder in range(holders):
        value = 1
        for j in range(threshold):
            for limb in range(_LIMBS):
                table[limb, holder, j] = value >> (_BITS * limb) & _MASK
            value = value * (holder + 1) % PRIME
    return table.reshape(_LIMBS * holders, threshold)


def _limbs(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Six 22-bit limbs of 128-bit numbers given as two 64-bit halves."""
    u, mask = np.uint64, np.uint64(_MASK)
    return np.stack(
        [
            low & mask,
            low >> u(22) & mask,
            (low >> u(44) | high << u(20)) & mask,
            high >> u(2) & mask,
            high >> u(24) & mask,
            high >> u(46),
        ]
    )


def _reduce(columns: np.ndarray) -> np.ndarray:
    """Numbers given as 13 columns of weight 2**(22 i), modulo the prime, as 17 little-endian bytes
    each.
    """
    _carry(columns)
    low = columns[: _LIMBS + 1].copy()
    low[_LIMBS] = 0
    # 2**132 = 16 * 2**128, and 2**128 is -51: the upper limbs come back 816 times, negative.
    for i in range(_LIMBS, 2 * _LIMBS + 1):
        if i - _LIMBS <= _LIMBS:
            low[i - _LIMBS] -= 816 * columns[i]
    for _ in range(3):
        _carry(low)
        # What stands above bit 128 (18 bits of limb 5, and limb 6, which may be negative) comes
        # back -51 times.
        above = (low[5] >> 18) + (low[6] << 4)
        low[5] &= (1 << 18) - 1
        low[6] = 0
        low[0] -= 51 * above
    _carry(low)
    # Now between -51 and 2**128: a negative number has borrowed from limb 6.
    negative = low[6] < 0
    low[0] += np.where(negative, 51, 0)
    low[5] += np.where(negative, 1 << 18, 0)
    _carry(low)
    limbs = low.astype(np.uint64)
    u = np.uint64
    first = limbs[0] | limbs[1] << u(22) | limbs[2] << u(44)
    second = limbs[2] >> u(20) | limbs[3] << u(2) | limbs[4] << u(24) | limbs[5] << u(46)
    top = (limbs[5] >> u(18)).astype(np.uint8)
    out = np.empty((*first.shape, SHARE_BYTES), np.uint8)
    out[..., :16] = np.stack([first, second], axis=-1).astype("<u8").view(np.uint8)
    out[..., 16] = top
    return out


def _carry(limbs: np.ndarray) -> None:
    """Bring every limb but the last into 0 … 2**22 - 1; borrows (negative limbs) are carried like
    carries.
    """
    for i in range(len(limbs) - 1):
        limbs[i + 1] += limbs[i] >> _BITS
        limbs[i] &= _MASK
