"""What a study's files hold, whatever it is, is no reason for the program that serves to end."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from coordinator.operator_page import CoordinatorPage
from coordinator.runlog import RunLog
from report import events
from report.dashboard import Dashboard
from report.event_file import EventFile
from report.watch import run_watch
from study.machine import Machine
from tests.system.serving import Acted, Stage


def _run_of(stage: Stage, study: str) -> Path:
    """The run folder of a study, as its process begins it."""
    run = stage.parties.path / f"study-{stage.board[study].hash[:12]}"
    run.mkdir()
    (run / "config.toml").write_text(
        'silos = 3\nrounds = 2\nmethod = "fedavg"\ncorpus = ""\nsecagg = true\n'
    )
    return run


def test_a_round_that_was_not_scored_is_shown_by_everybody_who_follows(
    tmp_path: Path, acted: list[Acted], caplog: pytest.LogCaptureFixture
) -> None:
    """EVALUATE=2: of every other round nobody knows a score."""
    stage = Stage(tmp_path)
    study = stage.post("a")
    run = _run_of(stage, study)
    stage.runner.step()
    log = RunLog(run)
    line: dict[str, Any] = {"round": 0, "dev": None, "seconds": 1.0, "bytes_up": 7, "bytes_down": 7}
    line |= {"metric": "F1", "survivors": ["silo-000"], "participants": ["silo-000"]}
    log.append("rounds.jsonl", line)
    log.event(events.RoundDone(round=0, dev=None, seconds=1.0, bytes_up=7, missed=()))
    said = "round 1 of 2: not scored, 1.0 s"
    with caplog.at_level("INFO", "coordinator"):
        stage.runner.step()
    assert f"study {study}: {said}" in [r.getMessage() for r in caplog.records]
    machine = Machine(tmp_path / "hub", out=str(tmp_path))
    (shown,) = CoordinatorPage(machine, stage.parties.roster).state()["studies"]
    assert [note["text"] for note in shown["notes"]] == [said]
    assert shown["table"]["rows"][0][:2] == ("1", "not scored")
    dashboard = Dashboard(run, 0)
    try:
        state = dashboard.state()
    finally:
        dashboard.close()
    assert state["done"][0]["dev"] is None and state["notes"][0]["text"] == said
    log.event(events.Finished())
    for terminal in (False, True):
        out = io.StringIO()
        assert run_watch(run, Console(file=out, width=200, force_terminal=terminal)) == 0
        assert "finished" in out.getvalue()


def test_half_a_line_that_a_power_loss_left_is_cut_off(tmp_path: Path) -> None:
    for file, old in (("events.jsonl", '{"time":1.0,"event":"finished"}\n'), ("rounds.jsonl", "")):
        (tmp_path / file).write_text(old + '{"time": 1.0, "ev')
        RunLog(tmp_path).append(file, {"time": 2.0, "event": "finished"})
        assert (tmp_path / file).read_text() == old + '{"time":2.0,"event":"finished"}\n'
    # longer than what is looked at in one piece, and no line before it
    (tmp_path / "events.jsonl").write_text("x" * 200_000)
    RunLog(tmp_path).event(events.Finished())
    assert len(EventFile(tmp_path / "events.jsonl").new()) == 1


def test_who_follows_a_file_reads_on_where_half_a_line_was_cut_off(tmp_path: Path) -> None:
    """It saw the half line; what is written in its place may be longer, or shorter."""
    path, follower = tmp_path / "events.jsonl", EventFile(tmp_path / "events.jsonl")
    path.write_text('{"time":1.0,"event":"finished"}\n{"time": 1.0, "ev')
    assert len(follower.new()) == 1
    log = RunLog(tmp_path)
    log.event(events.Enrolled(silos=3, seconds=1.0))
    assert [e.kind for e in follower.new()] == ["enrolled"]
    path.write_text(path.read_text() + "x" * 500)
    assert follower.new() == []
    RunLog(tmp_path).event(events.Finished())
    assert [e.kind for e in follower.new()] == ["finished"]


def test_a_study_whose_power_was_cut_goes_on_and_is_followed(
    tmp_path: Path, acted: list[Acted], caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(tmp_path)
    study = stage.post("a")
    run = _run_of(stage, study)
    (run / "events.jsonl").write_text('{"time": 1.0, "ev')
    stage.runner.step()
    RunLog(run).event(events.Enrolled(silos=3, seconds=1.0))
    with caplog.at_level("INFO", "coordinator"):
        stage.runner.step()
    assert f"study {study}: 3 silos enrolled in 1.0 s" in [r.getMessage() for r in caplog.records]
    assert list(stage.runner.running) == [study]


def test_a_damaged_line_is_said_once_and_ends_nothing(
    tmp_path: Path, acted: list[Acted], caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(tmp_path)
    study = stage.post("a")
    run = _run_of(stage, study)
    stage.runner.step()
    with (run / "events.jsonl").open("a") as file:
        file.write("not an event\n")
    with caplog.at_level("INFO", "coordinator"):
        for _ in range(3):
            stage.runner.step()
    said = [r.getMessage() for r in caplog.records if "The file is damaged" in r.getMessage()]
    assert len(said) == 1 and said[0].startswith(f"study {study}: ")
    RunLog(run).event(events.Enrolled(silos=3, seconds=1.0))
    with caplog.at_level("INFO", "coordinator"):
        stage.runner.step()
    assert f"study {study}: 3 silos enrolled in 1.0 s" in [r.getMessage() for r in caplog.records]
    assert list(stage.runner.running) == [study]
