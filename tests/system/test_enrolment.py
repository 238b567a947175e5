"""Strangers become a consortium: real commands over a real port, and what a liar on the way could
try.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest
import zmq

from cli.main import main
from config.errors import BUSY
from crypto.identity.card import RosterRefused
from crypto.identity.enrolment import Gathering, Stage, invite, read_invitation
from crypto.identity.words import words
from study.presence import alone
from tests.conftest import ROOT, command, sottovoce, wait_for
from wire.enrolment import Answer, EnrolmentClient, EnrolmentServer
from wire.keyring import Keyring
from wire.keys import CurveKeys
from wire.questions import Unreached

NAMES = ("north", "east", "south")


class Parties:
    """Programs that were started; what they said is in files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.running: dict[str, subprocess.Popen[str]] = {}

    def start(self, who: str, *words: str) -> None:
        self.running[who] = subprocess.Popen(
            command(*words),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=(self.path / f"{who}.out").open("w"),
            stderr=subprocess.STDOUT,
            text=True,
        )

    def said(self, who: str) -> str:
        return (self.path / f"{who}.out").read_text()

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()


@pytest.fixture
def parties(tmp_path: Path) -> Iterator[Parties]:
    made = Parties(tmp_path)
    try:
        yield made
    finally:
        made.close()


def _found(path: Path) -> None:
    done = sottovoce(
        "consortium",
        "new",
        str(path / "hub"),
        *NAMES,
        "--name",
        "hub",
        "--consortium",
        "Three hospitals",
        "--address",
        "127.0.0.1:1",
    )
    assert done.returncode == 0, done.stderr
    for name in NAMES:
        assert (path / "hub" / "invitations" / f"{name}.json").stat().st_mode & 0o077 == 0


def _port(parties: Parties) -> str:
    found = wait_for(lambda: re.search(r"listening on [\d.]+:(\d+)", parties.said("hub")))
    return str(found[1])


def _twelve(said: str) -> str:
    found = re.search(r"^ {4}((?:[a-z]+ ){11}[a-z]+)$", said, re.MULTILINE)
    assert found is not None, said
    return str(found[1])


@pytest.mark.slow
def test_one_command_a_silo_and_everybody_has_pinned_what_all_signed(parties: Parties) -> None:
    path = parties.path
    _found(path)
    # Without words nobody signs: they show them, and say what to do.
    parties.start("hub", "consortium", "seal", str(path / "hub"), "--listen", "127.0.0.1:0")
    port = _port(parties)

    def join(name: str, *more: str) -> None:
        invitation = path / "hub" / "invitations" / f"{name}.json"
        place = ("--address", f"127.0.0.1:{port}", "--wait", "60")
        parties.start(name, "join", str(invitation), "--home", str(path / name), *place, *more)

    for name in NAMES:
        join(name)
    for name in NAMES:
        assert parties.running[name].wait(60) == 2, parties.said(name)
        assert "with --told" in " ".join(parties.said(name).split())
        assert not (path / name / "roster.json").exists()
    parties.running["hub"].kill()  # nothing is lost with it
    parties.running["hub"].wait()
    told = {_twelve(parties.said(name)) for name in (*NAMES, "hub")}
    assert len(told) == 1
    (words_,) = told
    # one who was told other words signs nothing
    seal = ("consortium", "seal", str(path / "hub"), "--listen", "127.0.0.1:0", "--wait", "60")
    parties.start("hub", *seal, "--told", words_)
    port = _port(parties)
    join("east", "--told", f"{words_} zoo")
    assert parties.running["east"].wait(60) == 2
    assert "other words" in parties.said("east")
    # started again, all go on where they were
    for name in NAMES:
        join(name, "--told", words_.upper())
    for name in (*NAMES, "hub"):
        assert parties.running[name].wait(60) == 0, parties.said(name)
    rosters = [Keyring.load(path / name).pinned() for name in (*NAMES, "hub")]
    assert len({r.digest for r in rosters}) == 1
    assert [c.name for c in rosters[0].silos if c.name in NAMES] and not rosters[0].unsigned
    assert rosters[0].consortium == "Three hospitals" and words(rosters[0].digest) == words_


