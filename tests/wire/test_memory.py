"""Attacks on the other end's memory, over real sockets: the victim is a process of its own, and what
it grew by is read from the kernel.

Each attack is played twice: on a victim without a limit on what waits unread, where it succeeds, and
on one with the limit that a small study has.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import zmq

from tests.conftest import ROOT, wait_for
from wire import backlog as backlog_module
from wire import messages as m
from wire.backlog import ALLOWANCE, Backlog
from wire.keys import CurveKeys
from wire.order import numbered

NO_LIMIT = 1 << 50
FRAMES = 240  #: of 1 MiB
FLOOD = FRAMES * 3 // 4  #: MiB by which a victim without a limit grows, at the least
#: MiB by which one with a limit grows at most: the limit, and what comes between two looks
BOUNDED = (ALLOWANCE >> 20) + 80


class Victim:
    def __init__(self, *words: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.wire.victim", *words],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.first = int(self._line()[1])

    def _line(self) -> list[str]:
        assert self._process.stdout is not None
        return self._process.stdout.readline().split()

    def say(self, word: str) -> tuple[str, int]:
        """What it saw, and the most memory it had so far, in MiB."""
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        seen, most = self._line()
        return seen, int(most)

    def close(self) -> str:
        _, logged = self._process.communicate(timeout=30)
        return logged


@pytest.fixture
def peer() -> Iterator[Callable[..., zmq.Socket]]:
    context = zmq.Context()

    def make(kind: int, keys: CurveKeys, server: bytes | None = None) -> zmq.Socket:
        s = context.socket(kind)
        s.curve_secretkey, s.curve_publickey = keys.secret, keys.public
        if server is None:
            s.curve_server = True
        else:
            s.curve_serverkey = server
        s.setsockopt(zmq.RECONNECT_IVL, -1)
        s.setsockopt(zmq.SNDHWM, 0)
        s.linger = 0
        return s

    yield make
    context.destroy(linger=0)


def _coordinator(unread: int, peer: Any) -> tuple[Victim, zmq.Socket]:
    """A coordinator that has heard one silo's greeting, and that silo."""
    hub, silo = CurveKeys.generate(), CurveKeys.generate()
    words = (hub.secret, hub.public, str(unread).encode(), silo.public)
    victim = Victim("router", *(w.decode() for w in words))
    liar = peer(zmq.DEALER, silo, hub.public)
    liar.connect(f"tcp://127.0.0.1:{victim.first}")
    liar.send(numbered(0, m.encode(m.Hello("0", b""))))
    assert victim.say("read")[0] == "Received"
    return victim, liar


def _silo(unread: int, peer: Any) -> tuple[Victim, zmq.Socket, bytes]:
    """A silo that has greeted, the lying coordinator's socket, and the way to the silo."""
    hub, silo = CurveKeys.generate(), CurveKeys.generate()
    liar = peer(zmq.ROUTER, hub)
    port = liar.bind_to_random_port("tcp://127.0.0.1")
    words = (silo.secret, silo.public, str(unread).encode(), hub.public)
    victim = Victim("dealer", *(w.decode() for w in words), f"tcp://127.0.0.1:{port}")
    route = liar.recv_multipart()[0]
    liar.send_multipart([route, numbered(0, m.encode(m.Ping()))])
    assert victim.say("read")[0] == "ping"
    return victim, liar, route


def test_one_message_of_many_frames_without_a_limit(peer: Any) -> None:
    victim, liar = _coordinator(NO_LIMIT, peer)
    before = victim.say("how much")[1]
    liar.send_multipart([bytes(m.FRAME_BYTES)] * FRAMES, copy=False)
    assert victim.say("read") == ("Bad", pytest.approx(before + FRAMES, rel=0.25))
    victim.close()


def test_one_message_of_many_frames_is_cut_off(peer: Any) -> None:
    victim, liar = _coordinator(ALLOWANCE, peer)
    before = victim.say("how much")[1]
    liar.send_multipart([bytes(m.FRAME_BYTES)] * FRAMES, copy=False)
    seen, after = victim.say("read")
    assert seen == "Bad" and after - before < BOUNDED
    assert victim.say("read")[0] == "Gone"
    assert "refused (oversize): silo-000 is cut off" in victim.close()


