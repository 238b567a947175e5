"""What tests share: running the real command, following a real run, and a report of what was
skipped and why.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import settings as hypothesis_settings

hypothesis_settings.register_profile("shared-machine", deadline=None)  # timings are never asserted
hypothesis_settings.load_profile("shared-machine")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

ROOT = Path(__file__).resolve().parent.parent
#: A federation small enough for a test: a few hundred sentences, seconds of training.
SMALL = ("CORPUS=distant:sentences=600", "ROUNDS=2", "EPOCHS=1")


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "cli.main", *words]


def sottovoce(
    *words: str, timeout: float = 240, **options: Any
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        **options,
    )


def wait_for(what: Callable[[], Any], seconds: float = 120, pause: float = 0.01) -> Any:
    """Poll until `what` gives something true; fails loudly instead of hanging."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := what():
            return found
        time.sleep(pause)
    raise AssertionError(f"did not happen within {seconds} s")


def free_ports(count: int) -> int:
    """The first of so many in a row, below those that the system gives to outgoing connections: of
    those, any may be taken by the time that a program listens on it.
    """
    while True:
        first = secrets.SystemRandom().randrange(20_000, 32_000)
        with ExitStack() as open_, suppress(OSError):
            for port in range(first, first + count):
                open_.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


def lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    text = path.read_text("utf-8")
    return [json.loads(x) for x in text[: text.rfind("\n") + 1].splitlines()]


@dataclass
class Running:
    """A simulation in a process of its own, and its run folder as it grows."""

    process: subprocess.Popen[str]
    out: Path

    @property
    def run(self) -> Path:
        return wait_for(
            lambda: next((p for p in self.out.glob("2*") if (p / "config.toml").exists()), None)
        )

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [e for e in lines(self.run / "events.jsonl") if e["event"] == kind]

    def pids(self) -> dict[str, Any]:
        path = self.run / "processes.json"
        wait_for(lambda: path.exists() and path.read_text().endswith("\n"))
        table: dict[str, Any] = json.loads(path.read_text())
        return table

    def computing(self, silo: str, round: int, exchange: str = "train") -> Any:
        return any(
            e["silo"] == silo and e["round"] == round and e["exchange"] == exchange
            for e in self.events("computing")
        )

    def finish(self, timeout: float = 240) -> tuple[int, str]:
        text, _ = self.process.communicate(timeout=timeout)
        return self.process.returncode, text


@pytest.fixture
def start(tmp_path: Path) -> Any:
    """Start a simulation in the background; killed at the end of the test whatever happens."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str) -> Running:
        process = subprocess.Popen(
            command("simulate", f"OUT={tmp_path}", *words),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return Running(process, tmp_path)

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def summary(run: Path) -> dict[str, Any]:
    table: dict[str, Any] = json.loads((run / "summary.json").read_text("utf-8"))
    return table


def alive(pid: int) -> bool:
    """Whether the process still runs (a zombie does not)."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def consortium(tmp_path: Path) -> Any:
    """A coordinator and three silos with keys and a roster; whatever was started is ended with the
    test.
    """
    from tests.consortium import Consortium

    made = Consortium(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """As in every process of ours: sums of floats depend on the number of threads."""
    import torch

    torch.set_num_threads(1)
