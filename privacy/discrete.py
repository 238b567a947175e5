"""Gaussian noise in whole numbers, as tables from -10 s to 10 s.

* `table`: the discrete Gaussian, P[X = k] proportional to exp(-k^2 / 2 s^2) (Canonne, Kamath and
  Steinke 2020, "The Discrete Gaussian for Differential Privacy"). A sum of several is one of larger
  deviation, to the 10000th digit, so it is what silos add within a secure sum, and what DP-SGD adds.
  It has a Gaussian's Renyi divergence, and `apart` bounds how far it is from a rounded Gaussian.
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

__all__ = ["CUT", "UNLIKELY", "Table", "apart", "rounded_table", "slack_of", "table"]

CUT = 10  #: deviations at which tails are cut
#: The probability with which `apart` may not hold, for either of two neighbours.
UNLIKELY = 4.0 * math.exp(-60.0)
_CELLS = 19  #: bits of a draw that are looked up first: more would leave the cache
_BITS = 256  #: of the fixed-point numbers below; what is lost in 2^17 products is far under 2^-128


@dataclass(frozen=True)
class Table:
    most: int  #: the largest value
    cumulative: tuple[int, ...]  #: P[X <= k] times 2^128, for k = -most ... most - 1

    @cached_property
    def high(self) -> np.ndarray:
        """The first 64 bits of each."""
        return np.array([c >> 64 for c in self.cumulative], np.uint64)

    @cached_property
    def guide(self) -> np.ndarray:
        """Where each cell of draws with the same first bits begins among `high`."""
        cells = np.arange(1 << _CELLS, dtype=np.uint64) << np.uint64(64 - _CELLS)
        return np.searchsorted(self.high, cells, side="left").astype(np.int32)

    def places(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How many of `high` each draw is above, and which draws equal one of them. Most draws are
        in a cell in which nothing lies below them, so that one look is enough.
        """
        place = self.guide[words >> np.uint64(64 - _CELLS)]
        unsure = np.flatnonzero(self.high[np.minimum(place, len(self.high) - 1)] <= words)
        place[unsure] = np.searchsorted(self.high, words[unsure], side="left")
        at = np.minimum(place[unsure], len(self.high) - 1)
        return place, unsure[self.high[at] == words[unsure]]

    def place(self, word: int) -> int:
        """How many of the cumulative probabilities a draw of 128 bits is at or above."""
        return bisect.bisect_right(self.cumulative, word)


@lru_cache(maxsize=4)
def table(deviation: int, cut: int = CUT) -> Table:
    """The discrete Gaussian's."""
    return _cumulated(_densities(deviation, cut))


@lru_cache(maxsize=4)
def rounded_table(deviation: int) -> Table:
    """The rounded Gaussian's: P[X = k] is the density's integral over (k - 1/2, k + 1/2).

    With c = k / s and h = 1 / 2 s the integral is 2 h times the density at c times the sum over j
    of He_2j(c) h^2j / (2j + 1)!, where He are Hermite's polynomials: the even terms of Taylor's
    series, the odd ones cancel. Each term is some 10^-5 of the last for s of 1024 or more.
    """
    if deviation < 1024:
        raise ValueError(f"the series needs a deviation of 1024 or more, not {deviation}")
    densities, one = _densities(deviation, CUT), 1 << _BITS
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


def _densities(deviation: int, cut: int) -> list[int]:
    """exp(-k^2 / 2 s^2) times 2^_BITS, for k from 0 to `cut` times s."""
    if not 1 <= deviation <= 1 << 14:
        raise ValueError(f"deviations are whole numbers from 1 to {1 << 14}, not {deviation}")
    one = 1 << _BITS
    ratio = _exp_minus(1, 2 * deviation**2)  # w(k + 1) / w(k) = ratio^(2 k + 1)
    square = ratio * ratio >> _BITS
    weights, weight, step = [one], one, ratio
    for _ in range(cut * deviation):
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


def apart(coordinates: int, deviation: float, cut: int = CUT) -> float:
    """The most by which the logarithms of two probabilities differ, that of a vector of discrete
    Gaussians and that of rounded ones, except with a probability of `UNLIKELY`.

    With x = k / s, the ratio of one coordinate is the integral of cosh(x u / s) exp(-u^2 / 2 s^2)
    over |u| < 1/2. Its logarithm is (x^2 - 1) / 24 s^2, to within (x^2 + 1)^2 / 200 s^4 (from 1 +
    y^2/2 <= cosh y <= exp(y^2/2), 1 - v <= exp(-v), and y - y^2 <= log(1 + y)). The sum of the
    first terms is a chi-square's distance from its mean (the discrete Gaussian's square has that
    moment-generating function), which is at most 2 sqrt(d t) + 2 t but for exp(-t) on either side
    (Laurent and Massart 2000, lemma 1); rounding moves the norm of x by sqrt(d) / 2 s. In the
    second terms |x| is within the cut.
    """
    d, s, t = float(coordinates), float(deviation), 60.0
    far = 2 * math.sqrt(d * t) + 2 * t
    rounding = math.sqrt(d) / (2 * s)
    far += 2 * rounding * math.sqrt(d + far) + rounding**2
    return far / (24 * s**2) + d * (cut**2 + 1) ** 2 / (200 * s**4)
