"""Programs that serve, without their sockets and without their studies' processes: what tests of both
roles share.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, ClassVar

import pytest

import silo.serving
from config.site import read_site
from coordinator.board import Board
from coordinator.serving import Runner
from crypto.derive import Label
from silo.home import Home
from silo.serving import Server
from study.machine import Machine
from tests.consortium import NAMES, Consortium

__all__ = ["Acted", "Stage", "Told"]


class Acted:
    """In the place of a study's process: says what happened to it, and ends as it is told."""

    every: ClassVar[list[Acted]]

    def __init__(self, words: list[str], log: Path) -> None:
        self.words, self.log, self.happened, self.status = words, log, list[str](), None
        self.every.append(self)

    status: int | None
    alive = False

    def start(self) -> bool:
        self.happened.append("start")
        return True

    def ended(self) -> int | None:
        status, self.status = self.status, None
        return status

    def pause(self) -> None:
        self.happened.append("pause")

    def end(self) -> None:
        self.happened.append("end")

    def last_words(self) -> str:
        return "The corpus is gone."

    def said(self, option: str) -> str:
        return self.words[self.words.index(option) + 1]


class Stage:
    def __init__(
        self, path: Path, slots: int = 1, patience: float = 0.0, names: tuple[str, ...] = NAMES
    ) -> None:
        self.parties = Consortium(path, names)
        self.board = Board(path / "hub", self.parties.roster)
        machine = Machine(path / "hub", out=str(path))
        self.runner = Runner(self.board, machine, "0.0.0.0", 6000, slots, patience)

    def post(self, title: str, accepted: bool = True) -> str:
        hash_, enough = title.encode().hex().ljust(64, "0"), len(self.parties.names)
        text = f'title = "{title}"'
        id_ = self.board.post(title=title, text=text, hash=hash_, enough=enough).id
        for name in self.parties.names if accepted else ():
            self.accept(name, id_)
        return id_

    def accept(self, name: str, id_: str) -> None:
        identity, hash_ = self.parties.rings[name].identity, self.board[id_].hash
        signed = identity.sign(Label.CONSENT, id_.encode(), hash_.encode()).hex()
        self.board.answer(name, id_, {"word": "accept", "hash": hash_, "signature": signed})


class Told:
    """A silo's serving program, whose coordinator says what the test says."""

    def __init__(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, slots: int = 1, more: str = ""
    ) -> None:
        monkeypatch.setattr(silo.serving, "Child", Acted)
        Consortium(path)
        file = path / "north.toml"
        file.write_text(f'home = "north"\ncoordinator = "127.0.0.1:1"\nslots = {slots}\n{more}')
        self.server = Server(read_site(file), Home(path / "north"))
        self.shown: list[dict[str, Any]] = []
        monkeypatch.setattr(self.server, "_ask", lambda question: self.shown)

    def looked_at(self, title: str, **facts: Any) -> dict[str, Any]:
        """A study that is proposed, and was looked at here."""
        text = f'title = "{title}"'
        id_ = hashlib.sha256(text.encode()).hexdigest()[:12]
        self.server.studies.looked_at(id_, {"title": title, "hash": "ab" * 32, "facts": facts})
        shown = {"id": id_, "text": text, "hash": "ab" * 32, "state": "proposed", "port": 0}
        self.shown.append(shown | {"answered": "", "outcome": ""})
        return self.shown[-1]

    def accepted(self, title: str, port: int) -> dict[str, Any]:
        """A study that was looked at and accepted here, and runs."""
        text = f'title = "{title}"'
        id_ = hashlib.sha256(text.encode()).hexdigest()[:12]
        self.server.studies.looked_at(id_, {"title": title, "hash": "ab" * 32, "facts": {}})
        self.server.studies.decide(id_, "accept", "asked")
        shown = {"id": id_, "text": text, "hash": "ab" * 32, "state": "running", "port": port}
        self.shown.append(shown | {"answered": "accept", "outcome": ""})
        return self.shown[-1]

    def state(self, shown: dict[str, Any]) -> str:
        return self.server.studies[shown["id"]].state

    def dialled(self, child: Acted) -> str:
        return str(read_site(Path(child.said("--config"))).coordinator)
