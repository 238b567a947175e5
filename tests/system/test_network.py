"""A coordinator and five silos on machines of their own: 100 ms each way, 8 Mbit/s up, 1 % of
packets lost.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.simulation.inprocess import run_inprocess
from config.load import load
from study.prepare import prepare
from tests.conftest import ROOT, lines, summary
from tests.network.lines import why_not

WORDS = (
    "METHOD=lazymil",
    "SILOS=5",
    "CORPUS=distant:sentences=600",
    "ROUNDS=2",
    "EPOCHS=1",
    "SEED=2",
)


def test_slow_and_lossy_lines_give_the_model_of_loopback(tmp_path: Path) -> None:
    if why := why_not():
        pytest.skip(why)
    done = subprocess.run(
        [sys.executable, "-m", "tests.network.run", str(tmp_path / "net"), "net", *WORDS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = tmp_path / "net"
    assert [len(r["survivors"]) for r in lines(run / "rounds.jsonl")] == [5, 5]
    plain = tmp_path / "plain"
    plain.mkdir()
    overrides = {k.lower(): v for k, _, v in (w.partition("=") for w in WORDS)}
    assert run_inprocess(plain, prepare(load(None, overrides))) == 0
    # The in-process runner gives the model of loopback, bit for bit (test_runners.py).
    assert done.stdout.split()[0] == summary(plain)["model_sha256"]
