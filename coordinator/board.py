"""The board: studies that the coordinator's operator proposed, and what each silo answered.

A study stands in a folder of its own under `studies/` in the coordinator's folder. Each file has one
writer at a time: `study.toml` and `proposal.json` the command that proposed it, `wanted` the
operator's last word (run, pause, stop), or a pause with its reason by the serving program,
`answers/<silo>.json` and `outcome.json` the serving program. So commands and the program that serves
need no lock between them.

An acceptance is signed by the silo's identity over the study's hash. The coordinator cannot make one
up, and a silo takes part by its own decision anyway (silo.serving).
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from config.errors import UserError
from crypto.derive import Label
from crypto.identity.card import RosterRefused
from crypto.identity.keys import verify
from crypto.identity.roster import Roster
from wire.messages import VERSION

__all__ = ["Board", "Posted", "Wanted", "study_id"]

_MOST_WHY = 300


class Wanted(StrEnum):
    RUN = "run"
    PAUSE = "pause"
    STOP = "stop"

    @property
    def standing(self) -> str:
        """Of a study that does not run, for people."""
        return {"run": "proposed", "pause": "paused", "stop": "ended"}[self.value]


def study_id(text: str) -> str:
    """What everybody calls a study: from the words of its file."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Posted:
    """One study on the board."""

    id: str
    title: str
    text: str  #: its file, word for word
    hash: str  #: as the coordinator's machine computes it; a silo's must be the same
    proposed: float
    enough: int  #: silos that must accept before it runs
    roster: str = ""  #: digest of the roster under which it was proposed
    wanted: Wanted = Wanted.RUN
    why: str = ""  #: why the serving program paused it
    answers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    outcome: str = ""  #: how it ended; empty: it has not
    least: int = 3  #: silos without which no round of it can be made
    began: bool = False  #: whether it ran before

    def said(self, word: str) -> tuple[str, ...]:
        return tuple(sorted(s for s, a in self.answers.items() if a["word"] == word))

    @property
    def needed(self) -> int:
        """Silos that must have accepted. One that leaves a study that began does not end it for the
        others, as long as rounds can be made.
        """
        return min(self.least, self.enough) if self.began else self.enough

    @property
    def ready(self) -> bool:
        return (
            not self.outcome
            and self.wanted is Wanted.RUN
            and len(self.said("accept")) >= self.needed
        )

    @property
    def left(self) -> str:
        """Who declined, and why, for people."""
        whys = {silo: self.answers[silo].get("why", "") for silo in self.said("decline")}
        return ", ".join(f"{silo} ({why})" if why else silo for silo, why in whys.items())


