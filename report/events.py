"""What happens in a run: one record for every kind of line in events.jsonl.

The coordinator writes these records; the live view, the follower, the reports and Prometheus read
them (report.event_file). Names, keys and the order of keys in the file never change: old run folders
are read by this version, and new ones by old tools. A new kind of event gets a record of its own
here; a reader that does not know it keeps it as `Unknown`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

__all__ = [
    "Absent",
    "Answered",
    "Back",
    "BudgetsSpent",
    "Computing",
    "Enrolled",
    "Event",
    "Failed",
    "Finished",
    "Gathered",
    "Hello",
    "Interrupted",
    "Listening",
    "Lost",
    "Out",
    "Refused",
    "RefusedBySilo",
    "Reopened",
    "Reopening",
    "Round",
    "RoundAgain",
    "RoundDone",
    "RoundSpent",
    "StillConnected",
    "SumFailed",
    "Unknown",
    "Waiting",
]


@dataclass(frozen=True, kw_only=True)
class Event:
    kind: ClassVar[str] = ""
    time: float = 0.0  #: seconds since 1970, when it was written


# The run


@dataclass(frozen=True, kw_only=True)
class Listening(Event):
    """The coordinator waits for silos. A resumed run says so again."""

    kind = "listening"
    port: int
    round: int  #: the first one to be made


@dataclass(frozen=True, kw_only=True)
class Finished(Event):
    kind = "finished"


@dataclass(frozen=True, kw_only=True)
class StillConnected(Event):
    """The run is over, and these have not hung up: what they send from now on nobody counts here."""

    kind = "still-connected"
    silos: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Interrupted(Event):
    kind = "interrupted"


@dataclass(frozen=True, kw_only=True)
class Failed(Event):
    kind = "failed"
    why: str


# Who is here


@dataclass(frozen=True, kw_only=True)
class Hello(Event):
    """A silo greets, and is not in the session yet."""

    kind = "hello"
    silo: str


@dataclass(frozen=True, kw_only=True)
class Back(Event):
    """A silo of the session greets again, over a new connection."""

    kind = "back"
    silo: str


@dataclass(frozen=True, kw_only=True)
class Absent(Event):
    """The run begins without these."""

    kind = "absent"
    silos: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Enrolled(Event):
    """A session was set up."""

    kind = "enrolled"
    silos: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Waiting(Event):
    """Too few silos are here for the round. The coordinator waits for them."""

    kind = "waiting"
    round: int
    silos: tuple[str, ...]  #: who is not here
    here: int
    needed: int
    until: float  #: seconds since 1970; 0: until its operator ends it
    why: str | None = None  #: what those said who cannot be asked now


@dataclass(frozen=True, kw_only=True)
class Gathered(Event):
    """Enough silos are here again."""

    kind = "gathered"
    round: int
    silos: int


# A round


@dataclass(frozen=True, kw_only=True)
class Round(Event):
    """A round begins, or goes on after a crash."""

    kind = "round"
    round: int
    rounds: int  #: of the whole run
    cohort: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RoundAgain(Event):
    """Silos were lost between two exchanges; the round begins once more."""

    kind = "round-again"
    round: int
    why: str


@dataclass(frozen=True, kw_only=True)
class RoundSpent(Event):
    """The round was given up: its sum was opened and lost, or too few silos contributed to it."""

    kind = "round-spent"
    round: int
    why: str


@dataclass(frozen=True, kw_only=True)
class BudgetsSpent(Event):
    """Too few silos have privacy budget left for another round."""

    kind = "budgets-spent"
    round: int
    silos: tuple[str, ...]
    why: str


@dataclass(frozen=True, kw_only=True)
class RoundDone(Event):
    kind = "round-done"
    round: int
    dev: float | None = None  #: None: the round was not scored
    seconds: float
    bytes_up: int
    missed: tuple[str, ...]


# A silo in an exchange


@dataclass(frozen=True, kw_only=True)
class Computing(Event):
    kind = "computing"
    silo: str
    round: int
    exchange: str


@dataclass(frozen=True, kw_only=True)
class Answered(Event):
    kind = "answered"
    silo: str
    round: int
    exchange: str


@dataclass(frozen=True, kw_only=True)
class Lost(Event):
    """Its connection ended. It may come back."""

    kind = "lost"
    silo: str
    round: int


@dataclass(frozen=True, kw_only=True)
class Out(Event):
    """It takes no further part in this exchange."""

    kind = "out"
    silo: str
    round: int
    why: str
    stage: str  #: what it was doing


@dataclass(frozen=True, kw_only=True)
class Refused(Event):
    """The coordinator refused what a silo sent."""

    kind = "refused"
    silo: str
    attack: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class RefusedBySilo(Event):
    """A silo refused what it was asked for."""

    kind = "refused-by-silo"
    silo: str
    round: int | None = None  #: said where silos are in the coordinator's own process
    attack: str
    detail: str


# A sum


@dataclass(frozen=True, kw_only=True)
class SumFailed(Event):
    """It is tried again."""

    kind = "sum-failed"
    round: int
    attempt: int
    why: str


@dataclass(frozen=True, kw_only=True)
class Reopening(Event):
    """After a crash: shares of a sum are asked for again."""

    kind = "reopening"
    round: int
    exchange: int


@dataclass(frozen=True, kw_only=True)
class Reopened(Event):
    kind = "reopened"
    round: int
    exchange: int
    ok: bool


@dataclass(frozen=True, kw_only=True)
class Unknown(Event):
    """An event of a kind that this version does not know, as it stands in the file."""

    name: str
    details: Mapping[str, Any] = field(default_factory=dict)
