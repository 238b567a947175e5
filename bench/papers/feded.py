"""FedED's comparison (Sui et al. 2020): F1 (Tables 3 to 5), by class (6), message size (7), rounds
to a target (8).
"""

from __future__ import annotations

from bench.papers.base import Comparison, Published

__all__ = ["COMPARISON"]

_HEAD = ("", "precision", "recall", "F1")
#: Table 8 varies batch size and local epochs.
_TABLE_8 = {f"B={b} E={e}": (f"BATCH={b}", f"EPOCHS={e}") for e in (1, 3) for b in (2, 8, 16)}
#: Set aside whatever the method, so that silos hold the same sentences in every column.
_PUBLIC = "SET=public=0.2"

COMPARISON = Comparison(
    title="FedED and its baselines, a tenth of the silos in a round (the paper's Tables 3 to 8)",
    methods=("feded", "fedavg", "fedatt"),
    variants={"feded, masked": ("METHOD=feded", "SET=logits=masked")},
    columns={"B=4 E=2": ("BATCH=4", "EPOCHS=2")},
    more_columns=_TABLE_8,
    references={
        "public set only": ("METHOD=public_only", "BATCH=4", "EPOCHS=2"),
        "centralised": ("METHOD=centralised", "BATCH=4", "EPOCHS=2"),
    },
    metrics={
        "micro-F1": "figures.micro_f1",
        "macro-F1": "figures.macro_f1",
        "precision": "figures.precision",
        "recall": "figures.recall",
    },
    sizes={
        "minutes": (
            "SILOS=50",
            "FRACTION=0.1",
            "CORPUS=sentence",
            "LR=5e-4",
            "ROUNDS=15",
            _PUBLIC,
        ),
        "hours": (
            "SILOS=100",
            "FRACTION=0.1",
            "CORPUS=sentence:sentences=10000",
            "LR=5e-4",
            "ROUNDS=50",
            _PUBLIC,
        ),
    },
    on_folder=("SILOS=50", "FRACTION=0.1", "LR=5e-4", "ROUNDS=15", _PUBLIC),
    messages=True,
    target=0.6,
    per_class=True,
    published=(
        Published(
            "gad",
            "Sui et al. 2020, Table 3: GAD, 50 silos, Clinical BERT, median of nine runs",
            _HEAD,
            (
                ("centralised", "77.58", "91.1", "83.8"),
                ("FedAvg", "69.89", "87.54", "77.73"),
                ("FedAtt", "72.14", "87.54", "79.1"),
                ("FedED", "74.77", "88.61", "81.11"),
            ),
        ),
        Published(
            "euadr",
            "Sui et al. 2020, Table 4: EU-ADR, 50 silos, Clinical BERT, median of nine runs",
            _HEAD,
            (
                ("centralised", "78.79", "96.3", "86.67"),
                ("FedAvg", "71.43", "92.59", "80.65"),
                ("FedAtt", "72.22", "96.3", "82.54"),
                ("FedED", "74.29", "96.3", "83.87"),
            ),
        ),
        Published(
            "i2b2",
            "Sui et al. 2020, Table 5: i2b2 2010, 100 silos, Clinical BERT, median of nine runs",
            _HEAD,
            (
                ("centralised", "74.78", "80.1", "77.35"),
                ("FedAvg", "74.75", "70.48", "72.55"),
                ("FedAtt", "74.48", "71.32", "72.86"),
                ("FedED", "75.4", "74.78", "75.09"),
            ),
        ),
        Published(
            "i2b2",
            "Sui et al. 2020, Table 6: F1 by class, i2b2 2010",
            ("", "public set only", "FedAvg", "FedAtt", "FedED"),
            (
                ("TeRP", "79.74", "84.96", "85.24", "85.3"),
                ("TrAP", "67.75", "72.68", "71.55", "76.05"),
                ("TrCP", "43.11", "50.41", "47.73", "54.9"),
                ("PIP", "66.98", "71.07", "75.16", "73.69"),
                ("TeCP", "27.36", "49.41", "51.46", "58.02"),
                ("TrIP", "24.24", "23.08", "1.3", "48.03"),
                ("TrWP", "0", "0", "0", "11.97"),
                ("TrNAP", "22.54", "21.79", "18.79", "56.16"),
            ),
        ),
        *(
            Published(
                corpus,
                "Sui et al. 2020, Table 7: upload per silo and round",
                ("FedAvg", "FedAtt", "FedED"),
                (("423 MB", "423 MB", size),),
            )
            for corpus, size in (("gad", "5 KB"), ("euadr", "323 B"), ("i2b2", "42 KB"))
        ),
        Published(
            "i2b2",
            "Sui et al. 2020, Table 8: rounds to F1 72 on the test set of i2b2 2010, C=0.1",
            ("", "FedAvg", "FedAtt", "FedED"),
            (
                ("B=2 E=1", "27", "28", "9"),
                ("B=8 E=1", "48", "48", "20"),
                ("B=16 E=1", "not reached", "not reached", "34"),
                ("B=2 E=3", "20", "20", "7"),
                ("B=8 E=3", "34", "30", "11"),
                ("B=16 E=3", "47", "46", "15"),
            ),
        ),
    ),
)
