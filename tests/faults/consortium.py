"""A consortium under one schedule of faults: a coordinator and silos that serve, two studies one
after the other (or at once), and kills of everything there is, at any point of their progress.
Whoever is killed is started again within the stated time. In half of the schedules silos stay away for
longer than the grace; in half of those, three of the four take part, and every sum needs all three.

The programs are those of `sottovoce coordinator serve` and `sottovoce silo serve`, forked from one
warm process so that a schedule takes seconds; so are the studies' own processes, which the programs
would start with `python -m`. Sockets, files, signals and signatures are real.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

import coordinator.evaluation
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
from silo.session import Session
from study.machine import Machine
from study.prepare import Study
from tests.conftest import free_ports
from tests.consortium import Consortium
from tests.faults.verdict import judged
from tests.faults.world import Result

__all__ = ["NAMES", "Kill", "Schedule", "World", "drawn", "hasty", "play"]

_LIMIT = 240.0  #: seconds after which two studies of this size hang
NAMES = ("north", "east", "south", "west")
_CORPUS = "distant:sentences=60,dev=20,test=20,entities=20,filler=20"
_ROUNDS = 2
_EPSILON = 100.0
_LOADED = (
    *("silo.program", "methods.fedavg", "methods.dp.engine", "methods.dp.optimizer"),
    *("corpora.recipe", "privacy.second_opinion", "dp_accounting.pld.privacy_loss_distribution"),
)
_GRACE = 10.0  #: seconds that a silo has to come back into its exchange: longer than most are down
_SHORT = 1.0  #: the same, where silos are to be away for longer
_SIGNING = 0.4  #: seconds that a silo takes to sign and to release there, so that kills fall on it
_EVENTS = 80  #: lines that an undisturbed pair of studies leaves in events.jsonl and answers, about


@dataclass(frozen=True)
class Kill:
    """Kill `who` once so much has happened, and start it again `down` seconds later."""

    after: int  #: events of both studies, and answers of silos
    who: str  #: a party, a party's study ("east/study"), or "everything"
    down: float

    def __str__(self) -> str:
        return f"kill {self.who} after {self.after}, down {self.down:.1f} s"


@dataclass(frozen=True)
class Schedule:
    kills: tuple[Kill, ...]
    slots: int = 1  #: studies that may run at once
    private: bool = False  #: whether they have a privacy budget
    long: bool = False  #: whether silos are away for longer than the grace
    needed: bool = False  #: whether the last silo never comes, so that all others are needed

    @property
    def silos(self) -> tuple[str, ...]:
        return NAMES[:-1] if self.needed else NAMES

    def __str__(self) -> str:
        words = [
            f"{self.slots} at once",
            "with a privacy budget" if self.private else "without noise",
        ]
        words += ["away for long"] * self.long + ["all needed"] * self.needed
        return "; ".join([", ".join(words), *map(str, self.kills)])


def drawn(seed: int) -> Schedule:
    """One to five kills."""
    rng = random.Random(seed)
    parties = ("hub", *NAMES)
    whom = [*parties, *(f"{p}/study" for p in parties), "everything"]
    weights = [3, *[2] * 4, 3, *[2] * 4, 3]
    kills = [
        Kill(rng.randrange(_EVENTS), rng.choices(whom, weights)[0], round(rng.uniform(0, 3), 1))
        for _ in range(rng.randint(1, 5))
    ]
    ordered = tuple(sorted(kills, key=lambda k: k.after))
    made = Schedule(ordered, slots=rng.choice((1, 1, 2)), private=rng.random() < 0.5)
    if rng.random() < 0.5:
        return made
    # Whole silos, for whom the coordinator has to wait; sums are opened while they are killed.
    made = replace(made, long=True, needed=rng.random() < 0.5)
    longer = [
        Kill(k.after, rng.choice(made.silos), round(rng.uniform(_SHORT + 0.5, _SHORT + 5), 1))
        if rng.random() < 0.6
        else k
        for k in made.kills
    ]
    return replace(made, kills=tuple(longer))


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


_propose, _unmask = Session._propose, Session._unmask


def _slowly(step: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    def slow(self: Session, *told: Any) -> Iterator[Any]:
        time.sleep(_SIGNING)
        yield from step(self, *told)
        time.sleep(_SIGNING)

    return slow


def hasty(forked: bool = True, long: bool = False) -> None:
    """In this process and all that it forks: nothing waits longer than a test should, and nothing is
    imported by each of them anew. `forked`: also the studies' processes, which would be started
    anew. `long`: silos are away for longer than the grace, and take their time to open sums.
    """
    for name in _LOADED:
        importlib.import_module(name)
    if forked:
        coordinator.serving.Child = _Forked  # type: ignore[misc]
        silo.serving.Child = _Forked  # type: ignore[misc]
    silo.serving._PAUSE = 0.2
    coordinator.serving._LOOK = 0.1
    study.children._FIRST_PAUSE = 0.1
    study.children._LONGEST_PAUSE = 1.0
    coordinator.evaluation._NICE = 0  # on a busy machine, scores would never come
    coordinator.program._GRACE = _SHORT if long else _GRACE
    Session._propose = _slowly(_propose) if long else _propose  # type: ignore[method-assign]
    Session._unmask = _slowly(_unmask) if long else _unmask  # type: ignore[method-assign]


class World:
    def __init__(self, folder: Path, slots: int, private: bool) -> None:
        self.path, self.slots, self.private = folder, slots, private
        folder.mkdir(parents=True)
        self.parties = Consortium(folder, NAMES)
        self.board = Board(folder / "hub", self.parties.roster)
        self.port = free_ports(3)
        for name in NAMES:
            (folder / f"{name}.toml").write_text(
                f'home = "{name}"\ncoordinator = "127.0.0.1:{self.port}"\nslots = {slots}\n'
                f'[accept]\nmethods = ["fedavg"]\nmaximum_epsilon = {_EPSILON}\n'
                f"without_noise = {str(not private).lower()}\n"
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
        if self.private:  # of which nobody is to run out, however often it is asked again
            settings |= {"dp": "record", "noise": 2.0, "epsilon": _EPSILON}
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

    def spent(self) -> int:
        """Rounds that were given up."""
        events = [e for run in self.runs() for e in read_lines(run / "events.jsonl")]
        return sum(e["event"] == "round-spent" for e in events)

    def together(self) -> bool:
        """Whether two studies ran at the same time."""
        ran = [[e["time"] for e in read_lines(run / "events.jsonl")] for run in self.runs()]
        return len(ran) == 2 and max(map(min, ran)) < min(map(max, ran))

    def strike(self, kill: Kill) -> None:
        party, _, study_only = kill.who.partition("/")
        struck = list(self.pids) if party == "everything" else [party]
        for who in struck:
            if who not in self.pids:  # it is down already
                continue
            process = psutil.Process(self.pids[who])
            for child in process.children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):  # it ended by itself just now
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


def play(folder: Path, schedule: Schedule, keep: bool = False) -> Result:
    """Both studies, from the first proposal to the comparison of models, rounds, ledgers and
    documents.
    """
    hasty(long=schedule.long)
    world = World(folder, schedule.slots, schedule.private)
    began, left = time.monotonic(), list(schedule.kills)
    studies: dict[str, Study] = {}
    result = Result(False, f"hangs after {_LIMIT:.0f} s")
    try:
        for who in ("hub", *schedule.silos):
            world.start(who)
        studies |= [world.propose(1)]
        if schedule.slots > 1:
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
    result.spent, result.together = world.spent(), world.together()
    result.why = result.why or judged(world.path, world.parties.roster, world.board, studies)
    result.ok = result.why == "correct"
    if result.ok and not keep:
        shutil.rmtree(folder)
    return result
