"""What a silo writes down of a study for its own officer, from what it itself heard and said: what
left, when, in which sums, at what cost in bytes, and what it declined.

One folder per study, `records/<study hash>` under the silo's own: `about.json` (which study, what was
agreed to), `left.jsonl` (a line for everything that left, for every sum that was opened with this
silo's help, for everything that was declined, and for every connection, on which device), `traffic.jsonl` (bytes, as
the coordinator counts them). What it cost in privacy is in the ledger. Nothing here is taken from the
coordinator's word, and nothing here is sent. `sottovoce documents` makes the silo's documents of it.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from methods.base import Method
from models.device import device_words
from silo.appended import AppendOnly
from wire import messages as m
from wire.counter import ByteCounter
from wire.order import NUMBER_BYTES

__all__ = ["Record", "record_folder"]

_MOST_DETAIL = 300  #: characters of a refusal's reason


def record_folder(home: Path, study: bytes) -> Path:
    return home / "records" / study.hex()[:12]


class Record:
    """Told of every message; writes a line before what it is about leaves."""

    def __init__(self, folder: Path, name: str, method: Method, names: Mapping[str, str]) -> None:
        """`names`: what people call the silos."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder, self._name, self._method, self._names = folder, name, method, names
        self._counter = ByteCounter()
        for file in ("left.jsonl", "traffic.jsonl"):
            _cut_unfinished(folder / file)
        # A silo that was started again is where it was.
        self._round = self._counter.round = _last_round(folder / "left.jsonl")
        self._exchange = 0
        self._asked: list[str] = []  #: whose parts are in the sum that is to be opened
        self._answered = False  #: whether the coordinator spoke on this connection
        self._greeting: list[dict[str, Any]] = []  #: bytes that were counted before it did

    def dialled(self) -> None:
        self._answered, self._greeting = False, []
        self._counter.connection(self._name)

    def cut(self, stood: bool) -> None:
        """`stood`: somebody with the coordinator's key was there, whether or not it said a word."""
        self.flush()
        if stood:
            self._connected()
            self._append("left.jsonl", {"what": "connection lost"})
        else:  # the greeting never went out
            self._append("traffic.jsonl", *({**x, **_negative(x)} for x in self._greeting))

    def _connected(self) -> None:
        if not self._answered:
            self._answered = True
            self._append("left.jsonl", {"what": "connected", "computes_on": device_words()})

    def heard(self, message: m.Message, payload: Any) -> None:
        self._connected()
        # One that the session will refuse must not move this record.
        if isinstance(message, m.Broadcast) and 0 <= message.exchange < len(self._method.exchanges):
            self._round = self._counter.round = message.round
            self._exchange = message.exchange
        elif isinstance(message, m.SumStep) and message.step == "unmask":
            said = message.record.get("survivors")
            self._asked = [str(s) for s in said] if isinstance(said, list) else []
        elif isinstance(message, m.Closed) and not message.ok:
            self._append("left.jsonl", {"what": "sum given up", **self._where()})
        self._count("down", message, payload)
        if not isinstance(message, m.Chunk):
            self.flush()

    def sending(self, message: m.Message, payload: Any) -> None:
        """Called before the message goes."""
        if isinstance(message, m.SealedStart):
            if any(math.prod(shape) for _, _, shape in message.arrays):
                self._left("sealed")
        elif isinstance(message, m.SumStart):
            self._left("masked")
        elif isinstance(message, m.SumStep) and message.step == "release":
            silos = [self._names.get(silo, silo) for silo in self._asked]
            self._append("left.jsonl", {"what": "sum opened", **self._where(), "silos": silos})
        elif isinstance(message, m.Refused):
            declined = {"name": message.attack, "detail": message.detail[:_MOST_DETAIL]}
            self._append("left.jsonl", {"what": "declined", **declined})
        self._count("up", message, payload)
        self.flush()  # a silo that is killed now has sent it, and must say so

    def _where(self) -> dict[str, str]:
        return {"exchange": self._method.exchanges[self._exchange].name}

    def _left(self, channel: str) -> None:
        exchange = self._method.exchanges[self._exchange]
        # What is signed travels with what is masked.
        channels = ("masked", "signed") if channel == "masked" else (channel,)
        self._append(
            "left.jsonl",
            *(
                {"what": "left", **self._where(), "name": d.name, "channel": d.channel}
                for d in exchange.disclosures
                if d.channel in channels
            ),
        )

    def _count(self, direction: str, message: m.Message, payload: Any) -> None:
        """As the coordinator counts the same message (wire.router)."""
        sizes = [NUMBER_BYTES + len(m.encode(message))]
        if payload is not None:
            sizes.append(memoryview(payload).nbytes)
        self._counter.count(
            self._name, message.kind, _channel(direction, message), direction, sizes
        )

    def flush(self) -> None:
        lines = list(self._counter.drain())
        if not self._answered:
            self._greeting += lines
        self._append("traffic.jsonl", *lines)

    def _append(self, file: str, *lines: Mapping[str, Any]) -> None:
        stamp: dict[str, Any] = {}
        if file == "left.jsonl":
            stamp = {"time": round(time.time(), 3), "round": self._round}
        text = "".join(json.dumps({**stamp, **line}) + "\n" for line in lines)
        handle = os.open(self._folder / file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(handle, text.encode())
            if stamp:  # bytes are counted; what left is on the disk before it leaves
                os.fsync(handle)
        finally:
            os.close(handle)


def _negative(line: Mapping[str, Any]) -> dict[str, int]:
    return {k: -line[k] for k in ("messages", "payload_bytes", "wire_bytes")}


def _cut_unfinished(path: Path) -> None:
    """What a power loss left of a last line: nothing may be written behind it."""
    if path.exists():
        file = AppendOnly(path, "record of what left")
        file.read()
        file.close()


def _last_round(path: Path) -> int:
    """Of the last whole line; -1: none."""
    if not path.exists():
        return -1
    lines = path.read_bytes().split(b"\n")[:-1]
    return int(json.loads(lines[-1])["round"]) if lines else -1


_CHANNELS = {"upload": "masked", "sealed": "sealed"}


def _channel(direction: str, message: m.Message) -> str:
    if isinstance(message, m.Chunk):
        if direction == "down":
            return "broadcast"
        return message.stream if message.stream in ("masked", "sealed") else "control"
    return _CHANNELS.get(message.kind, "control") if direction == "up" else "control"
