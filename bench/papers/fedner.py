"""FedNER's comparison (Wang et al. 2023): adversarial baselines and ablations by domain (Tables 1
and 2).
"""

from __future__ import annotations

from bench.papers.base import Comparison, Published

__all__ = ["COMPARISON"]

_DOMAINS = ("report", "forum", "note")


def _rows(text: str) -> tuple[tuple[str, ...], ...]:
    """A line per row: its name, then its figures, separated by semicolons."""
    return tuple(
        tuple(cell.strip() for cell in line.split(";")) for line in text.strip().splitlines()
    )


COMPARISON = Comparison(
    title="FedNER, its ablations and baselines, by how tag sets are drawn (the paper's Tables 1 and 2)",
    methods=("fedner", "fadv_ganin", "fadv_peng", "fadv_hong", "tagger"),
    variants={
        "w/o weight": ("METHOD=fedner", "SET=ablation=no_weight"),
        "w/o distill&weight": ("METHOD=fedner", "SET=ablation=no_distill"),
        "fedner, weights as printed": ("METHOD=fedner", "SET=weights=paper"),
        # What the frozen language model saves: the same method with all of it trained, and sent.
        "fedner, full fine-tuning": ("METHOD=fedner", "TRAIN=all", "LR=5e-4"),
    },
    columns={
        "disjoint": ("SET=tags=disjoint",),
        # What instance weights are for: sentences whose own annotation leads astray.
        "30 % misaligned": ("SET=tags=disjoint", "CORPUS=ner:misaligned=0.3"),
    },
    more_columns={"clinic": ("SET=tags=clinic",)},
    references={"centralised, all types annotated": ("METHOD=centralised", "SET=of=fedavg")},
    metrics={
        "F1, mean over domains": "value",
        **{f"F1 in {d}": f"figures.f1 {d}" for d in _DOMAINS},
        "parameters of the model that are trained": "figures.parameters_trained",
        "their share of the model": "figures.share_trained",
    },
    sizes={"minutes": ("CORPUS=ner",), "hours": ("CORPUS=ner:sentences=3000", "ROUNDS=50")},
    messages=True,
    per_class=True,
    published=(
        Published(
            "ontonotes",
            "Wang et al. 2023, Table 1: F1 on OntoNotes 5, BART, mean of five draws of disjoint tag sets",
            ("", "nw", "tc", "wb", "bn", "bc", "mz", "mean"),
            _rows(
                """Ganin et al. 2016; 58.75; 56.95; 57.31; 57.57; 58.38; 58.15; 57.85
                Peng et al. 2019; 61.32; 58.32; 59.64; 60.10; 59.75; 60.09; 59.87
                Hong et al. 2021; 59.27; 55.27; 55.86; 58.16; 56.79; 57.33; 57.11
                w/o distill&weight; 45.10; 52.15; 49.42; 46.52; 47.55; 46.71; 47.91
                w/o weight; 59.76; 55.09; 52.66; 58.47; 57.00; 58.42; 56.90
                full; 61.67; 59.92; 59.52; 62.41; 60.57; 63.22; 61.22"""
            ),
        ),
        Published(
            "clinic",
            "Wang et al. 2023, Table 2: F1 on three clinic corpora, BART, mean of five draws and three splits",
            ("", "ADE", "CADEC", "SMM4H", "mean"),
            _rows(
                """Ganin et al. 2016; 66.89; 57.26; 60.70; 61.62
                Peng et al. 2019; 63.77; 55.38; 58.85; 59.33
                Hong et al. 2021; 67.49; 57.56; 59.02; 61.36
                w/o distill&weight; 41.92; 41.68; 45.81; 43.14
                w/o weight; 66.80; 54.91; 60.29; 60.67
                full; 69.25; 55.68; 62.22; 62.38"""
            ),
        ),
    ),
)
