"""What privacy costs: every method at epsilon 1, 3, 8 and without noise, on the built-in corpus of its task.

No paper's table: the four tasks have different metrics, and a row is to be read from left to right. Within a row
everything but the budget is the same: DP-SGD wants larger batches than plain training and few parameters that are
trained, so the column without noise is not the best that a method can do without noise (the other tables are).
"""

from __future__ import annotations

from bench.papers.base import Comparison

__all__ = ["COMPARISON"]

_LIGHT = "SET=tune=light"  # what DP=record does by itself, in the column without noise too
_DISTANT = ("CORPUS=distant:sentences=8000", "SILOS=5", "ROUNDS=10", "EPOCHS=2", "BATCH=256", "LR=4", _LIGHT)
_SENTENCE = ("CORPUS=sentence:sentences=5000", "SILOS=5", "ROUNDS=8", "EPOCHS=1", "BATCH=256", "LR=1e-2", _LIGHT)
_DOCUMENT = ("CORPUS=document:documents=1200", "SILOS=4", "ROUNDS=6", "EPOCHS=1", "BATCH=96", "LR=5e-3", _LIGHT)
_NER = ("CORPUS=ner", "ROUNDS=12", "EPOCHS=1", "BATCH=64", "LR=5e-3")

_ROWS = {
    "distant": (_DISTANT, ("lazymil", "fedavg", "one", "ave", "att", "att_ra", "fedprox", "scaffold", "fedatt")),
    "sentence": (
        _SENTENCE,
        ("feded", "fedcmc", "fedavg", "fedprox", "scaffold", "fedatt", "moon", "fedrs", "fedlc"),
    ),
    "document": (_DOCUMENT, ("fedlcc", "fedavg", "fedprox", "scaffold", "fedatt")),
    "ner": (_NER, ("fedner", "fedavg", "fadv_ganin", "fadv_peng", "fadv_hong", "tagger")),
}

#: The papers' own methods, and FedAvg everywhere; SIZE=hours has the rest too. METHODS="a b" takes rows out.
_FIRST = ("lazymil", "fedavg", "feded", "fedcmc", "fedlcc", "fedner")


def _variants(first: bool) -> dict[str, tuple[str, ...]]:
    return {
        f"{m} ({task})": (f"METHOD={m}", *common)
        for task, (common, own) in _ROWS.items()
        for m in own
        if (m in _FIRST) == first
    }


COMPARISON = Comparison(
    title="What privacy costs: the metric at epsilon 1, 3, 8 (per record, delta 1e-5) and without noise",
    methods=(),
    variants=_variants(True),
    more_variants=_variants(False),
    columns={
        "epsilon 1": ("DP=record", "EPSILON=1"),
        "epsilon 3": ("DP=record", "EPSILON=3"),
        "epsilon 8": ("DP=record", "EPSILON=8"),
        "no noise": ("DP=off",),
    },
    references={},
    metrics={"test metric of the task": "value", "epsilon spent, the worst silo's": "epsilon"},
    sizes={"minutes": (), "hours": ()},
    against="no noise",
)
