"""What a silo writes down of a study for its own officer, from what it itself heard and said: what
left, when, at what cost in bytes and epsilon, and what it declined.

One folder per study, `records/<study hash>` under the silo's own: `about.json` (which study, what was
agreed to), `left.jsonl` (a line for everything that left, and for everything that was declined),
`traffic.jsonl` (bytes, as the coordinator counts them). Nothing here is taken from the coordinator's
word, and nothing here is sent. `sottovoce documents` makes the silo's documents of it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from methods.base import Method
from wire import messages as m
from wire.counter import ByteCounter
from wire.order import NUMBER_BYTES

__all__ = ["Record", "record_folder"]


def record_folder(home: Path, study: bytes) -> Path:
    return home / "records" / study.hex()[:12]


class Record:
    """Told of every message; writes a line before what it is about leaves."""

    def __init__(self, folder: Path, name: str, method: Method) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder, self._name, self._method = folder, name, method
        self._counter = ByteCounter()
        self._round, self._exchange = -1, 0
        self._charged: Sequence[Mapping[str, Any]] = ()

    def dialled(self) -> None:
        self._counter.connection(self._name)

    def heard(self, message: m.Message, payload: Any) -> None:
        if isinstance(message, m.Broadcast):
            self._round = self._counter.round = message.round
            self._exchange = message.exchange
        self._count("down", message, payload)
        if isinstance(message, (m.RoundOver, m.Stop)):
            self.flush()

    def sending(self, message: m.Message, payload: Any) -> None:
        """Called before the message goes."""
        if isinstance(message, m.Ready):
            self._charged = message.charged
        elif isinstance(message, m.SealedStart):
            self._left("sealed")
        elif isinstance(message, m.SumStart):
            self._left("masked")
        elif isinstance(message, m.Refused):
            self._append(
                "left.jsonl",
                {"what": "declined", "name": message.attack, "detail": message.detail[:300]},
            )
        self._count("up", message, payload)

    def _left(self, channel: str) -> None:
        exchange = self._method.exchanges[self._exchange]
        said = {c["disclosure"]: c for c in self._charged}
        for disclosure in exchange.disclosures:
            if disclosure.channel != channel:
                continue
            charge = said.get(disclosure.name, {})
            self._append(
                "left.jsonl",
                {
                    "what": "left",
                    "exchange": exchange.name,
                    "name": disclosure.name,
                    "channel": channel,
                    "event": charge.get("event", ""),
                    "epsilon_after": charge.get("epsilon_after"),
                    "delta": charge.get("delta"),
                },
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
        self._append("traffic.jsonl", *self._counter.drain())

    def _append(self, file: str, *lines: Mapping[str, Any]) -> None:
        stamp: dict[str, Any] = {}
        if file == "left.jsonl":
            stamp = {"time": round(time.time(), 3), "round": self._round}
        text = "".join(json.dumps({**stamp, **line}) + "\n" for line in lines)
        handle = os.open(self._folder / file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(handle, text.encode())
            os.fsync(handle)
        finally:
            os.close(handle)


_CHANNELS = {"upload": "masked", "sealed": "sealed"}


def _channel(direction: str, message: m.Message) -> str:
    if isinstance(message, m.Chunk):
        if direction == "down":
            return "broadcast"
        return message.stream if message.stream in ("masked", "sealed") else "control"
    return _CHANNELS.get(message.kind, "control") if direction == "up" else "control"
