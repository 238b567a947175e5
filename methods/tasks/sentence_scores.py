"""What answers on sentences score, as a run's report shows it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from corpora.sentence.scores import score
from methods.tasks.base import Evaluation

__all__ = ["scored"]


def scored(
    gold: np.ndarray, predicted: np.ndarray, labels: Sequence[str], none: int, metric: str
) -> Evaluation:
    """`none`: the class that states no relation, or -1. `metric`: which figure leads."""
    s = score(gold, predicted, len(labels), none)
    figures = {
        "precision": s.precision,
        "recall": s.recall,
        "micro_f1": s.micro_f1,
        "macro_f1": s.macro_f1,
        "accuracy": s.accuracy,
    }
    # the same classes for every model that is scored on this split
    there = np.bincount(gold, minlength=len(labels)) > 0
    per_class = {
        n: float(f) for n, f, is_there in zip(labels, s.per_class, there) if is_there and f == f
    }
    return Evaluation(figures[metric], figures, per_class)
