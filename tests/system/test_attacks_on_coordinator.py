"""A silo that lies, over a real socket, to the real coordinator, among honest silos: it is refused
by name, and the sum over the others is exact. The liar is a real silo whose messages are changed on
their way out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

import crypto.sum.dealing
from coordinator.exchange import RoundSpent
from crypto.derive import Label
from crypto.sum.records import Endorsement, ShareRelease, survivors_digest
from study.agreement import study_hash
from tests.conftest import wait_for
from tests.system.attacks import refuses
from tests.system.play import ALL, HONEST, LIAR, Change, Play, kind_of, on, record
from tests.system.stage import BOTH, PATIENCE, REPORT, Outgoing
from wire import messages as m
from wire.dealer import Dealer
from wire.keys import CurveKeys

Perform = Callable[[], Play]


def payload_of(size: int) -> Change:
    return lambda message, payload: [(message, bytes(size))]


# What costs the liar this exchange, and nobody else anything

UPLOADS: list[tuple[str, str, Change]] = [
    ("key-substitution", "upload", record(silo="silo-000")),
    ("key-substitution", "upload", record(signature=bytes(64))),
    ("second-sum", "upload", lambda x, p: [(x, p), (x, p)]),
    ("replay", "upload", record(h=bytes(32))),
    (
        "undeclared-upload",
        "upload",
        lambda x, p: [(m.SealedStart(x.number, [["sentences", "<f4", [2]]]), p)],
    ),
    ("undeclared-upload", "upload", lambda x, p: []),  # its words come all the same
    ("wrong-shape", "upload", record(commitments=[])),
    ("wrong-shape", "upload", record(blobs=[["silo-000", b"x"]])),
    ("wrong-shape", "upload", record(more=1)),
    ("wrong-shape", "chunk", lambda x, p: [(x, p[:-8])]),
    ("wrong-shape", "chunk", lambda x, p: [(x, p[:-1])]),
    ("wrong-shape", "chunk", lambda x, p: [(replace(x, index=1), p)]),
    ("wrong-shape", "chunk", lambda x, p: [(replace(x, stream="sealed"), p)]),
    ("oversize", "chunk", payload_of((1 << 20) + 8)),
    ("late-share", "chunk", lambda x, p: [(m.SumStep("release", SAVED["release"]), None)]),
    ("wrong-shape", "ready", lambda x, p: [(m.Chunk(x.number, "masked", 0), bytes(8))]),
]
SAVED: dict[str, dict[str, Any]] = {}


@refuses(
    "key-substitution",
    "second-sum",
    "replay",
    "undeclared-upload",
    "wrong-shape",
    "oversize",
    "late-share",
)
@pytest.mark.parametrize(("attack", "kind", "change"), UPLOADS)
def test_false_uploads(perform: Perform, attack: str, kind: str, change: Any) -> None:
    play = perform().enrol()
    lie = on(kind, change)

    def remembering(message: m.Message, payload: Any) -> Iterable[Outgoing]:
        if isinstance(message, m.SumStart):
            SAVED["release"] = ShareRelease(message.record["h"], LIAR, (), ()).to_record()
        return lie(message, payload)

    play.lie(remembering)
    assert play.perform().survivors == HONEST
    play.refused(attack)
    play.all_is_well()


def test_replay_of_the_last_rounds_upload(perform: Perform) -> None:
    play, kept = perform().enrol(), []

    def keep(message: m.SumStart, payload: Any) -> Iterable[Outgoing]:
        kept.append(message.record)
        yield replace(message, record=kept[0]), payload

    play.lie(on("upload", keep))
    assert play.perform().survivors == ALL
    assert play.perform().survivors == HONEST
    play.refused("replay")
    play.all_is_well()


def test_second_sum_by_a_second_upload(perform: Perform) -> None:
    """It counts once, whatever comes after it."""
    play, kept = perform().enrol(), []

    def twice(message: m.Message, payload: Any) -> Iterable[Outgoing]:
        if message.kind in ("upload", "chunk"):
            kept.append((message, bytes(payload) if payload is not None else None))
        return (
            [*kept, *kept]
            if message.kind == "chunk"
            else []
            if message.kind == "upload"
            else [(message, payload)]
        )

    play.wait_for_refusal("second-sum", "upload", "silo-000")
    play.lie(twice)
    assert play.perform().survivors == ALL
    assert f"refused (second-sum): {LIAR}: " in play.log.text
    play.all_is_well()


@refuses("undeclared-upload", "wrong-shape", "oversize")
@pytest.mark.parametrize(
    ("attack", "index", "change"),
    [
        (
            "undeclared-upload",
            REPORT,
            lambda x, p: [(replace(x, arrays=[["sentences", "<f4", [1]]]), p)],
        ),
        (
            "undeclared-upload",
            REPORT,
            lambda x, p: [(replace(x, arrays=[*x.arrays, ["more", "<f4", [1]]]), p)],
        ),
        ("undeclared-upload", REPORT, lambda x, p: [(m.SumStart(x.number, {}), p)]),
        ("wrong-shape", REPORT, lambda x, p: [(replace(x, arrays=[["count", "<f4", [2]]]), p)]),
        ("wrong-shape", REPORT, lambda x, p: [(replace(x, arrays=[["count", "object", [1]]]), p)]),
        ("oversize", REPORT, lambda x, p: [(replace(x, arrays=[["count", "<f4", [1 << 29]]]), p)]),
        ("oversize", REPORT, lambda x, p: [(replace(x, arrays=[["count", "<f4", [1000]]]), p)]),
        ("wrong-shape", BOTH, lambda x, p: []),
        ("wrong-shape", BOTH, lambda x, p: [(x, p), (m.SumStart(x.number, {}), None)]),
    ],
)
def test_false_sealed_arrays(perform: Perform, attack: str, index: int, change: Any) -> None:
    play = perform().enrol()
    play.lie(on("sealed", change))
    assert play.perform(index).survivors == HONEST
    play.refused(attack)
    play.all_is_well()


def test_sealed_arrays_that_never_come_are_not_made_up(perform: Perform) -> None:
    """Words first, so as to be in the sum, and no sealed arrays: it would be a survivor whose
    numbers nobody sent.
    """
    play = perform().enrol()
    play.lie(
        lambda x, p: (
            []
            if x.kind == "sealed" or (isinstance(x, m.Chunk) and x.stream == "sealed")
            else [(x, p)]
        )
    )
    assert play.perform(BOTH).survivors == HONEST
    play.refused("wrong-shape")
    play.all_is_well()


@refuses("oversize")
def test_oversize_frames(perform: Perform) -> None:
    play = perform().enrol()
    play.lie(on("chunk", payload_of(3 << 20)))
    assert play.perform().survivors == HONEST
    play.refused("oversize")
    play.all_is_well()


def test_far_too_large_frames_cost_the_connection(perform: Perform) -> None:
    """Above twice what any message may hold, libzmq hangs up before a byte of it is kept, and does
    not say why.
    """
    play = perform().enrol()
    play.lie(on("chunk", payload_of(5 << 20)))
    assert play.perform().survivors == HONEST
    assert f"lost {LIAR}: its connection ended" in play.log.text
    play.stage.lies.clear()
    # it dials again, and is let in
    play.carrier.members.wait(PATIENCE, lambda: LIAR in play.carrier.members.present)
    play.all_is_well()


def test_one_silos_word_does_not_spend_everybodys_round(perform: Perform) -> None:
    play = perform().enrol()
    play.lie(on("ready", lambda x, p: [(m.Refused(x.number, "second-sum", "so it says"), p)]))
    assert play.perform().survivors == HONEST
    play.all_is_well()


def test_a_silo_that_begins_anew_is_not_waited_for(perform: Perform) -> None:
    play = perform().enrol()
    play.lie(on("ready", lambda x, p: [(m.Hello("0", study_hash(play.stage.settings, {})), p)]))
    assert play.perform().survivors == HONEST
    play.all_is_well()


# While the sum is opened


def _flip(share: bytes) -> bytes:
    return bytes([share[0] ^ 1]) + share[1:]


def _false_share(message: m.SumStep, payload: Any) -> Iterable[Outgoing]:
    shares = [
        [d, share if d == LIAR else _flip(share)] for d, share in message.record["self_shares"]
    ]
    return record(self_shares=shares)(message, payload)


def _signed_otherwise(play: Play) -> Change:
    def other(message: m.SumStep, payload: Any) -> Iterable[Outgoing]:
        parts = Endorsement.signed_parts(
            message.record["h"], LIAR, survivors_digest(play.stage.names[:4])
        )
        return record(signature=play.stage.identity(LIAR).sign(Label.ENDORSE, *parts))(
            message, payload
        )

    return other


@refuses("bad-share", "replay", "key-substitution", "split-view", "late-share", "wrong-shape")
@pytest.mark.parametrize(
    ("attack", "kind", "change"),
    [
        ("bad-share", "release", lambda play: _false_share),
        ("bad-share", "release", lambda play: record(self_shares=[["silo-777", bytes(17)]])),
        ("replay", "release", lambda play: lambda x, p: [(x, p), (x, p)]),
        ("key-substitution", "release", lambda play: record(holder="silo-000")),
        ("key-substitution", "endorse", lambda play: record(silo="silo-000")),
        ("split-view", "endorse", _signed_otherwise),
        ("late-share", "endorse", lambda play: lambda x, p: [(m.SumStep("release", _empty(x)), p)]),
        ("wrong-shape", "endorse", lambda play: lambda x, p: [(replace(x, step="other"), p)]),
        ("wrong-shape", "release", lambda play: record(self_shares=7)),
    ],
)
def test_false_answers_while_the_sum_is_opened(
    perform: Perform, attack: str, kind: str, change: Any
) -> None:
    """The liar is blamed by its commitment or its signature; its upload stays in, and the sum is
    right.
    """
    play = perform().enrol()
    play.wait_for_refusal(attack, kind, "silo-000", "silo-001")
    play.lie(on(kind, change(play)))
    assert play.perform().survivors == ALL
    play.refused(attack)
    play.all_is_well()


def _empty(message: m.SumStep) -> dict[str, Any]:
    return ShareRelease(message.record["h"], LIAR, (), ()).to_record()


@refuses("late-share")
def test_late_share(perform: Perform) -> None:
    """Shares that come when the sum is long open: nobody reads them, and nobody is blamed for being
    slow.
    """
    play, kept = perform().enrol(), []

    def slow(message: m.Message, payload: Any) -> Iterable[Outgoing]:
        if kind_of(message) == "release":
            kept.append((message, payload))
            return []
        return [*kept, (message, payload)] if message.kind == "ready" else [(message, payload)]

    play.lie(slow)
    assert play.perform().survivors == ALL
    assert play.perform().survivors == ALL
    assert "refused (late-share): a release of an earlier sum from silo-004" in play.log.text
    play.all_is_well()


@refuses("bad-share")
def test_bad_share_of_a_dealer(perform: Perform, monkeypatch: pytest.MonkeyPatch) -> None:
    """It committed to another seed than it dealt: the round is lost, no wrong sum comes out, and it
    is out for good.
    """
    real = crypto.sum.dealing.seed_commitment
    play = perform().enrol()
    with monkeypatch.context() as patch:
        patch.setattr(
            crypto.sum.dealing,
            "seed_commitment",
            lambda h, s, i, seed: real(h, s, i, bytes(16) if s == LIAR else seed),
        )
        with pytest.raises(RoundSpent, match="committed"):
            play.perform()
    play.refused("bad-share")
    play.all_is_well(HONEST)


# Keys


@refuses("key-substitution", "graph-steering", "replay", "wrong-shape")
@pytest.mark.parametrize(
    ("attack", "kind", "change"),
    [
        ("key-substitution", "offer", record(silo="silo-000")),
        ("key-substitution", "offer", record(signature=bytes(64))),
        ("key-substitution", "reveal", record(silo="silo-000")),
        ("graph-steering", "reveal", record(nonce=bytes(32))),
        ("replay", "reveal", lambda x, p: [(m.SumStep("offer", x.record), p)]),
        ("wrong-shape", "offer", record(public=b"short")),
    ],
)
def test_false_keys(perform: Perform, attack: str, kind: str, change: Any) -> None:
    """The liar is out of the session; the others agree on keys anew, and none of them is lost over
    it.
    """
    play = perform()
    play.lie(on(kind, change))
    play.enrol()
    play.refused(attack)
    play.all_is_well(HONEST)


@refuses("unknown-silo")
def test_unknown_silo(perform: Perform) -> None:
    play = perform()
    stranger = Dealer(play.stage.address, CurveKeys.generate(), play.stage.coordinator.public)
    try:
        stranger.send(m.Hello("0", study_hash(play.stage.settings, {})))
        wait_for(
            lambda: "refused (unknown-silo): a connection with a key" in play.log.text, PATIENCE
        )
        play.enrol().all_is_well()
    finally:
        stranger.close()
