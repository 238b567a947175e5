"""A silo that lies to the real coordinator, over a real socket, once a defence is gone: what it
gains.

The same lies, refused by name, are in test_attacks_on_coordinator.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding as Raw
from cryptography.hazmat.primitives.serialization import PublicFormat

import crypto.sum.coordinator
from coordinator.exchange import RoundSpent
from coordinator.gather import Gather
from crypto.sum.coordinator import ALLOWED, OpenSum, SumState
from crypto.sum.opening import Opening
from crypto.sum.records import KeyOffer, ShareRelease
from crypto.sum.running import RunningSum
from methods.base import Exchange
from study.agreement import study_hash
from tests.system.attacks import gains, without
from tests.system.play import ALL, HONEST, LIAR, Play, on, record
from tests.system.stage import PATIENCE, REPORT, Outgoing
from wire import messages as m
from wire.dealer import Dealer
from wire.keys import CurveKeys
from wire.zap import Zap

Perform = Callable[[], Play]
Patch = pytest.MonkeyPatch


def without_the_door(monkeypatch: Patch) -> None:
    """An exception out of a message ends the coordinator, as before it was made a refusal."""

    def ends(self: Gather, event: Any, error: Exception) -> None:
        raise error

    monkeypatch.setattr(Gather, "_unforeseen", ends)


@gains("wrong-shape")
def test_a_short_frame(perform: Perform, monkeypatch: Patch) -> None:
    """Where nobody counts its words, the rest of the buffer is whatever was there before, and the
    sum is wrong.
    """
    without(monkeypatch, RunningSum, "_check_frame", "wrong-shape")
    play = perform().enrol()
    play.lie(on("chunk", lambda x, p: [(x, p[:-8])]))
    assert play.perform(exact=False).survivors == ALL


def _false_share(message: m.SumStep, payload: Any) -> Iterable[Outgoing]:
    """One bit of its share of silo-000's seed."""
    shares = [
        [d, bytes([s[0] ^ 1]) + s[1:] if d == "silo-000" else s]
        for d, s in message.record["self_shares"]
    ]
    return record(self_shares=shares)(message, payload)


def _first(play: Play, patch: Patch) -> None:
    """The liar's shares are taken before those of silo-000 and silo-001, without which there are
    too few.
    """
    taken = threading.Event()
    receive = OpenSum.receive_release

    def watched(self: OpenSum, release: ShareRelease) -> None:
        receive(self, release)
        if release.holder == LIAR:
            taken.set()

    def patient(message: m.Message, payload: Any) -> Iterable[Outgoing]:
        if isinstance(message, m.SumStep) and message.step == "release":
            assert taken.wait(PATIENCE)
        yield message, payload

    patch.setattr(OpenSum, "receive_release", watched)
    play.lie(on("release", _false_share))
    play.stage.lies.update({"silo-000": patient, "silo-001": patient})


@gains("bad-share")
def test_a_bad_share_without_tags(perform: Perform, monkeypatch: Patch) -> None:
    """The commitment still shows that the seed is false, but no longer whose fault it is: an honest
    silo is thrown out in the liar's place, and the round is lost.
    """
    monkeypatch.setattr(Opening, "_check_tags", lambda *_: None)
    play = perform().enrol()
    _first(play, monkeypatch)
    with pytest.raises(RoundSpent, match="silo-000 dealt shares of another seed"):
        play.perform()
    play.all_is_well((1, 2, 3, 4))


@gains("bad-share")
def test_a_bad_share_without_tags_and_commitments(perform: Perform, monkeypatch: Patch) -> None:
    """With the second defence gone too, one bit of one share makes every number of the sum
    wrong.
    """
    monkeypatch.setattr(Opening, "_check_tags", lambda *_: None)
    without_commitments(monkeypatch)
    play = perform().enrol()
    _first(play, monkeypatch)
    assert play.perform(exact=False).survivors == ALL


def without_commitments(patch: Patch) -> None:
    class Agreeable(bytes):
        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = bytes.__hash__

    patch.setattr("crypto.sum.opening.seed_commitment", lambda *_: Agreeable())


@gains("late-share")
def test_shares_before_their_time(perform: Perform, monkeypatch: Patch) -> None:
    """Where shares may come while uploads still do, one message of a silo ends the coordinator."""
    monkeypatch.setattr(
        crypto.sum.coordinator,
        "ALLOWED",
        dict(ALLOWED) | {"receive_release": (tuple(SumState), "late-share")},
    )
    without_the_door(monkeypatch)
    play = perform().enrol()
    kept: list[bytes] = []

    def early(message: m.Message, payload: Any) -> Iterable[Outgoing]:
        if isinstance(message, m.SumStart):
            kept.append(message.record["h"])
        if message.kind == "chunk":
            return [(m.SumStep("release", ShareRelease(kept[0], LIAR, (), ()).to_record()), None)]
        return [(message, payload)]

    play.lie(early)
    with pytest.raises(AssertionError):
        play.perform()


@gains("oversize")
def test_a_petabyte_announced(perform: Perform, monkeypatch: Patch) -> None:
    """Where nobody asks how large an array may be, thirty bytes of a silo's end the coordinator."""
    monkeypatch.setattr(Exchange, "sealed_bytes", 1 << 62)
    without_the_door(monkeypatch)
    play = perform().enrol()
    play.lie(
        on("sealed", lambda x, p: [(m.SealedStart(x.number, [["count", "|u1", [1 << 50]]]), p)])
    )
    with pytest.raises(MemoryError):
        play.perform(REPORT)


def test_a_stranger_without_the_allow_list(perform: Perform, monkeypatch: Patch) -> None:
    """It is taken for silo-004, in whose place it is welcomed. Then it would have to sign with that
    silo's identity: the second defence, which costs it, and silo-004, the session.
    """
    play = perform()
    known = Zap.curve_user_id
    monkeypatch.setattr(Zap, "callback", lambda *_: True)
    monkeypatch.setattr(
        Zap, "curve_user_id", lambda self, key: known(self, key) if _is_known(self, key) else LIAR
    )
    stranger = Dealer(play.stage.address, CurveKeys.generate(), play.stage.coordinator.public)
    heard: list[m.Message] = []
    over = threading.Event()

    def pose() -> None:
        while not over.is_set():
            if (said := stranger.receive(0.1)) is not None:
                heard.append(said[0])
                if isinstance(said[0], m.Welcome):
                    public = (
                        X25519PrivateKey.generate()
                        .public_key()
                        .public_bytes(Raw.Raw, PublicFormat.Raw)
                    )
                    stranger.send(
                        m.SumStep("offer", KeyOffer(LIAR, public, bytes(32), bytes(64)).to_record())
                    )

    thread = threading.Thread(target=pose, daemon=True)
    try:
        # after all five greetings, so as to be the last who says to be silo-004
        for _ in play.stage.names:
            play.stage.router.receive(PATIENCE)
        play.carrier.members._newcomers.update(dict.fromkeys(play.stage.names, b""))
        stranger.send(m.Hello("0", study_hash(play.stage.settings, {})))
        for _ in ("gone", "its greeting"):
            play.stage.router.receive(PATIENCE)
        thread.start()
        play.enrol()
        assert m.Welcome in map(type, heard)
        play.refused("key-substitution")
        play.all_is_well(HONEST)
    finally:
        over.set()
        thread.join(PATIENCE)
        stranger.close()


def _is_known(zap: Zap, key: bytes) -> bool:
    from zmq.utils import z85

    return z85.encode(key) in zap._roster
