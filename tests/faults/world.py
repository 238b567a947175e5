"""One federation under one schedule of faults: real processes forked from this warm one, killed,
cut off and restarted, until the run is over; then every round's model is compared with what its
survivors give without network or masks.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import coordinator.evaluation
import coordinator.resting
from bench.simulation.launch import fork
from config.load import with_task_defaults
from config.settings import Settings
from coordinator import process as coordinator_process
from coordinator.rundir import coordinator_home, make_keys, shared_secret
from corpora.partition import Partition
from methods import build
from methods.base import silo_name
from report.files import read_lines
from silo import process as silo_process
from silo.home import Home
from silo.rules import Hours, Rules
from study.agreement import study_hash
from study.prepare import Study
from tests.faults.relay import Relay
from tests.faults.replay import replay
from tests.faults.steps import Fault, install
from tests.methods.small_distant import twelve
from wire.keyring import Keyring

__all__ = ["GRACE", "Result", "play", "tiny"]

_LIMIT = 90.0  #: seconds after which a federation of this size hangs
GRACE = 1.5  #: seconds for a silo to come back into the exchange that it was in
_AGAIN = 1.0  #: seconds after which a silo whose disk was full is asked again
_LIVES = 6  #: an operator who restarts a coordinator that failed, this many times


def tiny(method: str = "lazymil", silos: int = 4, rounds: int = 2, **changed: Any) -> Study:
    """A corpus of twelve sentences, so that nothing takes time but what is tested."""
    task = twelve()
    settings = Settings(
        method=method,
        silos=silos,
        rounds=rounds,
        epochs=1,
        batch=4,
        lr=0.1,
        decay=0.0,
        partition="iid",
        deadline=10.0,
    )
    # All train on all they have: of three sentences a silo has, too few may win for m + 2
    # contributors, and the round would be given up for that and not for a fault.
    if method == "lazymil":
        settings = replace(settings, options={"warmup": 1.0})
    settings = with_task_defaults(replace(settings, **changed), task.name)
    indices = tuple(np.arange(i, 12, silos) for i in range(silos))
    return Study(settings, task, build(method, task, settings), Partition(indices, "iid", 0))


@dataclass
class Result:
    ok: bool
    why: str  #: "correct", what was refused, or what went wrong
    seconds: float = 0.0
    spent: int = 0  #: rounds that had to be given up
    restarts: int = 0
    missed: int = 0  #: silos that a round went on without, over all rounds
    together: bool = False  #: whether two studies ran at the same time
    met: list[str] = field(default_factory=list)  #: faults that came to pass


class _World:
    def __init__(
        self, folder: Path, study: Study, faults: list[Fault], pause: float, moves: bool
    ) -> None:
        self.study, self.faults, self.pause = study, faults, pause
        self.simulated = True
        #: who ever comes; a sum over few of a roster needs more of them
        self.silos = [silo_name(i) for i in range(study.settings.silos)]
        self.moves = (
            [(host, _free_port(host)) for host in ("127.0.0.1", "127.0.0.2")] if moves else []
        )
        self.run, self.steps = folder / "run", folder / "steps"
        self.run.mkdir(parents=True)
        self.steps.mkdir()
        settings = study.settings
        make_keys(
            coordinator_home(self.run), self.run / "silos", settings.silos, shared_secret(settings)
        )
        self.relays = [Relay(0) for _ in range(settings.silos)]
        self.reader, self.line = os.pipe()
        self.lives: Counter[str] = Counter()
        self.pids: dict[int, str] = {}
        self.due: list[tuple[float, str]] = []  # (when, who) is to be started
        threading.Thread(target=self._cut, daemon=True).start()

    def _cut(self) -> None:
        while asked := os.read(self.reader, 1):
            for relay in self.relays if asked[0] == 255 else [self.relays[asked[0]]]:
                relay.cut()

    def start(self, actor: str) -> None:
        life = self.lives[actor]
        self.lives[actor] += 1
        mine = [f for f in self.faults if (f.actor, f.life) == (actor, life)]
        number = 255 if actor == "coordinator" else int(actor.rpartition("-")[2])
        if actor == "coordinator":  # on another port every time, as on another address
            self.host, self.port = (
                self.moves[life % 2] if self.moves else ("127.0.0.1", _free_port("127.0.0.1"))
            )
            for relay in self.relays:
                relay.target = self.port

        def work() -> int:
            logging.getLogger().setLevel(logging.DEBUG)
            install(self.steps / f"{actor}.{life}", mine, self.line, number)
            return self._coordinate() if actor == "coordinator" else self._take_part(number)

        home = coordinator_home(self.run) if actor == "coordinator" else self.run / "silos" / actor
        log = home / ("coordinator.log" if actor == "coordinator" else "silo.log")
        self.pids[fork(os.getpid(), log, work)] = actor

    def _coordinate(self) -> int:
        study, run = self.study, self.run
        coordinator.evaluation._NICE = 0  # on a busy machine, scores would never come
        coordinator.resting._DISK = _AGAIN
        hash = study_hash(study.settings, study.task.agreement(), study.task.name)
        settings = replace(study.settings, port=self.port)
        return coordinator_process.serve(
            run,
            Keyring.load(coordinator_home(run)),
            settings=settings,
            task=study.task,
            method=study.method,
            study=hash,
            slots=2,
            host=self.host,
            enrol_seconds=8.0,
            grace=GRACE,
            patience=60.0,
            expected=tuple(self.silos),
            simulated=self.simulated,
        )

    def _take_part(self, i: int) -> int:
        study, name = self.study, silo_name(i)
        data = study.task.subset(study.partition.indices[i])
        home, places = (
            Home(self.run / "silos" / name),
            self.moves or [("127.0.0.1", self.relays[i].port)],
        )
        address = ",".join(f"tcp://{host}:{port}" for host, port in places)
        return silo_process.serve(
            home,
            address=address,
            settings=study.settings,
            task=study.task,
            data=data,
            method=study.method,
            simulated=self.simulated,
            rules=Rules(hours=Hours(0, 0)),  # always, unless a fault ends them
        )

    def drive(self) -> tuple[int, float]:
        """Until the coordinator has ended for good: (its last status, seconds); -1 for a hang."""
        began = time.monotonic()
        self.start("coordinator")
        for silo in self.silos:
            self.start(silo)
        while time.monotonic() - began < _LIMIT:
            for when, actor in list(self.due):
                if time.monotonic() >= when:
                    self.due.remove((when, actor))
                    self.start(actor)
            for pid, actor in list(self.pids.items()):
                ended, code = os.waitpid(pid, os.WNOHANG)
                if not ended:
                    continue
                del self.pids[pid]
                status = os.waitstatus_to_exitcode(code)
                if actor == "coordinator" and (status == 0 or self.lives[actor] >= _LIVES):
                    return status, time.monotonic() - began
                if status != 0:
                    self.due.append((time.monotonic() + self._down(actor), actor))
            time.sleep(0.01)
        return -1, time.monotonic() - began

    def _down(self, actor: str) -> float:
        """Seconds until it is started again."""
        mine = (f for f in self.faults if (f.actor, f.life) == (actor, self.lives[actor] - 1))
        return max((f.down for f in mine if f.action.startswith("kill")), default=0.0) or self.pause

    def close(self) -> None:
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for relay in self.relays:
            relay.close()
        os.close(self.line)


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as s:
        return int(s.getsockname()[1])


def play(
    folder: Path,
    study: Study,
    faults: list[Fault],
    pause: float = 0.1,
    keep: bool = False,
    moves: bool = False,
    *,
    simulated: bool = True,
    absent: int = 0,
) -> Result:
    """One schedule, from the first process to the comparison. `pause`: until an operator restarts
    what died. `moves`: a coordinator that is started again has another address; silos know both,
    and no relay stands between. `simulated`: small cohorts are drawn from the seed; without, from
    each session's nonces. `absent`: the last silos, so many, never come.
    """
    world = _World(folder, study, faults, pause, moves)
    world.simulated = simulated
    world.silos = world.silos[: len(world.silos) - absent]
    try:
        status, seconds = world.drive()
    finally:
        world.close()
    rounds, events = read_lines(world.run / "rounds.jsonl"), read_lines(world.run / "events.jsonl")
    steps = [
        (p.name, line) for p in sorted(world.steps.iterdir()) for line in p.read_text().splitlines()
    ]
    met = [f"{actor}: {line[2:]}" for actor, line in steps if line[0] == "!"]
    result = Result(
        False, "", seconds, restarts=sum(world.lives.values()) - len(world.lives), met=met
    )
    result.spent = len({e["round"] for e in events if e["event"] == "round-spent"})
    result.missed = sum(len(r["missed"]) for r in rounds)
    if status == -1:
        result.why = f"hangs after {_LIMIT:.0f} s"
    elif status != 0:
        failed = [e["why"] for e in events if e["event"] == "failed"]
        result.ok, result.why = (
            bool(failed) and status == 3,
            f"refused: {failed[-1]}" if failed else f"status {status}",
        )
    elif [r["round"] for r in rounds] != list(range(study.settings.rounds)):
        result.why = f"rounds {[r['round'] for r in rounds]}"
    else:
        was, should = replay(world.run, study, folder / "replay")
        result.ok, result.why = (
            was == should,
            "correct" if was == should else "another model than its survivors give",
        )
        if error := _said_twice(world.run) or _unsaid(world.run):
            result.ok, result.why = False, error
        elif result.spent:  # whoever dies here is started again, so no round may be lost
            result.ok, result.why = False, f"{result.spent} rounds were given up"
    if result.ok and not keep:
        shutil.rmtree(folder)
    return result


def _unsaid(run: Path) -> str:
    """A round of which the coordinator does not know what it cost, though each silo told it."""
    lost = [x for x in read_lines(run / "privacy.jsonl") if "said nothing" in x["event"]]
    return f"round {lost[0]['round']}: what {lost[0]['silo']} was charged is lost" if lost else ""


def _said_twice(run: Path) -> str:
    """A payload for which a silo noted two releases, which must never be."""
    for path in sorted(run.glob("silos/*/journal.jsonl")):
        keys = [json.loads(line)[0] for line in path.read_text().splitlines()]
        twice = [
            k for k, n in Counter(k for k in keys if k.startswith("released/")).items() if n > 1
        ]
        if twice:
            return f"{path.parent.name} released twice for {twice[0]}"
    return ""
