"""What an honest comparison is: rows that all get the same search on dev, seeds that nobody tuned
on, references, and claims that intervals decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

__all__ = ["Budget", "Claim", "Row", "Span", "Spec", "Words"]

Words = tuple[str, ...]  #: settings as a user would type them


@dataclass(frozen=True)
class Span:
    """Where one setting is drawn from: a range, by its logarithm, or one word."""

    low: float = 0.0
    high: float = 0.0
    word: str = ""

    def __str__(self) -> str:
        return self.word or f"{self.low:g} to {self.high:g} (log-uniform)"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method, or a variant of one."""

    words: Words
    #: its own knob (`SET=mu=` -> from where), which it searches beside what all search
    own: Mapping[str, Span] = field(default_factory=dict)
    reference: bool = False  #: not a federation: no column varies it


@dataclass(frozen=True)
class Claim:
    """`better` is above `than` by more than `by`, in the mean over paired seeds."""

    says: str  #: what the paper, or we, said; in words
    better: str
    than: str
    by: float = 0.0
    ours: bool = False  #: from trials of ours: judged like the others, and no part of the verdict
    #: (row, share): what `better` sends is at most this share of what that row sends
    bytes_at_most: tuple[str, float] | None = None
    otherwise: str = ""  #: why it does not hold, if it does not, where that is known


@dataclass(frozen=True)
class Budget:
    trials: int  #: runs on dev that every row gets, in every column
    seeds: int  #: runs that are reported
    words: Words = ()  #: how long a run is
    #: row -> what it has beside, where this budget needs it
    of: Mapping[str, Words] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Spec:
    title: str
    claim: str  #: what the paper claims, in one or two sentences
    #: name -> settings beside CORPUS=<the user's folder>, in which {folder} is that folder
    corpora: Mapping[str, Words]
    common: Words
    rows: Mapping[str, Row]
    columns: Mapping[str, Words]
    #: what every row searches, as alternatives that take turns: setting -> from where
    space: tuple[Mapping[str, Span], ...]
    claims: tuple[Claim, ...]
    metrics: Mapping[str, str]  #: label -> key in summary.json; the first decides
    budgets: Mapping[str, Budget]
    departs: tuple[str, ...] = ()  #: in what our runs are not the paper's
    steady: int = 3  #: the last rounds whose mean is shown beside the chosen round
    target: float = 0.0  #: of the dev metric: rounds and bytes until it is reached
    #: whether TRAIN=top:K or head leaves an encoder frozen, whose features are kept for all runs
    frozen_features: bool = True
    notes: tuple[str, ...] = ()  #: what a reader must know beside it, as sentences

    def rows_of(self, budget: Budget) -> dict[str, Row]:
        return {
            name: replace(row, words=(*row.words, *budget.of.get(name, ())))
            for name, row in self.rows.items()
        }
