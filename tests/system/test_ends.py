"""However a run ends, it ends: nothing is left running, nothing is lost, and it can go on."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from bench.simulation.inprocess import run_inprocess
from config.load import load
from study.prepare import prepare
from tests.conftest import Running, alive, lines, sottovoce, summary, wait_for

WORDS = ("METHOD=lazymil", "SILOS=4", "CORPUS=distant:sentences=600", "ROUNDS=3", "EPOCHS=15")


def _everybody(running: Running) -> list[int]:
    table = running.pids()
    return [table["coordinator"], *table["silos"].values()]


def _undisturbed(run: Path) -> str:
    run.mkdir()
    overrides = {k.lower(): v for k, _, v in (w.partition("=") for w in WORDS)}
    assert run_inprocess(run, prepare(load(None, overrides))) == 0
    return str(summary(run)["model_sha256"])


def _port_closed(running: Running) -> bool:
    port = running.events("listening")[0]["port"]
    listening = [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    return not any(c.laddr and c.laddr.port == port for c in listening)


def test_interrupt_ends_everything_and_resume_gives_the_undisturbed_model(
    tmp_path: Path, start: Callable[..., Running]
) -> None:
    running = start(*WORDS)
    everybody = _everybody(running)
    wait_for(lambda: running.computing("silo-002", round=1))
    # what a terminal does on Ctrl-C: the whole group hears it
    os.killpg(running.process.pid, signal.SIGINT)
    status, text = running.finish(timeout=5)
    assert status == 130 and "--resume" in text and "Traceback" not in text
    assert not any(map(alive, everybody)) and _port_closed(running)
    # the first is kept, and may have been scored beside the second
    assert [r["round"] for r in lines(running.run / "rounds.jsonl")] in ([], [0])

    done = sottovoce("simulate", "--resume", str(running.run))
    assert done.returncode == 0, done.stdout + done.stderr
    assert [r["round"] for r in lines(running.run / "rounds.jsonl")] == [0, 1, 2]
    assert summary(running.run)["model_sha256"] == _undisturbed(tmp_path / "plain")
    again = sottovoce("simulate", "--resume", str(running.run))
    assert again.returncode == 2 and "already finished" in again.stderr


def test_a_killed_coordinator_takes_nobody_with_it_into_limbo(
    tmp_path: Path, start: Callable[..., Running]
) -> None:
    running = start(*WORDS)
    everybody = _everybody(running)
    wait_for(lambda: running.computing("silo-001", round=1))
    os.kill(everybody[0], signal.SIGKILL)
    status, text = running.finish(timeout=5)
    assert status == 1 and "signal 9" in text and "--resume" in text
    assert not any(map(alive, everybody)) and _port_closed(running)
    done = sottovoce("simulate", "--resume", str(running.run))
    assert done.returncode == 0, done.stdout + done.stderr
    assert summary(running.run)["model_sha256"] == _undisturbed(tmp_path / "plain")


def test_a_killed_launcher_leaves_no_process(start: Callable[..., Running]) -> None:
    running = start(*WORDS)
    everybody = _everybody(running)
    wait_for(lambda: running.computing("silo-001", round=0))
    running.process.kill()
    running.process.wait()
    # A process's main thread may be gone a moment before the thread that holds its socket: both are
    # waited for.
    wait_for(lambda: not any(map(alive, everybody)) and _port_closed(running), seconds=5)


def test_processes_that_are_not_forked_end_and_go_on_alike(
    tmp_path: Path, start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where fork is not safe: each process is started anew, two silos in each."""
    monkeypatch.setenv("SOTTOVOCE_START", "spawn")
    running = start(*WORDS, "SILOS_PER_PROCESS=2")
    everybody = _everybody(running)
    assert len(set(everybody)) == 3
    wait_for(lambda: running.computing("silo-002", round=1))
    # nobody is a fork of another: no process has children but the launcher
    assert not any(psutil.Process(pid).children() for pid in everybody)
    os.killpg(running.process.pid, signal.SIGINT)
    status, text = running.finish(timeout=5)
    assert status == 130 and "--resume" in text and "Traceback" not in text
    assert not any(map(alive, everybody)) and _port_closed(running)
    monkeypatch.setenv("SOTTOVOCE_START", "fork")  # it goes on with either
    done = sottovoce("simulate", "--resume", str(running.run))
    assert done.returncode == 0, done.stdout + done.stderr
    assert summary(running.run)["model_sha256"] == _undisturbed(tmp_path / "plain")
    monkeypatch.setenv("SOTTOVOCE_START", "spawn")
    far = sottovoce("simulate", "LAUNCHER=ssh", "HOSTS=a", "SILOS=3")
    assert far.returncode == 2 and "LAUNCHER=ssh needs a system where fork is safe" in far.stderr


def test_a_sum_that_was_opened_and_lost_is_given_up_not_opened_again(
    tmp_path: Path, start: Callable[..., Running]
) -> None:
    """The coordinator dies after silos released shares and before it kept the sum: played by
    putting its disk back.
    """
    running = start(
        "METHOD=fedavg", "SILOS=3", "CORPUS=distant:sentences=600", "ROUNDS=2", "EPOCHS=5"
    )
    wait_for(lambda: running.computing("silo-001", round=1))
    disk, kept = running.run / "checkpoint", tmp_path / "kept"
    shutil.copytree(disk, kept)
    assert running.finish()[0] == 0
    (running.run / "summary.json").unlink()
    shutil.rmtree(disk)
    shutil.copytree(kept, disk)

    done = sottovoce("simulate", "--resume", str(running.run))
    assert done.returncode == 0, done.stdout + done.stderr
    rounds = lines(running.run / "rounds.jsonl")
    assert [len(r["survivors"]) for r in rounds] == [3, 0]
    assert rounds[1]["model_sha256"] == rounds[0]["model_sha256"]
    assert {e["attack"] for e in running.events("refused-by-silo")} == {"second-sum"}
    assert [e["round"] for e in running.events("round-spent")] == [1]
