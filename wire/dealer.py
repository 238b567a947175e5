"""A silo's end: it dials out, speaks to one coordinator whose key it pinned, and opens no port."""

from __future__ import annotations

import logging
from typing import Any

import zmq

from wire.keys import CurveKeys
from wire.messages import HANG_UP_BYTES, BadMessage, Message, decode, encode
from wire.router import HEARTBEAT_MS, PATIENCE_MS

__all__ = ["Dealer"]

log = logging.getLogger("wire")


class Dealer:
    def __init__(self, address: str, keys: CurveKeys, coordinator: bytes) -> None:
        self._context = zmq.Context()
        s = self._socket = self._context.socket(zmq.DEALER)
        s.curve_serverkey = coordinator
        s.curve_secretkey, s.curve_publickey = keys.secret, keys.public
        s.linger = 1000
        s.setsockopt(zmq.MAXMSGSIZE, HANG_UP_BYTES)
        s.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        s.setsockopt(zmq.HEARTBEAT_TIMEOUT, PATIENCE_MS)
        s.setsockopt(zmq.RECONNECT_IVL, 100)
        s.setsockopt(zmq.RECONNECT_IVL_MAX, 5_000)
        s.setsockopt(zmq.SNDHWM, 64)  # an upload waits for the network instead of piling up in memory
        s.connect(address)

    def send(self, message: Message, payload: Any = None) -> None:
        header = encode(message)
        if payload is None:
            self._socket.send(header)
        else:
            # Copied into libzmq's buffer: the sender reuses its own for the next piece.
            self._socket.send_multipart([header, payload], copy=True)

    def receive(self, timeout: float) -> tuple[Message, memoryview | None] | None:
        """The next message, or None after `timeout` seconds. Bad bytes are logged and skipped."""
        while self._socket.poll(int(timeout * 1000)):
            frames = self._socket.recv_multipart(copy=False)
            try:
                if not 1 <= len(frames) <= 2:
                    raise BadMessage(f"a message of {len(frames)} frames")
                message = decode(frames[0].buffer)
            except BadMessage as e:
                log.warning("refused (%s): the coordinator sent %s", e.attack, e)
                continue
            return message, frames[1].buffer if len(frames) == 2 else None
        return None

    def close(self) -> None:
        """Gives what was sent a second to leave. Closing twice is harmless."""
        self._socket.close()
        self._context.destroy(linger=1000)