@pytest.mark.parametrize("whole", [True, False], ids=["many messages", "many frames"])
def test_a_silo_that_computes_holds_what_it_is_sent_without_a_limit(peer: Any, whole: bool) -> None:
    victim, liar, route = _silo(NO_LIMIT, peer)
    before = victim.say("how much")[1]
    _flood(liar, route, whole)
    wait_for(lambda: victim.say("how much")[1] - before > FLOOD, seconds=30)
    victim.close()


@pytest.mark.parametrize("whole", [True, False], ids=["many messages", "many frames"])
def test_a_silo_that_computes_cuts_a_coordinator_off(peer: Any, whole: bool) -> None:
    victim, liar, route = _silo(ALLOWANCE, peer)
    before = victim.say("how much")[1]
    ended = liar.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    _flood(liar, route, whole)
    assert ended.poll(20_000)  # nobody at the victim has read a byte
    seen, after = victim.say("read")
    assert seen == "Cut" and after - before < BOUNDED
    assert "refused (oversize): the coordinator is cut off" in victim.close()


def _flood(liar: zmq.Socket, route: bytes, whole: bool) -> None:
    if whole:
        block = bytes(m.HANG_UP_BYTES - 64)  # CURVE adds 33
        for _ in range(FRAMES // 4):
            liar.send_multipart([route, block], copy=False)
    else:
        liar.send_multipart([route, *[bytes(m.FRAME_BYTES)] * FRAMES], copy=False)


def test_a_stranger_without_a_key_is_cut_off_before_its_first_frame_is_whole(peer: Any) -> None:
    """A ZMTP greeting, then a command of 4 MiB that never ends: each such connection would cost as
    much until its handshake times out.
    """
    hub = CurveKeys.generate()
    victim = Victim("router", hub.secret.decode(), hub.public.decode(), str(ALLOWANCE))
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)
    with socket.create_connection(("127.0.0.1", victim.first)) as stranger:
        stranger.settimeout(9)  # the handshake has ten seconds
        stranger.sendall(greeting + b"\x06" + (m.HANG_UP_BYTES - 1).to_bytes(8, "big"))
        stranger.sendall(bytes(1 << 19))
        while stranger.recv(1 << 16):
            pass
    assert "refused (oversize): a connection is cut off" in victim.close()


def _pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as door:
        out = socket.create_connection(door.getsockname())
        return out, door.accept()[0]


def test_unread_messages_of_ended_connections_close_the_door_until_they_are_read() -> None:
    """Else a silo that is cut off could dial again and again, while nobody reads."""
    backlog = Backlog(limit=1 << 30)
    backlog._left_behind = 1 << 30
    for drained, ends in ((False, b""), (True, b"x")):
        if drained:
            backlog.drained()
        out, here = _pair()
        with out, here:
            backlog.opened(here.fileno())
            out.settimeout(10)
            if ends:
                here.sendall(ends)
            assert out.recv(1) == ends
            backlog.closed(here.fileno())


def test_connections_that_say_nothing_take_half_of_the_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backlog_module, "most_silent", lambda: 5)
    backlog = Backlog(limit=1 << 20)
    with ExitStack() as open_ones:
        pairs = [_pair() for _ in range(12)]
        for out, here in pairs:
            open_ones.enter_context(out)
            open_ones.enter_context(here)
            backlog.opened(here.fileno())
            if here is pairs[0][1]:
                backlog.read(here.fileno(), [100], "silo-000")
        poll = select.poll()  # select.select takes no number above 1023
        for out, _ in pairs:
            poll.register(out, select.POLLIN)
        readable = {number for number, _ in poll.poll(0)}
        ended = [out for out, _ in pairs if out.fileno() in readable]
        assert len(ended) == 6 and pairs[0][0] not in ended


def test_what_was_read_is_not_held_against_a_connection() -> None:
    backlog = Backlog(limit=1 << 20)
    out, here = _pair()
    with out, here:
        backlog.opened(here.fileno(), "silo-000")
        for _ in range(8):
            out.sendall(bytes(1 << 19))
            left = 1 << 19
            while left:
                left -= len(here.recv(left))
            backlog.read(here.fileno(), [1 << 19])
            backlog.look()
        assert not backlog.was_cut("silo-000")
        out.sendall(bytes(3 << 19))
        left = 3 << 19
        while left:
            left -= len(here.recv(left))
        backlog.look()
        assert backlog.was_cut("silo-000") and not backlog.was_cut("silo-000")
