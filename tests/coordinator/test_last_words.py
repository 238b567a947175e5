"""The end of a run: who did not hear the last words, and whom nobody heard out, is written down."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from config.settings import Settings
from coordinator import membership
from coordinator.network import NetworkCarrier
from coordinator.runlog import RunLog
from coordinator.turns import Slots
from report.files import read_lines
from wire import messages as m
from wire.counter import ByteCounter
from wire.router import Event, Gone, Received

NOTHING: Mapping[str, Any] = {}


class _Line:
    """A router whose silos do what the test says, a second after another."""

    def __init__(self, connected: set[str], happens: list[Event | None]) -> None:
        self.counter, self.connected = ByteCounter(), frozenset(connected)
        self.happens, self.sent = deque(happens), list[tuple[str, str]]()
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def receive(self, seconds: float) -> Event | None:
        self.now += seconds
        event = self.happens.popleft() if self.happens else None
        if isinstance(event, Gone):
            self.connected -= {event.silo}
        elif event is not None:
            self.connected |= {event.silo}
        return event

    def send(self, silo: str, message: m.Message) -> bool:
        self.sent.append((silo, message.kind))
        return silo in self.connected


def _end(
    path: Path, monkeypatch: pytest.MonkeyPatch, grace: float, *happens: Event | None
) -> tuple[list[dict[str, Any]], _Line]:
    line = _Line({"silo-000", "silo-001", "silo-002"}, list(happens))
    monkeypatch.setattr(membership, "time", line)
    carrier = NetworkCarrier(
        line,  # type: ignore[arg-type]
        Settings(method="fedavg", corpus="distant", silos=3),
        identities={},
        run_id=b"",
        study=b"study",
        runlog=RunLog(path),
        slots=Slots(1),
        should_stop=lambda: False,
        content=NOTHING,
        grace=grace,
    )
    carrier.settle()
    events = [dict(e) for e in read_lines(path / "events.jsonl")]
    return [{k: e[k] for k in e if k not in ("time", "round")} for e in events], line


def test_who_is_still_connected_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events, _ = _end(tmp_path, monkeypatch, 10.0, Gone("silo-001"), Gone("silo-000"))
    assert events == [{"event": "still-connected", "silos": ["silo-002"]}]


def test_nothing_is_written_where_all_hung_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = [Gone(f"silo-00{i}") for i in range(3)]
    assert _end(tmp_path / "all", monkeypatch, 10.0, *gone)[0] == []
    # a simulation does not wait for silos to hang up
    assert _end(tmp_path / "simulated", monkeypatch, 0.0)[0] == []


def test_a_silo_that_was_killed_before_it_heard_that_all_is_over_hears_it_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = Received("silo-001", m.Hello("1", b"study"), None)
    gone = [Gone(f"silo-00{i}") for i in range(3)]
    happens = (gone[0], gone[1], back, gone[2], gone[1])
    events, line = _end(tmp_path, monkeypatch, 10.0, *happens)
    assert events == [
        {"event": "lost", "silo": "silo-001"},
        {"event": "hello", "silo": "silo-001"},
    ]
    assert line.sent == [("silo-001", "stop")]
