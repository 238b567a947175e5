"""Losses and returns, read off events."""

from __future__ import annotations

from report.absences import Absence, Standstill, absences, standstills
from report.events import Absent, Back, Gathered, Hello, Interrupted, Listening, Lost, Waiting


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
