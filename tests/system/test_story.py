"""A consortium's life as its operators live it: enrol, propose, decline, accept, run, kill, return,
report, a second study, new keys, a silo that leaves. Real programs and sockets, each machine in a
network namespace of its own where that is permitted, on the loopback address elsewhere.

Its data are its own and skewed: no silo has all classes, none has test data, and the coordinator has
no training data.
"""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from cli.main import main
from config.site import read_site
from report.documents import KINDS
from study.papers import papers_are_whole
from tests.conftest import ROOT, command, free_ports, lines, summary, wait_for
from tests.documents import beyond, different
from tests.network.lines import Line, Net, why_not
from wire.keyring import Keyring

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


def _bags(labels: list[str]) -> str:
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


def _documents(folder: Path) -> dict[str, Any]:
    return {kind: json.loads((folder / f"{kind}.json").read_text()) for kind in KINDS}


@pytest.fixture
def story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Story]:
    with ExitStack() as stack:
        net = None
        if not why_not():
            line = Line(delay=0.001, rate=1e9, loss=0.0)
            net = stack.enter_context(Net(["hub", *SILOS], line))
        made = Story(tmp_path, net, capsys)
        stack.callback(made.close)
        yield made


@pytest.mark.slow
@pytest.mark.timeout(900)  # minutes on a busy machine
def test_a_consortiums_life(story: Story) -> None:
    path = story.path
    (path / "data-hub").mkdir()
    for split in ("dev", "test"):
        (path / "data-hub" / f"{split}.jsonl").write_text(_bags(["causes", "eases", "worsens"] * 3))
    (path / "classes.txt").write_text("helps = eases\n")

    # Enrol: one command for the coordinator and one for each silo, and a telephone call.
    names = ("--name", "hub", "--consortium", "Four hospitals")
    place = ("--address", f"{story.host}:{story.port + 3}")
    story.operator("consortium", "new", str(path / "hub"), *SILOS, *names, *place)
    story.agree(*SILOS, new=True)
    rosters = [Keyring.load(path / name).pinned() for name in ("hub", *SILOS)]
    assert len({r.digest for r in rosters}) == 1 and not rosters[0].unsigned
    begun = read_site(path / "north" / "silo.toml")  # what it begins with
    assert begun.home == path / "north" and begun.study is None
    assert begun.coordinator == f"{story.host}:{story.port + 3}"

    # Each silo writes one file and serves; the coordinator serves.
    policy = f'[accept]\nmethods = ["fedavg"]\nmaximum_rounds = {ROUNDS}\nwithout_noise = true\n'
    for name in SILOS:
        (path / f"data-{name}").mkdir()
        (path / f"data-{name}" / "train.jsonl").write_text(_bags(DATA[name]))
        mapped = 'mapping = "classes.txt"\n' if name == "west" else ""
        (path / f"{name}.toml").write_text(
            f'home = "{name}"\ncoordinator = "{story.host}:{story.port}"\ncorpus = "data-{name}"\n'
            + mapped
            + policy * (name == "north")
        )
        story.serve(name)
    story.board()

    # Propose, decline, accept. North's policy accepts; nobody else takes part unasked.
    first = story.propose("The first", 1, ROUNDS, "--enough", "3")
    hashes = {story.looked(name, first) for name in SILOS}
    assert len(hashes) == 1  # though no two of them have the same classes
    (agreed,) = hashes
    wait_for(lambda: story.file("hub", first, "answers/north.json").get("word") == "accept")
    assert "accepted by north," in story.study("hub", "list")
    page = story.study("west", "show", first)
    assert "What a silo may send" in page and '4 "helps" was read as "eases"' in page
    assert "eases 4" in page
    assert "--hash" in story.study("east", "accept", first, status=2)  # nobody to ask: it says how
    assert "another study" in story.study("east", "accept", first, "--hash", "0" * 64, status=2)
    story.study("west", "decline", first, "--why", "no time")
    for name in ("east", "south"):
        story.study(name, "accept", first, "--hash", agreed)
    wait_for(lambda: story.file("hub", first, "answers/west.json").get("why") == "no time")

    # Run, kill, return: the coordinator waits, says for whom, and lets it in.
    run = path / "runs" / f"study-{agreed[:12]}"
    wait_for(lambda: [e for e in lines(run / "events.jsonl") if e["event"] == "round-done"])
    story.kill("south")
    wait_for(lambda: [e for e in lines(run / "events.jsonl") if e["event"] == "waiting"])
    said = story.study("hub", "status", first)
    assert "waits for" in said and "south" in said and "until you stop it" in said
    story.serve("south")
    story.finished(first)
    rounds = lines(run / "rounds.jsonl")
    # Whatever the kill fell on, also on a sum that was being opened: no round is given up.
    assert not [e for e in lines(run / "events.jsonl") if e["event"] == "round-spent"]
    assert [len(r["survivors"]) for r in rounds] == [3] * ROUNDS
    assert summary(run)["rounds"] == ROUNDS
    number = {card.name: f"silo-{i:03d}" for i, card in enumerate(rosters[0].silos)}
    assert all(number["west"] not in r["participants"] for r in rounds)

    # Report: what was lost and came back, and each silo's own papers.
    report = (run / "report.md").read_text()
    assert re.search(r"## Losses and returns.*\| south \|", report, re.DOTALL)
    wait_for(lambda: story.state("south", first) in ("finished", "ended: finished"))
    assert f"something left in {ROUNDS} rounds" in story.study("south", "status", first)
    assert "epsilon infinite" in story.operator("ledger", "show", "--home", str(path / "south"))
    story.operator("ledger", "check", "--home", str(path / "south"))
    assert "taking part" not in story.said("west")
    # A silo's figures are the coordinator's. South was killed: it may have sent, and paid for, what
    # never arrived, and of nothing else do the two differ.
    whole = _documents(run)
    for name in ("north", "east", "south"):
        record = path / name / "records" / agreed[:12]
        wait_for(lambda at=record: papers_are_whole(at))  # type: ignore[misc]
        own = _documents(record)
        assert not beyond(own, whole, name, restarted=False)
        lost = [x for x in own["report"]["connections"] if x["what"] == "connected"][1:]
        assert bool(lost) == (name == "south")
        if not lost:
            assert not different(own, whole)
        assert own["report"]["silos"][name]["rounds"] == list(range(ROUNDS))
    said = " ".join(_documents(path / "south" / "records" / agreed[:12])["report"]["not_counted"])
    assert "dialled the coordinator 2 times" in said
    assert any("south " in line for line in whole["report"]["not_counted"])

    # New keys for east, and west leaves: one new version, signed by those who stay.
    asked = story.propose("Nobody has answered", 9, 1)
    story.looked("west", asked)
    story.operator("keys", "rotate", str(path / "east"))
    card = str(path / "east" / "next" / "card.json")
    change = ("--card", card, "--revoke", "west", "--why", "it left")
    story.operator("consortium", "next", str(path / "hub"), *change)
    story.agree("north", "east", "south")
    wait_for(
        lambda: (
            "roster has version 2" in story.file("hub", asked, "outcome.json").get("outcome", "")
        )
    )
    wait_for(lambda: "waits for studies" in story.said("east").split("version 2")[-1])

    # A second study, among those who stayed. It is paused; the coordinator is killed, and goes on.
    second = story.propose("The second", 2, 2)
    hashes = {story.looked(name, second) for name in ("north", "east", "south")}
    assert len(hashes) == 1
    for name in ("east", "south"):
        story.study(name, "accept", second, "--hash", *hashes)
    run = path / "runs" / f"study-{hashes.pop()[:12]}"
    wait_for(lambda: [e for e in lines(run / "events.jsonl") if e["event"] == "round-done"])
    story.study("hub", "pause", second)
    wait_for(lambda: story.state("east", second) == "paused by the coordinator")
    story.kill("hub")
    story.board()
    wait_for(lambda: story.said("hub").count("the board is on") == 3)
    story.study("hub", "resume", second)
    story.finished(second)
    assert [len(r["survivors"]) for r in lines(run / "rounds.jsonl")] == [3, 3]
    assert second not in story.study("west", "list")
    listed = story.study("east", "list")
    assert f"{first} accepted" in listed and f"{second} accepted" in listed
    assert "ends" in story.study("east", "logs", second)
    # North's policy accepts no study of so many rounds: it looks, says why, and waits.
    third = story.propose("Nobody wants it", 3, ROUNDS + 1)
    waits = f"study {third} (Nobody wants it) waits for its operator (it has {ROUNDS + 1} rounds)"
    wait_for(lambda: waits in story.said("north"))
    assert story.file("hub", third, "answers/north.json") == {}
    story.study("hub", "stop", third)
    wait_for(lambda: "stopped" in story.file("hub", third, "outcome.json").get("outcome", ""))
    assert story.file("hub", third, "answers/north.json") == {}
    assert "has ended" in story.study("hub", "pause", third, status=2)
    # West's key opens nothing any more, and it is told so.
    wait_for(lambda: "does not let this key in" in story.said("west"))
    # Nothing was charged twice and nothing was forgotten: each round of both studies left once,
    # unless it was asked for again.
    for name in ("north", "east", "south"):
        left = [
            (record.name, x["round"], x["name"])
            for record in sorted((path / name / "records").iterdir())
            for x in lines(record / "left.jsonl")
            if x["what"] == "left"
        ]
        assert len({where[:2] for where in left}) == ROUNDS + 2
        assert len(lines(path / name / "ledger.jsonl")) >= len(set(left))
    assert not (path / "west" / "ledger.jsonl").exists()
