"""The run directory: every file the design names, each written as things happen and by nobody else.

Lines are appended whole and flushed, so that whoever follows the run (the terminal, `watch`, a
crash's survivor) never takes half of one for a line. What a power loss left of a last line is cut
off by whoever goes on with the run.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from crypto.errors import Refusal
from methods.base import Method
from privacy.events import UnknownEvent, from_record
from report.event_file import to_line
from report.events import Event
from report.files import read_lines
from wire.counter import ByteCounter

__all__ = ["RunLog", "checked_charges"]

log = logging.getLogger("coordinator.events")
_CLEAR = "the coordinator: nothing was masked"


_UNSAID: Mapping[str, Any] = {
    "event": "non-private release, of which the silo's ledger said nothing",
    "mechanism": {"kind": "non-private"},
    "epsilon_after": "inf",
    "rdp_epsilon_after": "inf",
    "delta": 0.0,
    "unit": "record",
}
_SAID = {"disclosure", "exchange", *_UNSAID}
_MOST_CHARGES = 64
_PIECE = 1 << 16  #: bytes of a file's end that are looked at at once


def checked_charges(said: list) -> list[dict[str, Any]]:
    """What a silo says of its ledger, if it has the shape of such a thing."""
    if len(said) > _MOST_CHARGES:
        raise Refusal("oversize", f"{len(said)} charges for one answer")
    for line in said:
        if not isinstance(line, dict) or set(line) != _SAID:
            raise Refusal("wrong-shape", "a charge without the declared fields")
        try:
            if line["mechanism"] != {}:
                from_record(line["mechanism"])
        except UnknownEvent as e:
            raise Refusal("wrong-shape", f"a charge whose mechanism is none: {e}") from None
        for key, value in line.items():
            if key == "mechanism":
                continue
            text = key in ("disclosure", "exchange", "event", "unit") or value == "inf"
            good = isinstance(value, str) and len(value) <= 300 if text else _figure(value)
            if not good:
                raise Refusal("wrong-shape", f"a charge whose {key} is not what it should be")
    return said


def _figure(value: Any) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and 0 <= value < float("inf")
    )


def _close(files: dict[str, int]) -> None:
    while files:
        os.close(files.popitem()[1])


def _open(path: Path) -> int:
    """To append to. A last line that was never finished goes: nothing may be written behind it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    end = at = os.fstat(file).st_size
    while at:
        begin = max(0, at - _PIECE)
        if (found := os.pread(file, at - begin, begin).rfind(b"\n")) >= 0:
            at = begin + found + 1
            break
        at = begin
    if at < end:
        log.warning("%s: %d bytes of a line that was never finished are cut off", path, end - at)
        os.ftruncate(file, at)
    return file


def _write(file: int, text: bytes) -> None:
    """All of it, or nothing."""
    at = os.fstat(file).st_size
    if os.write(file, text) != len(text):
        os.ftruncate(file, at)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class RunLog:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: dict[str, int] = {}
        # A process may make many runs one after another.
        self.close = weakref.finalize(self, _close, self._files)
        #: Told of every line that was written, and by its file: whoever keeps figures for somebody
        #: else.
        self.observer: Callable[[str, Mapping[str, Any]], None] | None = None

    def append(self, file: str, *lines: Mapping[str, Any]) -> None:
        if file not in self._files:
            self._files[file] = _open(self.path / file)
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        _write(self._files[file], text.encode())
        if self.observer is not None:
            for line in lines:
                self.observer(file, line)

    def event(self, event: Event) -> None:
        """Something a person following the run may want to know now."""
        line = to_line(replace(event, time=round(time.time(), 3)))
        self.append("events.jsonl", line)
        details = {key: value for key, value in line.items() if key not in ("time", "event")}
        log.info("%s", event.kind, extra={"fields": details})

    def traffic(self, counter: ByteCounter) -> tuple[int, int]:
        """Empty the counter into traffic.jsonl; returns (bytes up, bytes down) on the wire."""
        lines = list(counter.drain())
        self.append("traffic.jsonl", *lines)
        up = sum(x["wire_bytes"] for x in lines if x["direction"] == "up")
        return up, sum(x["wire_bytes"] for x in lines) - up

    def disclosures(self, method: Method, masked: bool, assumption: str) -> None:
        table = [
            {
                "exchange": e.name,
                "name": d.name,
                "channel": d.channel if masked or d.channel == "sealed" else "clear",
                "shape": d.shape,
                "readable_by": d.readable_by if masked or d.channel == "sealed" else _CLEAR,
                "reveals": d.reveals,
                "privacy": d.privacy,
                "unless": d.unless if masked else "",
            }
            for e in method.exchanges
            for d in e.disclosures
            if masked or d.channel != "signed"  # only a secure sum asks for it
        ]
        self.write_json(
            "disclosures.json",
            {
                "method": method.name,
                "masked": masked,
                "masks_hold_if": assumption,
                "each_silo_sends": table,
            },
        )

    def privacy(
        self,
        method: Method,
        round: int,
        sent: Iterable[Sequence[str]],
        charged: Sequence[Mapping[str, Any]],
    ) -> None:
        """A line per event that a silo's ledger was charged, as the silo says; asked again, it says
        the same again.

        A disclosure that arrived and of which its silo said nothing is taken for what it then is:
        non-private.
        """
        lines = {json.dumps(line, sort_keys=True): line for line in charged}.values()
        said = {(line["silo"], line["exchange"], line["disclosure"]) for line in lines}
        names = {e.name: [d.name for d in e.disclosures] for e in method.exchanges}
        unsaid = [
            {"silo": silo, "exchange": exchange, "disclosure": name, **_UNSAID}
            for silo, exchange in sent
            for name in names[exchange]
            if (silo, exchange, name) not in said
        ]
        self.append("privacy.jsonl", *({"round": round, **line} for line in [*lines, *unsaid]))

    def write_json(self, file: str, content: Any) -> None:
        beside = self.path / (file + ".new")
        beside.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
        beside.replace(self.path / file)

    def truncate_rounds(self, finished: int) -> None:
        """On resume: drop lines of rounds that will be run again, so that no round stands twice."""
        for file in ("rounds.jsonl", "traffic.jsonl", "privacy.jsonl"):
            path = self.path / file
            if path.exists():
                kept = [x for x in read_lines(path) if x["round"] < finished]
                beside = path.with_suffix(".new")
                beside.write_text(
                    "".join(json.dumps(x, separators=(",", ":")) + "\n" for x in kept), "utf-8"
                )
                beside.replace(path)
