"""A coordinator that tries again until a silo's dice, or everybody's nonces, fall as it likes, over
real sockets. Of a large session a silo draws whose signatures it checks; here dice that are made so
stand for hundreds of silos.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

import silo.process
from crypto.derive import Label, digest
from crypto.sum.graph import beacon
from crypto.sum.records import KeyList, KeyOffer, NonceList, NonceReveal, session_id
from crypto.sum.silo_limits import Limits
from crypto.sum.silo_notes import RunNotes
from crypto.sum.silo_setup import SiloSetup
from tests.system.attacks import gains, refuses
from tests.system.liar import Liar, Turned, refused
from tests.system.stage import RUN
from wire import messages as m

Log = pytest.LogCaptureFixture
Patch = pytest.MonkeyPatch
Make = Callable[..., Liar]
OFFERS, REVEALS = 0, 1


def _dice(monkeypatch: Patch, unlucky: int) -> None:
    """Silos draw nobody, but for each one's throw of this number: that falls on the last silo."""
    thrown: dict[str, int] = {}

    def drawn(names: Collection[str], own: str, roster: int, policy: Any) -> set[str]:
        thrown[own] = thrown.get(own, -1) + 1
        return {own, max(names)} if thrown[own] == unlucky else {own}

    monkeypatch.setattr("crypto.sum.silo_setup.drawn", drawn)


def _played(liar: Liar) -> tuple[KeyList, NonceReveal]:
    """Everybody's offers, but for the last silo's, which is the coordinator's own; and its nonce."""
    liar.setup = liar.offers()
    keys, posed, nonce = liar.setup.key_list(), liar.names[-1], bytes(32)
    public = X25519PrivateKey.generate().public_key().public_bytes_raw()
    false = KeyOffer(posed, public, digest(Label.NONCE, posed.encode(), nonce), bytes(64))
    offers = tuple(false if o.silo == posed else o for o in keys.offers)
    return KeyList(offers), NonceReveal(posed, nonce, bytes(64))


def _shown(liar: Liar) -> NonceList:
    """The nonces of a session in which the coordinator plays the last silo."""
    keys, own = _played(liar)
    reveals = [liar.step(name, "keys", keys) for name in liar.names[:-1]]
    return NonceList((*map(NonceReveal.from_record, reveals), own))


@refuses("key-substitution")
def test_key_substitution_in_a_list_that_is_shown_again(
    make: Make, monkeypatch: Patch, caplog: Log
) -> None:
    """What a silo's dice have found, it does not throw them again for."""
    _dice(monkeypatch, OFFERS)
    liar = make()
    keys, _ = _played(liar)
    honest = liar.setup.key_list()
    for shown in (keys, keys, honest):
        with refused("key-substitution", caplog):
            liar.step("silo-000", "keys", shown)
    liar.enrol().all_is_well()


@refuses("key-substitution")
def test_key_substitution_in_nonces_that_are_shown_again(
    make: Make, monkeypatch: Patch, caplog: Log
) -> None:
    _dice(monkeypatch, REVEALS)
    liar = make()
    nonces = _shown(liar)
    for _ in range(2):
        with refused("key-substitution", caplog):
            liar.step("silo-000", "nonces", nonces)
    liar.enrol().all_is_well()


@gains("key-substitution")
@pytest.mark.parametrize("unlucky", [OFFERS, REVEALS])
def test_key_substitution_by_dice_that_are_thrown_again(
    make: Make, monkeypatch: Patch, unlucky: int
) -> None:
    """All silos are in a session with one that the coordinator plays, and add among themselves."""
    never = property(lambda self: None, lambda self, found: None)
    monkeypatch.setattr(SiloSetup, "_found", never, raising=False)
    _dice(monkeypatch, unlucky)
    liar = make()
    keys, own = _played(liar)
    honest, reveals = liar.names[:-1], []
    for name in honest:
        if unlucky == OFFERS:
            with pytest.raises(Turned):
                liar.step(name, "keys", keys)
        reveals.append(NonceReveal.from_record(liar.step(name, "keys", keys)))
    nonces = NonceList((*reveals, own))
    for name in honest:
        if unlucky == REVEALS:
            with pytest.raises(Turned):
                liar.step(name, "nonces", nonces)
        liar.say(name, m.SumStep("nonces", nonces.to_record()))
    sid = session_id(RUN, keys.offers)
    drawn_from = beacon(sid, {r.silo: r.nonce for r in nonces.reveals})
    liar.setup = SimpleNamespace(sid=sid, beacon=drawn_from, members=liar.names)  # type: ignore[assignment]
    held = liar.gather(liar.header(alive=honest))
    assert np.array_equal(liar.sum(held), liar.stage.plain(held.header.encoding, honest))


@refuses("graph-steering")
def test_graph_steering_by_lists_that_are_refused(
    make: Make, monkeypatch: Patch, caplog: Log
) -> None:
    """Each list that dice decide on is one of the setups that a silo counts."""
    _dice(monkeypatch, OFFERS)
    monkeypatch.setattr(silo.process, "Limits", lambda **named: Limits(max_sessions=2, **named))
    liar = make()
    for number in range(2):
        keys, _ = _played(liar)
        if number == 0:
            with refused("key-substitution", caplog):
                liar.step("silo-000", "keys", keys)
        else:
            liar.step("silo-000", "keys", keys)
    with refused("graph-steering", caplog):
        liar.step("silo-000", "keys", liar.offers().key_list())


@refuses("graph-steering")
def test_graph_steering_by_setups_of_another_run(
    make: Make, monkeypatch: Patch, caplog: Log
) -> None:
    """A run without a sum may be given up for another one. Its setups count on."""
    monkeypatch.setattr(silo.process, "Limits", lambda **named: Limits(max_sessions=2, **named))
    liar = make()
    liar.enrol().enrol()
    liar.stage.stop()
    liar.stage.start()
    with refused("graph-steering", caplog):
        liar.enrol(run=b"q" * 32)


@gains("graph-steering")
def test_graph_steering_by_as_many_runs_as_one_likes(make: Make, monkeypatch: Patch) -> None:
    """A new name for the run, and the silos count from nothing."""
    monkeypatch.setattr(silo.process, "Limits", lambda **named: Limits(max_sessions=1, **named))
    monkeypatch.setattr(RunNotes, "count_on_from", lambda *_: None)
    liar = make()
    graphs = set()
    for run in (b"1" * 32, b"2" * 32, b"3" * 32):
        graphs.add(liar.enrol(run=run).setup.beacon)
        liar.stage.stop()
        liar.stage.start()
    assert len(graphs) == 3
