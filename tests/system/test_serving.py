"""Long-lived silos and coordinators: studies are proposed, declined, accepted and run one after
another, while programs are killed and started again. Real programs, real sockets.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.board import Board
from crypto.derive import Label
from crypto.identity.card import RosterRefused
from tests.conftest import sottovoce, summary, wait_for
from tests.consortium import Consortium

STUDY = {
    "method": "fedavg",
    "corpus": "distant:sentences=200",
    "rounds": 3,
    "epochs": 1,
    "minimum": 3,
}
NAMES = ("north", "east", "south", "west")


class Serving(Consortium):
    """A board and silos that serve."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, NAMES)
        self.port = _two_free_ports()

    def board(self) -> None:
        place = f"127.0.0.1:{self.port}"
        home = str(self.path / "hub")
        self.start(
            "hub",
            "coordinator",
            "serve",
            "--home",
            home,
            "--listen",
            place,
            "--out",
            str(self.path),
        )

    def serve(self, name: str, more: str = "") -> None:
        file = self.path / f"{name}.toml"
        file.write_text(f'home = "{name}"\ncoordinator = "127.0.0.1:{self.port}"\n{more}')
        self.start(name, "silo", "serve", "--config", str(file))

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()

    def command(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        return sottovoce("study", *words, "--home", str(self.path / name))

    def propose(self, title: str, seed: int, *words: str) -> str:
        file = self.study(**{**STUDY, "title": title, "seed": seed})
        done = self.command("hub", "propose", str(file), *words)
        assert done.returncode == 0, done.stderr
        return next(
            line.split()[2].rstrip(";")
            for line in done.stdout.splitlines()
            if "proposed as" in line
        )

    def state(self, name: str, study: str, file: str = "state.json") -> dict[str, Any]:
        path = self.path / name / "studies" / study / file
        return json.loads(path.read_text()) if path.exists() else {}

    def told(self, name: str, study: str) -> Callable[[], bool]:
        return lambda: (self.path / name / "studies" / study / "look.json").exists()

    def outcome(self, study: str) -> str:
        return str(self.state("hub", study, "outcome.json").get("outcome", ""))


def _two_free_ports() -> int:
    while True:
        with socket.create_server(("127.0.0.1", 0)) as s, socket.socket() as t:
            port = int(s.getsockname()[1])
            try:
                t.bind(("127.0.0.1", port + 1))
                return port
            except (OSError, OverflowError):
                continue


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    made = Serving(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.slow
def test_two_studies_after_another_with_a_decline_a_policy_and_kills(serving: Serving) -> None:
    serving.board()
    policy = '[accept]\nmethods = ["fedavg"]\nmaximum_rounds = 3\nwithout_noise = true\n'
    serving.serve("north", policy)
    for name in NAMES[1:]:
        serving.serve(name)
    first = serving.propose("The first", 1, "--enough", "3")
    for name in NAMES:
        wait_for(serving.told(name, first))
    # The policy accepted at north; nobody else takes part unasked.
    wait_for(lambda: serving.state("hub", first, "answers/north.json").get("word") == "accept")
    assert "accepted by north," in serving.command("hub", "list").stdout
    assert serving.command("east", "accept", first).returncode == 2  # nobody to ask: it says how
    shown = serving.state("east", first, "look.json")
    assert "What a silo may send" in serving.command("east", "show", first).stdout
    assert serving.command("east", "accept", first, "--hash", "0" * 64).returncode == 2
    assert serving.command("west", "decline", first, "--why", "no time").returncode == 0
    # The board is killed and comes back: what was answered is on its disk.
    wait_for(lambda: serving.state("hub", first, "answers/west.json").get("why") == "no time")
    serving.kill("hub")
    serving.board()
    for name in ("east", "south"):
        done = serving.command(name, "accept", first, "--hash", shown["hash"])
        assert done.returncode == 0, done.stderr
    wait_for(lambda: serving.state("south", first).get("state") == "running")
    # A silo that serves is killed with its study, and comes back into it.
    serving.kill("south")
    serving.serve("south")
    wait_for(lambda: serving.outcome(first) == "finished", seconds=200)
    run = serving.path / f"study-{shown['hash'][:12]}"
    result = summary(run)
    assert result["rounds"] == 3
    rounds = [json.loads(x) for x in (run / "rounds.jsonl").read_text().splitlines()]
    number = {c.name: f"silo-{i:03d}" for i, c in enumerate(serving.roster.silos)}
    for r in rounds:
        assert set(r["survivors"]) == {number[n] for n in ("north", "east", "south")}

    second = serving.propose("The second", 2, "--enough", "4")
    for name in NAMES:
        wait_for(serving.told(name, second))
    for name in NAMES[1:]:
        look = serving.state(name, second, "look.json")
        assert serving.command(name, "accept", second, "--hash", look["hash"]).returncode == 0
    wait_for(lambda: serving.state("west", second).get("state") == "running")
    assert serving.command("hub", "pause", second).returncode == 0
    wait_for(lambda: serving.state("west", second).get("state") == "pause")
    assert serving.command("hub", "resume", second).returncode == 0
    wait_for(lambda: serving.outcome(second) == "finished", seconds=200)
    wait_for(lambda: serving.state("west", second).get("state") in ("finished", "ended: finished"))
    listed = serving.command("west", "list").stdout
    assert f"{first}  declined" in listed and f"{second}  accepted" in listed
    assert "taking part" in serving.log("west")
    assert "ends" in serving.command("west", "logs", second).stdout

    third = serving.propose("Too long for the policy", 3)
    wait_for(serving.told("north", third))
    assert serving.command("hub", "stop", third).returncode == 0
    wait_for(lambda: serving.outcome(third) == "stopped by its operator")
    assert serving.command("hub", "pause", third).returncode == 2


# The board, against those who would speak for others


def test_a_consent_is_the_silos_own_and_of_this_very_study(tmp_path: Path) -> None:
    parties = Consortium(tmp_path)
    board = Board(tmp_path / "hub", parties.roster)
    posted = board.post(title="A test", text='title = "A test"\n', hash="ab" * 32, enough=3)

    def consent(by: str, hash: str) -> str:
        return (
            parties.rings[by].identity.sign(Label.CONSENT, posted.id.encode(), hash.encode()).hex()
        )

    def refused(silo: str, said: object) -> str:
        with pytest.raises(RosterRefused) as e:
            board.heard(silo, said, {})
        return e.value.attack

    good = consent("north", posted.hash)
    assert refused("east", ["accept", posted.id, posted.hash, good]) == "key-substitution"
    other = "cd" * 32
    assert refused("north", ["accept", posted.id, other, consent("north", other)]) == "wrong-shape"
    assert refused("north", ["accept", "../../hub", posted.hash, good]) == "replay"
    assert refused("north", ["propose", "x"]) == "wrong-shape"
    assert board[posted.id].answers == {}
    (shown,) = board.heard("north", ["accept", posted.id, posted.hash, good], {})
    assert shown["accepted"] == ["north"] and shown["answered"] == "accept"
    (shown,) = board.heard("north", ["decline", posted.id, "x" * 999], {})
    assert shown["declined"] == ["north"] and len(board[posted.id].answers["north"]["why"]) == 300
    assert not board[posted.id].ready
    for name in ("north", "east", "south"):
        board.heard(name, ["accept", posted.id, posted.hash, consent(name, posted.hash)], {})
    assert board[posted.id].ready
    board.end(posted.id, "finished")
    assert refused("north", ["decline", posted.id, ""]) == "replay"
