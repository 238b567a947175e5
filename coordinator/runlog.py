"""The run directory: every file the design names, each written as things happen and by nobody else.

Lines are appended whole and flushed, so that whoever follows the run (the terminal, `watch`, a crash's survivor)
never sees half of one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from methods.base import Method
from wire.counter import ByteCounter

__all__ = ["RunLog", "read_lines"]

_CLEAR = "the coordinator: nothing was masked"


class RunLog:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: dict[str, int] = {}

    def append(self, file: str, *lines: Mapping[str, Any]) -> None:
        if file not in self._files:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            self._files[file] = os.open(self.path / file, flags, 0o644)
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        os.write(self._files[file], text.encode())

    def event(self, event: str, **details: Any) -> None:
        """Something a person following the run may want to know now."""
        self.append("events.jsonl", {"time": round(time.time(), 3), "event": event, **details})

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
            }
            for e in method.exchanges
            for d in e.disclosures
        ]
        self.write_json(
            "disclosures.json",
            {"method": method.name, "masked": masked, "masks_hold_if": assumption, "each_silo_sends": table},
        )

    def privacy(self, method: Method, round: int, sent: Iterable[tuple[str, str]]) -> None:
        """A line per silo and disclosure that left it in this round. Without noise each is a non-private release."""
        names = {e.name: [d.name for d in e.disclosures] for e in method.exchanges}
        self.append(
            "privacy.jsonl",
            *(
                {
                    "silo": silo,
                    "round": round,
                    "disclosure": name,
                    "event": "non-private release",
                    "epsilon_after": "inf",
                    "delta": 0.0,
                }
                for silo, exchange in sent
                for name in names[exchange]
            ),
        )

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
                beside.write_text("".join(json.dumps(x, separators=(",", ":")) + "\n" for x in kept), "utf-8")
                beside.replace(path)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a JSONL file; a last line still being written is left out."""
    if not path.exists():
        return []
    text = path.read_text("utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
