"""A coordinator and five silos on machines of their own: 100 ms each way, 8 Mbit/s up, 1 % of
packets lost.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.simulation.inprocess import run_inprocess
from config.load import load
from study.prepare import prepare
from tests.conftest import ROOT, lines, summary
from tests.faults.replay import replay
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
    run, plain = tmp_path / "net", tmp_path / "plain"
    plain.mkdir()
    overrides = {k.lower(): v for k, _, v in (w.partition("=") for w in WORDS)}
    study = prepare(load(None, overrides))
    # Every round, not only the best one: a round's model is what those gave who are said to have
    # answered in each of its exchanges, also where a silo was lost.
    models, should = replay(run, study, tmp_path / "replay")
    assert models == should
    assert done.stdout.split()[0] == summary(run)["model_sha256"]
    assert summary(run)["model_sha256"] in models
    rounds, events = lines(run / "rounds.jsonl"), lines(run / "events.jsonl")
    gone = {e["silo"] for e in events if e["event"] in ("lost", "out")}
    gone |= {silo for e in events if e["event"] == "absent" for silo in e["silos"]}
    assert {silo for r in rounds for silo in r["missed"]} <= gone
    # The in-process runner gives the model of loopback, bit for bit (test_runners.py).
    assert run_inprocess(plain, study) == 0
    whole = lines(plain / "rounds.jsonl")
    if _who(rounds) == _who(whole):
        assert models == [r["model_sha256"] for r in whole]
    else:  # on a busy machine a connection may end
        assert gone


def _who(rounds: list[dict[str, Any]]) -> list[Any]:
    """Who was asked and who answered, in each exchange."""
    return [(r["asked_by_exchange"], r["survivors_by_exchange"]) for r in rounds]
