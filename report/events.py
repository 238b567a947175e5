"""What happens in a run: one record for every kind of line in events.jsonl, and their one reader.

The coordinator writes these records (`to_line`); the live view, the follower, the reports and
Prometheus read them (`read_event`, `EventFile`). Names, keys and the order of keys in the file never
change: old run folders are read by this version, and new ones by old tools. A new kind of event gets
a record of its own here; a reader that does not know it keeps it as `Unknown`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

from config.errors import UserError

__all__ = [
    "KINDS",
    "Absent",
    "Answered",
    "Back",
    "BadEvent",
    "BudgetsSpent",
    "Computing",
    "Enrolled",
    "Event",
    "EventFile",
    "Failed",
    "Finished",
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
    "SumFailed",
    "Unknown",
    "read_event",
    "to_line",
]


class BadEvent(UserError):
    """A line that is no event."""


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
    """The round was given up: its sum was opened and lost."""

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
    dev: float
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


#: Name in the file -> its record.
KINDS: Mapping[str, type[Event]] = {
    record.kind: record for record in Event.__subclasses__() if record is not Unknown
}
_SHAPES = {
    record: {f.name: get_type_hints(record)[f.name] for f in fields(record)}
    for record in KINDS.values()
}


def to_line(event: Event) -> dict[str, Any]:
    """The event as events.jsonl has it."""
    if isinstance(event, Unknown):
        return {"time": event.time, "event": event.name, **event.details}
    values = {f.name: getattr(event, f.name) for f in fields(event) if f.name != "time"}
    said = {k: list(v) if isinstance(v, tuple) else v for k, v in values.items() if v is not None}
    return {"time": event.time, "event": event.kind, **said}


def read_event(line: str | bytes | Mapping[str, Any]) -> Event:
    """One line of events.jsonl, or what JSON makes of it. Keys that this version does not know are
    left out.
    """
    try:
        table = dict(line if isinstance(line, Mapping) else json.loads(line))
        time, name = table.pop("time"), table.pop("event")
    except (ValueError, TypeError, KeyError):
        raise BadEvent(
            f"A line of events.jsonl is no event: {str(line)[:80]!r}. The file is damaged."
        ) from None
    if name not in KINDS:
        return Unknown(time=time, name=str(name), details=table)
    record, values = KINDS[name], {"time": time, **table}
    shape = _SHAPES[record]
    known: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in values.items() if k in shape
    }
    for key, hint in shape.items():
        if not _fits(known.get(key), hint):
            raise BadEvent(
                f'An event "{name}" in events.jsonl lacks a proper "{key}". The file is damaged.'
            )
    return record(**known)


def _fits(value: Any, hint: Any) -> bool:
    if hint == tuple[str, ...]:
        return isinstance(value, tuple) and all(isinstance(name, str) for name in value)
    if hint == int | None:
        return value is None or _fits(value, int)
    if hint in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if hint is float else hint)


class EventFile:
    """events.jsonl as it grows."""

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        self._path, self._rest = path, b""
        self._at = path.stat().st_size if from_end and path.exists() else 0

    def new(self) -> list[Event]:
        """What was appended since the last call. Half a line waits for its other half."""
        if not self._path.exists():
            return []
        if self._path.stat().st_size < self._at:  # a resumed run may have begun its files anew
            self._at, self._rest = 0, b""
        with self._path.open("rb") as file:
            file.seek(self._at)
            added = file.read()
        self._at += len(added)
        *lines, self._rest = (self._rest + added).split(b"\n")
        return [read_event(line) for line in lines]
