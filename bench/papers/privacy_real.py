"""What privacy costs on real text with a real checkpoint: one corpus per task at epsilon 1, 3 and 8.

`make table PAPER=privacy_real DATA=folder CHECKPOINTS=folder`. Settings are the defaults of
DP=record, found on built-in text: nothing is tuned on these corpora, so no epsilon is spent on
tuning, and a better rate may exist. A frozen encoder's features are computed once. They are
standardised by built-in text unless there is public text; ChemProt has both, to show what that
does.
"""

from __future__ import annotations

from bench.papers.base import Comparison

__all__ = ["COMPARISON"]

_MINILM = "ENCODER={CHECKPOINTS}/minilm"
_CHEMPROT = ("CORPUS={DATA}/chemprot", _MINILM, "SILOS=5", "PARTITION=iid")
_TENTH = ("SET=public=0.1",)
_FIFTH = ("PUBLIC=own", "SET=public=0.2", "PUBLIC_EPOCHS=3")
_ROWS = {
    "fedavg (sentences: ChemProt)": ("METHOD=fedavg", *_CHEMPROT),
    "fedcmc (sentences: ChemProt)": ("METHOD=fedcmc", *_CHEMPROT),
    "fedavg (sentences: ChemProt), statistics of a public tenth": (
        "METHOD=fedavg",
        *_CHEMPROT,
        *_TENTH,
    ),
    "fedcmc (sentences: ChemProt), statistics of a public tenth": (
        "METHOD=fedcmc",
        *_CHEMPROT,
        *_TENTH,
    ),
    "fedavg (sentences: ChemProt), from a public fifth": ("METHOD=fedavg", *_CHEMPROT, *_FIFTH),
    "fedlcc (documents: CDR)": (
        "METHOD=fedlcc",
        "CORPUS={DATA}/cdr",
        _MINILM,
        "SILOS=3",
        "PARTITION=iid",
    ),
    "fedner (entities: BC5CDR)": (
        "METHOD=fedner",
        "CORPUS=ner:{DATA}/ner/BC5CDR",
        _MINILM,
        "SILOS=3",
        "PARTITION=iid",
        "SET=tags=all",
    ),
    "lazymil (distant: GIDS)": (
        "METHOD=lazymil",
        "CORPUS={DATA}/gids",
        "VECTORS={CHECKPOINTS}/glove/glove.6B.100d.txt",
        "SILOS=4",
        "PARTITION=iid",
    ),
}

COMPARISON = Comparison(
    title="What privacy costs on real text: the metric at epsilon 1, 3 and 8 (per record, delta 1e-5)",
    methods=(),
    variants=_ROWS,
    columns={f"epsilon {e}": ("DP=record", f"EPSILON={e}") for e in (1, 3, 8)},
    references={},
    metrics={
        "test metric of the task": "value",
        "the same before the first round": "before_value",
        "epsilon spent, the worst silo's": "epsilon",
    },
    sizes={"minutes": (), "hours": ()},
    frozen=frozenset(r for r in _ROWS if "GIDS" not in r),
    places=("DATA", "CHECKPOINTS"),
    majority=True,
    gains=True,
)
