"""What a method declares of privacy budgets: what they cover, and in which unit. `methods.base` has
these names too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Privacy", "RecordPrivacy", "Release", "Unit"]


@dataclass(frozen=True)
class Unit:
    """What DP=record samples, clips and protects as one, where that is not the task's own training
    unit.
    """

    word: str  #: for people: "bag"
    count: Callable[[Any, Any], int]  #: (task, examples) -> how many of them


@dataclass(frozen=True)
class Release:
    """Numbers that a method gives out under DP=record beside what it trains: clipped and noised.

    The noise is such that all of these releases together would cost `share` of epsilon by
    themselves. The noise of training is then solved so that everything together meets epsilon.
    """

    what: str  #: as the ledger has it: "class counts"
    often: int  #: how many times in a whole run
    share: float = 0.1


@dataclass(frozen=True)
class RecordPrivacy:
    """Why a method may run with DP=record: what it sends is noised by DP-SGD, or by a release."""

    #: Disclosure -> why it costs nothing once training and releases are charged. A disclosure that
    #: is not here is not covered, and the method is refused.
    free: Mapping[str, str]
    unit: Unit | None = None  #: None: the task's own training unit
    release: Release | None = None
    spent: float = 1.0  #: the share of epsilon that training's noise is solved for


@dataclass(frozen=True)
class Privacy:
    """What a privacy budget covers in this method. A method that declares nothing runs without one
    only.
    """

    record: RecordPrivacy | None = None  #: None: it does not run with DP=record
    #: Whether DP=silo may put noise into every masked array but the public counts.
    silo: bool = False
    instead: str = ""  #: where something sealed stands against DP=silo: what to ask for instead
