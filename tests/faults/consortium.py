"""A consortium under one schedule of faults: a coordinator and silos that serve, two studies one
after the other (or at once), and kills of everything there is, at any point of their progress.
Whoever is killed is started again within the stated time.

The programs are those of `sottovoce coordinator serve` and `sottovoce silo serve`, forked from one
warm process so that a schedule takes seconds; so are the studies' own processes, which the programs
would start with `python -m`. Sockets, files, signals and signatures are real.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

import coordinator.program
import coordinator.serving
import silo.serving
import study.children
from bench.simulation.launch import fork
from cli.main import main
from config.program import end_with
from config.study import read_study
from coordinator.board import Board
from coordinator.program import coordinator_study
from report.files import read_lines
from study.machine import Machine
from study.prepare import Study
from tests.consortium import Consortium
from tests.faults.replay import replay
from tests.faults.world import Result

__all__ = ["Kill", "drawn", "play"]

_LIMIT = 240.0  #: seconds after which two studies of this size hang
NAMES = ("north", "east", "south", "west")
_CORPUS = "distant:sentences=60,dev=20,test=20,entities=20,filler=20"
_ROUNDS = 2
_EVENTS = 80  #: lines that an undisturbed pair of studies leaves in events.jsonl and answers, about


@dataclass(frozen=True)
class Kill:
    """Kill `who` once so much has happened, and start it again `down` seconds later."""

    after: int  #: events of both studies, and answers of silos
    who: str  #: a party, a party's study ("east/study"), or "everything"
    down: float

    def __str__(self) -> str:
        return f"kill {self.who} after {self.after}, down {self.down:.1f} s"


def drawn(seed: int) -> tuple[list[Kill], int]:
    """One to five kills, and how many studies may run at once."""
    rng = random.Random(seed)
    parties = ("hub", *NAMES)
    whom = [*parties, *(f"{p}/study" for p in parties), "everything"]
    weights = [3, *[2] * 4, 3, *[2] * 4, 3]
    kills = [
        Kill(rng.randrange(_EVENTS), rng.choices(whom, weights)[0], round(rng.uniform(0, 3), 1))
        for _ in range(rng.randint(1, 5))
    ]
    return sorted(kills, key=lambda k: k.after), rng.choice((1, 1, 2))


class _Forked(study.children.Child):
    """A study's process, forked instead of started anew."""

    pid = 0

    @property
    def alive(self) -> bool:
        return self.pid != 0 and self._status is None

    _status: int | None = None

    def start(self) -> bool:
        if self.pid and self._wait() is None:
            return True
        if self.pid or self._clock() < self._not_before:
            return False
        self._began, self._status = self._clock(), None
        words, parent = self._words, os.getpid()
        if "documents" in words:  # reports are not what is tried here
            return False

        def work() -> int:
            end_with(parent)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            try:
                main(words[1:] if words[0] == "cli.main" else words)
            except SystemExit as e:
                return int(e.code or 0)
            return 0

        self.pid = fork(parent, self.log, work)
        return True

    def _wait(self) -> int | None:
        if self._status is None and self.pid:
            ended, code = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self._status = os.waitstatus_to_exitcode(code)
        return self._status

    def ended(self) -> int | None:
        if not self.pid or (status := self._wait()) is None:
            return None
        self.pid, self._status = 0, None
        return status

    def end(self) -> None:
        if self.pid and self._wait() is None:
            os.kill(self.pid, signal.SIGTERM)
            os.waitpid(self.pid, 0)
        self.pid, self._status = 0, None


def _hasty() -> None:
    """In this process and all that it forks: nothing waits longer than a test should."""
    coordinator.serving.Child = _Forked  # type: ignore[misc]
    silo.serving.Child = _Forked  # type: ignore[misc]
    silo.serving._PAUSE = 0.2
    coordinator.serving._LOOK = 0.1
    study.children._FIRST_PAUSE = 0.1
    study.children._LONGEST_PAUSE = 1.0
    coordinator.program._GRACE = 1.5


class _World:
    def __init__(self, folder: Path, slots: int) -> None:
        self.path, self.slots = folder, slots
        folder.mkdir(parents=True)
        self.parties = Consortium(folder, NAMES)
        self.board = Board(folder / "hub", self.parties.roster)
        self.port = _free_ports(3)
        for name in NAMES:
            (folder / f"{name}.toml").write_text(
                f'home = "{name}"\ncoordinator = "127.0.0.1:{self.port}"\nslots = {slots}\n'
                '[accept]\nmethods = ["fedavg"]\nwithout_noise = true\n'
            )
        self.pids: dict[str, int] = {}
        self.due: list[tuple[float, str]] = []
        self.restarts = 0

    def start(self, who: str) -> None:
        place = ["--listen", f"127.0.0.1:{self.port}", "--out", str(self.path / "runs")]
        words = ["coordinator", "serve", "--home", str(self.path / "hub"), *place]
        words += ["--slots", str(self.slots)]
        if who != "hub":
            words = ["silo", "serve", "--config", str(self.path / f"{who}.toml")]

        def work() -> int:
            os.setsid()
            try:
                main(words)
            except SystemExit as e:
                return int(e.code or 0)
            return 0

        self.pids[who] = fork(os.getpid(), self.path / f"{who}.log", work)

    def propose(self, seed: int) -> tuple[str, Study]:
        settings = {"method": "fedavg", "corpus": _CORPUS, "rounds": _ROUNDS, "epochs": 1}
        settings |= {"batch": 8, "minimum": 3, "deadline": 10.0, "seed": seed}
        file = self.parties.study(title=f"Number {seed}", **settings)
        machine = Machine(self.path / "hub")
        of = coordinator_study(read_study(file), self.parties.roster, machine)
        posted = self.board.post(
            title=of.study.title, text=file.read_text(), hash=of.hash.hex(), enough=3
        )
        return posted.id, of.prepared

    def runs(self) -> list[Path]:
        return sorted((self.path / "runs").glob("study-*"))

    def progress(self) -> int:
        events = sum(len(read_lines(run / "events.jsonl")) for run in self.runs())
        return events + len(list((self.path / "hub" / "studies").glob("*/answers/*.json")))

    def strike(self, kill: Kill) -> None:
        party, _, study_only = kill.who.partition("/")
        struck = list(self.pids) if party == "everything" else [party]
        for who in struck:
            if who not in self.pids:  # it is down already
                continue
            process = psutil.Process(self.pids[who])
            for child in process.children(recursive=True):
                child.kill()
            if not study_only:
                process.kill()
                os.waitpid(self.pids.pop(who), 0)
                self.due.append((time.monotonic() + kill.down, who))

    def tend(self) -> None:
        """Start again whoever is due, or ended by itself, as systemd would."""
        for who, pid in list(self.pids.items()):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del self.pids[who]
                self.due.append((time.monotonic() + 0.5, who))
        for when, who in list(self.due):
            if time.monotonic() >= when:
                self.due.remove((when, who))
                self.start(who)
                self.restarts += 1

    def close(self) -> None:
        for who in list(self.pids):
            self.strike(Kill(0, who, 0))


