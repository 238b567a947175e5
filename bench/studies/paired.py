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
    #: "holds": the whole interval is above what is claimed; "fails": its mean is not, or too many
    #: bytes are sent; else "open"
    word: str
    bytes_share: float | None = None  #: where the claim is about bytes too


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


def judged(
    claim: Claim,
    ours: Sequence[float],
    theirs: Sequence[float],
    bytes_share: float | None = None,
) -> Verdict:
    found = difference(ours, theirs)
    too_many = claim.bytes_at_most and bytes_share and bytes_share > claim.bytes_at_most[1]
    if found.mean <= claim.by or too_many:
        word = "fails"
    elif found.low > claim.by and found.seeds > 1:  # of one seed there is no interval
        word = "holds"
    else:
        word = "open"
    return Verdict(claim, found, word, bytes_share)


def verdict(found: Sequence[Verdict]) -> str:
    """In one word, over what the paper claims; claims of ours only where there is nothing else. A
    claim that is open was not shown, and counts as not held.
    """
    papers = [v for v in found if not v.claim.ours] or list(found)
    held = sum(v.word == "holds" for v in papers)
    if not papers:
        return "nothing was claimed"
    if held == len(papers):
        return "holds"
    return "holds in part" if held else "does not hold here"
