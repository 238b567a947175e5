"""A coordinator that serves for weeks: it shows its board to the silos of its consortium, and runs
the studies that enough of them have accepted, each in a process of its own (coordinator.program).

The board has one port, and each study the next free one after it. The serving program holds no model
and no sum: it may be killed and started again at any time, and goes on from the folder. A new version
of the roster ends what was agreed on under the old one.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq
from rich.console import Console

from config.errors import BUSY, Busy, UserError
from config.logs import log_to
from config.settings import FOLDER
from config.study import read_study
from coordinator.board import Board, Posted, Wanted
from coordinator.process import FAILED, INTERRUPTED, WAITED
from methods.tasks.load import is_built_in
from report.live import LiveRun
from study.children import Child
from study.machine import Machine, pinned_roster, roster_stamp
from study.monitoring import Monitor, figures_beside
from study.presence import Presence, alone
from wire.keyring import Keyring
from wire.passphrase import open_keys, passphrase_for
from wire.questions import QuestionServer

__all__ = ["Runner", "serve_board"]

log = logging.getLogger("coordinator")
_LOOK = 0.5  #: seconds between two looks at the folder
_STOPPED = "stopped by its operator"
_MOST_SLOTS = 16


@dataclass(frozen=True)
class _Run:
    child: Child
    port: int


class Runner:
    """Which studies run, and what becomes of them. Studies start in the order in which they were
    proposed, as far as they are ready and a slot is free.
    """

    def __init__(
        self,
        board: Board,
        machine: Machine,
        host: str,
        port: int,
        slots: int = 1,
        patience: float = 0.0,
    ) -> None:
        """`port`: the first one for studies."""
        self._board, self._machine, self._host, self._patience = board, machine, host, patience
        self._ports = tuple(range(port, port + slots))
        self._runs: dict[str, _Run] = {}
        self._live: dict[str, LiveRun] = {}
        self._damaged: dict[
            str, str
        ] = {}  #: what of a study's files cannot be read, as it was said

    @property
    def running(self) -> dict[str, int]:
        """Study -> port, the one that began first before the others."""
        return {study: run.port for study, run in self._runs.items()}

    def step(self) -> None:
        for study in list(self._runs):
            self._follow(self._board[study])
        for posted in self._board.all():
            if posted.wanted is Wanted.STOP and not posted.outcome:
                self._board.end(posted.id, _STOPPED)
            elif posted.ready and posted.id not in self._runs and len(self._runs) < self._slots:
                self._take(posted)

    @property
    def _slots(self) -> int:
        return len(self._ports)

    def _take(self, posted: Posted) -> None:
        folder = self._board.folder(posted.id)
        taken = {run.port for run in self._runs.values()}
        free = [p for p in self._ports if p not in taken]
        # where it was before this program was started again, if it can: silos dial there
        port = min(free, key=lambda p: (p != self._board.port(posted.id), p))
        words = ["coordinator", "--config", str(folder / "study.toml")]
        words += ["--home", str(self._machine.home), "--listen", f"{self._host}:{port}"]
        words += ["--patience", str(self._patience), "--expect", ",".join(posted.said("accept"))]
        own = {**self._machine.settings, "mapping": self._machine.mapping}
        own["metrics"] = figures_beside(self._machine.metrics, self._ports.index(port) + 1)
        if read_study(folder / "study.toml").settings.public != FOLDER:
            own.pop("public", None)  # it is for studies that start from it
        for name, value in own.items():
            words += [f"--{name}", value] if value else []
        self._board.runs_in(posted.id, Path(self._machine.out or "runs"), port)
        self._news(posted.id)  # of an earlier start: said then
        child = Child(words, folder / "log")
        self._runs[posted.id] = _Run(child, port)
        child.start()
        names = ", ".join(posted.said("accept"))
        log.info("study %s (%s) runs; accepted by %s", posted.id, posted.title, names)

    def _follow(self, posted: Posted) -> None:
        child = self._runs[posted.id].child
        if posted.wanted is not Wanted.RUN:
            child.end()
            log.info("study %s: %s", posted.id, posted.wanted.value)
            del self._runs[posted.id]
            return
        if len(posted.said("accept")) < posted.needed:
            # nobody may wait for a silo that said no: it comes back only if it accepts again
            why = (
                f"{posted.left} left it, and a round needs {posted.needed} silos: stop it, or let "
                "it go on when they have accepted again"
            )
            child.end()
            self._hold(posted.id, why)
            return
        status = child.ended()
        for text in self._news(posted.id):
            log.info("study %s: %s", posted.id, text)
        if status is None:
            child.start()
        elif status == 0:
            self._end(posted, "finished")
        elif status == WAITED:
            self._end(posted, f"too few silos came back within {self._patience:.0f} s")
        elif status == 2:
            # A sentence for its operator, who can go on with it once the reason is gone. Others
            # need not wait for that.
            self._hold(posted.id, child.last_words())
        else:
            known = {
                FAILED: "too few silos",
                INTERRUPTED: "interrupted",
                BUSY: "something is in use",
            }
            why = known.get(status, f"status {status}")
            log.warning("study %s ended (%s); it is started again", posted.id, why)
            child.pause()

    def _hold(self, id_: str, why: str) -> None:
        self._board.hold(id_, why)
        del self._runs[id_]
        log.error("study %s is paused: %s", id_, why)

    def _news(self, id_: str) -> list[str]:
        """Rounds, losses, returns and who is waited for, since the last time, for whoever reads this
        program's log.
        """
        try:
            if id_ not in self._live:
                if (run := self._board.run(id_)) is None:
                    return []
                self._live[id_] = LiveRun(run)
            return self._live[id_].catch_up()
        except UserError as e:  # not a reason to end what every study depends on
            new = self._damaged.get(id_) != str(e)
            self._damaged[id_] = str(e)
            return [str(e)] if new else []

    def _end(self, posted: Posted, outcome: str) -> None:
        self._board.end(posted.id, outcome)
        del self._runs[posted.id]
        self._live.pop(posted.id, None)
        log.info("study %s: %s", posted.id, outcome)

    def close(self) -> None:
        for run in self._runs.values():
            run.child.end()


def serve_board(
    machine: Machine, listen: str, *, patience: float, slots: int, console: Console
) -> int:
    """Until SIGTERM or Ctrl-C. Studies that run are interrupted then, and go on with the next
    start. `patience`: seconds after which a study that lacks silos is given up, 0 for never;
    `slots`: studies that may run at once.
    """
    log_to(sys.stderr)
    host, _, text = listen.rpartition(":")
    if not host or not text.isdigit() or not 0 < int(text) < 65535 - _MOST_SLOTS:
        raise UserError(f'--listen must be HOST:PORT, not "{listen}".')
    if not 1 <= slots <= _MOST_SLOTS or patience < 0:
        raise UserError(f"--slots must be from 1 to {_MOST_SLOTS}, and --patience not negative.")
    if machine.corpus and not is_built_in(machine.corpus) and not Path(machine.corpus).is_dir():
        raise UserError(f"--corpus: there is no folder {machine.corpus}.")
    port, phrase = int(text), passphrase_for(machine.home)
    stop: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _: stop.append(n))
    with alone(machine.home):
        _serve(machine, (host, port), phrase, stop, patience=patience, slots=slots, console=console)
    return 0


def _serve(
    machine: Machine,
    place: tuple[str, int],
    phrase: str,
    stop: list[int],
    *,
    patience: float,
    slots: int,
    console: Console,
) -> None:
    host, port = place
    while not stop:
        stamp = roster_stamp(machine.home)
        keys = open_keys(machine.home, phrase)
        if keys.card.role != "coordinator":
            raise UserError(
                f"{machine.home} has the keys of a {keys.card.role}, not of a coordinator."
            )
        board = Board(machine.home, pinned_roster(keys))
        for ended in board.retire():
            log.warning("study %s: the roster has a new version; propose it again", ended)
        runner = Runner(board, machine, host, port + 1, slots, patience)
        presence = Presence(machine.home)
        server = _listening(keys, board, runner, presence, host, port)
        monitor = watched(machine.metrics, board, presence, slots) if machine.metrics else None
        try:
            last = port + slots
            console.print(
                f"{board.roster.consortium}, roster version {board.roster.version}: the board is on "
                f"{host}:{port}, studies run on port {port + 1}{f' to {last}' if slots > 1 else ''}",
                highlight=False,
            )
            while not stop and roster_stamp(machine.home) == stamp:
                runner.step()
                presence.beat(runner.running)
                server.serve(_LOOK)
        finally:
            runner.close()
            server.close()
            if monitor is not None:
                monitor.close()


def watched(address: str, board: Board, presence: Presence, places: int = 1) -> Monitor:
    """Health and figures at `address`, for as long as the board is shown. `places`: studies that may
    run at once.
    """

    def studies() -> dict[str, int]:
        running = presence.seen.running
        states = Counter(
            "ended" if s.outcome else "running" if s.id in running else s.wanted.standing
            for s in board.all()
        )
        return {state: states[state] for state in ("proposed", "running", "paused", "ended")}

    name = board.roster.coordinator.name
    return Monitor(
        address, role="coordinator", name=name, presence=presence, studies=studies, places=places
    )


def _listening(
    keys: Keyring, board: Board, runner: Runner, presence: Presence, host: str, port: int
) -> QuestionServer:
    def answering(silo: str, said: Any) -> Any:
        presence.heard(silo)
        told = board.heard(silo, said, runner.running)
        match said:
            case ["accept", str(id_), *_]:
                log.info("study %s: %s accepts", id_, silo)
            case ["decline", str(id_), str(why)]:
                log.info("study %s: %s declines: %s", id_, silo, why[:300] or "it gives no reason")
        return told

    allowed = {card.curve.encode(): card.name for card in board.roster.silos}
    revoked = {r.curve.encode(): r.name for r in board.roster.revoked}
    server = QuestionServer(keys.curve, answering, allowed, revoked)
    try:
        server.bind(host, port)
    except zmq.ZMQError as e:
        server.close()
        raise Busy(f"{host}:{port} cannot be listened on ({e.strerror}).") from None
    return server
