"""FedLCC's comparison (Xiao et al. 2024): IID and structural entropy (Tables 3 to 6), convergence
(Figure 3), share of silos in a round (Figure 4).
"""

from __future__ import annotations

from bench.papers.base import Comparison, Published

__all__ = ["COMPARISON"]


def _table(corpus: str, source: str, figures: str) -> Published:
    """One of the paper's Tables 3 to 5: precision, recall and F1, `figures` in the order in which
    it prints them.
    """
    settings = [
        "centralised",
        *(f"{m}, {p}" for p in ("IID", "non-IID") for m in ("FedAvg", "FedAtt", "FedLCC")),
    ]
    numbers = figures.split()
    rows = tuple((s, *numbers[3 * i : 3 * i + 3]) for i, s in enumerate(settings))
    return Published(
        corpus,
        f"Xiao et al. 2024, {source}: SciBERT, 10 silos, 50 rounds",
        ("", "P", "R", "F1"),
        rows,
    )


def _share(fraction: str) -> tuple[str, ...]:
    """Fewer than three participants cannot hide in a sum: C=0.1 of ten silos is one, and runs
    unmasked.
    """
    return (
        "METHOD=fedlcc",
        f"FRACTION={fraction}",
        *(("SECAGG=off",) if fraction == "0.1" else ()),
    )


COMPARISON = Comparison(
    title="FedLCC and its baselines on document relations (the paper's Tables 3 to 6 and Figures 3 and 4)",
    methods=("fedlcc", "fedavg", "fedatt"),
    variants={
        "fedlcc, C=0.5": _share("0.5"),
        "fedlcc, C=0.3": _share("0.3"),
        "fedlcc, C=0.1 (one silo a round: unmasked)": _share("0.1"),
    },
    # As released: of the two readings of the paper, this one gives its published silo sizes.
    columns={"structural entropy": ("PARTITION=entropy:released",), "IID": ("PARTITION=iid",)},
    more_columns={"degree entropy, as printed": ("PARTITION=entropy",)},
    references={"centralised": ("METHOD=centralised",), "local": ("METHOD=local",)},
    metrics={
        "F1": "value",
        "precision": "figures.precision",
        "recall": "figures.recall",
        "F1 within sentences": "figures.intra_f1",
        "F1 across sentences": "figures.inter_f1",
        "Ign-F1": "figures.ign_f1",
        "F1 at the threshold that is best on dev": "figures.best_f1",
    },
    sizes={
        "minutes": ("CORPUS=document",),
        "hours": ("CORPUS=document:documents=1500", "ROUNDS=50"),
    },
    on_folder=("ROUNDS=50",),
    messages=True,
    target=0.6,
    convergence=True,
    published=(
        _table(
            "cdr",
            # its Table 1 counts 4,202 negative pairs in training, which are those left by the filter
            "Table 3 (CDR, hypernym-filtered by its counts of pairs)",
            "63.00 74.11 68.10 69.57 60.23 64.55 66.83 64.63 65.71 69.56 65.85 67.66 "
            "64.05 62.01 63.01 65.93 61.35 63.56 65.54 65.67 65.60",
        ),
        _table(
            "chr",
            "Table 4 (CHR)",
            "89.03 91.13 90.07 90.78 90.82 90.80 90.88 90.47 90.68 91.84 92.14 91.99 "
            "88.62 90.91 90.23 89.44 90.93 90.18 89.18 93.22 91.15",
        ),
        _table(
            "gda",
            "Table 5 (GDA)",
            "82.26 87.35 84.73 81.37 86.95 84.07 82.97 87.55 85.20 83.17 86.55 84.83 "
            "78.83 86.02 82.27 80.27 85.89 82.98 82.62 86.09 84.32",
        ),
        Published(
            "docred",
            "Xiao et al. 2024, Table 7: DocRED's dev split, IID",
            ("", "Ign-F1", "F1"),
            (
                ("centralised", "59.55", "61.64"),
                ("FedAvg", "50.82", "51.95"),
                ("FedAtt", "52.03", "53.22"),
                ("FedLCC", "55.56", "56.34"),
            ),
        ),
    ),
)
