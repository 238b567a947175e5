"""A simulation's processes where fork is not safe (config.parent): each is started anew.

    python -m bench.simulation.spawned PARENT RUN coordinator
    python -m bench.simulation.spawned PARENT RUN ADDRESS 0,1,2

Each reads the run folder and prepares the study itself. Keys, messages and the model are those of
forked processes; only the start takes longer, and each holds its own copy of the corpus.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.simulation.hosts import hosts_of, serve_many

if TYPE_CHECKING:
    from study.prepare import Study

__all__ = ["main", "spawn_coordinator", "spawn_silos"]

_PORT = "SOTTOVOCE_TELL"  #: the descriptor on which the coordinator tells its port


def _start(words: Sequence[str], run: Path, tell: int | None = None) -> int:
    command = [sys.executable, "-m", "bench.simulation.spawned", str(os.getpid()), str(run), *words]
    given = () if tell is None else (tell,)
    known = {} if tell is None else {_PORT: str(tell)}
    # Not a name that is let go: the launcher waits for the process by its number.
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, pass_fds=given, env={**os.environ, **known}
    )
    child.returncode = 0  # so that Popen never waits for it, or warns that it runs
    return child.pid


def spawn_coordinator(run: Path, tell: int) -> int:
    return _start(["coordinator"], run, tell)


def spawn_silos(run: Path, address: str, silos: Sequence[int], per_process: int) -> dict[int, int]:
    """So many silos in a process. Returns silo -> process."""
    pids = dict[int, int]()
    for share in hosts_of(silos, per_process):
        pids |= dict.fromkeys(share, _start([address, ",".join(map(str, share))], run))
    return pids


def main(words: Sequence[str]) -> None:
    from bench.simulation.parts import as_child, coordinator_log, silo_log

    parent, run, what = int(words[0]), Path(words[1]), words[2]
    if what == "coordinator":
        tell = int(os.environ[_PORT])
        as_child(parent, coordinator_log(run), lambda: _coordinator(run, tell), tell)
    silos = [int(i) for i in words[3].split(",")]
    as_child(parent, silo_log(run, silos[0]), lambda: _silos(run, what, silos))


def _coordinator(run: Path, tell: int) -> int:
    from bench.simulation.parts import coordinate
    from coordinator.rundir import coordinator_home
    from wire.keyring import Keyring

    keys = Keyring.load(coordinator_home(run))
    return coordinate(run, _prepared(run), keys, tell, warmed=False)


def _silos(run: Path, address: str, silos: list[int]) -> int:
    from bench.simulation.parts import silo_log, take_part

    study = _prepared(run)
    if len(silos) == 1:
        return take_part(run, study, address, silos[0])
    return serve_many(
        lambda i, turn: take_part(run, study, address, i, turn),
        {i: silo_log(run, i) for i in silos},
    )


def _prepared(run: Path) -> Study:
    from dataclasses import replace

    from config.load import load
    from study.machine import one_thread
    from study.prepare import prepare

    one_thread()
    return prepare(replace(load(run / "config.toml", {}), out=str(run.parent)))


if __name__ == "__main__":
    main(sys.argv[1:])