def _free_ports(count: int) -> int:
    while True:
        with socket.create_server(("127.0.0.1", 0)) as s:
            first = int(s.getsockname()[1])
        try:
            for port in range(first + 1, first + count):
                socket.create_server(("127.0.0.1", port)).close()
            return first
        except (OSError, OverflowError):
            continue


def play(folder: Path, kills: list[Kill], slots: int, keep: bool = False) -> Result:
    """Both studies, from the first proposal to the comparison of models, rounds and ledgers."""
    _hasty()
    world, began, left = _World(folder, slots), time.monotonic(), list(kills)
    studies: dict[str, Study] = {}
    result = Result(False, f"hangs after {_LIMIT:.0f} s")
    try:
        for who in ("hub", *NAMES):
            world.start(who)
        studies |= [world.propose(1)]
        if slots > 1:
            studies |= [world.propose(2)]
        while time.monotonic() - began < _LIMIT:
            world.tend()
            while left and world.progress() >= left[0].after:
                result.met.append(str(left[0]))
                world.strike(left.pop(0))
            if all(world.board[s].outcome for s in studies):
                if len(studies) == 2:
                    result.why = ""
                    break
                studies |= [world.propose(2)]
            time.sleep(0.02)
    finally:
        world.close()
    result.seconds, result.restarts = time.monotonic() - began, world.restarts
    result.why = result.why or _judged(world, studies)
    result.ok = result.why == "correct"
    if result.ok and not keep:
        shutil.rmtree(folder)
    return result


def _judged(world: _World, studies: dict[str, Study]) -> str:
    """In a process of its own: what it opens is not inherited by the next schedule's."""
    verdict = world.path / "verdict"

    def work() -> int:
        verdict.write_text(_wrong(world, studies) or "correct")
        return 0

    os.waitpid(fork(os.getpid(), world.path / "verdict.log", work), 0)
    return verdict.read_text() if verdict.exists() else "nobody could judge it; see verdict.log"


def _wrong(world: _World, studies: dict[str, Study]) -> str:
    """What is not as it should be after both studies; empty: nothing."""
    asked: dict[str, Counter[int]] = {name: Counter() for name in NAMES}
    counted: dict[str, Counter[int]] = {name: Counter() for name in NAMES}
    called = {f"silo-{i:03d}": c.name for i, c in enumerate(world.parties.roster.silos)}
    for id_, prepared in studies.items():
        posted = world.board[id_]
        if posted.outcome != "finished":
            return f"study {id_}: {posted.outcome}"
        run = world.path / "runs" / f"study-{posted.hash[:12]}"
        rounds, events = read_lines(run / "rounds.jsonl"), read_lines(run / "events.jsonl")
        if [r["round"] for r in rounds] != list(range(_ROUNDS)):
            return f"study {id_} has the rounds {[r['round'] for r in rounds]}"
        if spent := [e for e in events if e["event"] == "round-spent"]:
            return f"study {id_}: {len(spent)} rounds were given up"
        was, should = replay(run, prepared, world.path / f"replay-{id_}")
        if was != should:
            return f"study {id_}: another model than its survivors give"
        for r in rounds:
            for number in r["survivors"]:
                counted[called[number]][r["round"]] += 1
        for e in events:
            if e["event"] == "computing":
                asked[called[e["silo"]]][e["round"]] += 1
    return _budgets(world.path, asked, counted)


def _budgets(path: Path, asked: dict[str, Any], counted: dict[str, Any]) -> str:
    """A silo was charged for every round that it is in, and never more often than it was asked."""
    for name in NAMES:
        ledger = read_lines(path / name / "ledger.jsonl")
        charged = Counter((entry["round"], entry["disclosure"]) for entry in ledger)
        for round, what in [
            (r, w) for r in range(_ROUNDS) for w in {d for _, d in charged} or {""}
        ]:
            least, most, n = counted[name][round], asked[name][round], charged[round, what]
            if not least <= n <= most:
                return f"{name}, round {round + 1}: charged {n} times, in {least} sums, asked {most} times"
    return ""
