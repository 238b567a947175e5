"""Crashes where they hurt most, and a few random schedules of faults. `make soak` plays every step
and two hundred.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT


def _soak(*words: str) -> None:
    # In a process of its own, which forks: the federation's processes must not inherit what a test
    # runner has open.
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.soak", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 refused, 0 wrong" in done.stdout, done.stdout


def test_crashes_at_the_hardest_steps_end_with_the_survivors_model() -> None:
    _soak("--matrix", "lean", "--seeds", "0")


@pytest.mark.parametrize("where", ["opening", "two sums", "later"])
def test_silos_that_are_away_for_long_cost_no_round(where: str) -> None:
    """While a sum is opened, and between two sums of a round; or here, and not to be asked now. All
    silos are needed.
    """
    _soak("--matrix", "waits", "--seeds", "0", "--only", where)


def test_random_faults_end_with_the_survivors_model() -> None:
    _soak("--matrix", "none", "--seeds", "5")


def test_two_studies_run_at_once_though_a_silo_is_killed(tmp_path: Path) -> None:
    done = tmp_path / "done.json"
    _soak("--matrix", "waits", "--seeds", "0", "--only", "two at once", "--done", str(done))
    (played,) = json.loads(done.read_text()).values()
    assert played["together"] and played["restarts"] >= 1


def test_two_studies_outlive_kills_of_everything() -> None:
    _soak("--matrix", "none", "--seeds", "0", "--consortia", "2")
