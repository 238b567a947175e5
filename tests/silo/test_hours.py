"""A silo's hours, before it dials. What becomes of a study in which they end: tests/faults/waits.py."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from silo import program
from silo.rules import NO_RULES, Hours, Rules


class Clock:
    """A day on which nothing but sleeping takes time. Somebody may set it."""

    def __init__(self, hour: int, minute: int) -> None:
        self.seconds, self.slept = 3600.0 * hour + 60 * minute, list[float]()

    def localtime(self) -> time.struct_time:
        return time.gmtime(self.seconds)

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.slept.append(seconds)
        self.seconds += seconds


def _waits(monkeypatch: pytest.MonkeyPatch, rules: Rules, clock: Clock) -> str:
    monkeypatch.setattr(program, "time", clock)
    out = io.StringIO()
    program._wait_for_hours(rules, Console(file=out, width=200))
    return out.getvalue()


def test_it_dials_when_its_hours_begin_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(17, 58)
    said = _waits(monkeypatch, Rules(hours=Hours.parse("18:00-06:00")), clock)
    assert said == "outside this silo's hours (18:00-06:00); it dials when they begin\n"
    assert clock.seconds == 18 * 3600 and sum(clock.slept) == 120
    assert max(clock.slept) <= 30  # so that a clock that is set meanwhile is noticed


def test_within_its_hours_and_without_any_it_dials_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for rules, hour in ((Rules(hours=Hours.parse("18:00-06:00")), 5), (NO_RULES, 12)):
        clock = Clock(hour, 59)
        assert _waits(monkeypatch, rules, clock) == "" and not clock.slept
    assert Rules(hours=Hours.parse("18:00-06:00")).closed_for(Clock(6, 0).localtime()) == 43_200
    assert NO_RULES.closed_for(Clock(6, 0).localtime()) == 0
