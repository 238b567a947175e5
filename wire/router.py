"""The coordinator's end: a ROUTER that only enrolled keys reach, and that knows at once when a silo
has gone.

A silo's name is never taken from what it says: ZAP maps its CURVE key to a name, and libzmq
attaches that name to every message of the connection. A connection that breaks (or stops answering
libzmq's heartbeats) raises a monitor event; the next send to a silo whose connection is gone then
fails, because ROUTER_MANDATORY is set. So death is noticed without a thread in the silo and without
waiting for a time-out.

How much a silo may make this process hold before it is read is bounded in bytes (wire.backlog).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from wire.backlog import ALLOWANCE, BEFORE_GREETING, Backlog
from wire.counter import ByteCounter
from wire.keys import CurveKeys
from wire.messages import (
    FRAME_BYTES,
    HANG_UP_BYTES,
    HEARTBEAT_MS,
    PATIENCE_MS,
    SEND_BUFFER,
    VERSION,
    BadMessage,
    Message,
    Oversize,
    Ping,
    Probed,
    decode,
    encode,
)
from wire.order import InOrder, numbered, split
from wire.zap import Zap

__all__ = ["UNREAD", "Bad", "Gone", "Received", "Router"]

_READ_FIRST = 1.0  #: seconds for which a look at who hung up gives way to messages
_PROBE_SECONDS = (0.0, 0.05, 0.2, 0.5, 1.0, 2.0)  #: after a disconnection, when to look who it was

_HIGH_WATER = 64
#: Bytes of one silo that may wait to be read: as many frames as libzmq takes, and what lies beside.
UNREAD = _HIGH_WATER * FRAME_BYTES + ALLOWANCE

_DOMAIN = "sottovoce"
NOBODY: Mapping[bytes, str] = {}

log = logging.getLogger("wire")


@dataclass(frozen=True)
class Received:
    silo: str
    message: Message
    payload: memoryview | None


@dataclass(frozen=True)
class Gone:
    silo: str


@dataclass(frozen=True)
class Bad:
    """Bytes from a silo that are no message of ours: whatever it should have sent, nobody need wait
    for it.
    """

    silo: str
    attack: str
    detail: str


Event = Received | Gone | Bad


class Router:
    def __init__(
        self,
        keys: CurveKeys,
        allowed: Mapping[bytes, str],
        counter: ByteCounter,
        revoked: Mapping[bytes, str] = NOBODY,
        unread: int = UNREAD,
    ) -> None:
        """`allowed`: CURVE public key (Z85) -> name of the silo that holds it; `revoked`: whose it
        was, for the log. `unread`: the most bytes of a silo that may wait to be read.
        """
        self.counter = counter
        self._context = zmq.Context()
        self._zap = Zap(self._context, _DOMAIN, "connection", allowed, revoked)
        self._zap.start()
        s = self._socket = self._context.socket(zmq.ROUTER)
        s.curve_server = True
        s.curve_secretkey, s.curve_publickey = keys.secret, keys.public
        s.zap_domain = _DOMAIN.encode()
        s.linger = 500
        s.setsockopt(zmq.ROUTER_MANDATORY, 1)
        s.setsockopt(zmq.MAXMSGSIZE, HANG_UP_BYTES)
        s.setsockopt(zmq.HANDSHAKE_IVL, 10_000)
        s.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        s.setsockopt(zmq.HEARTBEAT_TIMEOUT, PATIENCE_MS)
        s.setsockopt(zmq.SNDBUF, SEND_BUFFER)
        # a silo that floods waits in its own queue, not in our memory
        s.setsockopt(zmq.RCVHWM, _HIGH_WATER)
        # frames to send share one buffer; a queue holds only references
        s.setsockopt(zmq.SNDHWM, 0)
        self._backlog = Backlog(unread, BEFORE_GREETING)
        self._ended = self._watch_connections()
        self._poller = zmq.Poller()
        self._poller.register(s, zmq.POLLIN)
        self._poller.register(self._ended, zmq.POLLIN)
        self._route: dict[str, bytes] = {}
        self._order: dict[str, InOrder[Event]] = {}
        self._sent: dict[str, int] = {}
        self._ended_route: dict[str, bytes] = {}  #: of connections that were reported as gone
        self._stopped: set[str] = set()  # they read nothing more: pings only tell whether they went
        self._probes: list[float] = []
        self._due: deque[Event] = deque()  # what happened and was not yet told

    def _watch_connections(self) -> zmq.Socket:
        """The backlog's thread hears of every connection, also while nobody reads here. It passes on
        that one ended, by the socket returned.
        """
        here = f"inproc://sottovoce-{id(self)}"
        self._socket.monitor(f"{here}-monitor", zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        monitor = self._context.socket(zmq.PAIR)
        monitor.connect(f"{here}-monitor")
        hears, tells = self._context.socket(zmq.PULL), self._context.socket(zmq.PUSH)
        hears.bind(f"{here}-ended")
        tells.connect(f"{here}-ended")

        def listen(seconds: float) -> None:
            if not monitor.poll(int(seconds * 1000)):
                return
            while monitor.poll(0):
                seen = recv_monitor_message(monitor)
                if seen["event"] == zmq.EVENT_ACCEPTED:
                    self._backlog.opened(seen["value"])
                elif seen["event"] == zmq.EVENT_DISCONNECTED:
                    self._backlog.closed(seen["value"])
                    try:
                        tells.send(b"", zmq.DONTWAIT)
                    except zmq.Again:
                        pass  # a thousand say the same as one

        self._threads_sockets = (monitor, tells)
        self._backlog.start(listen)
        return hears

    def bind(self, host: str, port: int) -> int:
        """Returns the port. Raises zmq.ZMQError when it is taken."""
        if port == 0:
            return int(self._socket.bind_to_random_port(f"tcp://{host}"))
        self._socket.bind(f"tcp://{host}:{port}")
        return port

    @property
    def connected(self) -> frozenset[str]:
        return frozenset(self._route)

    def send(
        self, silo: str, message: Message, payload: Any = None, channel: str = "control"
    ) -> bool:
        """False when the silo's connection is gone; it is then also reported by `receive`."""
        route = self._route.get(silo)
        if route is None:
            return False
        header = numbered(self._sent[silo], encode(message))
        self._sent[silo] += 1
        try:
            self._transmit([route, header] if payload is None else [route, header, payload])
        except zmq.ZMQError as e:
            if e.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            self._lose(silo)
            return False
        if message.kind == "stop":
            self._stopped.add(silo)
        elif silo in self._stopped:
            return True
        sizes = [len(header)] if payload is None else [len(header), memoryview(payload).nbytes]
        self.counter.count(silo, message.kind, channel, "down", sizes)
        return True

    def _transmit(self, frames: list[Any]) -> None:
        self._socket.send_multipart(frames, flags=zmq.DONTWAIT, copy=len(frames) == 2)

    def forget(self, silo: str) -> None:
        self._route.pop(silo, None)

    def receive(self, timeout: float) -> Event | None:
        """The next event, or None after `timeout` seconds. Bad bytes are logged and skipped."""
        until = time.monotonic() + timeout
        while True:
            if self._due:
                return self._due.popleft()
            now = time.monotonic()
            # What a silo sent before it hung up is read first, unless somebody never ends to send.
            late = now - self._probes[0] if self._probes else -1.0
            if late > _READ_FIRST or (late >= 0 and not self._socket.poll(0)):
                self._probes.pop(0)
                self._probe()
                continue
            wait = min([until, *self._probes[:1]]) - now
            ready = dict(self._poller.poll(max(0, int(wait * 1000))))
            if self._ended in ready:
                self._ended.recv()
                self._probes = sorted(time.monotonic() + s for s in _PROBE_SECONDS)
            if self._socket in ready:
                self._read()
                continue
            self._backlog.drained()
            if time.monotonic() >= until and not self._due:
                return None

    def _read(self) -> None:
        frames = self._socket.recv_multipart(copy=False)
        try:
            silo = str(frames[0].get("User-Id"))
        except zmq.ZMQError:
            log.warning("refused (unknown-silo): a message without an authenticated sender")
            return
        sizes = [len(f.buffer) for f in frames[1:]]
        self._backlog.read(frames[0].get(zmq.SRCFD), sizes, silo)
        number: int | None = None
        event: Event
        try:
            if not 1 <= len(sizes) <= 2:
                raise BadMessage(f"a message of {len(sizes)} frames")
            number, header = split(frames[1].buffer)
            message = decode(header)
            # Whoever reads the pieces of a stream refuses such a piece, and with it the sender's
            # upload.
            if len(sizes) == 2 and sizes[1] > FRAME_BYTES and message.kind != "chunk":
                raise Oversize(f"{sizes[1]} bytes beside a {message.kind} message")
            # answered on its own connection, beside whatever this silo's program is doing
            if message.kind == "probe":
                answer = numbered(0, encode(Probed(time.time_ns() // 1_000_000, VERSION)))
                self._socket.send_multipart([frames[0].bytes, answer], zmq.DONTWAIT)
                return
            if not self._open(silo, frames[0].bytes, message, sizes):
                return
            self._count(silo, message, sizes)
            event = Received(silo, message, frames[2].buffer if len(sizes) == 2 else None)
        except BadMessage as e:
            self.counter.count(silo, "bad", "control", "up", sizes)
            event = self._bad(silo, e)
            if number is None or self._route.get(silo) != frames[0].bytes:
                self._due.append(event)
                return
        try:
            # also what is bad has its place in the row
            self._due.extend(self._order[silo].take(number, event))
        except BadMessage as e:
            self._due.append(self._bad(silo, e))

    def _open(self, silo: str, route: bytes, message: Message, sizes: list[int]) -> bool:
        """Whether a message of this connection is to be heard: only a greeting may open, or reopen,
        a silo's route.
        """
        if self._route.get(silo) == route:
            return True
        if self._ended_route.get(silo) == route:
            # It was sent before the silo hung up, and arrived while somebody tried to send to it.
            self._count(silo, message, sizes)
            return False
        if message.kind != "hello":
            log.warning(
                "refused (replay): %s sent a %s message before its greeting", silo, message.kind
            )
            return False
        self.counter.connection(silo)
        old = self._route.get(silo)
        if old is not None and not self._stands(silo, route):
            # Greetings of two connections waited to be read, and this is that of the one that ended.
            self._ended_route[silo] = route
            self._count(silo, message, sizes)
            return False
        self._lose(silo)  # its key says that it is the same silo, and it speaks on one connection
        self._stopped.discard(silo)
        self._route[silo], self._order[silo] = route, InOrder()
        self._sent[silo] = 0 if old is None else 1
        return True

    def _stands(self, silo: str, route: bytes) -> bool:
        """Whether the first message on a connection can still be sent."""
        ping = numbered(0, encode(Ping()))
        try:
            self._transmit([route, ping])
        except zmq.ZMQError as e:
            if e.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            return False
        self.counter.count(silo, "ping", "control", "down", [len(ping)])
        return True

    @staticmethod
    def _bad(silo: str, error: BadMessage) -> Bad:
        log.warning("refused (%s): %s sent %s", error.attack, silo, error)
        return Bad(silo, error.attack, str(error))

    def _count(self, silo: str, message: Message, sizes: list[int]) -> None:
        channel = _CHANNELS.get(message.kind, "control")
        if message.kind == "chunk":
            channel = getattr(message, "stream", "control")
            channel = channel if channel in ("masked", "sealed") else "control"
        self.counter.count(silo, message.kind, channel, "up", sizes)

    def _probe(self) -> None:
        for silo in list(self._route):
            self.send(silo, Ping())

    def _lose(self, silo: str) -> None:
        if (route := self._route.pop(silo, None)) is not None:
            self._ended_route[silo] = route
            if self._backlog.was_cut(silo):
                error = Oversize(f"over {self._backlog.limit} bytes that nobody had read yet")
                self._due.extend((self._bad(silo, error), Gone(silo)))
                return
            # libzmq says that a connection ended, and not why.
            log.warning("lost %s: its connection ended", silo)
            log.debug("a message of over %d bytes (oversize) ends one too", HANG_UP_BYTES)
            self._due.append(Gone(silo))

    def close(self) -> None:
        self._backlog.stop()
        self._socket.disable_monitor()
        for s in (*self._threads_sockets, self._ended):
            s.close(0)
        self._socket.close()
        self._zap.stop()
        self._context.destroy(linger=500)


_CHANNELS = {"upload": "masked", "sealed": "sealed"}
