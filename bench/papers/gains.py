"""What silos add to what there is without them, in tables that show a budget."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from scipy.stats import t as student

from bench.papers.base import Comparison
from bench.papers.results import Results, spread, table_lines

__all__ = ["Guesses", "gain", "gains", "guessed"]

#: row -> seed -> what an answer scores that knows nothing but how often each class is
Guesses = Mapping[str, Mapping[int, float]]


def guessed(guesses: Guesses) -> list[str]:
    def cell(by_seed: Mapping[int, float]) -> str:
        values = list(by_seed.values())
        return spread(values) if len(set(values)) > 1 else f"{values[0]:.4f}"

    rows = [[r, cell(by_seed)] for r, by_seed in guesses.items() if by_seed]
    title = "the most frequent class for everything (documents: every pair; entities: nothing)"
    return [f"## {title}", "", *table_lines(["", "test metric"], rows), ""]


def gains(comparison: Comparison, results: Results, guesses: Guesses) -> list[str]:
    """By row and column: a mean over seeds and Student's interval. A model that answers one class
    always has learnt nothing from the silos, so the better of the two stands against them.
    """
    key = next(iter(comparison.metrics.values()))
    columns = [c for c in comparison.columns if c != comparison.against]
    if not columns:
        return []

    def cell(row: str, column: str) -> str:
        after, before = (results.values(row, column, k) for k in (key, f"before_{key}"))
        of = guesses.get(row, {})
        without = [
            max(value, of.get(seed, 0.0))
            for seed, value in zip(results.seeds_of(row, column), before, strict=True)
        ]
        return gain(after, without)

    rows = [
        [r, *(cell(r, c) for c in columns)] for r in (*comparison.methods, *comparison.variants)
    ]
    beside = " or the most frequent answer, whichever is better" if guesses else ""
    return [
        f"## What the silos add to the model before the first round{beside}, seed by seed",
        "",
        *table_lines(["", *columns], [r for r in rows if any(r[1:])]),
        "",
        "In rows with public text, the model before the first round is that of public text alone. In brackets the "
        'interval at 95 % (Student\'s, over seeds). "Nothing shown": zero is in it, so at that budget nobody has '
        "seen that the silos add anything.",
        "",
    ]


def gain(after: list[float], before: list[float]) -> str:
    """The mean of the differences, with its interval where there are seeds enough for one."""
    pairs = [a - b for a, b in zip(after, before, strict=True)]
    if len(pairs) < 3:
        return f"{statistics.fmean(pairs):+.4f}" if pairs else ""
    mean = statistics.fmean(pairs)
    half = float(student.ppf(0.975, len(pairs) - 1)) * statistics.stdev(pairs) / len(pairs) ** 0.5
    low, high = (round(x, 4) for x in (mean - half, mean + half))  # as they are printed
    word = "" if low > 0 else ", less than without them" if high < 0 else ", nothing shown"
    return f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]{word}"
