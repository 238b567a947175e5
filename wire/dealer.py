"""A silo's end: it dials out, speaks to one coordinator whose key it pinned, and opens no port.

Every connection is a socket of its own. libzmq's own reconnecting is off: it would flush what was
meant for the old connection into the new one, ahead of the greeting. A connection that ends raises
`Cut`; `redial` waits (longer each time, and never the same time twice, so that silos do not come
back in step) and tries the next address.
"""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from wire.backlog import ALLOWANCE, Backlog
from wire.keys import CurveKeys
from wire.messages import (
    HANG_UP_BYTES,
    HEARTBEAT_MS,
    PATIENCE_MS,
    SEND_BUFFER,
    BadMessage,
    Message,
    decode,
    encode,
)
from wire.order import InOrder, numbered, split

__all__ = ["Cut", "Dealer"]

log = logging.getLogger("wire")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0
_CONNECT_MS = 10_000
_HIGH_WATER = 64  #: an upload waits for the network instead of piling up in memory
_COORDINATOR = "the coordinator"
_UP = zmq.EVENT_HANDSHAKE_SUCCEEDED
_REFUSED = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
_NOT_ALLOWED = 400  #: what ZAP answers to a key that is not on the list, revoked or never known
_DOWN = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | _REFUSED


class Cut(Exception):
    """The connection ended, or never stood. The message is a few words why.

    `refused`: the other end said, before anything was encrypted, that it does not let this key in.
    Anybody on the way can say that too: it is a reason to tell the operator, and by itself none to
    believe it.
    """

    def __init__(self, why: str, refused: bool = False) -> None:
        super().__init__(why)
        self.refused = refused


class Dealer:
    def __init__(
        self, address: str, keys: CurveKeys, coordinator: bytes, unread: int = ALLOWANCE
    ) -> None:
        """`address`: tcp://HOST:PORT, or several with commas between, for a coordinator that may
        have moved. `unread`: the most bytes that may wait to be read, while this silo computes, say.
        """
        self._backlog = Backlog(unread)
        self._descriptor: int | None = None
        self._addresses, self._keys, self._coordinator = address.split(","), keys, coordinator
        self._context = zmq.Context()
        self._attempts, self._closed = 0, False
        self._dial()
        self._backlog.start()

    @property
    def address(self) -> str:
        return self._addresses[0]

    def _dial(self) -> None:
        s = self._socket = self._context.socket(zmq.DEALER)
        s.curve_serverkey = self._coordinator
        s.curve_secretkey, s.curve_publickey = self._keys.secret, self._keys.public
        s.linger = 1000
        s.setsockopt(zmq.MAXMSGSIZE, HANG_UP_BYTES)
        s.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        s.setsockopt(zmq.HEARTBEAT_TIMEOUT, PATIENCE_MS)
        s.setsockopt(zmq.RECONNECT_IVL, -1)
        s.setsockopt(zmq.CONNECT_TIMEOUT, _CONNECT_MS)
        s.setsockopt(zmq.SNDBUF, SEND_BUFFER)
        s.setsockopt(zmq.SNDHWM, _HIGH_WATER)
        self._monitor = s.get_monitor_socket(zmq.EVENT_CONNECTED | _UP | _DOWN)
        self._poller = zmq.Poller()
        self._poller.register(s, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)
        self._down, self._refused, self.stood = "", False, False
        self._number, self._order = 0, InOrder[tuple[Message, memoryview | None]]()
        self._ready: deque[tuple[Message, memoryview | None]] = deque()
        s.connect(self.address)

    def _hang_up(self) -> None:
        self._forget_connection()
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(0)

    def _forget_connection(self) -> None:
        if self._descriptor is not None:
            self._backlog.closed(self._descriptor)
            self._descriptor = None
            self._backlog.drained()  # the socket goes, and what it holds

    def redial(self) -> None:
        """After a `Cut`: wait, then a new connection, to the next address if there are several."""
        self._hang_up()
        self._attempts += 1
        longest = min(_FIRST_PAUSE * 2 ** min(self._attempts, 12), _LONGEST_PAUSE)
        time.sleep(random.uniform(longest / 2, longest))
        self._addresses = [*self._addresses[1:], self._addresses[0]]
        self._dial()

    def send(self, message: Message, payload: Any = None) -> None:
        """Raises `Cut` when the connection is gone: whoever waits for it to come back would wait
        for ever.
        """
        frame = numbered(self._number, encode(message))
        self._number += 1
        self._transmit([frame] if payload is None else [frame, payload])

    def _transmit(self, frames: list[Any]) -> None:
        while True:
            try:
                # Copied into libzmq's buffer: the sender reuses its own for the next piece.
                self._socket.send_multipart(frames, flags=zmq.DONTWAIT, copy=True)
                return
            except zmq.Again:
                self._watch()
                if self._down:
                    raise Cut(self._down, self._refused) from None
                self._socket.poll(200, zmq.POLLOUT)

    def receive(self, timeout: float) -> tuple[Message, memoryview | None] | None:
        """The next message, or None after `timeout` seconds. Bad bytes are logged and skipped.

        What arrived before the connection ended is heard first: the last word may have been "stop".
        """
        until = time.monotonic() + timeout
        while not self._ready:
            if self._down and not self._socket.poll(0):
                raise Cut(self._down, self._refused)
            events = dict(self._poller.poll(max(0, int((until - time.monotonic()) * 1000))))
            if self._monitor in events:
                self._watch()
            if self._socket in events:
                self._read()
            elif not events:
                return None
        return self._ready.popleft()

    def _watch(self) -> None:
        """What became of the connection."""
        while not self._down and self._monitor.poll(0):
            seen = recv_monitor_message(self._monitor)
            event = seen["event"]
            if event & zmq.EVENT_CONNECTED:
                self._descriptor = seen["value"]
                self._backlog.opened(seen["value"], _COORDINATOR)
            elif event & _UP:
                self.stood = True  # what was to be sent went out
            elif event & _REFUSED:
                self._refused = (
                    bool(event & zmq.EVENT_HANDSHAKE_FAILED_AUTH) and seen["value"] == _NOT_ALLOWED
                )
                self._down = "the coordinator did not take this silo's key, or has another than the one pinned"
            elif event & _DOWN:
                self._down = "the connection ended, or could not be made"
                if self._backlog.was_cut(_COORDINATOR):
                    self._down = (
                        f"the coordinator sent over {self._backlog.limit} bytes that this silo had "
                        "not read yet, and was cut off (oversize)"
                    )
                self._forget_connection()

    def _read(self) -> None:
        frames = self._socket.recv_multipart(copy=False)
        self._backlog.read(frames[0].get(zmq.SRCFD), [len(f.buffer) for f in frames], _COORDINATOR)
        try:
            if not 1 <= len(frames) <= 2:
                raise BadMessage(f"a message of {len(frames)} frames")
            number, header = split(frames[0].buffer)
            message = decode(header)
            self._ready.extend(
                self._order.take(number, (message, frames[1].buffer if len(frames) == 2 else None))
            )
            self._attempts = 0
        except BadMessage as e:
            log.warning("refused (%s): the coordinator sent %s", e.attack, e)

    def close(self) -> None:
        """Gives what was sent a second to leave. Closing twice is harmless."""
        if not self._closed:
            self._closed = True
            self._backlog.stop()
            self._socket.disable_monitor()
            self._monitor.close(0)
            self._socket.close()
        self._context.destroy(linger=1000)
