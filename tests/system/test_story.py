"""A consortium's life as its operators live it: enrol, propose, decline, accept, run, kill, leave a
study that runs, return, report, a second study, new keys, a silo that leaves for good.

Its data are its own and skewed: no silo has all classes, none has test data, and the coordinator has
no training data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from config.site import read_site
from study.papers import papers_are_whole
from tests.conftest import lines, summary, wait_for
from tests.documents import beyond, different
from tests.network.lines import Line, Net, why_not
from tests.system.story import DATA, ROUNDS, SILOS, Story, bags, documents
from wire.keyring import Keyring


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
        (path / "data-hub" / f"{split}.jsonl").write_text(bags(["causes", "eases", "worsens"] * 3))
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
        (path / f"data-{name}" / "train.jsonl").write_text(bags(DATA[name]))
        mapped = 'mapping = "classes.txt"\n' if name == "west" else ""
        (path / f"{name}.toml").write_text(
            f'home = "{name}"\ncoordinator = "{story.host}:{story.port}"\ncorpus = "data-{name}"\n'
            + mapped
            + policy * (name == "north")
        )
        story.serve(name)
    story.board()

    # Propose, decline, accept. North's policy accepts; nobody else takes part unasked.
    first = story.propose("The first", 1, ROUNDS, "--enough", "4")
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
    assert "taking part" not in story.said("west")
    story.study("west", "accept", first, "--hash", agreed)  # it thought better of it

    # Run, kill, leave, return: the coordinator waits, says for whom, and lets them in.
    run = path / "runs" / f"study-{agreed[:12]}"
    wait_for(lambda: [e for e in lines(run / "events.jsonl") if e["event"] == "round-done"])
    killed = ("east", "south")
    for name in killed:
        story.kill(name)
    wait_for(lambda: [e for e in lines(run / "events.jsonl") if e["event"] == "waiting"])
    said = story.study("hub", "status", first)
    assert "waits for" in said and "until you stop it" in said
    assert all(name in said for name in killed)
    story.study("west", "decline", first, "--why", "its ethics board says so")
    wait_for(lambda: story.file("hub", first, "answers/west.json").get("word") == "decline")
    wait_for(lambda: f"study {first}: this silo left it" in story.said("west"))
    assert "running; west left it" in story.study("hub", "list")
    for name in killed:
        story.serve(name)
    story.finished(first)
    rounds = lines(run / "rounds.jsonl")
    # Whatever the kill fell on, also on a sum that was being opened: no round is given up.
    assert not [e for e in lines(run / "events.jsonl") if e["event"] == "round-spent"]
    number = {card.name: f"silo-{i:03d}" for i, card in enumerate(rosters[0].silos)}
    assert summary(run)["rounds"] == len(rounds) == ROUNDS
    for name in ("north", *killed):
        assert all(number[name] in r["survivors"] for r in rounds)
    with_west = [number["west"] in r["survivors"] for r in rounds]
    assert with_west == sorted(with_west, reverse=True)  # once it left, it is in no round
    assert with_west[0] and not with_west[-1]

    # Report: what was lost and came back, and each silo's own papers.
    report = (run / "report.md").read_text()
    for name in killed:
        assert re.search(rf"## Losses and returns.*\| {name} \|", report, re.DOTALL)
    wait_for(lambda: story.state("south", first) in ("finished", "ended: finished"))
    assert f"something left in {ROUNDS} rounds" in story.study("south", "status", first)
    assert "epsilon infinite" in story.operator("ledger", "show", "--home", str(path / "south"))
    story.operator("ledger", "check", "--home", str(path / "south"))
    # A silo's figures are the coordinator's. Who was killed, or left, may have sent, and paid for,
    # what never arrived, and of nothing else do the two differ.
    whole = documents(run)
    for name in SILOS:
        record = path / name / "records" / agreed[:12]
        wait_for(lambda at=record: papers_are_whole(at))  # type: ignore[misc]
        own = documents(record)
        assert not beyond(own, whole, name, restarted=False)
        lost = [x for x in own["report"]["connections"] if x["what"] == "connected"][1:]
        assert bool(lost) == (name in killed)
        if name == "north":
            assert not different(own, whole)
        if name != "west":
            assert own["report"]["silos"][name]["rounds"] == list(range(ROUNDS))
    own = documents(path / "west" / "records" / agreed[:12])
    assert 0 in own["report"]["silos"]["west"]["rounds"]
    (left,) = own["report"]["studies_declined"]
    assert (left["study"], left["why"]) == (first, "its ethics board says so")
    said = " ".join(documents(path / "south" / "records" / agreed[:12])["report"]["not_counted"])
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
    studies = {x["study"] for x in lines(path / "west" / "ledger.jsonl")}
    assert studies == {agreed}
