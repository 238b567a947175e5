"""What privacy costs: every method at epsilon 1, 3, 8 and without noise, on the built-in corpus of its task.

No paper's table: the four tasks have different metrics, and a row is to be read from left to right. Corpus, silos and
rounds are a row's own. With a budget, batches are large and few parameters are trained; the column without noise is
the method as it runs by default, with all of them and the task's own batch and rate: what a user gives up, not what
noise alone takes. Corpora are larger than elsewhere: noise is added once per silo, whatever the number of records.
"""

from __future__ import annotations

from bench.papers.base import Comparison

__all__ = ["COMPARISON"]

_DISTANT = ("CORPUS=distant:sentences=24000", "SILOS=4", "ROUNDS=12", "EPOCHS=1", "BATCH=300", "LR=3")
_BAGS = (*_DISTANT, "EPOCHS=2")  # there are fewer bags than sentences
_SENTENCE = ("CORPUS=sentence:sentences=5000", "SILOS=5", "ROUNDS=8", "EPOCHS=1", "BATCH=256", "LR=1e-2")
_DOCUMENT = ("CORPUS=document:documents=1200", "SILOS=4", "ROUNDS=6", "EPOCHS=2", "BATCH=96", "LR=5e-3")
_NER = ("CORPUS=ner:sentences=2400", "ROUNDS=16", "EPOCHS=2", "BATCH=160", "LR=1e-2")

_ROWS = {
    "distant": (_DISTANT, ("fedavg", "fedprox", "scaffold", "fedatt")),
    "bags": (_BAGS, ("lazymil", "one", "ave", "att", "att_ra")),
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
        "no noise": ("DP=off", "EPOCHS=0", "BATCH=0", "LR=0"),  # 0: the task's own
    },
    references={},
    metrics={
        "test metric of the task": "value",
        "the same before the first round": "before_value",
        "epsilon spent, the worst silo's": "epsilon",
    },
    sizes={"minutes": (), "hours": ()},
    against="no noise",
)
