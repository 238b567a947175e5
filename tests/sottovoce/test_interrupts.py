"""Whatever ends a notebook's cell or its kernel leaves no process behind, and a run that goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sottovoce
from tests.conftest import ROOT, alive, lines, wait_for

pytestmark = pytest.mark.slow
SETTINGS: dict[str, Any] = {
    "method": "fedavg",
    "silos": 3,
    "corpus": "distant:sentences=1500",
    "seed": 5,
    "epochs": 2,
}
ROUNDS = 8
PROGRAM = """
import signal, sys, sottovoce
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
try:
    sottovoce.simulate(out=sys.argv[1], runner=sys.argv[2], rounds=int(sys.argv[3]), {})
except KeyboardInterrupt as e:
    print("KeyboardInterrupt:", e)
    raise SystemExit(7)
""".format(", ".join(f"{k}={v!r}" for k, v in SETTINGS.items()))


@pytest.fixture(scope="module")
def uncut(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The hash of the model where nothing was interrupted."""
    out = tmp_path_factory.mktemp("uncut")
    run = sottovoce.simulate(out=out, runner="inprocess", rounds=ROUNDS, quiet=True, **SETTINGS)
    return str(run.summary["model_sha256"])


def _start(out: Path, runner: str, rounds: int) -> tuple[subprocess.Popen[str], Path]:
    """A simulation from Python in a process of its own, and its run folder after the first
    round.
    """
    words = [sys.executable, "-c", PROGRAM, str(out), runner, str(rounds)]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    run = wait_for(lambda: next(out.glob("2*"), None))
    wait_for(lambda: lines(run / "rounds.jsonl"))
    return process, run


def _processes(run: Path) -> list[int]:
    table: dict[str, Any] = json.loads((run / "processes.json").read_text("utf-8"))
    return [table["launcher"], table["coordinator"], *table["silos"].values()]


@pytest.mark.parametrize("runner", ["processes", "inprocess"])
def test_an_interrupt_ends_everything_and_the_run_goes_on(
    runner: str, tmp_path: Path, uncut: str
) -> None:
    process, path = _start(tmp_path / "cut", runner, ROUNDS)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 7 and "KeyboardInterrupt: Interrupted; finished rounds" in said
    if runner == "processes":
        assert not any(alive(pid) for pid in _processes(path))
    run = sottovoce.load_run(tmp_path / "cut" / "latest")
    assert run.path == path and not run.finished and 0 < len(run.rounds) < ROUNDS
    assert run.resume(quiet=True).finished and len(run.rounds) == ROUNDS
    assert run.summary["model_sha256"] == uncut
    with pytest.raises(sottovoce.Error, match="is already finished"):
        run.resume()


def test_nothing_outlives_the_process_that_asked(tmp_path: Path) -> None:
    process, run = _start(tmp_path, "processes", rounds=500)
    started = _processes(run)
    assert all(alive(pid) for pid in started) and len(set(started)) == 5
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: not any(alive(pid) for pid in started), seconds=30)
    assert process.stdout is not None
    process.stdout.close()
