"""How a scaled coordinate becomes a whole number: to the nearest, or by lot.

Stochastic rounding goes up with the probability of the fraction, so that errors of many silos
cancel. The lots come from a seed.
"""

from __future__ import annotations

import math

import numpy as np

from crypto.derive import Label, digest
from crypto.numbers import lanes
from crypto.numbers.prg import stream

__all__ = ["ROUNDINGS", "Dice", "default_rounding"]

ROUNDINGS = ("nearest", "stochastic")


def default_rounding(lane_bits: int, parties: int) -> tuple[str, bool]:
    """(rounding, rotate) that suit a lane: below 12 value bits, stochastic rounding and a
    rotation.
    """
    value_bits = lane_bits - math.ceil(math.log2(max(parties, 2)))
    return ("stochastic", True) if value_bits < 12 else ("nearest", False)


class Dice:
    """Uniform 32-bit integers from a seed, one per element, in order."""

    def __init__(self, seed: bytes) -> None:
        self._stream = stream(digest(Label.ROUNDING, seed)[:16])
        self._raw = np.empty(lanes.PIECE + 4, np.uint32)
        self._zeros = bytes(lanes.PIECE * 4)

    def roll(self, count: int) -> np.ndarray:
        self._stream.update_into(memoryview(self._zeros)[: count * 4], self._raw.data.cast("B"))
        return self._raw[:count]
