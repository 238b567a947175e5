"""A coordinator that serves for weeks: it shows its board to the silos of its consortium, and runs
one study after another, each in a process of its own (coordinator.program).

The board has one port. A study has the next one, for as long as it runs. The serving program itself
holds no model and no sum: it may be killed and started again at any time, and goes on from the
folder.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import zmq
from rich.console import Console

from config.errors import UserError
from config.logs import log_to
from coordinator.board import Board, Posted, Wanted
from coordinator.process import FAILED, INTERRUPTED
from study.children import Child
from study.machine import Machine, pinned_roster
from study.monitoring import Monitor, figures_beside
from study.presence import Presence
from wire.passphrase import open_keys
from wire.questions import QuestionServer

__all__ = ["Runner", "serve_board"]

log = logging.getLogger("coordinator")
_LOOK = 0.5  #: seconds between two looks at the folder
_STOPPED = "stopped by its operator"


class Runner:
    """Which study runs, and what becomes of it. One at a time: a silo's journal serves one."""

    def __init__(self, board: Board, machine: Machine, host: str, port: int) -> None:
        self._board, self._machine, self._host, self._port = board, machine, host, port
        self._study, self._child = "", Child([], Path())

    @property
    def running(self) -> dict[str, int]:
        return {self._study: self._port} if self._study and self._child.alive else {}

    def step(self) -> None:
        if self._study:
            self._follow(self._board[self._study])
        if not self._study:
            ready = (s for s in self._board.all() if s.ready)
            if (chosen := next(ready, None)) is not None:
                self._take(chosen)
        for posted in self._board.all():
            if posted.wanted is Wanted.STOP and not posted.outcome and posted.id != self._study:
                self._board.end(posted.id, _STOPPED)

    def _take(self, posted: Posted) -> None:
        folder = self._board.folder(posted.id)
        words = ["coordinator", "--config", str(folder / "study.toml")]
        words += ["--home", str(self._machine.home), "--listen", f"{self._host}:{self._port}"]
        words += ["--expect", ",".join(posted.said("accept"))]
        own = self._machine.settings
        if self._machine.metrics:
            own |= {"metrics": figures_beside(self._machine.metrics, 1)}
        for name, value in own.items():
            words += [f"--{name}", value]
        self._study, self._child = posted.id, Child(words, folder / "log")
        self._child.start()
        log.info("study %s (%s) runs; accepted by %s", posted.id, posted.title, words[-1])

    def _follow(self, posted: Posted) -> None:
        if posted.wanted is not Wanted.RUN:
            self._child.end()
            log.info("study %s: %s", posted.id, posted.wanted.value)
            self._study = ""
            return
        status = self._child.ended()
        if status is None:
            self._child.start()
            return
        if status == 0:
            self._board.end(posted.id, "finished")
            log.info("study %s is finished", posted.id)
            self._study = ""
        elif status == 2:  # a sentence for its operator: to start it again changes nothing
            self._board.end(posted.id, f"refused: {self._child.last_words()}"[:300])
            log.error("study %s ended: %s", posted.id, self._child.last_words())
            self._study = ""
        else:
            why = {FAILED: "too few silos", INTERRUPTED: "interrupted"}.get(
                status, f"status {status}"
            )
            log.warning("study %s ended (%s); it is started again", posted.id, why)
            self._child.pause()

    def close(self) -> None:
        self._child.end()


def serve_board(machine: Machine, listen: str, console: Console) -> int:
    """Until SIGTERM or Ctrl-C. A study that runs is interrupted then, and goes on with the next
    start.
    """
    log_to(sys.stderr)
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65535:
        raise UserError(f'--listen must be HOST:PORT, not "{listen}".')
    keys = open_keys(machine.home)
    if keys.card.role != "coordinator":
        raise UserError(f"{machine.home} has the keys of a {keys.card.role}, not of a coordinator.")
    roster = pinned_roster(keys)
    board = Board(machine.home, roster)
    runner = Runner(board, machine, host, int(port) + 1)
    stop: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _: stop.append(n))

    presence = Presence(machine.home)
    monitor = watched(machine.metrics, board, presence) if machine.metrics else None

    def answering(silo: str, said: Any) -> Any:
        presence.heard(silo)
        return board.heard(silo, said, runner.running)

    allowed = {card.curve.encode(): card.name for card in roster.silos}
    server = QuestionServer(keys.curve, answering, allowed)
    try:
        try:
            server.bind(host, int(port))
        except zmq.ZMQError as e:
            raise UserError(f"{listen} cannot be listened on ({e.strerror}).") from None
        console.print(
            f"{roster.consortium}: the board is on {listen}, studies run on port {int(port) + 1}",
            highlight=False,
        )
        while not stop:
            server.serve(_LOOK)
            runner.step()
            presence.beat(runner.running)
        return 0
    finally:
        runner.close()
        server.close()
        if monitor is not None:
            monitor.close()


def watched(address: str, board: Board, presence: Presence, places: int = 1) -> Monitor:
    """Health and figures at `address`, for as long as the board is shown."""

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