class Board:
    def __init__(self, home: Path, roster: Roster) -> None:
        self.home, self._folder, self.roster = home, home / "studies", roster

    def post(self, *, title: str, text: str, hash: str, enough: int, least: int = 3) -> Posted:
        """Propose a study. The same words again are the same study. `least`: silos without which no
        round of it can be made.
        """
        silos = len(self.roster.silos)
        if not least <= enough <= silos:
            raise UserError(
                f"--enough must be from {least}, what a round needs, to {silos}, the silos of the roster."
            )
        id_ = study_id(text)
        folder = self._folder / id_
        if folder.exists():
            raise UserError(
                f"This study is proposed already, as {id_}; another run needs another seed."
            )
        (folder / "answers").mkdir(mode=0o700, parents=True)
        _write(folder / "study.toml", text)
        proposal = {"title": title, "hash": hash, "proposed": time.time(), "enough": enough}
        proposal |= {"roster": self.roster.digest.hex(), "least": least}
        _write(folder / "proposal.json", json.dumps(proposal) + "\n")
        return self[id_]

    def all(self) -> list[Posted]:
        """In the order in which they were proposed."""
        if not self._folder.is_dir():
            return []
        whole = [p.parent.name for p in self._folder.glob("*/proposal.json")]
        return sorted((self[i] for i in whole), key=lambda s: (s.proposed, s.id))

    def __getitem__(self, id_: str) -> Posted:
        folder = self.folder(id_)
        try:
            proposal = json.loads((folder / "proposal.json").read_text("utf-8"))
            answers = {
                p.stem: json.loads(p.read_text("utf-8"))
                for p in sorted((folder / "answers").glob("*.json"))
            }
            wanted, _, why = _read(folder / "wanted", Wanted.RUN.value).partition("\n")
            outcome = folder / "outcome.json"
            return Posted(
                id_,
                text=(folder / "study.toml").read_text("utf-8"),
                wanted=Wanted(wanted),
                why=why.strip(),
                answers=answers,
                outcome=json.loads(outcome.read_text())["outcome"] if outcome.exists() else "",
                began=(folder / "port").exists(),
                **proposal,
            )
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise UserError(f'There is no whole study "{id_}" in {self._folder} ({e}).') from None

    def standing(self, s: Posted, running: bool) -> str:
        """How it stands, for people. `running`: the serving program says so."""
        silos = {card.name for card in self.roster.silos}
        declined, open_ = s.said("decline"), sorted(silos - set(s.answers))
        if s.outcome or running:
            left = f"; {', '.join(declined)} left it" if declined else ""
            return s.outcome or f"running{left}"
        if s.wanted is Wanted.PAUSE:
            return f"paused: {s.why}" if s.why else "paused"
        if s.wanted is Wanted.STOP:
            return "stopping"
        if s.ready:
            return "waits for its turn"
        if len(silos) - len(declined) < s.needed:
            gone = ", ".join(declined)
            return f"cannot run: {gone} declined, and {s.needed} silos are needed; stop it"
        return f"proposed, waits for {', '.join(open_)}"

    def folder(self, id_: str) -> Path:
        return self._folder / Path(id_).name

    def want(self, id_: str, wanted: Wanted) -> None:
        if self[id_].outcome:
            raise UserError(f"The study {id_} has ended: {self[id_].outcome}.")
        _write(self.folder(id_) / "wanted", wanted.value + "\n")

    def runs_in(self, id_: str, out: Path, port: int) -> None:
        """Where its run folder is made, for whoever asks how it goes, and on which port it runs."""
        _write(self.folder(id_) / "out", f"{out.resolve()}\n")
        _write(self.folder(id_) / "port", f"{port}\n")

    def port(self, id_: str) -> int:
        """On which it ran last; 0: it never did."""
        return int(_read(self.folder(id_) / "port", "0"))

    def run(self, id_: str) -> Path | None:
        """Its run folder, once there is one."""
        out = _read(self.folder(id_) / "out", "").strip()
        run = Path(out) / f"study-{self[id_].hash[:12]}"
        return run if out and (run / "config.toml").is_file() else None

    def hold(self, id_: str, why: str) -> None:
        """Paused by the serving program, for a reason that its operator can end."""
        _write(self.folder(id_) / "wanted", f"{Wanted.PAUSE.value}\n{why[:_MOST_WHY]}\n")

    def retire(self) -> list[str]:
        """End what was proposed under another roster: nobody agreed to it under this one."""
        old = [s for s in self.all() if not s.outcome and s.roster != self.roster.digest.hex()]
        for posted in old:
            self.end(
                posted.id, f"the roster has version {self.roster.version} now; propose it again"
            )
        return [posted.id for posted in old]

    def end(self, id_: str, outcome: str) -> None:
        line = json.dumps({"outcome": outcome, "time": time.time()})
        _write(self.folder(id_) / "outcome.json", line + "\n")

    def answer(self, silo: str, id_: str, reply: Mapping[str, Any]) -> None:
        """What a silo says to a proposal. Its last word counts, until the study has ended."""
        if not (self.folder(id_) / "proposal.json").is_file():
            raise RosterRefused("replay", "there is no such study on the board")
        posted = self[id_]
        if posted.outcome:
            raise RosterRefused("replay", f"the study {id_} has ended")
        if reply["word"] == "accept":
            self._check_consent(silo, posted, reply)
        _write(
            self.folder(id_) / "answers" / f"{silo}.json",
            json.dumps({**reply, "time": time.time()}) + "\n",
        )

    def _check_consent(self, silo: str, posted: Posted, reply: Mapping[str, Any]) -> None:
        if reply["hash"] != posted.hash:
            raise RosterRefused(
                "wrong-shape",
                f"it accepts another study than this one: its hash is {reply['hash'][:12]}…, "
                f"and the coordinator's is {posted.hash[:12]}…",
            )
        card = self.roster.card(silo)
        signature = bytes.fromhex(reply["signature"])
        parts = (posted.id.encode(), posted.hash.encode())
        if card is None or not verify(card.identity, signature, Label.CONSENT, *parts):
            raise RosterRefused("key-substitution", f"the consent is not signed by {silo}")

    def heard(self, silo: str, said: Any, running: Mapping[str, int]) -> Any:
        """Answer one question of a silo. `running`: study -> port."""
        match said:
            case ["news"]:
                pass
            case ["version"]:
                return VERSION
            case ["accept", str(id_), str(hash), str(signature)]:
                self.answer(silo, id_, {"word": "accept", "hash": hash, "signature": signature})
            case ["decline", str(id_), str(why)]:
                self.answer(silo, id_, {"word": "decline", "why": why[:_MOST_WHY]})
            case _:
                raise RosterRefused("wrong-shape", "a question to the board that is none")
        began = list(running)  # studies that run come first, in the order in which they began
        shown = sorted(
            self.all(), key=lambda s: began.index(s.id) if s.id in running else len(began)
        )
        return [self._shown(s, silo, running) for s in shown]

    @staticmethod
    def _shown(s: Posted, silo: str, running: Mapping[str, int]) -> dict[str, Any]:
        state = (
            "running"
            if s.id in running
            else s.wanted.value
            if s.wanted != Wanted.RUN
            else "proposed"
        )
        return {
            "id": s.id,
            "title": s.title,
            "text": s.text,
            "hash": s.hash,
            "state": "ended" if s.outcome else state,
            "outcome": s.outcome,
            "port": running.get(s.id, 0),
            "proposed": s.proposed,
            "enough": s.enough,
            "accepted": list(s.said("accept")),
            "declined": list(s.said("decline")),
            "answered": s.answers.get(silo, {}).get("word", ""),
        }


def _read(path: Path, otherwise: str) -> str:
    return path.read_text("utf-8") if path.exists() else otherwise


def _write(path: Path, text: str) -> None:
    """Whole and on the disk, or not at all."""
    beside = path.with_name(path.name + ".new")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
