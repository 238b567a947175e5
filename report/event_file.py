"""events.jsonl: its lines as records (report.events), and the file as it grows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from config.errors import UserError
from report.events import Event, Unknown

__all__ = ["KINDS", "BadEvent", "EventFile", "read_event", "to_line"]


class BadEvent(UserError):
    """A line that is no event."""


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
    if hint in (int | None, float | None):
        return value is None or _fits(value, int if hint == int | None else float)
    if hint in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if hint is float else hint)


class EventFile:
    """events.jsonl as it grows."""

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        self._path = path
        self._at = path.stat().st_size if from_end and path.exists() else 0

    def new(self) -> list[Event]:
        """What was appended since the last call. Half a line is read once it is whole: if a crash
        left it, the next process cuts it off. A line that is no event is reported once.
        """
        if not self._path.exists():
            return []
        if self._path.stat().st_size < self._at:  # a resumed run may have begun its files anew
            self._at = 0
        with self._path.open("rb") as file:
            file.seek(self._at)
            added = file.read()
        whole = added[: added.rfind(b"\n") + 1]
        self._at += len(whole)
        return [read_event(line) for line in whole.split(b"\n")[:-1]]
