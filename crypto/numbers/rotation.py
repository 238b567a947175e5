"""A public random rotation: spreads a tensor's few large coordinates over all of them before coarse
rounding.

Each tensor is cut into blocks whose lengths are powers of two (at most 4096: 10 = 8 + 2), every
block is multiplied by random signs and then by the orthonormal Hadamard matrix. It is linear, so a
rotated sum is the sum of the rotated, and it is undone once, on the sum. The signs are public and
the same for every silo: they come from a hash of the tensor sizes, and from nothing a party can
choose later.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from crypto.derive import Label, digest
from crypto.numbers.prg import stream

__all__ = ["LARGEST_BLOCK", "blocks", "rotate", "signs", "unrotate"]

LARGEST_BLOCK = 4096


def blocks(size: int) -> list[tuple[int, int, int]]:
    """How a tensor is cut: (first element, block length, how many such blocks), longest blocks
    first.
    """
    cut = []
    at, length = 0, LARGEST_BLOCK
    while at < size:
        count = (size - at) // length
        if count:
            cut.append((at, length, count))
            at += count * length
        length //= 2
    return cut


def signs(seed: bytes, tensor: int, size: int) -> np.ndarray:
    """One sign (+1 or -1, int8) per element, from the public seed."""
    key = digest(Label.ROTATION, seed, tensor.to_bytes(8, "big"))[:16]
    raw = np.frombuffer(stream(key).update(bytes(-(-size // 8))), np.uint8)
    bits = np.unpackbits(raw, count=size, bitorder="little")
    return bits.astype(np.int8) * 2 - 1


def rotate(values: np.ndarray, seed: bytes, tensor: int) -> np.ndarray:
    """A rotated copy of a flat array, in its own precision."""
    return _hadamard(values * signs(seed, tensor, values.size))


def unrotate(values: np.ndarray, seed: bytes, tensor: int) -> np.ndarray:
    """The inverse of `rotate`: the Hadamard matrix is its own inverse, and so is a sign."""
    return _hadamard(values) * signs(seed, tensor, values.size)


def _hadamard(values: np.ndarray) -> np.ndarray:
    out = np.empty_like(values)
    for at, length, count in blocks(values.size):
        # H of length a*b is H_a (x) H_b: two small matrix products instead of log2 passes over
        # memory.
        rows = 1 << (length.bit_length() - 1) // 2
        shape = (count, rows, length // rows)
        part = values[at : at + length * count].reshape(shape)
        turned = np.matmul(_matrix(rows, values.dtype.str), part)
        np.matmul(
            turned,
            _matrix(length // rows, values.dtype.str),
            out=out[at : at + length * count].reshape(shape),
        )
    return out


@lru_cache(maxsize=32)
def _matrix(size: int, dtype: str) -> np.ndarray:
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return (matrix / np.sqrt(size)).astype(dtype)
