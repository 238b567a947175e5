"""Exact-span precision, recall and F1: an entity counts when its first word, its last word and its
type are right.

Micro-F1 pools the counts of all types of the union; it is given per domain, and the headline is the
plain mean over the domains (the paper's last column). Where a domain's annotation does not cover a
type, predictions of that type are neither right nor wrong there: nobody looked.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Scores", "score", "scored_rows"]

Span = tuple[int, int, int]  #: first word, word after the last, number of the type


@dataclass(frozen=True)
class Scores:
    precision: float  #: micro, all domains pooled
    recall: float
    micro_f1: float
    per_domain: np.ndarray  #: micro-F1 of each; NaN where there is neither gold nor prediction
    mean_f1: float  #: over the domains that have one
    per_type: np.ndarray  #: F1 of each, all domains pooled; NaN where a type never occurs


def _f1(hit: np.ndarray, predicted: np.ndarray, gold: np.ndarray) -> np.ndarray:
    total = predicted + gold
    return np.divide(2.0 * hit, total, out=np.full(np.shape(hit), np.nan), where=total > 0)


def scored_rows(domain: np.ndarray, most: int) -> np.ndarray:
    """The sentences that stand for a split whose sentences have these domains: `most` of them, as
    many of each domain as it has, and the same ones in every run. 0: all.
    """
    if not most or most >= len(domain):
        return np.arange(len(domain))
    order = np.random.default_rng(0xDE).permutation(len(domain))
    turn = np.zeros(len(domain), dtype=np.int64)  # each domain's first, then each one's second, …
    for d in np.unique(domain):
        mine = domain[order] == d
        turn[mine] = np.arange(mine.sum())
    return np.sort(order[np.argsort(turn, kind="stable")[:most]])


def score(
    gold: Sequence[Collection[Span]],
    predicted: Sequence[Collection[Span]],
    domain: Sequence[int] | np.ndarray,
    covered: np.ndarray,
) -> Scores:
    """Per sentence its gold and predicted spans and its domain; `covered` (domains, types) bool."""
    counts = np.zeros((3, *covered.shape))  # hit, predicted, gold
    for g, p, d in zip(gold, predicted, domain):
        right = set(g)
        for span in set(p):
            counts[1, d, span[2]] += 1
            counts[0, d, span[2]] += span in right
        for span in right:
            counts[2, d, span[2]] += 1
    counts = counts * covered
    hit, said, there = counts.sum(axis=(1, 2))
    per_domain = _f1(*counts.sum(axis=2))
    some = per_domain[~np.isnan(per_domain)]
    return Scores(
        precision=float(hit / said) if said else 0.0,
        recall=float(hit / there) if there else 0.0,
        micro_f1=float(2 * hit / (said + there)) if said + there else 0.0,
        per_domain=per_domain,
        mean_f1=float(some.mean()) if len(some) else 0.0,
        per_type=_f1(*counts.sum(axis=1)),
    )
