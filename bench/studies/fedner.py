"""FedNER with silos that annotate different types (Wang et al. 2023), on a tagger.

The encoder is the user's (ENCODER=…); the paper has prompts of BART. Two corpora: BC5CDR, of whose
two types every silo annotates one; and CrossNER's five domains, a silo each, of whose five common
types every silo annotates one, drawn anew for every seed as the paper draws them on OntoNotes.

What rounds it takes was seen on dev, with seed 999, which no row is reported for: silos that
annotate different types find nothing together for the first rounds, and that many steps count, not
that many sentences. On BC5CDR "without weights" (500 sentences a silo in batches of 4, a rate of
6e-4) had F1 0.00, 0.00, 0.01, 0.04, 0.45, 0.51, 0.53 and 0.60 in eight rounds. A thousand sentences
in batches of 8 are as many steps and twice the time (0.00, 0.00, 0.00, 0.02, 0.35 in five rounds at
5e-4); with one trained layer, or a rate that falls in every round, it had 0.00 after four and after
six.

Encoders compute in bfloat16: two thirds of the time here. Processors without it take longer, and
last digits may differ there.
"""

from __future__ import annotations

from bench.studies.base import Budget, Claim, Row, Span, Spec

__all__ = ["SPEC"]

SPEC = Spec(
    title="FedNER and its ablations with split types",
    claim="The paper claims that silos which annotate different types teach each other: with pseudo-complete "
    "annotation a model finds the types of all, and instance weights add to that.",
    corpora={
        "bc5cdr": (
            "SILOS=4",
            "PARTITION=iid,sample=500",
            "SET=tags=Chemical/Disease/Chemical/Disease",
        ),
        "crossner": (
            "SILOS=5",
            "PARTITION=domain",
            "SET=tags=disjoint mapping=bench/studies/crossner.types",
        ),
    },
    # PRECISION=auto follows a timing, and runs of a study must compute alike
    common=(
        "BATCH=4",
        "TRAIN=top:3",
        "PRECISION=bfloat16",
        "WARMUP=0",
        "SCHEDULE=constant",
        "SET=network=tagger dev_sample=500",
    ),
    rows={
        "fedner": Row(words=("METHOD=fedner",)),
        "fedner, weights as printed": Row(words=("METHOD=fedner", "SET=weights=paper")),
        "without weights": Row(words=("METHOD=fedner", "SET=ablation=no_weight")),
        "without distillation": Row(words=("METHOD=fedner", "SET=ablation=no_distill")),
        # pooled, with all types annotated everywhere
        "centralised": Row(words=("METHOD=centralised", "SET=tags=all"), reference=True),
        "local": Row(words=("METHOD=local",)),
    },
    columns={"split types": ()},
    space=({"OPTIMIZER": Span(word="adamw"), "LR": Span(2e-4, 2e-3)},),
    claims=(
        Claim(
            "pseudo-complete annotation alone is above none",
            "without weights",
            "without distillation",
        ),
        Claim(
            "it is above none by 0.2",
            "without weights",
            "without distillation",
            0.2,
            ours=True,
        ),
        Claim(
            "the whole method is above its form without distillation and weights",
            "fedner",
            "without distillation",
        ),
        Claim(
            "weights, as printed, add to it",
            "fedner, weights as printed",
            "without weights",
        ),
        Claim("weights scaled to mean one add to it", "fedner", "without weights", ours=True),
    ),
    metrics={
        "F1, mean over domains": "value",
        "precision": "figures.precision",
        "recall": "figures.recall",
    },
    budgets={
        "minutes": Budget(trials=2, seeds=5, words=("ROUNDS=10",)),
        "hours": Budget(trials=8, seeds=5, words=("ROUNDS=20",)),
    },
    departs=(
        "the network is a tagger, a linear layer on the user's encoder, of which three layers are trained; weights "
        "come from the gradient of its classifier (the paper: prompts of BART, and their gradient)",
        "OntoNotes, CADEC and SMM4H cannot be had here; the corpus and its types are those named above",
        "on BC5CDR a silo has 500 sentences",
        "rounds are scored on 500 sentences of dev; test is scored whole",
    ),
    steady=3,
    target=0.4,
)
