"""The runs of a table by row, column and seed, and how figures of them are written."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from bench.papers.jobs import Done

__all__ = ["Results", "spread", "table_lines"]


@dataclass(frozen=True)
class Results:
    runs: Mapping[tuple[str, str, int], Done]  #: (row, column, seed)
    seeds: tuple[int, ...]

    def of(self, row: str, column: str) -> list[Done]:
        """In the order of their seeds; some cells have others than the page's."""
        return [d for (r, c, _), d in sorted(self.runs.items()) if (r, c) == (row, column)]

    def seeds_of(self, row: str, column: str) -> list[int]:
        return sorted(s for r, c, s in self.runs if (r, c) == (row, column))

    def values(self, row: str, column: str, metric: str) -> list[float]:
        group, _, name = metric.rpartition(".")
        return [
            float(d.summary[group][name] if group else d.summary[name])
            for d in self.of(row, column)
        ]


def spread(values: list[float]) -> str:
    if any(math.isinf(v) for v in values):
        return "infinite"
    mean = statistics.fmean(values)
    return f"{mean:.4f} ± {statistics.stdev(values):.4f}" if len(values) > 1 else f"{mean:.4f}"


def table_lines(head: list[str], rows: list[list[str]]) -> list[str]:
    return [
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(r) + " |" for r in rows),
    ]
