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

import psutil

from config.errors import UserError
from config.names import with_names
from report import events
from report.event_file import EventFile
from report.files import read_lines, read_table, silo_names
from report.units import clock

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
            self._silos = [f"silo-{i:03d}" for i in range(self.config["silos"])]
            self.rounds = int(self.config["rounds"])
        except (OSError, ValueError, KeyError) as e:
            raise UserError(f'"{run}/config.toml" cannot be read ({e}).') from None
        self._events = EventFile(self.path / "events.jsonl")
        self._states = dict.fromkeys(self._silos, "not here yet")
        self._names: dict[str, str] = {}
        self._status, self._why, self._round, self._exchange = "starting", "", -1, ""
        self._last, self._listening = time.time(), 0.0
        self._waiting: events.Waiting | None = None
        self._notes: list[dict[str, Any]] = []
        self._said: list[str] = []

    def catch_up(self) -> list[str]:
        """Read what was appended; returns the new lines for people."""
        self._names = self._names or silo_names(self.path)  # a consortium's, once they are there
        for event in self._events.new():
            self._take(event)
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
            return psutil.Process(said["launcher"]).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True
        except (OSError, ValueError, KeyError, TypeError, psutil.Error):
            return False

    def _note(self, text: str) -> None:
        text = with_names(text, self._names)
        self._notes = [*self._notes, {"time": self._last, "text": text}][-_NOTES:]
        self._said.append(text)

    def _take(self, event: events.Event) -> None:
        self._last = event.time
        match event:
            case events.Listening():
                self._status, self._listening = "running", event.time
                self._states = dict.fromkeys(self._silos, "not here yet")
            case events.Hello(silo=silo):
                if self._states.get(silo) in ("lost", "waited for"):
                    self._note(f"{silo} is back")
                self._states[silo] = "enrolled"
            case events.Absent(silos=silos):
                self._states |= dict.fromkeys(silos, "absent")
                self._note(f"starting without {', '.join(silos)}")
            case events.Waiting(silos=silos, here=here, needed=needed, why=why):
                self._waiting = event
                self._states |= dict.fromkeys(silos, "waited for")
                self._note(
                    f"waiting for {', '.join(silos)}: {here} silos are here, {needed} are needed"
                    f"{f' ({why})' if why else ''}"
                )
            case events.Gathered(silos=count):
                self._waiting = None
                self._note(f"{count} silos are here; the run goes on")
            case events.Back(silo=silo):
                self._states[silo] = "back"
                self._note(f"{silo} is back")
            case events.Enrolled(silos=count, seconds=seconds):
                self._note(f"{count} silos enrolled in {seconds:.1f} s")
            case events.Computing(silo=silo, exchange=exchange):
                self._states[silo], self._exchange = "computing", exchange
            case events.Answered(silo=silo):
                self._states[silo] = "answered"
            case events.Out(silo=silo, round=round, why=why):
                if self._states.get(silo) != "lost":
                    self._states[silo] = "out"
                self._note(f"round {round + 1}: {silo} is out: {why}")
            case events.Lost(silo=silo, round=round):
                self._states[silo] = "lost"
                self._note(f"{silo} was lost in round {round + 1}")
            case (
                events.Refused(silo=silo, attack=attack, detail=detail)
                | events.RefusedBySilo(silo=silo, attack=attack, detail=detail)
            ):
                self._note(f"refused ({attack}): {silo}: {detail}")
            case events.SumFailed(round=round, why=why):
                self._note(f"round {round + 1}: the sum failed ({why}); trying again")
            case events.Finished() | events.Interrupted():
                self._status = event.kind
                self._note(f"the run is {event.kind}")
            case events.Failed(why=why):
                self._status, self._why = "failed", why
                self._note(f"the run failed: {why}")
            case _:
                self._take_round(event)

    def _take_round(self, event: events.Event) -> None:
        """What concerns a whole round. Other events change nothing that is shown."""
        match event:
            case events.Round(round=round, cohort=cohort):
                self._status, self._round = "running", round
                for name, state in self._states.items():
                    if name in cohort:
                        self._states[name] = "waiting"
                    elif state not in ("lost", "absent"):
                        self._states[name] = "not asked"
            case events.RoundSpent(round=round, why=why):
                self._note(f"round {round + 1} was given up: {why}")
            case events.BudgetsSpent(round=round):
                self._note(f"round {round + 1}: privacy budgets are spent")
            case events.RoundDone(round=round, dev=dev, seconds=seconds, missed=missed):
                without = f", missed by {', '.join(missed)}" if missed else ""
                value = "not scored" if dev is None else f"dev {dev:.4f}"
                self._note(f"round {round + 1} of {self.rounds}: {value}, {seconds:.1f} s{without}")

    def _waits(self) -> dict[str, Any] | None:
        """For whom the run waits and until when; None while it goes on."""
        if (w := self._waiting) is None or self.ended:
            return None
        silos = [self._names.get(silo, silo) for silo in w.silos]
        until = clock(w.until) if w.until else ""
        why = with_names(w.why or "", self._names)
        told = {"for": silos, "here": w.here, "needed": w.needed, "why": why}
        return {**told, "until": until, "since": w.time}

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
        if rows and not self.ended and self._waiting is None:
            left = sum(r["seconds"] for r in rows) / len(rows) * (self.rounds - len(rows))
        test = None
        if self._status == "finished" and (self.path / "summary.json").is_file():
            s = json.loads((self.path / "summary.json").read_text("utf-8"))
            test = {"value": s["value"], "epsilon": s["epsilon"], "wall_seconds": s["wall_seconds"]}
        return {
            "run": self.path.name,
            "title": (read_table(self.path / "study.json") or {}).get("title", ""),
            "method": Path(c["method"]).stem,
            "corpus": c["corpus"] or "built-in",
            "masked": c["secagg"],
            "metric": lines[0]["metric"] if lines else "",
            "status": self._status,
            "why": with_names(self._why, self._names),
            "ended": self.ended,
            "last_event": self._last,
            "rounds": self.rounds,
            "now": {"round": self._round + 1, "exchange": self._exchange},
            "done": rows,
            "up": sum(r["up"] for r in rows),
            "down": sum(r["down"] for r in rows),
            "seconds_left": left,
            "waiting": self._waits(),
            "silos": [
                {"silo": silo, "name": self._names.get(silo, silo), "state": state}
                for silo, state in self._states.items()
            ],
            "notes": self._notes,
            "test": test,
        }
