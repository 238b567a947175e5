"""The discrete Gaussian as a table: P[X = k] proportional to exp(-k^2 / 2 s^2) on the whole numbers
from -10 s to 10 s.

Canonne, Kamath and Steinke 2020, "The Discrete Gaussian for Differential Privacy". Cumulative
probabilities are exact to 2^-128, computed in whole numbers: with float64's 2^-53 the error, times
the coordinates of a model, would be larger than the part of delta that is set aside for it.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

__all__ = ["CUT", "Table", "slack_of", "table"]

CUT = 10  #: deviations at which tails are cut
_BITS = 256  #: of the fixed-point numbers below; what is lost in 2^17 products is far under 2^-128


@dataclass(frozen=True)
class Table:
    most: int  #: the largest value
    cumulative: tuple[int, ...]  #: P[X <= k] times 2^128, for k = -most ... most - 1

    @cached_property
    def high(self) -> np.ndarray:
        """The first 64 bits of each."""
        return np.array([c >> 64 for c in self.cumulative], np.uint64)

    def place(self, word: int) -> int:
        """How many of the cumulative probabilities a draw of 128 bits is at or above."""
        return bisect.bisect_right(self.cumulative, word)


@lru_cache(maxsize=4)
def table(deviation: int) -> Table:
    if not 1 <= deviation <= 1 << 14:
        raise ValueError(f"deviations are whole numbers from 1 to {1 << 14}, not {deviation}")
    most = CUT * deviation
    one = 1 << _BITS
    ratio = _exp_minus(1, 2 * deviation**2)  # w(k + 1) / w(k) = ratio^(2 k + 1)
    square = ratio * ratio >> _BITS
    weights, weight, step = [one], one, ratio
    for _ in range(most):
        weight = weight * step >> _BITS
        step = step * square >> _BITS
        weights.append(weight)
    total = weights[0] + 2 * sum(weights[1:])
    cumulative, so_far = [], 0
    for k in range(-most, most):
        so_far += weights[abs(k)]
        cumulative.append((so_far << 128) // total)
    return Table(most, tuple(cumulative))


def _exp_minus(numerator: int, denominator: int) -> int:
    """exp(-numerator / denominator) times 2^_BITS, for arguments up to a half: Taylor's series in
    whole numbers.
    """
    total = term = 1 << _BITS
    n = 1
    while term:
        term = term * numerator // (denominator * n)
        total += -term if n % 2 else term
        n += 1
    return total


def slack_of(coordinates: int, deviation: int) -> float:
    """The most by which the cut and rounded noise of that many coordinates differs from the whole
    discrete Gaussian's (total variation): their tails, P[|X| > 10 s] <= 2 exp(-50), and the table's
    rounding.
    """
    tail = 2.0 * math.exp(-(CUT**2) / 2.0)
    return coordinates * (tail + 2 * CUT * deviation * 2.0**-120)
