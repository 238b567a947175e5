"""Held-out evaluation of distant supervision: precision and recall over ranked facts.

Every (pair, relation other than NA) is listed with its score and sorted, highest first; a listed
fact is correct if it is in the gold set. AUC is the trapezoid of precision over recall through the
points after each item; no (0, 1) point is added; on NYT only the first 2,000 items count, on
MIRGENE and elsewhere all (docs/methods.md, "Lazy MIL"). P@N is the precision after N items.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Curve", "curve"]


@dataclass(frozen=True)
class Curve:
    precision: np.ndarray  #: after each item
    recall: np.ndarray

    def auc(self, points: int = 0) -> float:
        """Area under the first `points` points (0: all). Fewer than two points enclose nothing:
        0.
        """
        p, r = (
            (self.precision, self.recall)
            if points <= 0
            else (self.precision[:points], self.recall[:points])
        )
        return float(np.sum((r[1:] - r[:-1]) * (p[1:] + p[:-1]) / 2.0)) if len(p) > 1 else 0.0

    def precision_at(self, n: int) -> float:
        """Precision at item n, counted from one. A list shorter than n is read as if padded with
        wrong items.
        """
        if n <= len(self.precision):
            return float(self.precision[n - 1])
        hits = self.precision[-1] * len(self.precision) if len(self.precision) else 0.0
        return float(hits / n)

    def best_f1(self) -> float:
        total = self.precision + self.recall
        return float(
            np.max(2 * self.precision * self.recall / np.maximum(total, 1e-12), initial=0.0)
        )

    def points(self, limit: int, most: int = 400) -> tuple[tuple[float, float], ...]:
        """At most `most` (recall, precision) points of the first `limit` (0: all), evenly spaced,
        for drawing.
        """
        n = len(self.precision) if limit <= 0 else min(limit, len(self.precision))
        chosen = (
            np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64))
            if n
            else np.array([], np.int64)
        )
        return tuple((float(self.recall[i]), float(self.precision[i])) for i in chosen)


def curve(scores: np.ndarray, correct: np.ndarray, gold: int) -> Curve:
    """`scores` and `correct` of the listed facts, in a fixed order; `gold`: how many facts there
    are to find.

    Equal scores keep the order in which they were listed, so that the result does not depend on the
    sort.
    """
    order = np.argsort(-np.asarray(scores, dtype=np.float64), kind="stable")
    hits = np.cumsum(np.asarray(correct, dtype=np.float64)[order])
    return Curve(precision=hits / np.arange(1, len(hits) + 1), recall=hits / max(gold, 1))
