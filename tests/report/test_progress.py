"""What a person sees of a run where there is no terminal: a line at least every fifteen seconds."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from report.progress import Follower
from tests.conftest import wait_for


class Seen:
    """A follower of a run that the test writes, on a clock that the test sets."""

    def __init__(self, run: Path) -> None:
        self.now = 100.0
        self._out, self._events = io.StringIO(), run / "events.jsonl"
        console = Console(file=self._out, width=200)
        self.follower = Follower(run, console, 10, "AUC", clock=lambda: self.now)

    def event(self, event: str, **details: Any) -> None:
        with self._events.open("a", encoding="utf-8") as f:
            f.write(json.dumps({"time": self.now, "event": event, **details}) + "\n")

    def text(self) -> str:
        return self._out.getvalue()

    def after(self, seconds: float) -> list[str]:
        """The lines that a look brings, so many seconds later."""
        self.now += seconds
        self.follower.catch_up()
        text = self.text()
        self._out.seek(0)
        self._out.truncate()
        return text.splitlines()


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    return Seen(tmp_path)


def _begin(seen: Seen, round: int = 2) -> None:
    seen.event("round", round=round, rounds=10, cohort=[f"silo-{i:03d}" for i in range(10)])


def test_a_long_round_says_how_far_it_is(seen: Seen) -> None:
    _begin(seen)
    assert seen.after(1) == []
    for i in range(4):
        seen.event("computing", silo=f"silo-{i:03d}", round=2, exchange="train")
        seen.event("answered", silo=f"silo-{i:03d}", round=2, exchange="train")
    assert seen.after(13) == []
    assert seen.after(1) == ["round 3 of 10, train: 4 of 10 silos have answered, 14 s"]
    assert seen.after(14.9) == []
    seen.event("answered", silo="silo-004", round=2, exchange="train")
    assert seen.after(0.1) == ["round 3 of 10, train: 5 of 10 silos have answered, 29 s"]


def test_every_exchange_counts_its_own_answers(seen: Seen) -> None:
    _begin(seen)
    seen.event("answered", silo="silo-000", round=2, exchange="choose")
    seen.event("computing", silo="silo-001", round=2, exchange="train")
    assert seen.after(15) == ["round 3 of 10, train: 0 of 10 silos have answered, 0 s"]


def test_a_line_of_any_kind_starts_the_wait_anew(seen: Seen) -> None:
    _begin(seen)
    assert seen.after(10) == []
    seen.event("lost", silo="silo-003", round=2)
    assert seen.after(4) == ["silo-003 was lost in round 3; the round goes on without it"]
    assert seen.after(14) == []
    assert seen.after(1) == ["round 3 of 10: 0 of 10 silos have answered, 19 s"]


def test_the_waits_before_the_first_round_and_after_the_last_are_told_too(seen: Seen) -> None:
    assert seen.after(15) == ["waiting for the first round, 15 s"]
    _begin(seen, round=9)
    seen.event("round-done", round=9, dev=0.5, seconds=1.0, bytes_up=2000, missed=[])
    assert seen.after(1) == ["round 10/10: dev AUC 0.5000, 2.0 kB up, 1.0 s"]
    assert seen.after(15) == ["round 10 of 10 is done, 15 s ago"]


def test_a_thread_reads_while_the_run_computes_in_this_process(seen: Seen) -> None:
    _begin(seen)
    seen.event("absent", silos=["silo-009"])
    with seen.follower.ticking(0.001):
        wait_for(lambda: seen.text())
    assert seen.text() == "starting without silo-009\n"
