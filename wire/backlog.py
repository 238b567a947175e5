"""How much a peer may make this process hold before anybody reads it, in bytes.

libzmq counts messages and bounds single frames. A message of many frames is delivered whole, and
until its last frame has come libzmq holds all of them, however many: no option limits that (checked
in 4.3.5: a pipe counts a message when its last frame is written). 1,200 frames of 1 MiB were 1.27 GB.
The same holds for whole messages while nobody reads, because limits there are by number, not by size.

So a thread looks, twenty times a second, at what the kernel has received on each connection
(TCP_INFO), less what this process has read from it as messages. A connection that is ahead by more
than the limit is shut down. libzmq then drops what it holds of an unfinished message. What comes
between two looks is not bounded by the limit: on loopback some 20 MB.

Connections from which no message was read yet (handshakes, and silos that have just greeted) may take
half of the process's descriptors. One more, and an older one, drawn at random, is shut down: strangers
without a key cannot take them all, and a silo that is unlucky dials again.

Where whole messages of ended connections wait for a reader who is busy, new connections are shut
down at once until they are read: else somebody could dial again and again.
"""

from __future__ import annotations

import fcntl
import functools
import logging
import math
import os
import resource
import secrets
import socket
import struct
import termios
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["ALLOWANCE", "BEFORE_GREETING", "Backlog"]

log = logging.getLogger("wire")

#: beside what a study declares: headers, pieces of a stream that are under way
ALLOWANCE = 16 << 20
#: on a connection from which no message was read yet: a greeting is some kilobytes
BEFORE_GREETING = 1 << 18
_LEFT_BEHIND = 256 << 20  #: unread of connections that ended, over all of them
_PERIOD = 0.05
_FASTEST = 5e8  #: bytes a second that libzmq decrypts, over all connections
_FRAME = 42  #: what CURVE and ZMTP add to a frame, at most
_HANDSHAKE = 4096
_MOST_SILENT = 4096
_HEARTBEATS = 50.0  #: bytes a second: two small frames every two seconds
_RECEIVED = 128  #: where tcpi_bytes_received is in struct tcp_info


@dataclass
class _Connection:
    inode: int
    since: float
    silo: str = ""
    read: int = 0  #: bytes of messages that were read from it, as they are on the wire
    seen: tuple[float, int] = (0.0, 0)  #: when it was looked at last, and how far ahead it was
    cut: bool = False

    def ahead(self, received: int) -> int:
        quiet = _HANDSHAKE + int(_HEARTBEATS * (time.monotonic() - self.since))
        return max(0, received - self.read - quiet)


def most_silent() -> int:
    """Half of the descriptors that this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_SILENT if soft == resource.RLIM_INFINITY else min(soft // 2, _MOST_SILENT)


def _can_tell() -> bool:
    """Whether this system says what came on a connection. macOS has no TCP_INFO."""
    return hasattr(socket, "TCP_INFO")


@functools.cache
def _warn_once() -> None:
    log.warning(
        "this system does not say how much has come on a connection: nobody is cut off for sending "
        "more than is read, and only Linux bounds what a peer can make this process hold"
    )


def _received(fd: int) -> int:
    """Bytes that were taken from the kernel on this connection; 0 where it cannot be told."""
    if not _can_tell():
        return 0
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=fd)
    try:
        info = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    finally:
        s.detach()  # the descriptor is libzmq's
    if len(info) < _RECEIVED + 8:
        return 0  # a kernel before 4.1 does not say
    waiting = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))[0]
    return int(struct.unpack_from("<Q", info, _RECEIVED)[0]) - int(waiting)


def _shut_down(fd: int) -> None:
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=fd)
    try:
        s.shutdown(socket.SHUT_RDWR)
    finally:
        s.detach()


class Backlog:
    """`opened`, `read` and `closed` say what happens on connections; `look` shuts down those that
    are too far ahead. All of them may be called from any thread.
    """

    def __init__(self, limit: int, before_greeting: int | None = None) -> None:
        self.limit = limit
        self._first = limit if before_greeting is None else before_greeting
        self._lock = threading.Lock()
        self._open: dict[int, _Connection] = {}
        self._left_behind = 0
        self._cut: set[str] = set()
        self._said = -math.inf  # when a stranger was last spoken of
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def opened(self, fd: int, silo: str = "") -> None:
        try:
            inode = os.fstat(fd).st_ino
        except OSError:
            return  # it ended before anybody heard of it
        with self._lock:
            now = time.monotonic()
            self._open[fd] = _Connection(inode, now, silo, seen=(now, 0))
            crowded = self._left_behind > _LEFT_BEHIND
            silent = [n for n, c in self._open.items() if not c.read and not c.cut and n != fd]
        if crowded:
            self._end(fd, "messages of connections that ended wait to be read")
        elif len(silent) >= most_silent():
            self._end(secrets.choice(silent), "too many connections have said nothing yet")

    def read(self, fd: int, sizes: list[int], silo: str = "") -> None:
        """A message of frames of these sizes was read from this connection."""
        with self._lock:
            connection = self._open.get(fd)
            if connection is not None:
                connection.silo = silo or connection.silo
                connection.read += sum(sizes) + _FRAME * len(sizes)

    def closed(self, fd: int) -> None:
        """Its messages may still wait to be read. Of one that ended by itself nobody can count any
        more what came since the last look, so that is taken to be what the fastest line brings.
        """
        with self._lock:
            connection = self._open.pop(fd, None)
            if connection is not None:
                when, ahead = connection.seen
                since = 0.0 if connection.cut else min(time.monotonic() - when, _PERIOD)
                self._left_behind += ahead + int(_FASTEST * since)

    def drained(self) -> None:
        """Nothing whole is left to be read, on any connection."""
        with self._lock:
            self._left_behind = 0

    def was_cut(self, silo: str) -> bool:
        """Whether the last connection of this silo was shut down here; says so once."""
        with self._lock:
            cut = silo in self._cut
            self._cut.discard(silo)
            return cut

    def look(self) -> None:
        with self._lock:
            connections = list(self._open.items())
        for fd, connection in connections:
            limit = self.limit if connection.read else self._first
            try:
                ahead = connection.ahead(_received(fd))
            except OSError:
                continue  # ended in this moment
            connection.seen = (time.monotonic(), ahead)
            if ahead > limit:
                self._end(fd, f"it sent over {limit} bytes that nobody had read yet")

    def _end(self, fd: int, why: str) -> None:
        with self._lock:
            connection = self._open.get(fd)
            if connection is None or connection.cut:
                return
            try:
                # the number may be somebody else's by now
                if os.fstat(fd).st_ino != connection.inode:
                    return
                connection.seen = (time.monotonic(), connection.ahead(_received(fd)))
                _shut_down(fd)
            except OSError:
                return
            connection.cut = True
            if connection.silo:
                self._cut.add(connection.silo)
            # of strangers, who cost a log nothing else, once a second
            loud = bool(connection.silo) or time.monotonic() - self._said > 1.0
            self._said = time.monotonic() if loud else self._said
        if loud:
            who = connection.silo or "a connection"
            log.warning("refused (oversize): %s is cut off: %s", who, why)

    # The thread

    def start(self, listen: Callable[[float], None] | None = None) -> None:
        """`listen`: waits so many seconds for news of connections and passes them on; without it
        the owner does.
        """

        if not _can_tell():
            _warn_once()

        def run() -> None:
            while not self._over.is_set():
                if listen is None:
                    self._over.wait(_PERIOD)
                else:
                    listen(_PERIOD)
                self.look()

        self._thread = threading.Thread(target=run, name="backlog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
