"""Precision, recall and F1 of relation classification, micro and macro, without counting the
relation None.

Micro-F1 pools the counts of all relations but None (the i2b2 challenge's rule, FedED's figure);
with two classes, one of them None, it is the F1 of the other (GAD, EU-ADR). Macro-F1 is the plain
mean over the relations that occur, in gold or in predictions (FedCMC's figure, as far as its paper
lets one tell). Where a corpus has no None, every relation counts and micro-F1 equals accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Scores", "score"]


@dataclass(frozen=True)
class Scores:
    precision: float  #: micro
    recall: float
    micro_f1: float
    macro_f1: float
    accuracy: float  #: None included
    per_class: np.ndarray  #: F1 of every class; NaN for None and for classes that never occur


def _f1(hit: np.ndarray, predicted: np.ndarray, gold: np.ndarray) -> np.ndarray:
    total = predicted + gold
    return np.divide(2.0 * hit, total, out=np.zeros(np.shape(hit)), where=total > 0)


def score(gold: np.ndarray, predicted: np.ndarray, classes: int, none: int = -1) -> Scores:
    """`none` is the class that states no relation; -1 if there is none."""
    hit = np.bincount(gold[gold == predicted], minlength=classes).astype(np.float64)
    in_gold = np.bincount(gold, minlength=classes).astype(np.float64)
    in_predicted = np.bincount(predicted, minlength=classes).astype(np.float64)
    counted = np.arange(classes) != none
    per_class = np.where(
        counted & (in_gold + in_predicted > 0), _f1(hit, in_predicted, in_gold), np.nan
    )
    h, p, g = hit[counted].sum(), in_predicted[counted].sum(), in_gold[counted].sum()
    occurring = per_class[~np.isnan(per_class)]
    return Scores(
        precision=float(h / p) if p else 0.0,
        recall=float(h / g) if g else 0.0,
        micro_f1=float(_f1(h, p, g)),
        macro_f1=float(occurring.mean()) if len(occurring) else 0.0,
        accuracy=float((gold == predicted).mean()) if len(gold) else 0.0,
        per_class=per_class,
    )
