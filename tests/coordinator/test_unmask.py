"""Waiting for shares, with a sum and a router that are acted."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from coordinator.exchange import WaitedInVain
from coordinator.runlog import RunLog
from coordinator.unmask import Unmasking
from coordinator.waiting import Patience
from crypto.errors import SumFailed
from report.files import read_lines
from wire import messages as m


class _Record:
    def to_record(self) -> dict[str, Any]:
        return {}


class _Sum:
    """Three holders; all must release, and none does."""

    needed, endorsed_enough, released_enough = 3, True, False
    reachable: tuple[str, ...] = ("a", "b", "c")

    def propose(self) -> dict[str, _Record]:
        return {s: _Record() for s in self.reachable}

    unmask_requests = propose


class _Router:
    def __init__(self, connected: set[str]) -> None:
        self.connected, self.sent = connected, list[tuple[str, str]]()

    def send(self, silo: str, message: m.SumStep) -> bool:
        self.sent.append((silo, message.step))
        return silo in self.connected


def _unmasking(path: Path, router: _Router, seconds: float) -> Unmasking:
    patience = Patience(seconds, RunLog(path), 4) if seconds else None
    return Unmasking(_Sum(), router, 0.0, patience)  # type: ignore[arg-type]


def _nothing() -> None:
    pass


def test_the_stated_time_ends_the_wait_and_names_who_is_missing(tmp_path: Path) -> None:
    unmasking = _unmasking(tmp_path, _Router({"a", "c"}), 0.05)
    with pytest.raises(WaitedInVain, match="Round 5: .* b did not come back .* The sum is kept"):
        unmasking.run(lambda s: time.sleep(0.01), _nothing, _nothing)
    (event,) = read_lines(tmp_path / "events.jsonl")
    told = {k: event[k] for k in ("event", "round", "silos", "here", "needed")}
    assert told == {"event": "waiting", "round": 4, "silos": ["b"], "here": 2, "needed": 3}
    assert abs(event["until"] - time.time()) < 10
    assert unmasking.waits  # its operator may end it


def test_who_is_certain_not_to_answer_is_not_waited_for(tmp_path: Path) -> None:
    unmasking = _unmasking(tmp_path, _Router({"a", "c"}), 60.0)

    def refused(seconds: float) -> None:
        unmasking._opened.reachable = ("a", "c")  # type: ignore[misc]

    with pytest.raises(SumFailed):
        unmasking.run(refused, _nothing, _nothing)


def test_whose_disk_is_full_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.unmask.ASK_AGAIN", 0.01)
    router = _Router({"a", "b", "c"})
    unmasking = _unmasking(tmp_path, router, 60.0)
    pumped = 0

    def full(seconds: float) -> None:
        nonlocal pumped
        pumped += 1
        if pumped == 1:
            assert unmasking.busy("b", m.Refused(1, "disk", "no room"))
            assert not unmasking.busy("a", m.Refused(1, "second-sum", "no"))
        time.sleep(0.02)
        if router.sent.count(("b", "unmask")) == 2:
            unmasking._opened.reachable = ()  # type: ignore[misc]

    with pytest.raises(SumFailed):
        unmasking.run(full, _nothing, _nothing)
    assert router.sent.count(("b", "unmask")) == 2 and router.sent.count(("a", "unmask")) == 1


def test_without_patience_nobody_is_counted_on(tmp_path: Path) -> None:
    unmasking = _unmasking(tmp_path, _Router({"a"}), 0.0)
    unmasking._questions = {"b": m.SumStep("unmask", {})}
    assert not unmasking.counts_on("b")
    assert not unmasking.busy("b", m.Refused(1, "disk", "no room"))
