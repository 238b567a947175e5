"""Gaussian noise in whole numbers, as tables from -10 s to 10 s.

* `table`: the discrete Gaussian, P[X = k] proportional to exp(-k^2 / 2 s^2) (Canonne, Kamath and
  Steinke 2020, "The Discrete Gaussian for Differential Privacy"). A sum of several has a Gaussian's
  Renyi divergence, so it is what silos add within a secure sum.
* `rounded_table`: a Gaussian of deviation s rounded to the nearest whole number. Added to a vector
  of whole numbers it is the Gaussian mechanism followed by rounding, so that it has the Gaussian's
  privacy-loss distribution and not only a bound of it. It is what one silo adds to a release.

Noise in floating point has neither: a float32 of value plus noise has low bits that tell the value
(Mironov 2012).

Cumulative probabilities are exact to 2^-128, computed in whole numbers: with float64's 2^-53 the
error, times the coordinates of a model, would be larger than the part of delta that is set aside
for it.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

__all__ = ["CUT", "Table", "rounded_table", "slack_of", "table"]

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
    """The discrete Gaussian's."""
    return _cumulated(_densities(deviation))


@lru_cache(maxsize=4)
def rounded_table(deviation: int) -> Table:
    """The rounded Gaussian's: P[X = k] is the density's integral over (k - 1/2, k + 1/2).

    With c = k / s and h = 1 / 2 s the integral is 2 h times the density at c times the sum over j
    of He_2j(c) h^2j / (2j + 1)!, where He are Hermite's polynomials: the even terms of Taylor's
    series, the odd ones cancel. Each term is some 10^-5 of the last for s of 1024 or more.
    """
    if deviation < 1024:
        raise ValueError(f"the series needs a deviation of 1024 or more, not {deviation}")
    densities, one = _densities(deviation), 1 << _BITS
    masses = []
    for k, density in enumerate(densities):
        c = (k << _BITS) // deviation
        previous, hermite = one, c  # He_0 and He_1
        term, total, n = one, one, 1
        while True:
            # He_{n+1} = c He_n - n He_{n-1}
            previous, hermite = hermite, (c * hermite >> _BITS) - n * previous
            n += 1
            if n % 2 == 0:
                scale = one // ((2 * deviation) ** n * math.factorial(n + 1))
                term = hermite * scale >> _BITS
                total += term
                if scale == 0:
                    break
        masses.append(density * total >> _BITS)
    return _cumulated(masses)


def _densities(deviation: int) -> list[int]:
    """exp(-k^2 / 2 s^2) times 2^_BITS, for k from 0 to 10 s."""
    if not 1 <= deviation <= 1 << 14:
        raise ValueError(f"deviations are whole numbers from 1 to {1 << 14}, not {deviation}")
    one = 1 << _BITS
    ratio = _exp_minus(1, 2 * deviation**2)  # w(k + 1) / w(k) = ratio^(2 k + 1)
    square = ratio * ratio >> _BITS
    weights, weight, step = [one], one, ratio
    for _ in range(CUT * deviation):
        weight = weight * step >> _BITS
        step = step * square >> _BITS
        weights.append(weight)
    return weights


def _cumulated(weights: list[int]) -> Table:
    """Of the weights at 0, 1, 2 …, and the same at -1, -2 …"""
    most = len(weights) - 1
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
    """The most by which the cut noise of that many coordinates differs from the whole Gaussian's,
    discrete or rounded (total variation): their tails, P[|X| > 10 s] <= 2 exp(-50), and the table's
    rounding.
    """
    tail = 2.0 * math.exp(-(CUT**2) / 2.0)
    return coordinates * (tail + 2 * CUT * deviation * 2.0**-120)
