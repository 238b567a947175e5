"""Faults at exact steps of a real process: it kills itself with SIGKILL, asks for its line to be
cut, its messages come late, twice or in another order, its disk is full or its clock wrong.
Installed in a forked child, before the program of that child begins.

A step is a message sent or heard, or something written to disk; each has a number within the
process's life and a name.
"""

from __future__ import annotations

import errno
import math
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import coordinator.checkpoint
import coordinator.reopen
import silo.memory
from coordinator.runlog import RunLog
from silo.journal import FileJournal
from silo.kept_shares import KeptShares
from silo.ledger import Ledger
from silo.rules import Hours
from wire import messages as m
from wire.dealer import Dealer
from wire.messages import decode
from wire.order import split
from wire.router import Received, Router

__all__ = ["ACTIONS", "Fault", "install"]

#: what a random schedule has; "full", "clock", "closed" and "stop" are for plays
ACTIONS = ("kill", "cut", "delay", "twice", "swap")


@dataclass(frozen=True)
class Fault:
    actor: str  #: "coordinator" or a silo's name
    life: int  #: which of its processes, from 0
    action: str
    step: int = -1  #: number of the step, or
    name: str = ""  #: its name, the `occurrence`-th time
    occurrence: int = 0
    seconds: float = 0.0
    down: float = 0.0  #: seconds until who was killed is started again; 0: as the schedule says

    def __str__(self) -> str:
        where = f"step {self.step}" if self.step >= 0 else f"{self.name} #{self.occurrence}"
        away = f", down {self.down:.1f} s" if self.down else ""
        return f"{self.action} {self.actor}.{self.life} at {where}{away}"


class _Steps:
    def __init__(self, log: Path, faults: list[Fault], line: int, number: int) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._faults, self._line, self._number = faults, line, number
        self._count, self._seen = 0, dict[str, int]()
        self.held: list[Callable[[], None]] = []
        self.opens = 0.0  #: when a silo's hours begin again

    def at(self, name: str) -> str:
        """Returns "twice", "swap" or "kill-after" where a message is to be sent so."""
        seen = self._seen[name] = self._seen.get(name, -1) + 1
        count, self._count = self._count, self._count + 1
        os.write(self._log, f"{name} {seen}\n".encode())
        how = ""
        for f in self._faults:
            if (f.step if f.step >= 0 else count) != count or (
                f.name and (f.name, f.occurrence) != (name, seen)
            ):
                continue
            os.write(self._log, f"! {f.action}\n".encode())
            if f.action == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif f.action == "stop":  # what its operator does
                os.kill(os.getpid(), signal.SIGTERM)
            elif f.action == "cut":
                os.write(self._line, bytes([self._number]))
                time.sleep(0.05)  # the relay hangs up meanwhile
            elif f.action == "delay":
                time.sleep(f.seconds)
            elif f.action == "closed":  # its hours end here, for so long
                self.opens = time.monotonic() + f.seconds
            else:
                how = f.action
        return how

    def disk(self, name: str) -> None:
        if self.at(name) == "full":
            raise OSError(errno.ENOSPC, "no space left (a fault)")

    def around(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            self.disk(f"{name}:before")
            value = real(*arguments, **named)
            self.at(f"{name}:after")
            return value

        return wrapped

    def transmit(self, name: str, really: Callable[[], None]) -> None:
        how = self.at(f"send:{name}")
        if how == "swap" and name != "hello":
            self.held.append(really)
            return
        really()
        if how == "kill-after":
            time.sleep(0.3)  # libzmq sends in a thread of its own
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "twice":
            really()
        self.flush()

    def flush(self) -> None:
        held, self.held = self.held, []
        for really in held:
            really()


def _named(message: m.Message) -> str:
    return f"sum-{message.step}" if isinstance(message, m.SumStep) else message.kind


def _set_clock(ahead: float) -> None:
    """For all of this process's life: libraries that ask the system are not deceived, and ours go
    by these two.
    """
    seconds, nanoseconds = time.time, time.time_ns
    time.time, time.time_ns = lambda: seconds() + ahead, lambda: nanoseconds() + int(ahead * 1e9)


def install(log: Path, faults: list[Fault], line: int, number: int) -> None:
    """In a child. `line`: a pipe on which a byte, `number`, asks the relay to cut this process's
    connections.
    """
    for f in faults:
        if f.action == "clock":
            _set_clock(f.seconds)
    steps = _Steps(log, [f for f in faults if f.action != "clock"], line, number)

    def transmits(cls: Any, header: int) -> None:
        real = cls._transmit

        def transmit(self: Any, frames: list[Any]) -> None:
            name = _named(decode(split(frames[header])[1]))
            if name == "ping":
                real(self, frames)
                return
            kept = [bytes(f) for f in frames]  # the sender reuses its buffers
            steps.transmit(name, lambda: real(self, kept))

        cls._transmit = transmit

    def receives(cls: Any, message: Callable[[Any], m.Message | None]) -> None:
        real = cls.receive

        def receive(self: Any, timeout: float) -> Any:
            steps.flush()
            heard = real(self, timeout)
            said = message(heard) if heard is not None else None
            if said is not None and said.kind != "ping":
                steps.at(f"hear:{_named(said)}")
            return heard

        cls.receive = receive

    hours: Any = Hours
    hours.holds = lambda self, now: time.monotonic() >= steps.opens
    hours.seconds_until = lambda self, now: max(0, math.ceil(steps.opens - time.monotonic()))
    transmits(Dealer, 0)
    transmits(Router, 1)
    receives(Dealer, lambda heard: heard[0])
    receives(Router, lambda event: event.message if isinstance(event, Received) else None)
    FileJournal.put = steps.around("journal", FileJournal.put)  # type: ignore[method-assign]
    Ledger.charge = steps.around("ledger", Ledger.charge)  # type: ignore[method-assign]
    KeptShares.keep = steps.around("release", KeptShares.keep)  # type: ignore[method-assign]
    RunLog.traffic = steps.around("runlog", RunLog.traffic)  # type: ignore[method-assign]
    silo.memory.save_arrays = steps.around("memory", silo.memory.save_arrays)
    coordinator.checkpoint.write = steps.around("checkpoint", coordinator.checkpoint.write)
    coordinator.checkpoint.write_midway = steps.around(
        "midway", coordinator.checkpoint.write_midway
    )
    coordinator.reopen.keep = steps.around("sum", coordinator.reopen.keep)
