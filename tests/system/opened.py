"""What an attacker makes of shares that it should not have: a seed, and one silo's vector."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from crypto.numbers.shamir import rebuild
from crypto.sum.opening import Opening
from tests.system.liar import Held, Liar

__all__ = ["bare", "seed_of"]


def seed_of(opening: Opening, dealer: str, other: str | None = None) -> bytes:
    """b of a survivor, or r of its edge to one that is said to have dropped, from the shares
    released.
    """
    shares = dict(list(opening._shares[dealer, other].items())[: opening._threshold])
    (seed,) = rebuild({point: [share] for point, share in shares.items()})
    assert seed is not None
    return seed


def bare(liar: Liar, held: Held, victim: str, own: bytes, edges: Mapping[str, bytes]) -> np.ndarray:
    """What one silo uploaded, once its own seed and the seeds of its edges are known."""
    masks = [(own, 1), *((seed, 1 if victim < other else -1) for other, seed in edges.items())]
    return liar.unmasked(held, [victim], masks)
