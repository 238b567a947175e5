"""What privacy costs: every method at epsilon 1, 3, 8 and without noise, on the built-in corpus of
its task.

No paper's table: the four tasks have different metrics, and a row is to be read from left to right.
Corpus, silos and rounds are a row's own, the rest is what a user gets who says nothing: with a
budget large batches and few parameters that are trained, without noise all of them and the task's
own batch and rate. So it shows what a user gives up, not what noise alone takes. Corpora are larger
than elsewhere: noise is added once per silo, whatever the number of records. Beside every budget
stands what there is without any silo: the model before the first round, which in the rows with
public text is a model of the public text alone.

SIZE=minutes has the papers' own methods, and corpora of which the whole table takes an hour or so on
one core. SIZE=hours has every method, and the corpora of docs/results/privacy.md.
"""

from __future__ import annotations

from bench.papers.base import Comparison

__all__ = ["COMPARISON"]

#: Every type at two silos of three. With a type at one silo only, two of three never see it
#: annotated, and the mean of their models writes nothing for hundreds of steps, with noise or
#: without.
_TAGS = "Disease+Drug+Effect+Procedure/Effect+Procedure+Symptom+Test/Symptom+Test+Disease+Drug"
#: task -> settings of its rows; of documents one wording of everything, where by default there are
#: three: what light tuning can learn in some hundred steps
_SMALL = {
    "distant": ("CORPUS=distant:sentences=12000", "SILOS=4"),
    "sentence": ("CORPUS=sentence:sentences=5000", "SILOS=5"),
    "document": ("CORPUS=document:documents=3000,wordings=1", "SILOS=3"),
    "ner": ("CORPUS=ner:sentences=3000", f"SET=tags={_TAGS}", "EPOCHS=1"),
}
_FULL = {
    "distant": ("CORPUS=distant:sentences=24000", "SILOS=4"),
    "sentence": ("CORPUS=sentence:sentences=5000", "SILOS=5"),
    "document": ("CORPUS=document:documents=12000,wordings=1", "SILOS=3"),
    "ner": ("CORPUS=ner:sentences=12000", f"SET=tags={_TAGS}", "EPOCHS=1"),
}
#: task -> its methods, of which the first, and sentences' FedAvg, have a row with public text too
_METHODS = {
    "distant": (
        ("lazymil",),
        ("fedavg", "one", "ave", "att", "att_ra", "fedprox", "scaffold", "fedatt"),
    ),
    "sentence": (
        ("fedavg", "fedcmc", "feded"),
        ("fedprox", "scaffold", "fedatt", "moon", "fedrs", "fedlc"),
    ),
    "document": (("fedlcc",), ("fedavg", "fedprox", "scaffold", "fedatt")),
    "ner": (("fedner",), ("fedavg", "fadv_ganin", "fadv_peng", "fadv_hong", "tagger")),
}
_PUBLIC = {
    "distant": "distant:sentences=1500",
    "sentence": "own",
    "document": "document:documents=200,wordings=1",
    "ner": "ner:sentences=300",
}


def _variants(corpora: dict[str, tuple[str, ...]], all_: bool) -> dict[str, tuple[str, ...]]:
    rows: dict[str, tuple[str, ...]] = {}
    for task, (first, others) in _METHODS.items():
        for m in (*first, *(others if all_ else ())):
            rows[f"{m} ({task})"] = (f"METHOD={m}", *corpora[task])
        public = f"PUBLIC={_PUBLIC[task]}"
        rows[f"{first[0]} ({task}), public text"] = (f"METHOD={first[0]}", *corpora[task], public)
    return rows


COMPARISON = Comparison(
    title="What privacy costs: the metric at epsilon 1, 3, 8 (per record, delta 1e-5) and without noise",
    methods=(),
    variants=_variants(_SMALL, all_=False),
    more_variants=_variants(_FULL, all_=True),
    columns={
        "epsilon 1": ("DP=record", "EPSILON=1"),
        "epsilon 3": ("DP=record", "EPSILON=3"),
        "epsilon 8": ("DP=record", "EPSILON=8"),
        # few rounds: what one pass over the data in each gives
        "no noise": ("DP=off", "ROUNDS=4", "EPOCHS=1"),
    },
    # What the silos add is what lies above this; of the other tasks, above the figure before the
    # first round of the row with public text.
    references={"public set only (sentence)": ("METHOD=public_only", *_FULL["sentence"])},
    metrics={
        "test metric of the task": "value",
        "the same before the first round": "before_value",
        "epsilon spent, the worst silo's": "epsilon",
    },
    sizes={"minutes": (), "hours": ()},
    against="no noise",
)
