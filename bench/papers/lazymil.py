"""Lazy MIL's comparison (Sui et al. 2021, Tables 2 to 5)."""

from __future__ import annotations

from bench.papers.base import Comparison, Published

__all__ = ["COMPARISON"]

_FRACTIONS = {f"C={c}": (f"FRACTION={c}",) for c in ("0.1", "0.2", "0.5", "1.0")}

COMPARISON = Comparison(
    title="Lazy MIL and its baselines, by the share C of silos in a round (the paper's Tables 2 to 5)",
    methods=("lazymil", "one", "ave", "att", "att_ra", "fedavg"),
    variants={"lazymil, no warm start (as printed)": ("METHOD=lazymil", "SET=warmup=0")},
    columns=_FRACTIONS,
    references={"centralised": ("METHOD=centralised",), "local": ("METHOD=local",)},
    metrics={
        "AUC": "value",
        "P@100": "figures.p@100",
        "P@200": "figures.p@200",
        "P@300": "figures.p@300",
    },
    sizes={
        "minutes": ("SILOS=30", "CORPUS=distant:sentences=6000,ways=8,filler=150,entities=100"),
        "hours": ("SILOS=100", "CORPUS=distant:sentences=60000,entities=1000", "ROUNDS=50"),
    },
    on_folder=("SILOS=50",),
    published=(
        Published(
            "nyt10",
            "Sui et al. 2021, Table 3: AUC on NYT 10, 100 silos",
            ("", "C=0.1", "C=0.2", "C=0.5", "C=1"),
            (
                ("AVG", ".1544", ".1531", ".1527", ".1503"),
                ("ONE", ".1747", ".1747", ".1725", ".1715"),
                ("ATT", ".1658", ".1642", ".1657", ".1631"),
                ("ATT_RA", ".1695", ".1666", ".1647", ".1637"),
                ("Lazy MIL", ".2207", ".2315", ".2448", ".2465"),
            ),
        ),
        Published(
            "mirgene",
            "Sui et al. 2021, Table 5: AUC on MIRGENE, 100 silos",
            ("", "C=0.1", "C=0.2", "C=0.5", "C=1"),
            (
                ("AVG", ".7577", ".7491", ".7431", ".7432"),
                ("ONE", ".7705", ".7649", ".7626", ".757"),
                ("ATT", ".7696", ".7528", ".7516", ".7483"),
                ("ATT_RA", ".7597", ".7448", ".7484", ".7493"),
                ("Lazy MIL", ".7893", ".7923", ".7946", ".7966"),
            ),
        ),
    ),
)
