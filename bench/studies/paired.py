"""Differences seed by seed, with an interval, and what they say of a claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.studies.base import Claim

__all__ = ["Difference", "Verdict", "difference", "judged", "verdict"]

_LEVEL = 0.95
_RESAMPLES = 10_000


@dataclass(frozen=True)
class Difference:
    mean: float
    low: float
    high: float
    above: int  #: in how many seeds
    seeds: int

    def __str__(self) -> str:
        return (
            f"{self.mean:+.4f} [{self.low:+.4f}, {self.high:+.4f}], above in {self.above} of "
            f"{self.seeds}"
        )


@dataclass(frozen=True)
class Verdict:
    claim: Claim
    difference: Difference
    #: "holds": the whole interval is above what is claimed; "fails": its mean is not; else "open"
    word: str


def difference(ours: Sequence[float], theirs: Sequence[float]) -> Difference:
    """Mean of the paired differences and its bootstrap interval (percentiles, 95 %). With few
    seeds it is rather too narrow than too wide, which the page says.
    """
    d = np.asarray(ours, float) - np.asarray(theirs, float)
    if len(d) != len(theirs) or not len(d):
        raise ValueError("every seed of one row needs the same seed of the other")
    rng = np.random.default_rng(0)
    means = d[rng.integers(len(d), size=(_RESAMPLES, len(d)))].mean(axis=1)
    low, high = np.quantile(means, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Difference(float(d.mean()), float(low), float(high), int((d > 0).sum()), len(d))


def judged(claim: Claim, ours: Sequence[float], theirs: Sequence[float]) -> Verdict:
    found = difference(ours, theirs)
    if found.low > claim.by:
        word = "holds"
    elif found.mean <= claim.by or len(ours) < 2:
        word = "fails"
    else:
        word = "open"
    return Verdict(claim, found, word)


def verdict(found: Sequence[Verdict]) -> str:
    """In one word, over all claims of a study."""
    held = sum(v.word == "holds" for v in found)
    if held == len(found):
        return "holds"
    return "holds in part" if held or any(v.word == "open" for v in found) else "does not hold here"
