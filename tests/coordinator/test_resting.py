"""Silos that said that they cannot be asked now."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator import resting, waiting
from coordinator.exchange import WaitedInVain
from coordinator.resting import Resting
from coordinator.runlog import RunLog
from coordinator.waiting import wait_for_silos
from report.files import read_lines
from report.live import LiveRun
from tests.coordinator.test_waiting import Clock, Members


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(resting, "time", clock)
    monkeypatch.setattr(waiting, "time", clock)
    return clock


def test_who_refused_for_a_while_is_not_asked_until_it_greets_or_the_while_is_over(
    clock: Clock,
) -> None:
    rests = Resting(True)
    rests.refused("silo-000", "outside-hours")
    rests.refused("silo-001", "disk")
    for attack in ("budget-spent", "second-sum", "too-many-rounds"):  # do not pass
        rests.refused("silo-002", attack)
    assert rests.silos == {"silo-000", "silo-001"}
    everybody = ("silo-002", "silo-001", "silo-000")
    assert rests.why(everybody) == "silo-000 is outside its hours, silo-001 has no room on its disk"
    assert rests.why(("silo-002",)) == ""
    clock.now = 60.0
    assert rests.silos == {"silo-000"}
    rests.greeted("silo-000")
    assert rests.silos == set() and rests.why(everybody) == ""


def test_where_nobody_is_waited_for_everybody_is_asked_every_time(clock: Clock) -> None:
    rests = Resting(False)
    rests.refused("silo-000", "disk")
    assert rests.silos == set()


def test_it_is_said_for_whom_a_round_waits_and_why(
    clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    members = Members(clock, {"silo-000": 0, "silo-001": 0, "silo-002": 99})
    members.resting.refused("silo-002", "outside-hours")
    (tmp_path / "config.toml").write_text(
        'silos = 3\nrounds = 2\nmethod = "fedavg"\ncorpus = ""\nsecagg = true\n'
    )
    (tmp_path / "members.json").write_text('{"silo-002": "north"}')
    with pytest.raises(WaitedInVain, match=r"within 20 s \(silo-002 is outside its hours\)"):
        wait_for_silos(members, RunLog(tmp_path), round=0, needed=3, patience=20.0)
    assert "are needed (silo-002 is outside its hours); it waits until" in caplog.text
    (told,) = read_lines(tmp_path / "events.jsonl")
    assert told["why"] == "silo-002 is outside its hours"
    live = LiveRun(tmp_path)
    (said,) = live.catch_up()
    assert said.endswith("2 silos are here, 3 are needed (north is outside its hours)")
    assert live.snapshot()["waiting"]["why"] == "north is outside its hours"
