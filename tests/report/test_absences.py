"""Losses and returns, read off events."""

from __future__ import annotations

from pathlib import Path

from bench.simulation.inprocess import run_inprocess
from config.load import dump
from coordinator.runlog import RunLog
from report.absences import Absence, Standstill, absences, absences_words, standstills
from report.events import Absent, Back, Gathered, Hello, Interrupted, Listening, Lost, Waiting
from report.write import write_report
from tests.faults.world import tiny


def test_every_loss_has_its_return() -> None:
    happened = [
        Listening(time=1, port=1, round=2),
        Hello(time=2, silo="a"),
        Absent(time=3, silos=("b",)),
        Lost(time=4, silo="a", round=2),
        Lost(time=5, silo="a", round=2),  # a second connection of the same absence
        Back(time=6, silo="a"),
        Hello(time=7, silo="b"),
        Lost(time=8, silo="a", round=5),
    ]
    assert absences(happened) == [
        Absence("b", 2, 3, 7),
        Absence("a", 2, 4, 6),
        Absence("a", 5, 8, None),
    ]


def test_a_standstill_ends_when_enough_are_here_or_somebody_ends_it() -> None:
    def waits(time: float, *silos: str) -> Waiting:
        return Waiting(time=time, round=1, silos=silos, here=1, needed=3, until=0.0)

    happened = [
        waits(10, "a", "b"),
        waits(12, "b"),  # still the same one
        Gathered(time=15, round=1, silos=3),
        waits(20, "a"),
        Interrupted(time=30),
        waits(40, "a"),
    ]
    assert standstills(happened) == [
        Standstill(1, ("a", "b"), 10, 15),
        Standstill(1, ("a",), 20, 30),
        Standstill(1, ("a",), 40, None),
    ]


def test_how_many_were_away_is_said_in_words() -> None:
    back, gone = Absence("a", 2, 4, 6), Absence("a", 5, 8, None)
    assert absences_words([]) == ""
    assert absences_words([back]) == "1 connection was lost and came back"
    assert absences_words([gone, gone]) == "2 silos were lost and did not come back"
    both = "2 connections were lost and came back; 1 silo was lost and did not come back"
    assert absences_words([back, gone, back]) == both


def test_a_report_of_losses_and_returns_does_not_say_that_nobody_was_lost(tmp_path: Path) -> None:
    assert run_inprocess(tmp_path, tiny("fedavg")) == 0
    (tmp_path / "config.toml").write_text(dump(tiny("fedavg").settings, {}))

    def said() -> tuple[str, str]:
        page = write_report(tmp_path).read_text("utf-8")
        return page, (tmp_path / "report.md").read_text("utf-8")

    page, text = said()
    assert "all answers arrived; nobody was lost" in page and "Nobody: every silo" in page
    assert "Nobody." in text and "came back" not in page + text
    log = RunLog(tmp_path)
    log.event(Lost(silo="silo-001", round=1))
    log.event(Back(silo="silo-001"))
    page, text = said()
    away = "1 connection was lost and came back"
    assert f"all answers arrived; {away}" in page
    assert f"every silo that was asked answered, in every round; {away}." in page
    assert f"All answers arrived; {away}." in text and "## Losses and returns" in text
    for words in ("nobody was lost", "Nobody:", "Nobody.\n"):
        assert words not in page + text, words
