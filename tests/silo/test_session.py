"""The silo's conversation: every state against every message."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from config.settings import Settings
from crypto.sum.records import UnmaskRequest
from methods.base import (
    Answer,
    Heard,
    SiloView,
)
from silo.journal import FileJournal
from silo.session import Session
from silo.session import State as S
from tests.crypto.attacks import run_to_proposal
from tests.crypto.world import World
from tests.silo.talk import PATHS, PIECE, new_gate, new_session, say, told
from wire import messages as m
from wire.bundle import pack

MESSAGES: dict[str, tuple[m.Message, Any]] = {
    "welcome": (m.Welcome(b"r" * 32, 0), None),
    "sum:keys": (m.SumStep("keys", {}), None),
    "sum:nonces": (m.SumStep("nonces", {}), None),
    "sum:propose": (m.SumStep("propose", {}), None),
    "sum:unmask": (m.SumStep("unmask", UnmaskRequest(bytes(32), (), (), ()).to_record()), None),
    "sum:nonsense": (m.SumStep("nonsense", {}), None),
    "broadcast": (told(2), None),
    "chunk": (m.Chunk(1, "common", 0), PIECE),
    "go": (m.Go(1), None),
    "send": (m.Send(1), None),
    "closed": (m.Closed(1, True), None),
    "round-over": (m.RoundOver(0), None),
    "ping": (m.Ping(), None),
    "stop": (m.Stop("over"), None),
    # What only silos say:
    "hello": (m.Hello("0", b""), None),
    "ready": (m.Ready(1), None),
    "upload": (m.SumStart(1, {}), None),
    "sealed": (m.SealedStart(1, []), None),
    "refused": (m.Refused(1, "x", "y"), None),
    "probe": (m.Probe("0"), None),
    "probed": (m.Probed(1, "0"), None),
}


#: Written out here and not taken from the session's own table, which a mistake would change on both
#: sides.
ANYTIME = {S.GREETED, S.IDLE, S.HEARING, S.TOLD, S.READY, S.SENT, S.STOPPED}
IN_A_RUN = {S.IDLE, S.HEARING, S.TOLD, S.READY, S.SENT}
MAY_BE_HEARD: dict[str, set[S]] = {
    "welcome": ANYTIME - {S.STOPPED},
    "broadcast": IN_A_RUN,
    "chunk": {S.HEARING},
    "go": {S.TOLD},
    "send": {S.READY},
    "closed": IN_A_RUN,
    "round-over": {S.IDLE},
    "ping": ANYTIME,
    "stop": ANYTIME,
    "sum:propose": {S.TOLD, S.READY, S.SENT},
    "sum:unmask": {S.TOLD, S.READY, S.SENT},
    # Keys and nonces belong to states that only a run with secure sums has.
    "sum:keys": set(),
    "sum:nonces": set(),
}


@pytest.mark.parametrize("state", list(PATHS), ids=lambda s: s.value)
@pytest.mark.parametrize("kind", list(MESSAGES))
def test_every_message_in_every_state(state: S, kind: str) -> None:
    session = new_session()
    for message, payload in PATHS[state]:
        assert not any(isinstance(x, m.Refused) for x in say(session, message, payload))
    assert session.state is state
    said = say(session, *MESSAGES[kind])
    refused = [x for x in said if isinstance(x, m.Refused)]
    if state in MAY_BE_HEARD.get(kind, set()):
        # The secure sum's messages are legal here, but this silo agreed to a run without one.
        assert [x.attack for x in refused] == (
            ["channel-downgrade"] if kind.startswith("sum:") else []
        )
    else:
        assert [x.attack for x in refused] == ["replay"] and session.state is state


def test_a_whole_exchange_says_what_it_should() -> None:
    session = new_session()
    said = [x for message, payload in PATHS[S.SENT] for x in say(session, message, payload)]
    assert [x.kind for x in said] == ["ready", "sealed", "chunk", "upload", "chunk"]
    assert [x.stream for x in said if isinstance(x, m.Chunk)] == ["sealed", "masked"]


@pytest.mark.parametrize(
    ("message", "payload"),
    [
        (told(2, common=[["m", "|O", [1]]]), None),
        (told(2, common=[["m", "<f4", [1 << 30]]]), None),
        (told(2, exchange=5, common=[]), None),
        (m.Chunk(1, "private", 0), PIECE),
        (m.Chunk(1, "common", 1), PIECE),
        (m.Chunk(1, "common", 0), PIECE[:5]),
        (m.Chunk(1, "common", 0), None),
        (m.Chunk(9, "common", 0), PIECE),
    ],
    ids=["object", "huge", "no such exchange", "stream", "order", "size", "empty", "number"],
)
def test_bad_announcements_and_pieces_are_refused_and_life_goes_on(
    message: m.Message, payload: Any
) -> None:
    session = new_session()
    for step in PATHS[S.HEARING]:
        say(session, *step)
    assert [x.kind for x in say(session, message, payload)] == ["refused"]
    for step in [(told(7), None), (m.Chunk(7, "common", 0), PIECE), (m.Go(7), None)]:
        said = say(session, *step)
    assert [(type(x), getattr(x, "number", None)) for x in said] == [(m.Ready, 7)]


def test_an_exchange_is_heard_once() -> None:
    session = new_session()
    for step in PATHS[S.SENT]:
        say(session, *step)
    assert [x.attack for x in say(session, told(1)) if isinstance(x, m.Refused)] == ["replay"]


def test_a_method_that_stumbles_does_not_end_the_silo() -> None:
    def broken(silo: SiloView, heard: Heard) -> Answer:
        raise IndexError("out of range")

    session = new_session(new_gate(broken))
    for step in PATHS[S.TOLD]:
        say(session, *step)
    said = say(session, m.Go(1))
    assert isinstance(said[0], m.Refused) and "IndexError" in said[0].detail


# The silo's own rules


def test_what_a_rule_declines_costs_that_exchange_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from silo.rules import Hours, Rules

    clock = [12]
    rules = Rules(hours=Hours.parse("18:00-06:00")).during(
        Settings(rounds=3), lambda: time.struct_time((2026, 1, 1, clock[0], 0, 0, 0, 1, 0))
    )
    session = Session(
        new_gate(),
        new_party=None,
        rounding_seed=lambda r, e: b"",
        broadcast_limit=1 << 20,
        hello=m.Hello("0", b""),
        rules=rules,
    )
    say(session, m.Welcome(b"r" * 32, 0))
    (said,) = say(session, told(1))
    assert isinstance(said, m.Refused) and (said.number, said.attack) == (1, "outside-hours")
    assert "declined (outside-hours): this silo computes from 18:00-06:00" in caplog.text
    assert session.state is S.IDLE
    (said,) = say(session, m.Chunk(1, "common", 0), PIECE)  # what was on its way is not heard
    assert isinstance(said, m.Refused) and said.attack == "replay"
    clock[0] = 18
    assert not say(session, told(2, round=2)) and session.state is S.HEARING
    (said,) = say(session, told(3, round=3))  # three rounds were agreed on
    assert isinstance(said, m.Refused) and said.attack == "too-many-rounds"


def test_only_the_end_of_the_run_is_the_end() -> None:
    for reason, finished in ((m.OVER, True), (m.INTERRUPTED, False), (m.FAILED, False)):
        # also one that waits to be let in comes back to a coordinator that does
        for welcomed in (True, False):
            session = new_session()
            if welcomed:
                say(session, m.Welcome(b"r" * 32, 0))
            say(session, m.Stop(reason))
            assert (
                session.state is S.STOPPED
                and session.finished is finished
                and not session.turned_away
            )
    session = new_session()
    say(session, m.Stop("it has another roster"))
    assert session.turned_away == "it has another roster"


def test_arrays_that_a_silo_holds_need_not_come_again() -> None:
    session = new_session()
    for step in PATHS[S.SENT]:
        say(session, *step)
    digest = pack({"model": np.arange(3, dtype=np.float32)}).digest
    (hello, _), *_ = session.greet()
    assert hello.have == [digest] and (hello.number, hello.state) == (1, "sent")  # type: ignore[attr-defined]
    for number, have, said in ((2, digest, ["ready"]), (3, b"x" * 32, ["refused"])):
        say(session, told(number, have=have))
        assert [x.kind for x in say(session, m.Go(number))][-1:] == said
    say(session, m.RoundOver(0))
    assert next(session.greet())[0].have == []  # type: ignore[attr-defined]


def test_a_silo_says_whose_shares_do_not_open(caplog: pytest.LogCaptureFixture) -> None:
    world = World(4).enrol()
    opened = run_to_proposal(world)[0]
    proposal = opened.propose()["silo-000"]
    spoilt = tuple((d, bytes(len(b)) if d == "silo-002" else b) for d, b in proposal.blobs)
    party = world.silos["silo-000"]
    session = Session(
        new_gate(),
        new_party=lambda run: party,
        rounding_seed=lambda r, e: b"",
        broadcast_limit=1 << 20,
        hello=m.Hello("0", b""),
    )
    session.state, session._party = S.SENT, party
    asked = m.SumStep("propose", replace(proposal, blobs=spoilt).to_record())
    assert [x.kind for x in say(session, asked)] == ["sum"]
    assert "the shares that silo-002 dealt this silo do not open" in caplog.text
    assert "silo-001" not in caplog.text


def test_a_silo_that_was_cut_off_says_again_that_it_is_ready() -> None:
    session = new_session()
    for step in PATHS[S.READY]:
        say(session, *step)
    session.cut()
    said = [x for x, _ in session.greet()]
    assert [x.kind for x in said] == ["hello", "ready"] and getattr(said[0], "life", None) == next(
        session.greet()
    )[0].life  # type: ignore[attr-defined]


def test_a_full_disk_leaves_no_half_line_and_the_silo_sits_the_exchange_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, real = FileJournal(tmp_path / "journal"), os.write
    journal.put("a", "1")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: real(fd, data[:3]))
        with pytest.raises(OSError, match="space"):
            journal.put("a", "2")
    journal.put("b", "3")
    journal.close()
    assert (tmp_path / "journal").read_text() == '["a", "1"]\n["b", "3"]\n'

    def full(silo: SiloView, heard: Heard) -> Answer:
        raise OSError("no space left")

    session = new_session(new_gate(full))
    for step in PATHS[S.TOLD]:
        say(session, *step)
    assert [x.kind for x in say(session, m.Go(1))] == ["refused"]
    assert session.state is S.TOLD
