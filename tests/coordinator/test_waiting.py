"""Waiting for silos, with the clock in the test's hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coordinator import waiting
from coordinator.exchange import WaitedInVain
from coordinator.resting import Resting
from coordinator.runlog import RunLog
from coordinator.waiting import FOR_EVER, wait_for_silos


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return 1_000_000.0 + self.now

    def monotonic(self) -> float:
        return self.now


class Members:
    """Silos arrive at the seconds that the test says."""

    def __init__(self, clock: Clock, arrivals: dict[str, float]) -> None:
        self.names = {silo: i for i, silo in enumerate(sorted(arrivals))}
        self._clock, self._arrivals = clock, arrivals
        self.resting = Resting(True)

    @property
    def here(self) -> set[str]:
        return {silo for silo, at in self._arrivals.items() if at <= self._clock.now}

    def one(self, seconds: float) -> None:
        assert seconds > 0
        self._clock.now += min(seconds, 1.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(waiting, "time", clock)
    return clock


def _events(path: Path) -> list[dict]:
    file = path / "events.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_nothing_is_said_where_enough_are_here(clock: Clock, tmp_path: Path) -> None:
    members = Members(clock, {"silo-000": 0, "silo-001": 0, "silo-002": 99})
    wait_for_silos(members, RunLog(tmp_path), round=0, needed=2, patience=1.0)
    assert clock.now == 0 and _events(tmp_path) == []


def test_it_says_whom_it_waits_for_and_again_when_that_changes(
    clock: Clock, tmp_path: Path
) -> None:
    members = Members(clock, {"silo-000": 0, "silo-001": 3, "silo-002": 7})
    wait_for_silos(members, RunLog(tmp_path), round=4, needed=3, patience=FOR_EVER)
    assert clock.now == 7
    told = [(e["event"], e.get("silos"), e.get("here"), e.get("until")) for e in _events(tmp_path)]
    assert told == [
        ("waiting", ["silo-001", "silo-002"], 1, 0.0),
        ("waiting", ["silo-002"], 2, 0.0),
        ("gathered", 3, None, None),
    ]


def test_it_ends_at_the_stated_deadline_and_names_who_did_not_come(
    clock: Clock, tmp_path: Path
) -> None:
    members = Members(clock, {"silo-000": 0, "silo-001": 0, "silo-002": 99})
    with pytest.raises(WaitedInVain, match="silo-002 did not come back within 20 s"):
        wait_for_silos(members, RunLog(tmp_path), round=0, needed=3, patience=20.0)
    assert clock.now == 20
    assert _events(tmp_path)[0]["until"] == 1_000_020.0