# The port, against strangers


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[EnrolmentServer, dict[str, bytes], Keyring, int]]:
    hub = Keyring.create(tmp_path / "hub", "hub", "coordinator")
    gathering, tokens = invite(None, "a test", hub.card, NAMES)
    kept: list[Gathering] = []
    made = EnrolmentServer(hub.curve, gathering, kept.append)
    port = made.bind("127.0.0.1", 0)
    try:
        yield made, tokens, hub, port
    finally:
        made.close()


def _raw(server: EnrolmentServer, hub: Keyring, port: int, *frames: bytes) -> list:
    """Any bytes at all, with a key that nobody knows."""
    context, keys = zmq.Context(), CurveKeys.generate()
    try:
        s = context.socket(zmq.DEALER)
        s.curve_serverkey = hub.curve.public
        s.curve_secretkey, s.curve_publickey = keys.secret, keys.public
        s.connect(f"tcp://127.0.0.1:{port}")
        s.send_multipart(list(frames))
        server.serve(10)
        said = msgpack.unpackb(s.recv()) if s.poll(300) else []
        return said[1] if said[:1] == ["ok"] else said
    finally:
        context.destroy(linger=0)


def test_strangers_bytes_change_nothing(
    server: tuple[EnrolmentServer, dict[str, bytes], Keyring, int], tmp_path: Path
) -> None:
    made, tokens, hub, port = server
    before = made.gathering
    silo = Keyring.create(tmp_path / "north", "north", "silo")
    card = json.dumps(silo.card.to_record())
    bad: list[tuple[object, str]] = [
        (["card", card, bytes(16)], "unknown-silo"),  # not its token
        (["card", card, tokens["east"]], "unknown-silo"),  # another silo's
        (["card", card, "x"], "wrong-shape"),
        (["card", "{}", tokens["north"]], "wrong-shape"),
        (["card", "no json", tokens["north"]], "bad-field"),
        (["signed", "{}"], "wrong-shape"),
        (["signed", before.roster.to_text()], "unsigned-roster"),  # nothing is fixed yet
        ([], "wrong-shape"),
        ({"a": 1}, "wrong-shape"),
        (["seal"], "wrong-shape"),
    ]
    for said, attack in bad:
        assert _raw(made, hub, port, msgpack.packb(said))[:2] == ["refused", attack], said
    assert _raw(made, hub, port, b"\xc1 no msgpack")[:2] == ["refused", "bad-field"]
    assert _raw(made, hub, port, b"a", b"b") == []
    assert made.gathering is before


def test_an_invitation_that_was_answered_takes_no_other_keys(
    server: tuple[EnrolmentServer, dict[str, bytes], Keyring, int], tmp_path: Path
) -> None:
    made, tokens, hub, port = server
    first, thief = (Keyring.create(tmp_path / n, "north", "silo") for n in ("first", "thief"))
    question = ["card", json.dumps(first.card.to_record()), tokens["north"]]
    assert _raw(made, hub, port, msgpack.packb(question))[0] == "inviting"
    assert _raw(made, hub, port, msgpack.packb(question))[0] == "inviting"  # again: the same
    question[1] = json.dumps(thief.card.to_record())
    assert _raw(made, hub, port, msgpack.packb(question))[:2] == ["refused", "key-substitution"]
    assert made.gathering.roster.silos == (first.card,)


def test_a_silo_that_lost_its_keys_is_invited_anew(
    server: tuple[EnrolmentServer, dict[str, bytes], Keyring, int], tmp_path: Path
) -> None:
    made, tokens, hub, _ = server
    rings = {n: Keyring.create(tmp_path / n, n, "silo") for n in NAMES}
    for name, ring in rings.items():
        made.change(lambda g, r=ring, t=tokens[name]: g.card(r.card, t))  # type: ignore[misc]
    assert not made.gathering.missing
    gathering, again = invite(made.gathering, "a test", hub.card, ("north",))
    assert gathering.missing == ("north",) and set(again) == {"north"}
    fresh = Keyring.create(tmp_path / "fresh", "north", "silo").card
    for card, token in ((fresh, tokens["north"]), (fresh, tokens["east"])):
        with pytest.raises(RosterRefused, match="not the invitation of north"):
            gathering.card(card, token)
    gathering = gathering.card(fresh, again["north"])
    assert not gathering.missing and gathering.roster.card("north") == fresh
    with pytest.raises(RosterRefused, match="ask the coordinator for another invitation"):
        gathering.card(rings["north"].card, again["north"])
    # once it is being signed, what others compared stays as it is
    with pytest.raises(RosterRefused, match="found the consortium anew"):
        invite(gathering.fix(), "a test", hub.card, ("north",))


