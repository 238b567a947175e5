"""Lazy MIL and what its gain may come from (Sui et al. 2021), on GIDS or PGR, from GloVe's vectors.

VECTORS names the word vectors, which stay as they are; the convolution and the classifier are
trained. With ten silos of GIDS a silo has some two hundred positive winners in a round; with thirty
it would starve, whatever the choice.
"""

from __future__ import annotations

from bench.studies.base import Budget, Claim, Row, Span, Spec
from bench.studies.controls import control

__all__ = ["SPEC"]

_WARM = "lazymil, warm start (ours)"
_FAIR = "fedavg, then one"
_UNION = "lazymil as released (breaks privacy)"

SPEC = Spec(
    title="Lazy MIL, its baselines and its controls",
    claim="The paper claims that Lazy MIL is above ONE, ATT and AVG whatever share of the silos is in a round.",
    corpora={"gids": ("SILOS=10",), "pgr": ("SILOS=5",)},
    common=("BATCH=32", "TRAIN=top:1", "PARTITION=iid"),
    rows={
        "lazymil": Row(words=("METHOD=lazymil", "SET=warmup=0")),
        _WARM: Row(words=("METHOD=lazymil", "SET=warmup=0.4")),
        "one": Row(words=("METHOD=one",)),
        _FAIR: Row(words=(control("fedavg_then_one"), "SET=warmup=0.4")),
        "att": Row(words=("METHOD=att",)),
        "ave": Row(words=("METHOD=ave",)),
        "fedavg": Row(words=("METHOD=fedavg",)),
        _UNION: Row(words=(control("lazymil_union"), "SET=warmup=0")),
        "local": Row(words=("METHOD=local", "SET=of=fedavg")),
        "centralised": Row(words=("METHOD=centralised", "SET=of=fedavg"), reference=True),
    },
    columns={"C=1": ("FRACTION=1",)},
    space=({"LR": Span(0.02, 0.5)},),
    claims=(
        Claim(
            "Lazy MIL is above ONE",
            "lazymil",
            "one",
            otherwise="the first winners are chosen by a model that knows nothing, and the choice confirms itself. The "
            "released code trains every silo on the union of all winners; its row shows what that gives",
        ),
        Claim("Lazy MIL is above ATT", "lazymil", "att"),
        Claim("Lazy MIL is above AVG", "lazymil", "ave"),
        Claim("with a warm start it is above FedAvg, then ONE", _WARM, _FAIR, ours=True),
        Claim("the union of winners is above Lazy MIL as printed", _UNION, "lazymil", ours=True),
    ),
    metrics={"AUC": "value", "P@100": "figures.p@100", "best F1": "figures.best_f1"},
    budgets={
        "minutes": Budget(trials=3, seeds=5, words=("ROUNDS=6", "EPOCHS=1")),
        "hours": Budget(trials=8, seeds=5, words=("ROUNDS=20", "EPOCHS=3", "BATCH=16")),
    },
    departs=(
        "the corpora are GIDS (its training file cannot be had: trained on the larger of the others, tested on the "
        "other, held out by pair) and PGR, and not NYT 10 and MIRGENE",
        "word vectors are GloVe's of 100 dimensions, and are not trained",
        "ten silos (PGR: five), so that each has a hundred positive winners in a round; rounds, epochs and "
        "rates are ours",
    ),
    notes=(
        "Labels are distant in the test split too. `lazymil` is the paper's form (warmup=0). The row that is marked "
        "as breaking privacy is the released code: every silo trains on other silos' sentences.",
    ),
    steady=3,
    target=0.5,
    frozen_features=False,
)
