"""No paper's: whether narrow lanes of our secure sum cost anything in the final metric."""

from __future__ import annotations

from bench.papers.base import Comparison

__all__ = ["COMPARISON"]

COMPARISON = Comparison(
    title="What narrow lanes of the secure sum cost in the final metric",
    methods=("fedavg", "lazymil"),
    columns={f"{b} bits": (f"BITS={b}",) for b in (32, 21, 16)},
    references={},
    metrics={"metric": "value"},
    sizes={
        "minutes": ("SILOS=10", "CORPUS=distant:sentences=6000", "ROUNDS=12"),
        "hours": ("SILOS=10",),
    },
    on_folder=("SILOS=10",),
    against="32 bits",
)
