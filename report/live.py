"""A run as it goes, put together from its files alone: whoever may read the folder can follow it,
from anywhere.

Reads config.toml once and events.jsonl and rounds.jsonl as they grow. Says nothing that they do not
say.
"""

from __future__ import annotations

import json
import platform
import time
import tomllib
from pathlib import Path
from typing import Any

from config.errors import UserError
from report.files import read_lines

__all__ = ["ENDED", "LiveRun"]

ENDED = ("finished", "interrupted", "failed", "gone")
_NOTES = 12  #: the last things that happened, for people


class LiveRun:
    def __init__(self, run: Path) -> None:
        if not (run / "config.toml").is_file():
            raise UserError(f'"{run}" is not a run folder: it has no config.toml.')
        self.path = run.resolve()  # `latest` may be moved while this run is followed
        try:
            self.config = tomllib.loads((run / "config.toml").read_text("utf-8"))
            self._names = [f"silo-{i:03d}" for i in range(self.config["silos"])]
            self.rounds = int(self.config["rounds"])
        except (OSError, ValueError, KeyError) as e:
            raise UserError(f'"{run}/config.toml" cannot be read ({e}).') from None
        self._at, self._rest = 0, b""
        self._states = dict.fromkeys(self._names, "not here yet")
        self._status, self._why, self._round, self._exchange = "starting", "", -1, ""
        self._last, self._listening = time.time(), 0.0
        self._notes: list[dict[str, Any]] = []
        self._said: list[str] = []

    def catch_up(self) -> list[str]:
        """Read what was appended; returns the new lines for people."""
        path = self.path / "events.jsonl"
        if path.exists():
            if path.stat().st_size < self._at:  # a resumed run may have begun its files anew
                self._at, self._rest = 0, b""
            with path.open("rb") as f:
                f.seek(self._at)
                new = f.read()
            self._at += len(new)
            *lines, self._rest = (self._rest + new).split(b"\n")
            for line in lines:
                self._take(json.loads(line))
        if self._status in ("starting", "running") and self._launcher_gone():
            self._status, self._why = "gone", "its processes are gone and it said nothing"
            self._note(f"the run ended: {self._why}")
        said, self._said = self._said, []
        return said

    @property
    def ended(self) -> bool:
        return self._status in ENDED

    def _launcher_gone(self) -> bool:
        """Whether the process that started the run is dead; only where it ran on this machine and
        said who it is.
        """
        table = self.path / "processes.json"
        try:
            if table.stat().st_mtime < self._listening:  # of an earlier process of this run
                return False
            said = json.loads(table.read_text("utf-8"))
            # a folder that machines share: its processes are not ours to see
            if said.get("host") != platform.node():
                return False
            pid = said["launcher"]
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            return state == "Z"
        except (ValueError, KeyError):
            return False
        except FileNotFoundError as e:
            return str(e.filename).startswith("/proc")

    def _note(self, text: str) -> None:
        self._notes = [*self._notes, {"time": self._last, "text": text}][-_NOTES:]
        self._said.append(text)

    def _take(self, e: dict[str, Any]) -> None:
        kind, silo = e["event"], e.get("silo", "")
        self._last = e["time"]
        if kind == "listening":
            self._status, self._listening = "running", e["time"]
            self._states = dict.fromkeys(self._names, "not here yet")
        elif kind == "hello":
            self._states[silo] = "enrolled"
        elif kind == "absent":
            for name in e["silos"]:
                self._states[name] = "absent"
            self._note(f"starting without {', '.join(e['silos'])}")
        elif kind == "enrolled":
            self._note(f"{e['silos']} silos enrolled in {e['seconds']:.1f} s")
        elif kind == "round":
            self._status, self._round = "running", e["round"]
            for name, state in self._states.items():
                if name in e["cohort"]:
                    self._states[name] = "waiting"
                elif state not in ("lost", "absent"):
                    self._states[name] = "not asked"
        elif kind == "computing":
            self._states[silo], self._exchange = "computing", e["exchange"]
        elif kind == "answered":
            self._states[silo] = "answered"
        elif kind == "out":
            if self._states.get(silo) != "lost":
                self._states[silo] = "out"
            self._note(f"round {e['round'] + 1}: {silo} is out: {e['why']}")
        elif kind == "lost":
            self._states[silo] = "lost"
            self._note(f"{silo} was lost in round {e['round'] + 1}")
        elif kind in ("refused", "refused-by-silo"):
            self._note(f"refused ({e['attack']}): {silo}: {e['detail']}")
        elif kind == "sum-failed":
            self._note(f"round {e['round'] + 1}: the sum failed ({e['why']}); trying again")
        elif kind == "round-spent":
            self._note(f"round {e['round'] + 1} was given up: {e['why']}")
        elif kind == "budgets-spent":
            self._note(f"round {e['round'] + 1}: privacy budgets are spent")
        elif kind == "round-done":
            missed = f", missed by {', '.join(e['missed'])}" if e["missed"] else ""
            self._note(
                f"round {e['round'] + 1} of {self.rounds}: dev {e['dev']:.4f}, {e['seconds']:.1f} s{missed}"
            )
        elif kind in ("finished", "interrupted", "failed"):
            self._status, self._why = kind, e.get("why", "")
            self._note(f"the run failed: {self._why}" if kind == "failed" else f"the run is {kind}")

    def snapshot(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        c, lines = self.config, read_lines(self.path / "rounds.jsonl")
        rows = [
            {
                "round": r["round"] + 1,
                "dev": r["dev"],
                "seconds": r["seconds"],
                "up": r["bytes_up"] or r["arrays_up"],
                "down": r["bytes_down"] or r["arrays_down"],
                "survivors": len(r["survivors"]),
                "asked": len(r["participants"]),
            }
            for r in lines
        ]
        left = None
        if rows and not self.ended:
            left = sum(r["seconds"] for r in rows) / len(rows) * (self.rounds - len(rows))
        test = None
        if self._status == "finished" and (self.path / "summary.json").is_file():
            s = json.loads((self.path / "summary.json").read_text("utf-8"))
            test = {"value": s["value"], "epsilon": s["epsilon"], "wall_seconds": s["wall_seconds"]}
        return {
            "run": self.path.name,
            "method": Path(c["method"]).stem,
            "corpus": c["corpus"] or "built-in",
            "masked": c["secagg"],
            "metric": lines[0]["metric"] if lines else "",
            "status": self._status,
            "why": self._why,
            "ended": self.ended,
            "last_event": self._last,
            "rounds": self.rounds,
            "now": {"round": self._round + 1, "exchange": self._exchange},
            "done": rows,
            "up": sum(r["up"] for r in rows),
            "down": sum(r["down"] for r in rows),
            "seconds_left": left,
            "silos": [{"name": n, "state": s} for n, s in self._states.items()],
            "notes": self._notes,
            "test": test,
        }
