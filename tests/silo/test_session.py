"""The silo's conversation: every state against every message, and the gate that only declared
arrays pass.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from config.settings import Settings
from crypto.errors import Refusal
from crypto.sum.coordinator import OpenSum
from crypto.sum.records import UnmaskRequest
from crypto.sum.silo_kept import KeptAnswer, begun
from crypto.sum.silo_limits import MemoryJournal
from methods.base import (
    Answer,
    ArraySpec,
    Broadcast,
    Disclosure,
    Exchange,
    Heard,
    Method,
    SiloView,
    State,
)
from silo.gate import Gate, MemoryFile
from silo.journal import FileJournal
from silo.kept_shares import KeptShares
from silo.session import Session
from silo.session import State as S
from tests.crypto.attacks import run_to_proposal
from tests.crypto.world import World
from wire import messages as m
from wire.bundle import pack

TOLD = Disclosure("number", "masked", "one number", "nothing", "none")
SEALED = Disclosure("note", "sealed", "some numbers", "them", "none")


def _method(answer: Callable[[SiloView, Heard], Answer], **changes: Any) -> Method:
    fields: dict[str, Any] = {
        "name": "say",
        "disclosures": (TOLD, SEALED),
        "broadcast": lambda state, round, cohort: Broadcast({}),
        "answer": answer,
        "fold": lambda state, folded: state,
        "masked": {"number": ArraySpec((2,))},
        "sealed": {"note": ArraySpec((None,), "uint8")},
    }
    return Method("toy", "nobody", (Exchange(**(fields | changes)),), lambda seed: State({}))


def _good(silo: SiloView, heard: Heard) -> Answer:
    return Answer(
        {"number": np.zeros(2, np.float32)},
        {"note": np.zeros(3, np.uint8)},
        carry={"seen": heard.round},
    )


def _gate(
    answer: Callable[[SiloView, Heard], Answer] = _good, path: Path | None = None, **changes: Any
) -> Gate:
    nothing: Any = None  # neither task nor data is looked at
    view = SiloView(0, nothing, nothing, Settings(), b"")
    return Gate(view, _method(answer, **changes), MemoryFile(path))


def test_memory_is_of_one_study(tmp_path: Path) -> None:
    """What a study without noise left behind must not reach one that promises it."""
    path = tmp_path / "memory.safetensors"
    MemoryFile(path, "one").write({"model": np.ones(2, np.float32)})
    assert MemoryFile(path, "one").read()["model"].tolist() == [1.0, 1.0]
    assert MemoryFile(path, "another").read() == {}


def _session(gate: Gate | None = None) -> Session:
    return Session(
        "silo-000",
        gate or _gate(),
        None,
        lambda r, e: b"",
        1 << 20,
        m.Hello("0", b""),
        ("silo-000",),
    )


def _told(number: int, **changes: Any) -> m.Broadcast:
    bundle = pack({"model": np.arange(3, dtype=np.float32)})
    encoding = {
        "lane_bits": 32,
        "parties": 1,
        "sizes": [2],
        "ranges": [1.0],
        "rounding": "nearest",
        "rotate": False,
    }
    fields: dict[str, Any] = {
        "number": number,
        "round": 0,
        "exchange": 0,
        "cohort": [0],
        "common": bundle.layout,
        "private": [],
        "header": {},
        "encoding": encoding,
    }
    return m.Broadcast(**(fields | changes))


PIECE = pack({"model": np.arange(3, dtype=np.float32)}).buffer.data


def _say(session: Session, message: m.Message, payload: Any = None) -> list[m.Message]:
    return [x for x, _ in session.hear(message, payload)]


#: What leads from the greeting to each state.
PATHS: dict[S, list[tuple[m.Message, Any]]] = {S.GREETED: []}
PATHS[S.IDLE] = [(m.Welcome(b"r" * 32, 0), None)]
PATHS[S.HEARING] = [*PATHS[S.IDLE], (_told(1), None)]
PATHS[S.TOLD] = [*PATHS[S.HEARING], (m.Chunk(1, "common", 0), PIECE)]
PATHS[S.READY] = [*PATHS[S.TOLD], (m.Go(1), None)]
PATHS[S.SENT] = [*PATHS[S.READY], (m.Send(1), None)]
PATHS[S.STOPPED] = [(m.Stop("over"), None)]

MESSAGES: dict[str, tuple[m.Message, Any]] = {
    "welcome": (m.Welcome(b"r" * 32, 0), None),
    "sum:keys": (m.SumStep("keys", {}), None),
    "sum:nonces": (m.SumStep("nonces", {}), None),
    "sum:propose": (m.SumStep("propose", {}), None),
    "sum:unmask": (m.SumStep("unmask", UnmaskRequest(bytes(32), (), (), ()).to_record()), None),
    "sum:nonsense": (m.SumStep("nonsense", {}), None),
    "broadcast": (_told(2), None),
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
    session = _session()
    for message, payload in PATHS[state]:
        assert not any(isinstance(x, m.Refused) for x in _say(session, message, payload))
    assert session.state is state
    said = _say(session, *MESSAGES[kind])
    refused = [x for x in said if isinstance(x, m.Refused)]
    if state in MAY_BE_HEARD.get(kind, set()):
        # The secure sum's messages are legal here, but this silo agreed to a run without one.
        assert [x.attack for x in refused] == (
            ["channel-downgrade"] if kind.startswith("sum:") else []
        )
    else:
        assert [x.attack for x in refused] == ["replay"] and session.state is state


def test_a_whole_exchange_says_what_it_should() -> None:
    session = _session()
    said = [x for message, payload in PATHS[S.SENT] for x in _say(session, message, payload)]
    assert [x.kind for x in said] == ["ready", "sealed", "chunk", "upload", "chunk"]
    assert [x.stream for x in said if isinstance(x, m.Chunk)] == ["sealed", "masked"]


@pytest.mark.parametrize(
    ("message", "payload"),
    [
        (_told(2, common=[["m", "|O", [1]]]), None),
        (_told(2, common=[["m", "<f4", [1 << 30]]]), None),
        (_told(2, exchange=5, common=[]), None),
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
    session = _session()
    for step in PATHS[S.HEARING]:
        _say(session, *step)
    assert [x.kind for x in _say(session, message, payload)] == ["refused"]
    for step in [(_told(7), None), (m.Chunk(7, "common", 0), PIECE), (m.Go(7), None)]:
        said = _say(session, *step)
    assert [(type(x), getattr(x, "number", None)) for x in said] == [(m.Ready, 7)]


def test_an_exchange_is_heard_once() -> None:
    session = _session()
    for step in PATHS[S.SENT]:
        _say(session, *step)
    assert [x.attack for x in _say(session, _told(1)) if isinstance(x, m.Refused)] == ["replay"]


def test_a_method_that_stumbles_does_not_end_the_silo() -> None:
    def broken(silo: SiloView, heard: Heard) -> Answer:
        raise IndexError("out of range")

    session = _session(_gate(broken))
    for step in PATHS[S.TOLD]:
        _say(session, *step)
    said = _say(session, m.Go(1))
    assert isinstance(said[0], m.Refused) and "IndexError" in said[0].detail


ONE = {"number": np.zeros(2, np.float32)}
NOTE = {"note": np.zeros(3, np.uint8)}


@pytest.mark.parametrize(
    ("answer", "attack"),
    [
        (Answer(ONE, NOTE | {"text": np.zeros(1, np.uint8)}), "undeclared-upload"),
        (Answer(ONE | {"more": np.zeros(1, np.float32)}, NOTE), "undeclared-upload"),
        (Answer({}, NOTE), "undeclared-upload"),
        (Answer({}, NOTE | ONE), "undeclared-upload"),
        (Answer({"number": np.zeros(3, np.float32)}, NOTE), "wrong-shape"),
        (Answer({"number": np.zeros(2)}, NOTE), "wrong-shape"),
        (Answer(ONE, {"note": np.zeros((3, 1), np.uint8)}), "wrong-shape"),
        (Answer(ONE, {"note": np.zeros(3, np.float32)}), "wrong-shape"),
        (Answer({"number": np.array([0, np.nan], np.float32)}, NOTE), "wrong-shape"),
        (Answer({"number": np.array([0, np.inf], np.float32)}, NOTE), "wrong-shape"),
    ],
)
def test_only_what_was_declared_leaves_the_desk(answer: Answer, attack: str) -> None:
    with pytest.raises(Refusal) as refused:
        _gate(lambda silo, heard: answer).answer(0, Heard(0, (0,), {}), b"")
    assert refused.value.attack == attack


def test_an_array_that_no_disclosure_covers_does_not_leave() -> None:
    with pytest.raises(Refusal, match="no disclosure covers"):
        _gate(disclosures=(SEALED,)).answer(0, Heard(0, (0,), {}), b"")


def test_the_desk_keeps_carry_for_the_round_memory_for_good_and_its_answer_for_a_second_try(
    tmp_path: Path,
) -> None:
    calls: list[tuple[dict, dict]] = []

    def remember(silo: SiloView, heard: Heard) -> Answer:
        calls.append((dict(silo.carry), {k: v.tolist() for k, v in silo.memory.items()}))
        return Answer(ONE, NOTE, carry={"n": len(calls)}, memory={"kept": np.array([heard.round])})

    gate = _gate(remember, tmp_path / "memory.safetensors")
    first = gate.answer(0, Heard(0, (0,), {}), b"a")
    assert gate.answer(0, Heard(0, (0,), {}), b"a") is first and len(calls) == 1
    gate.answer(0, Heard(0, (0,), {}), b"b")
    gate.end_round()
    gate.answer(0, Heard(1, (0,), {}), b"a")
    again = _gate(remember, tmp_path / "memory.safetensors")  # a restart
    again.answer(0, Heard(2, (0,), {}), b"a")
    # Asked again on other grounds, an exchange stands on those before it, of which there are none.
    assert calls == [({}, {}), ({}, {"kept": [0]}), ({}, {"kept": [0]}), ({}, {"kept": [1]})]


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
        "silo-000",
        _gate(),
        None,
        lambda r, e: b"",
        1 << 20,
        m.Hello("0", b""),
        ("silo-000",),
        rules=rules,
    )
    _say(session, m.Welcome(b"r" * 32, 0))
    (said,) = _say(session, _told(1))
    assert isinstance(said, m.Refused) and (said.number, said.attack) == (1, "outside-hours")
    assert "declined (outside-hours): this silo computes from 18:00-06:00" in caplog.text
    assert session.state is S.IDLE
    (said,) = _say(session, m.Chunk(1, "common", 0), PIECE)  # what was on its way is not heard
    assert isinstance(said, m.Refused) and said.attack == "replay"
    clock[0] = 18
    assert not _say(session, _told(2, round=2)) and session.state is S.HEARING
    (said,) = _say(session, _told(3, round=3))  # three rounds were agreed on
    assert isinstance(said, m.Refused) and said.attack == "too-many-rounds"


def test_only_the_end_of_the_run_is_the_end() -> None:
    for reason, finished in ((m.OVER, True), (m.INTERRUPTED, False), (m.FAILED, False)):
        # also one that waits to be let in comes back to a coordinator that does
        for welcomed in (True, False):
            session = _session()
            if welcomed:
                _say(session, m.Welcome(b"r" * 32, 0))
            _say(session, m.Stop(reason))
            assert (
                session.state is S.STOPPED
                and session.finished is finished
                and not session.turned_away
            )
    session = _session()
    _say(session, m.Stop("it has another roster"))
    assert session.turned_away == "it has another roster"


def _kept(opened: OpenSum, world: World) -> tuple[list[KeptAnswer], UnmaskRequest]:
    """What four silos keep when they sign, and the certified request to the first."""
    kept: list[KeptAnswer] = []
    for name, proposal in opened.propose().items():
        opened.receive_endorsement(world.silos[name].endorse(proposal, kept.append))
    return kept, opened.unmask_requests()["silo-000"]


def test_a_release_is_said_to_the_same_question_only_and_until_the_round_is_over(
    tmp_path: Path,
) -> None:
    path, world, journal = tmp_path / "release.msgpack", World(4).enrol(), MemoryJournal()
    (mine, *_), request = _kept(run_to_proposal(world)[0], world)

    def restarted() -> KeptShares:
        return KeptShares(path, journal, world.roster)

    restarted().keep(mine)  # killed before the journal's note of it, or before it was asked
    with pytest.raises(Refusal, match="begun another sum"):  # of which the journal knows
        restarted().again(request)
    for payload in (mine.payload, "a later round"):
        journal.put(begun(payload), request.h.hex())
    assert path.stat().st_mode & 0o077 == 0
    assert restarted().again(replace(request, survivors=world.names[1:])) is None
    assert restarted().again(replace(request, h=bytes(32))) is None
    with pytest.raises(Refusal, match="0 valid signatures"):
        restarted().again(replace(request, endorsements=()))
    assert journal.get(mine.payload) is None
    assert restarted().again(request) == mine.release
    assert journal.get(mine.payload) == mine.note
    assert restarted().again(request) == mine.release  # as often as it is asked
    journal.put(mine.payload, "others")  # had another sum over that payload been opened meanwhile
    with pytest.raises(Refusal, match="another sum over the same payload"):
        restarted().again(request)
    journal.put(mine.payload, mine.note)
    again = restarted()
    again.keep(replace(mine, payload="another exchange of the round"))
    assert restarted().again(request) == mine.release
    again.keep(replace(mine, payload="a later round", round=mine.round + 1))
    assert again.again(request) is not None  # the later round's, of the same sum in this test
    assert {k.payload for k in restarted()._kept.values()} == {"a later round"}
    again.forget()
    assert again.again(request) is None and restarted().again(request) is None


def test_a_file_of_releases_that_was_cut_short_is_as_good_as_none(tmp_path: Path) -> None:
    path, world = tmp_path / "release.msgpack", World(4).enrol()
    (mine, *_), request = _kept(run_to_proposal(world)[0], world)
    KeptShares(path, MemoryJournal(), world.roster).keep(mine)
    whole = path.read_bytes()
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert KeptShares(path, MemoryJournal(), world.roster).again(request) is None


def test_arrays_that_a_silo_holds_need_not_come_again() -> None:
    session = _session()
    for step in PATHS[S.SENT]:
        _say(session, *step)
    digest = pack({"model": np.arange(3, dtype=np.float32)}).digest
    (hello, _), *_ = session.greet()
    assert hello.have == [digest] and (hello.number, hello.state) == (1, "sent")  # type: ignore[attr-defined]
    for number, have, said in ((2, digest, ["ready"]), (3, b"x" * 32, ["refused"])):
        _say(session, _told(number, have=have))
        assert [x.kind for x in _say(session, m.Go(number))][-1:] == said
    _say(session, m.RoundOver(0))
    assert next(session.greet())[0].have == []  # type: ignore[attr-defined]


def test_a_silo_that_was_cut_off_says_again_that_it_is_ready() -> None:
    session = _session()
    for step in PATHS[S.READY]:
        _say(session, *step)
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

    session = _session(_gate(full))
    for step in PATHS[S.TOLD]:
        _say(session, *step)
    assert [x.kind for x in _say(session, m.Go(1))] == ["refused"]
    assert session.state is S.TOLD
