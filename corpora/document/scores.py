"""Precision, recall and F1 over candidate pairs, within and across sentences, and with known facts
set aside.

A prediction is a (pair, relation). Pairs that are left out are not scored at all. Intra-sentence
figures are those of the pairs that some sentence mentions together, inter-sentence figures those of
the others. Ign-F1 (DocRED) takes the correct predictions whose fact occurs in the training split,
under any names of its two entities as they are written, out of the precision's counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from corpora.document.table import Document

__all__ = ["Scores", "best_threshold", "facts", "known_facts", "score"]


@dataclass(frozen=True)
class Scores:
    precision: float
    recall: float
    f1: float
    intra_f1: float
    inter_f1: float
    ign_f1: float
    per_class: np.ndarray  #: F1 of every relation; NaN for one that never occurs


def _prf(hit: float, predicted: float, gold: float) -> tuple[float, float, float]:
    p, r = hit / predicted if predicted else 0.0, hit / gold if gold else 0.0
    return p, r, 2 * p * r / (p + r) if p + r else 0.0


def score(
    gold: np.ndarray, predicted: np.ndarray, crosses: np.ndarray, known: np.ndarray
) -> Scores:
    """All boolean: `gold`, `predicted` and `known` (pairs, relations); `crosses` per pair."""

    def part(rows: np.ndarray) -> tuple[float, float, float]:
        g, p = gold[rows], predicted[rows]
        return _prf(float((g & p).sum()), float(p.sum()), float(g.sum()))

    precision, recall, f1 = part(np.ones(len(gold), bool))
    hits = gold & predicted
    seen = float((hits & known).sum())
    ign = (float(hits.sum()) - seen) / max(float(predicted.sum()) - seen, 1e-12)
    per_class = np.full(gold.shape[1], np.nan)
    for r in range(gold.shape[1]):
        if gold[:, r].any() or predicted[:, r].any():
            per_class[r] = _prf(
                float(hits[:, r].sum()), float(predicted[:, r].sum()), float(gold[:, r].sum())
            )[2]
    return Scores(
        precision=precision,
        recall=recall,
        f1=f1,
        intra_f1=part(~crosses)[2],
        inter_f1=part(crosses)[2],
        ign_f1=2 * ign * recall / (ign + recall) if ign + recall else 0.0,
        per_class=per_class,
    )


def best_threshold(gold: np.ndarray, margins: np.ndarray) -> float:
    """Where to cut: predicting all margins above it has the highest F1. Of equals, the one with the
    fewest predictions; without anything to find, 0, which is where models cut themselves.
    """
    if not gold.any():
        return 0.0
    order = np.argsort(-margins.ravel(), kind="stable")
    sorted_margins = margins.ravel()[order].astype(np.float64)
    hits, said = np.cumsum(gold.ravel()[order]), np.arange(1, len(order) + 1)
    f1 = 2.0 * hits / (said + gold.sum())
    f1[:-1][sorted_margins[:-1] == sorted_margins[1:]] = -1.0  # equal margins are not told apart
    at = int(np.argmax(f1))
    after = sorted_margins[at + 1] if at + 1 < len(order) else sorted_margins[at] - 1.0
    return float((sorted_margins[at] + after) / 2)


def _names(document: Document, entity: int) -> set[str]:
    return {document.text[a:b] for a, b in document.entities[entity].mentions}


def facts(documents: Iterable[Document]) -> set[tuple[str, str, str]]:
    """(name, name, relation) of every related pair, under all names of its two entities."""
    found = set()
    for d in documents:
        for p in d.candidates:
            if p.relations:
                heads, tails = _names(d, p.head), _names(d, p.tail)
                found |= {(h, t, r) for h in heads for t in tails for r in p.relations}
    return found


def known_facts(
    documents: Iterable[Document], relations: tuple[str, ...], seen: set[tuple[str, str, str]]
) -> np.ndarray:
    """(candidate pairs, relations): whether the pair has the relation, and training data show
    it.
    """
    rows = []
    for d in documents:
        for p in d.candidates:
            row = np.zeros(len(relations), bool)
            if p.relations:
                names = [(h, t) for h in _names(d, p.head) for t in _names(d, p.tail)]
                for r in p.relations:
                    row[relations.index(r)] = any((h, t, r) in seen for h, t in names)
            rows.append(row)
    return np.array(rows, bool).reshape(len(rows), len(relations))