def test_whoever_waits_is_told_for_whom_and_when_nobody_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wire.enrolment.time.sleep", lambda seconds: None)
    hub, north = (
        Keyring.create(tmp_path / n, n, r) for n, r in (("hub", "coordinator"), ("north", "silo"))
    )
    client = EnrolmentClient("127.0.0.1:1", north.curve, hub.card)
    said: list[tuple[str, ...] | None] = [
        ("east", "south"),
        ("east", "south"),
        None,
        ("south",),
        (),
    ]
    shown = iter(said)

    def news() -> Answer:
        now = next(shown)
        if now is None:
            raise Unreached("nobody answers")
        return Answer(Stage.INVITING if now else Stage.SEALED, now, None)

    monkeypatch.setattr(client, "news", news)
    told: list[str] = []
    client.wait(60.0, lambda answer: answer.stage is Stage.SEALED, told.append)
    assert told == ["waiting for east, south", "nobody answers", "waiting for south"]


def test_nobody_changes_the_papers_while_they_are_sealed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = Keyring.create(tmp_path / "hub", "hub", "coordinator")
    gathering, _ = invite(None, "a test", hub.card, NAMES)
    papers = tmp_path / "hub" / "gathering.json"
    papers.write_text(gathering.to_text())
    words = ["consortium", "invite", str(tmp_path / "hub"), "north", "--address", "127.0.0.1:1"]
    with alone(tmp_path / "hub", "sealing"), pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == BUSY and "consortium seal" in capsys.readouterr().err
    assert papers.read_text() == gathering.to_text()
    with pytest.raises(SystemExit):
        main(words)
    assert "north is invited anew" in capsys.readouterr().out
    assert papers.read_text() != gathering.to_text()


def test_a_signature_on_another_content_is_refused(
    server: tuple[EnrolmentServer, dict[str, bytes], Keyring, int], tmp_path: Path
) -> None:
    made, tokens, hub, port = server
    rings = {n: Keyring.create(tmp_path / n, n, "silo") for n in NAMES}
    for name, ring in rings.items():
        made.change(lambda g, r=ring, t=tokens[name]: g.card(r.card, t))  # type: ignore[misc]
    made.change(lambda g: g.fix())
    roster = made.gathering.roster
    other = rings["north"].sign(roster.add(Keyring.create(tmp_path / "x", "x", "silo").card))
    said = ["signed", other.to_text()]
    assert _raw(made, hub, port, msgpack.packb(said))[:2] == ["refused", "tampered-roster"]
    assert made.gathering.stage is Stage.SIGNING and len(made.gathering.missing) == 4


def test_the_coordinator_must_have_the_key_of_the_invitation(tmp_path: Path) -> None:
    """A machine in the middle has another CURVE key; the silo's question never reaches it."""
    hub, middle = (Keyring.create(tmp_path / n, "hub", "coordinator") for n in ("hub", "middle"))
    gathering, tokens = invite(None, "a test", hub.card, NAMES)
    liar = EnrolmentServer(middle.curve, gathering, lambda g: None)
    port = liar.bind("127.0.0.1", 0)
    try:
        silo = Keyring.create(tmp_path / "north", "north", "silo")
        client = EnrolmentClient(f"127.0.0.1:{port}", silo.curve, hub.card)
        with pytest.raises(Unreached):
            client.send_card(silo.card, tokens["north"])
        assert not liar.serve(0.1)
    finally:
        liar.close()


@pytest.mark.slow
def test_a_damaged_invitation_is_one_sentence(tmp_path: Path) -> None:
    _found(tmp_path)
    file = tmp_path / "hub" / "invitations" / "north.json"
    table = json.loads(file.read_text())
    assert read_invitation(file.read_bytes()).silo == "north"
    table["coordinator"]["curve"] = table["coordinator"]["curve"][::-1]
    file.write_text(json.dumps(table))
    with pytest.raises(RosterRefused):
        read_invitation(file.read_bytes())
    done = sottovoce("join", str(file), "--home", str(tmp_path / "north"))
    assert done.returncode == 2 and "key-substitution" in done.stderr
    assert not (tmp_path / "north").exists()
