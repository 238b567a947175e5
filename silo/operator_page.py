"""The local page of a silo's operator: what it shows, and what can be done there. It drives what
`sottovoce study accept` and `decline` drive (silo.studies), and reads the silo's own files alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from config.errors import UserError
from crypto.identity.roster import Roster
from report.documents import KINDS, bytes_of
from report.files import read_lines, read_table
from report.pages.budget import down
from report.units import clock, duration, exact, human_bytes
from silo.studies import Known, Studies
from study.presence import read_presence

__all__ = ["SiloPage"]

_DECIDED = {"accept": "accepted", "decline": "declined"}
_NOTES = 12


class SiloPage:
    def __init__(self, home: Path, name: str, roster: Roster) -> None:
        self._home, self._name, self._roster = home, name, roster
        self._studies = Studies(home)

    def state(self) -> dict[str, Any]:
        now, seen = time.time(), read_presence(self._home)
        studies = self._studies.all()
        heard = seen.heard.get(self._roster.coordinator.name)
        open_ = [k for k in studies if self._undecided(k)]
        spent, left = self._budget()
        return {
            "role": "silo",
            "name": self._name,
            "consortium": f"{self._roster.consortium}, roster version {self._roster.version}",
            "alive": seen.alive(now),
            "start": "sottovoce silo serve --config <its own file>",
            "tiles": [
                ("to decide", str(len(open_)), ", ".join(k.title for k in open_)),
                ("epsilon spent", spent, "over all studies, as the ledger has it"),
                (
                    "epsilon left",
                    left,
                    "nothing limits it"
                    if left == "no limit"
                    else "of the smallest limit that holds",
                ),
                (
                    "coordinator",
                    "never heard" if heard is None else f"{duration(max(0.0, now - heard))} ago",
                    f"when {self._roster.coordinator.name} last answered",
                ),
            ],
            "parties": [],
            "studies": [self._study(k) for k in reversed(studies)],
            "propose": False,
        }

    @staticmethod
    def _undecided(k: Known) -> bool:
        return not k.word and not k.refused and not k.state.startswith("ended")

    def _budget(self) -> tuple[str, str]:
        """(spent, left), from the ledger's last line and the last study's limits."""
        lines = read_lines(self._home / "ledger.jsonl")
        if not lines:
            return "0", "–"
        spent = lines[-1]["epsilon_after"]
        about = read_table(self._home / "records" / lines[-1].get("study", "")[:12] / "about.json")
        limits = [x for x in ((about or {}).get(k) for k in ("epsilon_budget", "own_limit")) if x]
        if spent == "inf":
            return "infinite", "none" if limits else "no limit"
        left = down(max(0.0, min(limits) - spent)) if limits else "no limit"
        return exact(spent, "epsilon"), left

    def _study(self, k: Known) -> dict[str, Any]:
        record = self._home / "records" / k.hash[:12]
        left = read_lines(record / "left.jsonl") if k.hash else []
        ended = k.state.startswith(("ended", "finished", "refused"))
        actions = []
        if not k.refused and not ended:
            if k.word != "accept":
                actions.append({"do": "accept", "label": "Accept …", "text": True})
            if k.word != "decline":
                actions.append(
                    {"do": "decline", "label": "Decline …", "why": True, "ask": _leaving(k)}
                )
        facts = [("called", k.id), ("decided", _decision(k)), *_shown_facts(k.facts)]
        if self._undecided(k) and (cost := self._studies.cost(k.id)) is not None:
            facts += [("your privacy budget", line) for line in cost.lines]
        if k.refused:
            facts.append(("this silo cannot take part", k.refused))
        return {
            "id": k.id,
            "title": k.title or k.id,
            "hash": k.hash,
            "state": "cannot take part" if k.refused else k.state or "proposed",
            "undecided": self._undecided(k),
            "facts": facts,
            "text": k.page or k.refused,
            "text_name": "what it would disclose",
            "table": self._rounds(k.hash, left, record),
            "notes": _notes(left),
            "actions": actions,
            "documents": [kind for kind in KINDS if (record / f"{kind}.html").is_file()],
        }

    def _rounds(
        self, study: str, left: list[dict[str, Any]], record: Path
    ) -> dict[str, Any] | None:
        if not left:
            return None
        sent: dict[int, list[str]] = {}
        sums: dict[int, list[str]] = {}
        for x in left:
            if x["what"] == "left":
                sent.setdefault(x["round"], []).append(x["name"])
            elif x["what"] == "sum opened":
                sums[x["round"]] = x["silos"]
        traffic = {
            r["round"]: r for r in bytes_of(read_lines(record / "traffic.jsonl"))["by_round"]
        }
        spent = {
            x["round"]: x["epsilon_after"]
            for x in read_lines(self._home / "ledger.jsonl")
            if x.get("study") == study
        }
        rows = [
            (
                str(r + 1),
                ", ".join(dict.fromkeys(sent[r])),
                ", ".join(sums.get(r, [])) or "–",
                human_bytes(traffic[r]["up"]) if r in traffic else "–",
                human_bytes(traffic[r]["down"]) if r in traffic else "–",
                "infinite"
                if spent.get(r) == "inf"
                else exact(spent[r], "epsilon")
                if r in spent
                else "–",
            )
            for r in sorted(sent, reverse=True)
        ]
        head = ("round", "left", "in a sum with", "sent", "received", "epsilon")
        return {"head": head, "rows": rows}

    # What can be done

    def act(self, what: str, table: Mapping[str, Any]) -> dict[str, Any]:
        id_ = str(table.get("study", ""))
        known = self._studies[id_]
        if what == "accept":
            if table.get("hash") != known.hash:
                raise UserError(f"{id_} has another hash than the one that was shown; look again.")
            self._studies.accept(id_, "asked")
            return {"said": f"{known.title} is accepted; the serving silo tells the coordinator"}
        if what == "decline":
            self._studies.decide(id_, "decline", "asked", str(table.get("why", ""))[:300])
            return {"said": f"{known.title} is declined; the serving silo tells the coordinator"}
        raise UserError("There is no such thing to do here.")

    def folder(self, id_: str) -> Path:
        """Where a study's documents are."""
        return self._home / "records" / (self._studies[id_].hash[:12] or "none")


def _leaving(k: Known) -> str:
    """Before it is declined."""
    if not k.state.startswith("running"):
        return ""
    return "This silo leaves the study, which runs. What is in a sum already cannot be taken out again."


def _decision(k: Known) -> str:
    if not k.word:
        return "nothing yet"
    by = "by this silo's policy" if k.how == "policy" else "by its operator"
    return f"{_DECIDED[k.word]} {by}, {clock(k.decided)}"


def _shown_facts(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Without noise there is no epsilon: a zero would look like the best there is."""
    said = {k: str(v) for k, v in facts.items()}
    if facts.get("dp") == "off":
        said = {k: v for k, v in said.items() if k not in ("epsilon", "delta")}
        said["dp"] = "off: no noise is added, and no epsilon bounds what can be learnt"
    elif facts.get("epsilon") == 0:
        said["epsilon"] = "no limit is set"
    return list(said.items())


def _notes(left: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What went wrong and came right again, the last first."""
    notes: list[dict[str, Any]] = []
    first = True
    for x in left:
        if x["what"] == "connected":
            text = "connected to the coordinator" if first else "back: connected again"
            first = False
        elif x["what"] == "connection lost":
            text = "the connection was lost"
        elif x["what"] == "declined":
            text = f"declined ({x['name']}): {x['detail']}"
        else:
            continue
        notes.append({"time": clock(x["time"]), "text": text})
    return notes[-_NOTES:][::-1]
