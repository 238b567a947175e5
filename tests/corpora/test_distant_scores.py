"""Precision-recall figures by hand, and against a slow reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.distant.scores import curve


def test_a_curve_worked_out_by_hand() -> None:
    # Ranked: 0.9 right, 0.8 wrong, 0.7 right, 0.1 wrong; three facts to find.
    c = curve(np.array([0.1, 0.9, 0.7, 0.8]), np.array([0, 1, 1, 0]), 3)
    assert c.precision.tolist() == [1.0, 0.5, 2 / 3, 0.5]
    assert c.recall.tolist() == [1 / 3, 1 / 3, 2 / 3, 2 / 3]
    # Only the step from the second to the third item has a width: 1/3 * (1/2 + 2/3) / 2. No (0, 1)
    # point.
    assert c.auc() == pytest.approx(1 / 3 * (1 / 2 + 2 / 3) / 2)
    assert c.auc(2) == 0.0
    assert [c.precision_at(n) for n in (1, 2, 3, 4)] == [1.0, 0.5, 2 / 3, 0.5]
    assert c.precision_at(8) == 2 / 8


def test_equal_scores_keep_the_order_in_which_they_were_listed() -> None:
    c = curve(np.zeros(4), np.array([1, 0, 0, 1]), 2)
    assert c.recall.tolist() == [0.5, 0.5, 0.5, 1.0]


def test_an_empty_list_is_worth_nothing() -> None:
    c = curve(np.zeros(0), np.zeros(0), 0)
    assert (c.auc(), c.precision_at(100), c.best_f1(), c.points(0)) == (0.0, 0.0, 0.0, ())


def _slow(items: list[tuple[int, bool]], gold: int, points: int) -> float:
    ranked = sorted(enumerate(items), key=lambda x: (-x[1][0], x[0]))
    seen = []
    hits = 0
    for n, (_, (_, right)) in enumerate(ranked, start=1):
        hits += right
        seen.append((hits / max(gold, 1), hits / n))
    seen = seen[:points] if points else seen
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in zip(seen, seen[1:]))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=30),
    st.integers(0, 40),
    st.integers(0, 35),
)
def test_auc_equals_the_slow_reference(
    items: list[tuple[int, bool]], gold: int, points: int
) -> None:
    gold = max(gold, sum(r for _, r in items))
    c = curve(np.array([s for s, _ in items], float), np.array([r for _, r in items], bool), gold)
    assert c.auc(points) == pytest.approx(_slow(items, gold, points))
    drawn = c.points(points, most=7)
    assert len(drawn) <= 7 and all(0 <= p <= 1 for p in np.ravel(drawn))
