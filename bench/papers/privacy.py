"""What privacy costs: every method at epsilon 1, 3, 8 and without noise, on the built-in corpus of
its task.

No paper's table: the four tasks have different metrics, and a row is to be read from left to right.
Corpus, silos and rounds are a row's own, the rest is what a user gets who says nothing: with a
budget one step over all records at a time and one linear layer that is trained, without noise the
task's own network, batch and rate. So it shows what a user gives up, not what noise alone takes.
Corpora are larger than elsewhere: noise is added once per silo, whatever the number of records.

Beside every budget stands what there is without any silo: the model before the first round, which
in the rows with public text is a model of that text alone, and the most frequent answer. What silos
add to the better of the two is given seed by seed, with an interval; sentences with public text have
five seeds for it.

SIZE=minutes has the papers' own methods; SIZE=hours every method, on the same corpora, and what
documents and entities come to without noise.
"""

from __future__ import annotations

from bench.papers.base import Comparison

__all__ = ["COMPARISON", "TAGS"]

#: Every type at two silos of three. Of a type that one silo alone annotates, two of three say for
#: some rounds that there is none; the row "disjoint" has it so.
TAGS = "Disease+Drug+Effect+Procedure/Effect+Procedure+Symptom+Test/Symptom+Test+Disease+Drug"
#: task -> settings of its rows; of documents one wording of everything, where by default there are
#: three
_CORPORA = {
    "distant": ("CORPUS=distant:sentences=24000", "SILOS=4"),
    "sentence": ("CORPUS=sentence:sentences=5000", "SILOS=5"),
    "document": ("CORPUS=document:documents=12000,wordings=1", "SILOS=3"),
    "ner": ("CORPUS=ner:sentences=12000", f"SET=tags={TAGS}"),
}
#: task -> the methods that are shown, those that also have a row with public text, and all others
_METHODS = {
    "distant": (
        ("lazymil",),
        ("lazymil",),
        ("fedavg", "one", "ave", "att", "att_ra", "fedprox", "scaffold", "fedatt"),
    ),
    "sentence": (
        ("fedavg", "fedcmc", "feded"),
        ("fedavg", "fedcmc"),
        ("fedprox", "scaffold", "fedatt", "moon", "fedrs", "fedlc"),
    ),
    "document": (("fedlcc",), ("fedlcc",), ("fedavg", "fedprox", "scaffold", "fedatt")),
    "ner": (
        ("fedner",),
        ("fedner",),
        ("fedavg", "fadv_ganin", "fadv_peng", "fadv_hong", "tagger"),
    ),
}
_PUBLIC = {
    "distant": "distant:sentences=1500",
    "sentence": "own",
    "document": "document:documents=200,wordings=1",
    "ner": "ner:sentences=300",
}
_NO_NOISE = "no noise"
_DISJOINT = "fedner (ner), disjoint tag sets"


def _public_row(method: str, task: str) -> str:
    return f"{method} ({task}), public text"


def _variants(all_: bool) -> dict[str, tuple[str, ...]]:
    rows: dict[str, tuple[str, ...]] = {}
    for task, (first, public, others) in _METHODS.items():
        own = _CORPORA[task]
        for m in (*first, *(others if all_ else ())):
            rows[f"{m} ({task})"] = (f"METHOD={m}", *own)
        if task == "ner":
            rows[_DISJOINT] = ("METHOD=fedner", own[0], "SET=tags=disjoint")
        for m in public:
            rows[_public_row(m, task)] = (f"METHOD={m}", *own, f"PUBLIC={_PUBLIC[task]}")
    return rows


def _seeds(rows: dict[str, tuple[str, ...]]) -> dict[tuple[str, str], int]:
    """Five for what silos add to public sentences. Without noise no public text; and whole networks
    on large corpora take longer than all the rest together, so SIZE=hours alone has them.
    """
    five = {(_public_row(m, "sentence"), ""): 5 for m in _METHODS["sentence"][1]}
    none = [r for r in rows if r.endswith("public text")]
    return five | {(r, _NO_NOISE): 0 for r in (*_slow(rows), *none)}


def _slow(rows: dict[str, tuple[str, ...]]) -> list[str]:
    return [r for r in rows if "(document)" in r or "(ner)" in r]


def _frozen(rows: dict[str, tuple[str, ...]]) -> frozenset[str]:
    """Rows whose features are computed once: a distant sentence's are sums of words, which cost
    nothing, and the adversarial methods train their encoder.
    """
    return frozenset(r for r in rows if "(distant)" not in r and not r.startswith("fadv"))


COMPARISON = Comparison(
    title="What privacy costs: the metric at epsilon 1, 3, 8 (per record, delta 1e-5) and without noise",
    methods=(),
    variants=_variants(all_=False),
    more_variants=_variants(all_=True),
    columns={
        "epsilon 1": ("DP=record", "EPSILON=1"),
        "epsilon 3": ("DP=record", "EPSILON=3"),
        "epsilon 8": ("DP=record", "EPSILON=8"),
        # few rounds: what one pass over the data in each gives
        _NO_NOISE: ("DP=off", "ROUNDS=4", "EPOCHS=1"),
    },
    # of the other tasks: the figure before the first round of the row with public text
    references={"public set only (sentence)": ("METHOD=public_only", *_CORPORA["sentence"])},
    metrics={
        "test metric of the task": "value",
        "the same before the first round": "before_value",
        "epsilon spent, the worst silo's": "epsilon",
    },
    sizes={"minutes": (), "hours": ()},
    against=_NO_NOISE,
    seeds=_seeds(_variants(all_=True)),
    more_seeds={
        (r, _NO_NOISE): 1 for r in _slow(_variants(all_=True)) if not r.endswith("public text")
    },
    frozen=_frozen(_variants(all_=True)),
    gains=True,
    majority=True,
)
