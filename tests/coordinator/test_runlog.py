"""A run's log: what it holds while it is written, and what is left of that."""

from __future__ import annotations

import gc
from pathlib import Path

import psutil

from bench.simulation.inprocess import run_inprocess
from coordinator.runlog import RunLog
from tests.faults.world import tiny


def _descriptors() -> int:
    return psutil.Process().num_fds()


def test_runs_one_after_another_in_a_process_hold_no_descriptor(tmp_path: Path) -> None:
    """As a comparison of methods makes them, or a notebook: a few each, and the thousandth fails."""
    study, held = tiny("fedavg", rounds=1), list[int]()
    for k in range(3):
        (tmp_path / str(k)).mkdir()
        assert run_inprocess(tmp_path / str(k), study) == 0
        gc.collect()  # what earlier tests left open
        held.append(_descriptors())
    assert held[2] == held[1] == held[0]


def test_a_log_that_nobody_needs_any_more_is_closed(tmp_path: Path) -> None:
    before = _descriptors()
    log = RunLog(tmp_path)
    log.append("rounds.jsonl", {"round": 0})
    log.append("traffic.jsonl", {"round": 0})
    assert _descriptors() == before + 2
    del log
    assert _descriptors() == before
