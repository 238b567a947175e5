"""A consortium for tests: folders, keys, a roster and files as its operators would have them, and
its real programs.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from crypto.identity.roster import Roster, found
from tests.conftest import ROOT, command, wait_for
from wire.keyring import Keyring

__all__ = ["NAMES", "Consortium"]

NAMES = ("north", "east", "south")


class Consortium:
    """A hub and its silos under `path`. Programs that were started are killed by `close`."""

    def __init__(self, path: Path, names: tuple[str, ...] = NAMES) -> None:
        self.path, self.names = path, names
        self.rings = {"hub": Keyring.create(path / "hub", "hub", "coordinator")}
        self.rings |= {name: Keyring.create(path / name, name, "silo") for name in names}
        self.roster = found("a test", self.rings["hub"].card)
        for name in names:
            self.roster = self.roster.add(self.rings[name].card)
        self.roster = self.enact(self.roster)
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def enact(self, roster: Roster, *without: str) -> Roster:
        """Signed by everybody in it, and pinned by them."""
        members = [n for n in self.rings if roster.card(n) is not None and n not in without]
        for name in members:
            roster = self.rings[name].sign(roster)
        for name in members:
            self.rings[name] = self.rings[name].pin(roster)
        return roster

    def study(self, **settings: object) -> Path:
        """study.toml; texts are quoted."""
        file = self.path / "study.toml"
        values = {"title": "A test", **settings}
        file.write_text("".join(f"{k} = {_toml(v)}\n" for k, v in values.items()))
        return file

    def site(self, name: str, port: int | str, more: str = "", **settings: object) -> Path:
        file = self.path / f"{name}.toml"
        values = {
            "study": "study.toml",
            "home": name,
            "coordinator": f"127.0.0.1:{port}",
            **settings,
        }
        file.write_text("".join(f"{k} = {_toml(v)}\n" for k, v in values.items()) + more)
        return file

    def line(self, name: str, *words: str) -> list[str]:
        """The command line of the program that is called `name`."""
        return command(*words)

    def start(self, name: str, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self.line(name, *words),
            cwd=ROOT,
            stdout=(self.path / f"{name}.out").open("w"),
            stderr=(self.path / f"{name}.log").open("w"),
            stdin=subprocess.DEVNULL,
            text=True,
        )
        self.processes[name] = process
        return process

    def hub(self, *words: str, listen: str = "127.0.0.1:0") -> tuple[int, str]:
        """Start the coordinator; its port and the study's hash, once it listens."""
        files = (
            "--config",
            str(self.path / "study.toml"),
            "--home",
            str(self.path / "hub"),
            "--out",
            str(self.path),
        )
        process = self.start("hub", "coordinator", *files, "--listen", listen, *words)

        def listening() -> tuple[int, str] | None:
            said = self.said("hub")
            assert process.poll() is None, said + self.log("hub")
            port, study = (
                re.search(r"listening on [\d.]+:(\d+)", said),
                re.search(r"Study hash +(\w+)", said),
            )
            return (int(port[1]), study[1]) if port and study else None

        return wait_for(listening)

    def silo(
        self, name: str, port: int | str, study: str, more: str = "", **settings: object
    ) -> subprocess.Popen[str]:
        return self.start(
            name,
            "silo",
            "--config",
            str(self.site(name, port, more, **settings)),
            "--accept",
            study,
        )

    def said(self, name: str) -> str:
        return (self.path / f"{name}.out").read_text()

    def log(self, name: str) -> str:
        return (self.path / f"{name}.log").read_text()

    def everything(self) -> str:
        return "\n".join(f"--- {n}\n{self.said(n)}\n{self.log(n)}" for n in self.processes)

    @property
    def run(self) -> Path:
        return self.path / "latest"

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else f'"{value}"'
