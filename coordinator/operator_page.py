"""The local page of the coordinator's operator: what it shows, and what can be done there. It drives
what `sottovoce study propose`, `pause`, `resume` and `stop` drive (coordinator.board), and reads the
coordinator's own files and run folders.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from config.errors import UserError
from coordinator.board import Board, Posted, Wanted
from coordinator.proposing import advice, look_at_words, propose
from crypto.identity.roster import Roster
from report.documents import KINDS
from report.live import LiveRun
from report.units import clock, duration, human_bytes
from study.agreement import page
from study.machine import Machine
from study.presence import ALIVE, Seen, read_presence

__all__ = ["CoordinatorPage"]

_WANTED = {"pause": Wanted.PAUSE, "resume": Wanted.RUN, "stop": Wanted.STOP}
_SAID = {"pause": "pauses", "resume": "goes on", "stop": "is stopped"}


class CoordinatorPage:
    def __init__(self, machine: Machine, roster: Roster) -> None:
        self._machine, self._roster = machine, roster
        self._board = Board(machine.home, roster)
        self._live: dict[str, LiveRun] = {}

    def state(self) -> dict[str, Any]:
        now, seen = time.time(), read_presence(self._machine.home)
        parties = [self._party(card.name, seen, now) for card in self._roster.silos]
        posted = self._board.all()
        missing = [p["name"] for p in parties if p["missing"]]
        return {
            "role": "coordinator",
            "name": self._roster.coordinator.name,
            "consortium": f"{self._roster.consortium}, roster version {self._roster.version}",
            "alive": seen.alive(now),
            "start": f"sottovoce coordinator serve --home {self._machine.home}",
            "tiles": [
                (
                    "silos here",
                    f"{len(parties) - len(missing)} of {len(parties)}",
                    f"missing: {_list(missing)}",
                ),
                ("running", str(len(seen.running) if seen.alive(now) else 0), "studies"),
                (
                    "proposed",
                    str(sum(1 for s in posted if not s.outcome and s.id not in seen.running)),
                    "studies that wait or are paused",
                ),
                ("ended", str(sum(1 for s in posted if s.outcome)), "studies"),
            ],
            "parties": parties,
            "studies": [self._study(s, seen, now) for s in reversed(posted)],
            "propose": True,
            "silos": len(self._roster.silos),
        }

    @staticmethod
    def _party(name: str, seen: Seen, now: float) -> dict[str, Any]:
        heard = seen.heard.get(name)
        missing = heard is None or now - heard > ALIVE
        words = (
            "never heard of"
            if heard is None
            else f"missing since {clock(heard)}"
            if missing
            else f"heard {duration(max(0.0, now - heard))} ago"
        )
        return {"name": name, "missing": missing, "words": words}

    def _study(self, s: Posted, seen: Seen, now: float) -> dict[str, Any]:
        running = s.id in seen.running and seen.alive(now)
        state = self._board.standing(s, running)
        silos = {card.name for card in self._roster.silos}
        open_ = sorted(silos - set(s.answers))
        facts = [
            ("called", s.id),
            ("proposed", clock(s.proposed)),
            ("accepted by", f"{_list(s.said('accept'))}; {s.enough} are needed"),
        ]
        facts += [
            (f"declined by {silo}", s.answers[silo].get("why") or "no reason given")
            for silo in s.said("decline")
        ]
        if s.why:
            facts.append(("paused because", s.why))
        if open_ and not s.outcome:
            facts.append(("no answer yet from", _list(open_)))
        notes, table = [], None
        if (live := self._run(s)) is not None:
            now_ = live.snapshot()
            if (w := now_["waiting"]) is not None:
                until = w["until"] or "you end it"
                facts.append(
                    (
                        "waiting for",
                        f"{_list(w['for'])}, since {clock(w['since'])}, until {until}: {w['here']} silos are here, "
                        f"{w['needed']} are needed{f' ({why})' if (why := w['why']) else ''}",
                    )
                )
            if running:
                facts.append(
                    ("silos", ", ".join(f"{x['name']} {x['state']}" for x in now_["silos"]))
                )
            facts.append(("rounds", f"{len(now_['done'])} of {now_['rounds']} are done"))
            facts.append(
                ("traffic", f"{human_bytes(now_['up'])} up, {human_bytes(now_['down'])} down")
            )
            notes = [{"time": clock(n["time"]), "text": n["text"]} for n in reversed(now_["notes"])]
            table = _rounds(now_)
        facts.append(("hash", s.hash))
        return {
            "id": s.id,
            "title": s.title,
            "hash": s.hash,
            "state": state,
            "undecided": False,
            "facts": facts,
            "text": s.text,
            "text_name": "the study file",
            "table": table,
            "notes": notes,
            "actions": _actions(s),
            "documents": [k for k in KINDS if (self.folder(s.id) / f"{k}.html").is_file()],
        }

    def _run(self, s: Posted) -> LiveRun | None:
        if s.id not in self._live:
            folder = self.folder(s.id)
            if not (folder / "config.toml").is_file():
                return None
            self._live[s.id] = LiveRun(folder)
        self._live[s.id].catch_up()
        return self._live[s.id]

    def folder(self, id_: str) -> Path:
        """Where a study's run and its documents are."""
        beside = Path(self._machine.out) / f"study-{self._board[id_].hash[:12]}"
        return self._board.run(id_) or beside

    # What can be done

    def act(self, what: str, table: Mapping[str, Any]) -> dict[str, Any]:
        if what in _WANTED:
            id_ = str(table.get("study", ""))
            self._board.want(id_, _WANTED[what])
            return {"said": f"{self._board[id_].title} {_SAID[what]}"}
        text, enough = table.get("text"), table.get("enough", 0)
        if what not in ("look", "propose") or not isinstance(text, str) or type(enough) is not int:
            raise UserError("There is no such thing to do here.")
        of = look_at_words(text, self._machine, self._roster)
        if what == "look":
            return {"text": f"{page(of)}\n\n{advice(of)}", "hash": of.hash.hex()}
        if table.get("hash") != of.hash.hex():
            raise UserError("The study is not the one that was looked at; look at it again.")
        posted = propose(self._board, of, text, enough)
        return {"said": f"proposed as {posted.id}; it runs when {posted.enough} have accepted"}


def _actions(s: Posted) -> list[dict[str, Any]]:
    if s.outcome or s.wanted is Wanted.STOP:
        return []
    first = (
        {"do": "resume", "label": "Go on"}
        if s.wanted is Wanted.PAUSE
        else {"do": "pause", "label": "Pause"}
    )
    return [first, {"do": "stop", "label": "Stop …", "ask": "End this study for good?"}]


def _rounds(now: Mapping[str, Any]) -> dict[str, Any] | None:
    if not now["done"]:
        return None
    rows = [
        (
            str(r["round"]),
            "not scored" if r["dev"] is None else f"{r['dev']:.4f}",
            f"{r['survivors']} of {r['asked']}",
            human_bytes(r["up"]),
            human_bytes(r["down"]),
            f"{r['seconds']:.1f}",
        )
        for r in reversed(now["done"])
    ]
    head = ("round", f"dev {now['metric']}", "survivors", "sent", "received", "seconds")
    return {"head": head, "rows": rows}


def _list(names: Any) -> str:
    return ", ".join(names) or "nobody"
