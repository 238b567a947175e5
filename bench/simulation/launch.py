"""Real processes for a simulation: one coordinator and many silos forked from this warmed one (or
started anew where fork is not safe), watched until the end.

Every child dies with its parent (config.parent), so that no way of ending this process, kill -9
included, leaves any behind; and the parent ends them all when the coordinator ends, however it
ended.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.simulation.elsewhere import places
from bench.simulation.hosts import hosts_of, serve_many
from bench.simulation.memory import MemoryWatch
from bench.simulation.parts import (
    as_child,
    coordinate,
    coordinator_log,
    silo_log,
    take_part,
)
from bench.simulation.spawned import spawn_coordinator, spawn_silos
from config.parent import forks
from coordinator import process as coordinator_process
from coordinator.rundir import coordinator_home
from methods.base import silo_name
from report.progress import Follower
from study.prepare import Study
from wire.keyring import Keyring
from wire.stored import give_back

__all__ = ["Outcome", "fork", "fork_silos", "run_processes"]

_GRACE = 3.0  #: seconds the coordinator has to end in good order before it is killed


class Outcome:
    def __init__(self, status: int, peak_mb: float, sentence: str = "") -> None:
        self.status, self.peak_mb, self.sentence = status, peak_mb, sentence


def run_processes(run: Path, study: Study, follower: Follower) -> Outcome:
    settings = study.settings
    keys = Keyring.load(coordinator_home(run))
    keys.pinned()  # verified here, once for all that are forked
    parent = os.getpid()
    give_back()
    gc.freeze()  # pages that the collector does not touch stay shared between the silos
    # The coordinator's first line on it is its port; a last one, if any, is the sentence it failed
    # with. Not through its log: a full disk is one of the things it may have to tell.
    reader, writer = os.pipe()

    local = settings.launcher == "local"

    def coordinating() -> int:
        os.close(reader)
        return coordinate(run, study, keys, writer, warmed=True)

    interrupted = {"times": 0}

    def note(*_: object) -> None:
        interrupted["times"] += 1

    previous = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    if forks():
        coordinator = fork(parent, coordinator_log(run), coordinating, writer)
    else:
        coordinator = spawn_coordinator(run, writer)
    silos: dict[int, int] = {}
    memory = MemoryWatch()
    try:
        os.close(writer)
        told = os.fdopen(reader, encoding="utf-8")
        first = told.readline().strip()
        if not first.isdigit():
            _, code = os.waitpid(coordinator, 0)
            return Outcome(
                os.waitstatus_to_exitcode(code), 0.0, first or "The coordinator could not start."
            )
        address = f"tcp://127.0.0.1:{first}"
        for k, (name, program) in enumerate([] if local else places(run, settings, int(first))):
            silos[fork(parent, run / "silos" / f"{name}.log", program)] = k
        pids = _silos(run, study, address) if local else {}
        silos |= {pid: i for i, pid in pids.items()}
        table = {"host": platform.node(), "launcher": parent, "coordinator": coordinator}
        table["silos"] = {silo_name(i): p for i, p in sorted(pids.items())}
        (run / "processes.json").write_text(json.dumps(table) + "\n", "utf-8")
        follower.started()
        status = _watch(coordinator, silos, follower, memory, interrupted)
    finally:
        _end(silos)
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            if os.waitpid(coordinator, os.WNOHANG)[0] == 0:
                os.kill(coordinator, signal.SIGKILL)
                os.waitpid(coordinator, 0)
        for s, handler in previous.items():
            signal.signal(s, handler)
        follower.catch_up()
    sentence = told.read().strip()
    if status < 0:
        sentence = f"The coordinator was ended by signal {-status}."
    return Outcome(status, memory.peak_mb, sentence)


def _silos(run: Path, study: Study, address: str) -> dict[int, int]:
    """Silo -> the process that it is in."""
    silos, each = range(study.settings.silos), study.settings.silos_per_process
    if not forks():
        return spawn_silos(run, address, silos, each)
    part = functools.partial(take_part, run, study, address)
    return fork_silos(silos, each, part, functools.partial(silo_log, run))


def fork_silos(
    silos: Sequence[int],
    per_process: int,
    take_part: Callable[..., int],
    log_of: Callable[[int], Path],
) -> dict[int, int]:
    """So many silos in a process. Returns silo -> process."""
    pids, parent = dict[int, int](), os.getpid()
    for share in hosts_of(silos, per_process):
        if per_process == 1:
            pid = fork(parent, log_of(share[0]), lambda i=share[0]: take_part(i))  # type: ignore[misc]
        else:
            logs = {i: log_of(i) for i in share}
            # what is no silo's own goes to the log of its first
            pid = fork(parent, logs[share[0]], lambda logs=logs: serve_many(take_part, logs))  # type: ignore[misc]
        pids |= dict.fromkeys(share, pid)
    return pids


def _watch(
    coordinator: int,
    silos: dict[int, int],
    follower: Follower,
    memory: MemoryWatch,
    interrupted: dict[str, int],
) -> int:
    """Follow the run until the coordinator has ended; returns how."""
    told = 0.0
    while True:
        with contextlib.suppress(ChildProcessError):
            pid, code = os.waitpid(coordinator, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(code)
        for pid in list(silos):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del silos[pid]
        if interrupted["times"] and not told:
            told = time.monotonic()
            os.kill(coordinator, signal.SIGTERM)
        if told and (time.monotonic() - told > _GRACE or interrupted["times"] > 1):
            os.kill(coordinator, signal.SIGKILL)
            os.waitpid(coordinator, 0)
            return coordinator_process.INTERRUPTED
        memory.sample()
        follower.catch_up()
        time.sleep(0.05)


def fork(parent: int, logfile: Path, work: Callable[[], int], tell: int | None = None) -> int:
    """A child that logs to `logfile`, ends with the status that `work` returns, and tells a failure
    on `tell`.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        as_child(parent, logfile, work, tell)
    return pid


def _end(silos: dict[int, int]) -> None:
    """Silos end by themselves when told to stop; the rest are asked, then killed."""
    for how, patience in ((None, 1.0), (signal.SIGTERM, 0.5), (signal.SIGKILL, 5.0)):
        for pid in silos:
            if how is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, how)
        until = time.monotonic() + patience
        while silos and time.monotonic() < until:
            for pid in list(silos):
                with contextlib.suppress(ChildProcessError):
                    if not os.waitpid(pid, os.WNOHANG)[0]:
                        continue
                del silos[pid]
            time.sleep(0.005)
