"""What privacy costs: every method at epsilon 1, 3, 8 and without noise, on the built-in corpus of
its task.

No paper's table: the four tasks have different metrics, and a row is to be read from left to right.
Corpus, silos and rounds are a row's own, the rest is what a user gets who says nothing: with a
budget large batches and few parameters that are trained, without noise all of them and the task's
own batch and rate. So it shows what a user gives up, not what noise alone takes. Corpora are larger
than elsewhere: noise is added once per silo, whatever the number of records. Beside every budget stands
what there is without any silo: the model before the first round, and a model of the public set alone.
"""

from __future__ import annotations

from bench.papers.base import Comparison

__all__ = ["COMPARISON"]

_DISTANT = ("CORPUS=distant:sentences=24000", "SILOS=4", "ROUNDS=12")
_SENTENCE = ("CORPUS=sentence:sentences=5000", "SILOS=5", "ROUNDS=8")
#: One wording of everything, where by default there are three: what light tuning can learn in some
#: hundred steps.
_DOCUMENT = ("CORPUS=document:documents=12000,wordings=1", "SILOS=3", "ROUNDS=3", "EPOCHS=1")
#: Every type at two silos of three. With a type at one silo only, two of three never see it
#: annotated, and the mean of their models writes nothing for hundreds of steps, with noise or
#: without.
_TAGS = "Disease+Drug+Effect+Procedure/Effect+Procedure+Symptom+Test/Symptom+Test+Disease+Drug"
_NER = ("CORPUS=ner:sentences=12000", f"SET=tags={_TAGS}", "ROUNDS=8", "EPOCHS=1")

_ROWS = {
    "distant": (
        _DISTANT,
        ("lazymil", "fedavg", "one", "ave", "att", "att_ra", "fedprox", "scaffold", "fedatt"),
    ),
    "sentence": (
        _SENTENCE,
        ("feded", "fedcmc", "fedavg", "fedprox", "scaffold", "fedatt", "moon", "fedrs", "fedlc"),
    ),
    "document": (_DOCUMENT, ("fedlcc", "fedavg", "fedprox", "scaffold", "fedatt")),
    "ner": (_NER, ("fedner", "fedavg", "fadv_ganin", "fadv_peng", "fadv_hong", "tagger")),
}

#: The papers' own methods, and FedAvg everywhere; SIZE=hours has the rest too. METHODS="a b" takes
#: rows out.
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
    # What the silos add is what lies above this. The other three tasks have no public set of their own.
    references={"public set only (sentence)": ("METHOD=public_only", *_SENTENCE)},
    metrics={
        "test metric of the task": "value",
        "the same before the first round": "before_value",
        "epsilon spent, the worst silo's": "epsilon",
    },
    sizes={"minutes": (), "hours": ()},
    against="no noise",
)
