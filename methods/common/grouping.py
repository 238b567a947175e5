"""Equal rows together, in about linear time whatever the rows are: for lists that silos send."""

from __future__ import annotations

import secrets

import numpy as np

__all__ = ["grouped"]


def _mixed(x: np.ndarray) -> np.ndarray:
    """The finishing step of splitmix64: a bijection of 64-bit numbers that spreads them."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def grouped(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`rows` (n, 2) uint64, n above 0: an order in which equal rows are neighbours, and where each
    group begins in it.

    One number per row is sorted instead of the row: a hash under a key that is drawn here, so that
    nobody can choose rows that collide. Should two different ones do so, another key is drawn. Neither
    groups nor the rows of a group come in any particular order.
    """
    while True:
        first, second = (np.uint64(secrets.randbits(64)) for _ in range(2))
        key = _mixed(_mixed(rows[:, 0] ^ first) ^ rows[:, 1] ^ second)
        order = np.argsort(key)
        ordered, hashes = rows[order], key[order]
        new_hash = hashes[1:] != hashes[:-1]
        if ((ordered[1:] != ordered[:-1]).any(axis=1) == new_hash).all():
            return order, np.flatnonzero(np.concatenate([[True], new_hash]))
