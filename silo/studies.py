"""The studies that a silo was asked to join, as its own folder keeps them: what each would disclose,
what its operator decided, how it went.

A study stands in `studies/<id>/` under the silo's folder. `study.toml` is the coordinator's, word for
word, and `look.json` what this silo makes of it (its hash, the page to read, or why it cannot take
part). `decision.json` is the operator's, or the policy's; nobody else writes it. What was decided
before stands in `decisions.jsonl`, since documents that were signed then say so. `state.json` is the
serving program's.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config.errors import UserError

if TYPE_CHECKING:
    from silo.cost import Cost

__all__ = ["Known", "Studies"]

_AGAIN = "look.again"  #: what stood against the study may have been put right
#: seconds for which a look is taken for new, where another study is charged all the time
_FRESH = 60.0


@dataclass(frozen=True)
class Known:
    id: str
    title: str
    hash: str  #: as this silo computes it; empty where it cannot take part
    page: str  #: what would leave, for whoever decides
    refused: str  #: why it cannot take part
    word: str  #: accept, decline, or empty
    how: str  #: by whom: the operator, or the policy
    state: str  #: what the coordinator and this silo's own program say of it
    facts: Mapping[str, Any]  #: method, rounds, dp, epsilon, delta: what a policy looks at
    decided: float = 0.0  #: when, in seconds since 1970; 0: not yet
    planned: Mapping[str, Any] = field(default_factory=dict)  #: charges (silo.cost.Planned)

    def check_open(self) -> None:
        """Refuses to decide about what is over."""
        if self.state.startswith(("ended", "finished")):
            raise UserError(
                f"The study {self.id} has ended ({self.state}); nothing is to be decided."
            )


class Studies:
    def __init__(self, home: Path) -> None:
        self._folder = home / "studies"

    def folder(self, id_: str) -> Path:
        return self._folder / Path(id_).name

    def all(self) -> list[Known]:
        if not self._folder.is_dir():
            return []
        whole = sorted(self._folder.glob("*/look.json"), key=lambda p: p.stat().st_mtime)
        return [self[p.parent.name] for p in whole]

    def __contains__(self, id_: str) -> bool:
        return (self.folder(id_) / "look.json").is_file()

    def __getitem__(self, id_: str) -> Known:
        folder = self.folder(id_)
        if not (folder / "look.json").is_file():
            known = ", ".join(k.id for k in self.all()) or "none"
            raise UserError(f'This silo knows no study "{id_}"; it knows: {known}.')
        look, decision, state = (
            _read(folder / name) for name in ("look.json", "decision.json", "state.json")
        )
        return Known(
            id_,
            title=look.get("title", ""),
            hash=look.get("hash", ""),
            page=look.get("page", ""),
            refused=look.get("refused", ""),
            word=decision.get("word", ""),
            how=decision.get("how", ""),
            state=state.get("state", ""),
            facts=look.get("facts", {}),
            decided=decision.get("time", 0.0),
            planned=look.get("planned", {}),
        )

    def waiting(self) -> list[str]:
        """Proposed, and this silo has not looked at it yet."""
        found = (p.parent.name for p in self._folder.glob("*/study.toml"))
        return sorted(id_ for id_ in found if id_ not in self)

    def proposal(self, id_: str) -> Path:
        """The study's file, word for word as it was proposed."""
        file = self.folder(id_) / "study.toml"
        if not file.is_file():
            known = ", ".join(k.id for k in self.all()) or "none"
            raise UserError(f'This silo knows no study "{id_}"; it knows: {known}.')
        return file

    def cost(self, id_: str) -> Cost | None:
        """What it would cost now, for its operator; None: nothing is planned."""
        from silo.cost import Planned, cost_of  # accountants: nothing for a program that serves

        known = self[id_]
        if not known.planned:
            return None
        ledger = self._folder.parent / "ledger.jsonl"
        return cost_of(Planned.from_record(known.planned), ledger, known.hash)

    def accept(self, id_: str, how: str) -> None:
        """By the operator: if its ledger can still pay for it."""
        if (cost := self.cost(id_)) is not None and cost.unpayable:
            raise UserError(f"This silo cannot take part in {id_}: {cost.unpayable}.")
        self.decide(id_, "accept", how)

    def looked_at(self, id_: str, look: Mapping[str, Any]) -> None:
        self.folder(id_).mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(self.folder(id_) / "look.json", look, indent=1)
        (self.folder(id_) / _AGAIN).unlink(missing_ok=True)

    def is_stale(self, id_: str) -> bool:
        """Whether the ledger was charged since this silo looked if it can pay for the study."""
        looked = (self.folder(id_) / "look.json").stat().st_mtime
        ledger = self._folder.parent / "ledger.jsonl"
        charged = ledger.stat().st_mtime if ledger.exists() else 0.0
        return charged > looked and time.time() - looked > _FRESH

    def look_again(self, id_: str) -> None:
        """Asked for by the operator; the serving program does it."""
        (self.folder(id_) / _AGAIN).touch()

    def to_look_at_again(self, id_: str) -> bool:
        return (self.folder(id_) / _AGAIN).exists()

    def decide(self, id_: str, word: str, how: str, why: str = "") -> None:
        """`word`: accept or decline. An acceptance is of the hash that was looked at."""
        known = self[id_]
        if word == "accept" and known.refused:
            raise UserError(
                f"This silo cannot take part in {id_}: {known.refused} Put it right and start the serving "
                "silo again: it then looks again."
            )
        known.check_open()
        decision = {"word": word, "how": how, "why": why, "hash": known.hash, "time": time.time()}
        if before := self.decision(id_):
            _write(self.folder(id_) / "decisions.jsonl", *self._earlier(id_), before)
        _write(self.folder(id_) / "decision.json", {**decision, "title": known.title}, indent=1)

    def decision(self, id_: str) -> Mapping[str, Any]:
        return _read(self.folder(id_) / "decision.json")

    def _earlier(self, id_: str) -> list[dict[str, Any]]:
        path = self.folder(id_) / "decisions.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]

    def declined(self, until: float) -> list[dict[str, Any]]:
        """What stood declined at that time, in seconds since 1970, whatever was decided later."""
        found = []
        for path in sorted(self._folder.glob("*/decision.json")):
            id_ = path.parent.name
            made = [d for d in (*self._earlier(id_), self.decision(id_)) if d["time"] <= until]
            if made and (last := made[-1])["word"] == "decline":
                title = last.get("title") or _read(path.with_name("look.json")).get("title", "")
                why, at = last.get("why", ""), last["time"]
                found.append({"study": id_, "title": title, "time": at, "why": why})
        return found

    def tell(self, id_: str, state: str, **more: Any) -> None:
        """What became of it, where that is new."""
        now = {"state": state, **more}
        path = self.folder(id_) / "state.json"
        if {k: v for k, v in _read(path).items() if k != "time"} != now:
            _write(path, {**now, "time": time.time()}, indent=1)


def _read(path: Path) -> dict[str, Any]:
    try:
        table = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as e:
        raise UserError(f"{path} cannot be read ({e}).") from None
    if not isinstance(table, dict):
        raise UserError(f"{path} is damaged.")
    return table


def _write(path: Path, *tables: Mapping[str, Any], indent: int | None = None) -> None:
    """Whole and on the disk, or not at all."""
    beside = path.with_name(path.name + ".new")
    with beside.open("w", encoding="utf-8") as file:
        for table in tables:
            json.dump(table, file, indent=indent)
            file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
