"""A consortium's machines with an operator each, for `test_story.py`: real programs and sockets, each machine
in a network namespace of its own where that is permitted, on the loopback address elsewhere.
"""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from cli.main import main
from report.documents import KINDS
from tests.conftest import ROOT, command, free_ports, wait_for
from tests.network.lines import Net

__all__ = ["DATA", "ROUNDS", "SILOS", "Story", "bags", "documents"]

SILOS = ("north", "east", "south", "west")
ROUNDS = 8  #: of the first study: enough for a silo to be killed before the last
DATA = {
    "north": ["causes", "eases"] * 6,
    "east": ["eases", "worsens"] * 5,
    "south": ["worsens"] * 8,
    "west": ["helps"] * 4,  # its own word for "eases"
}
STUDY = """
title = "{title}"
method = "fedavg"
rounds = {rounds}
epochs = 1
batch = 4
seed = {seed}
minimum = 3
[options]
hash_words = 100
word_dim = 8
[data]
task = "distant"
classes = ["causes", "eases", "worsens"]
"""


def bags(labels: list[str]) -> str:
    rows = []
    for i, label in enumerate(labels):
        text = f"xol{i} eased a cough"
        head = {"name": f"xol{i}", "id": f"x{i}", "pos": [0, len(f"xol{i}")]}
        tail = {"name": "cough", "id": "c", "pos": [len(text) - 5, len(text)]}
        rows.append(json.dumps({"text": text, "h": head, "t": tail, "relation": label}))
    return "\n".join(rows)


class Story:
    """Machines with an operator each. Programs that serve are real; one-shot commands of an operator
    run here, as the same code.
    """

    def __init__(self, path: Path, net: Net | None, capsys: pytest.CaptureFixture[str]) -> None:
        self.path, self.net, self.capsys = path, net, capsys
        self.host = net.address("hub") if net else "127.0.0.1"
        self.port = 5555 if net else free_ports(4)
        self.programs: dict[str, subprocess.Popen[str]] = {}

    # Programs

    def start(self, who: str, *words: str, stdin: int = subprocess.DEVNULL) -> None:
        machine = who.partition(" ")[0]
        prefix = ["ip", "netns", "exec", self.net._name(machine)] if self.net else []
        self.programs[who] = subprocess.Popen(
            [*prefix, *command(*words)],
            cwd=ROOT,
            stdin=stdin,
            stdout=(self.path / f"{who}.out").open("a"),
            stderr=subprocess.STDOUT,
            text=True,
        )

    def said(self, who: str) -> str:
        return (self.path / f"{who}.out").read_text()

    def kill(self, who: str) -> None:
        """As if its machine had lost power: the program, and the study that it runs."""
        process = psutil.Process(self.programs[who].pid)
        for one in (process, *process.children(recursive=True)):
            one.kill()
        self.programs[who].wait()

    def close(self) -> None:
        for who, program in self.programs.items():
            if program.poll() is None:
                self.kill(who)

    def board(self) -> None:
        words = ("--home", str(self.path / "hub"), "--listen", f"{self.host}:{self.port}")
        more = ("--corpus", str(self.path / "data-hub"), "--out", str(self.path / "runs"))
        self.start("hub", "coordinator", "serve", *words, *more)

    def serve(self, name: str) -> None:
        self.start(name, "silo", "serve", "--config", str(self.path / f"{name}.toml"))

    # Operators

    def operator(self, *words: str, status: int = 0) -> str:
        """One command; what it said."""
        ended = 0
        try:
            main(list(words))
        except SystemExit as e:
            ended = int(e.code or 0)
        told = self.capsys.readouterr()
        assert ended == status, told.out + told.err
        return " ".join((told.out + told.err).split())

    def study(self, who: str, *words: str, status: int = 0) -> str:
        return self.operator("study", *words, "--home", str(self.path / who), status=status)

    def propose(self, title: str, seed: int, rounds: int, *words: str) -> str:
        file = self.path / "study.toml"
        file.write_text(STUDY.format(title=title, seed=seed, rounds=rounds))
        found = re.search(r"proposed as (\w+)", self.study("hub", "propose", str(file), *words))
        assert found is not None
        return found[1]

    def file(self, who: str, study: str, name: str) -> dict[str, Any]:
        path = self.path / who / "studies" / study / name
        return json.loads(path.read_text()) if path.exists() else {}

    def looked(self, who: str, study: str) -> str:
        """The hash as this silo computes it, once it has looked at the study."""
        return str(wait_for(lambda: self.file(who, study, "look.json").get("hash")))

    def state(self, who: str, study: str) -> str:
        return str(self.file(who, study, "state.json").get("state", ""))

    def finished(self, study: str) -> None:
        wait_for(lambda: self.file("hub", study, "outcome.json"), seconds=240)
        assert self.file("hub", study, "outcome.json")["outcome"] == "finished"

    def agree(self, *parties: str, new: bool = False) -> None:
        """Everybody compares twelve words over the telephone, and types yes."""
        place = f"{self.host}:{self.port + 3}"
        ends: dict[str, int] = {}
        for who in ("hub", *parties):
            ends[who], other = pty.openpty()
            home, words = str(self.path / who), tuple[str, ...]()
            if who == "hub":
                words = ("consortium", "seal", home, "--listen", place)
            elif new:
                words = ("join", str(self.path / "hub/invitations" / f"{who}.json"), "--home", home)
            else:
                words = ("join", "--address", place, "--home", home)
            self.start(f"{who} agrees", *words, stdin=other)
            os.close(other)
        twelve = re.compile(r"^ {4}((?:[a-z]+ ){11}[a-z]+)$", re.MULTILINE)
        seen = [
            wait_for(lambda w=who: twelve.findall(self.said(f"{w} agrees")) or None)[-1]  # type: ignore[misc]
            for who in ends
        ]
        assert len(set(seen)) == 1
        for end in ends.values():
            os.write(end, b"yes\n")
        for who, end in ends.items():
            assert self.programs[f"{who} agrees"].wait(60) == 0, self.said(f"{who} agrees")
            os.close(end)


def documents(folder: Path) -> dict[str, Any]:
    return {kind: json.loads((folder / f"{kind}.json").read_text()) for kind in KINDS}
