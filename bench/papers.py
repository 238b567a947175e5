"""What each paper compared, as runs of ours, and what it printed: kept apart, because the two are different things."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["PAPERS", "Comparison", "Published"]


@dataclass(frozen=True)
class Published:
    """A table as a paper prints it. Shown only beside runs on that paper's own corpus, and labelled."""

    corpus: str  #: a name that a user's corpus folder carries when it is the paper's: compared case-insensitively
    source: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Comparison:
    title: str
    methods: tuple[str, ...]  #: the rows; the first is the paper's own
    columns: Mapping[str, tuple[str, ...]]  #: label -> settings
    references: Mapping[str, tuple[str, ...]]  #: runs that no column varies -> settings
    metrics: Mapping[str, str]  #: label -> key in summary.json, "figures.x" for one of the figures
    sizes: Mapping[str, tuple[str, ...]]  #: how much work -> settings on the built-in corpus
    on_folder: tuple[str, ...] = ()  #: settings on a corpus that the user names
    published: tuple[Published, ...] = field(default=())
    against: str = ""  #: a column that the others are compared with, seed by seed; empty: the first row is compared


_FRACTIONS = {f"C={c}": (f"FRACTION={c}",) for c in ("0.1", "0.2", "0.5", "1.0")}

_LAZYMIL = Comparison(
    title="Lazy MIL and its baselines, by the share C of silos in a round (the paper's Tables 2 to 5)",
    methods=("lazymil", "one", "ave", "att", "att_ra", "fedavg"),
    columns=_FRACTIONS,
    references={"centralised": ("METHOD=centralised",), "local": ("METHOD=local",)},
    metrics={"AUC": "value", "P@100": "figures.p@100", "P@200": "figures.p@200", "P@300": "figures.p@300"},
    sizes={
        "minutes": ("SILOS=30", "CORPUS=distant:sentences=9000"),
        "hours": ("SILOS=100", "CORPUS=distant:sentences=60000", "ROUNDS=50"),
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

_BITS = Comparison(
    title="What narrow lanes of the secure sum cost in the final metric",
    methods=("fedavg", "lazymil"),
    columns={f"{b} bits": (f"BITS={b}",) for b in (32, 21, 16)},
    references={},
    metrics={"metric": "value"},
    sizes={
        "minutes": ("SILOS=10", "CORPUS=distant:sentences=6000", "ROUNDS=12"),
        "hours": ("SILOS=10",),
    },
    on_folder=("SILOS=10",),
    against="32 bits",
)

PAPERS: Mapping[str, Comparison] = {"lazymil": _LAZYMIL, "bits": _BITS}
