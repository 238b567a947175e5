"""Enrol, Rotate and Revoke of docs/operations.md, word for word, each party in a folder of its own.

The commands are read from the page; only who runs them, and who carries which file where, is said
here.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from cli.main import main
from tests.conftest import ROOT
from wire.keyring import Keyring

SILOS = ("north", "east", "south")


def _commands(chapter: str) -> list[str]:
    text = (ROOT / "docs/operations.md").read_text("utf-8")
    body = re.split(r"^## ", text.partition(f"\n## {chapter}\n")[2], flags=re.M)[0]
    blocks = "\n".join(re.findall(r"```\n(.*?)```", body, re.S))
    return [line for line in blocks.splitlines() if line.startswith("sottovoce ")]


class _Walk:
    def __init__(self, path: Path, patch: pytest.MonkeyPatch) -> None:
        self.path, self._patch = path, patch

    def at(self, party: str, file: str) -> Path:
        return self.path / party / file

    def do(self, party: str, line: str) -> None:
        """The coordinator reads `--home silo` as its own folder, and every silo its own name for
        north's.
        """
        words = shlex.split(line)[1:]
        home = "coordinator" if party == "hub" else "silo"
        words = [home if words[k - 1] == "--home" else word for k, word in enumerate(words)]
        words = [
            party if word == "north" and words[k - 1] == "--name" else word
            for k, word in enumerate(words)
        ]
        self._patch.chdir(self.path / party)
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0, (party, words)

    def carry(self, source: Path, *targets: Path) -> None:
        for target in targets:
            shutil.copyfile(source, target)

    def enact(self, silos: tuple[str, ...], lines: list[str]) -> int:
        """Compare and sign copies, gather them at north's, verify and pin: steps 3 and 4. Returns
        the version.
        """
        parties = (*silos, "hub")
        roster = self.at("north", "roster.json")
        self.carry(roster, *(self.at(p, "roster.json") for p in parties if p != "north"))
        merge = next(line for line in lines if "roster merge" in line)
        for step in ("roster show", "roster sign"):
            for party in parties:
                self.do(party, next(line for line in lines if step in line))
        for party in parties:
            if party != "north":
                self.carry(
                    self.at(party, "roster.json"), self.at("north", f"roster.from-{party}.json")
                )
        words = merge.split()
        gone = {f"roster.from-{name}.json" for name in SILOS if name not in silos}
        self.do("north", " ".join(w for w in words if w not in gone))
        self.carry(roster, *(self.at(p, "roster.json") for p in parties if p != "north"))
        for step in ("roster verify", "roster pin"):
            for party in parties:
                self.do(party, next(line for line in lines if step in line))
        versions = {
            Keyring.load(self.at(p, "coordinator" if p == "hub" else "silo")).pinned().version
            for p in parties
        }
        assert len(versions) == 1
        return versions.pop()


def test_enrol_rotate_and_revoke_as_the_runbook_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = _Walk(tmp_path, monkeypatch)
    for party in ("hub", *SILOS):
        (tmp_path / party).mkdir(mode=0o700)
    lines = _commands("Enrol")
    hub, silo, *rest = lines
    walk.do("hub", hub)
    for name in SILOS:
        walk.do(name, silo)
        walk.carry(walk.at(name, "silo/keys/card.json"), walk.at("north", f"{name}.card.json"))
    walk.carry(walk.at("hub", "coordinator/keys/card.json"), walk.at("north", "hub.card.json"))
    while re.search("roster (create|add)", rest[0]):
        walk.do("north", rest.pop(0))
    assert walk.enact(SILOS, rest) == 1

    mine, kept = _commands("Rotate keys")
    walk.do("north", mine)
    walk.carry(walk.at("north", "silo/next/card.json"), walk.at("north", "north.new.card.json"))
    walk.do("north", kept)
    assert walk.enact(SILOS, rest) == 2
    assert walk.at("north", "silo/retired").is_dir() and not walk.at("north", "silo/next").exists()

    (revoke,) = _commands("Revoke")
    walk.do("north", revoke)
    assert walk.enact(("north", "south"), rest) == 3
    pinned = Keyring.load(walk.at("south", "silo")).pinned()
    assert pinned.card("east") is None and {r.name for r in pinned.revoked} == {"north", "east"}
