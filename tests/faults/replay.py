"""What a run should have ended with: its rounds again in one process, without network or masks,
with its survivors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.simulation.inprocess import InProcessCarrier
from coordinator.exchange import Call, RoundSpent
from coordinator.loop import run_study
from coordinator.runlog import RunLog
from methods.base import Folded
from report.files import read_lines
from study.prepare import Study

__all__ = ["replay"]


class _Recorded(InProcessCarrier):
    """Takes participants and survivors from another run's rounds.jsonl."""

    def __init__(self, study: Study, runlog: RunLog, rounds: list[dict[str, Any]]) -> None:
        super().__init__(study, runlog)
        self._rounds = {line["round"]: line for line in rounds}
        self._asked: list[list[str]] = []

    def begin_round(self, round: int) -> tuple[int, ...]:
        self._asked = list(self._rounds[round]["asked_by_exchange"])
        return tuple(_numbers(self._rounds[round]["participants"]))

    def present(self) -> tuple[int, ...]:
        """Asked for before each exchange with everyone, and those are a round's first ones."""
        return tuple(_numbers(self._asked.pop(0))) if self._asked else ()

    def perform(self, call: Call) -> Folded:
        by_exchange = self._rounds[call.round]["survivors_by_exchange"]
        if call.index >= len(by_exchange):
            raise RoundSpent("so it was")
        self._gone = set(range(self._settings.silos)) - set(_numbers(by_exchange[call.index]))
        return super().perform(call)


def _numbers(names: list[str]) -> list[int]:
    return [int(name.rpartition("-")[2]) for name in names]


def replay(run: Path, study: Study, scratch: Path) -> tuple[list[str], list[str]]:
    """(model hash of every round as it was, as it should have been)."""
    rounds = read_lines(run / "rounds.jsonl")
    scratch.mkdir()
    runlog = RunLog(scratch)
    run_study(
        study.method,
        study.task,
        settings=study.settings,
        carrier=_Recorded(study, runlog, rounds),
        runlog=runlog,
    )
    return [r["model_sha256"] for r in rounds], [
        r["model_sha256"] for r in read_lines(scratch / "rounds.jsonl")
    ]
