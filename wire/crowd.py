"""Strangers who connect and say nothing: descriptors for everybody else.

Whoever can reach the port can open connections without having a key. Each takes a descriptor until
its handshake times out, ten seconds later (`wire.router`). So the process asks for as many
descriptors as the machine allows it, and a file that finds none waits for one.

libzmq has no limit on the number of handshakes under way, and to close the listener would cut off
the silos that came through it. So `wire.backlog` shuts down connections that have said nothing once
they take half of the descriptors.
"""

from __future__ import annotations

import errno
import resource
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["raise_file_limit", "when_descriptors_are_free"]

_WANTED = 65_536  #: descriptors, where the machine allows them
_SECONDS = 30.0  #: to wait for a descriptor: idle connections are closed after ten

T = TypeVar("T")


def raise_file_limit() -> None:
    """As many descriptors as the machine allows this process, up to what a thousand silos need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def when_descriptors_are_free(write: Callable[[], T]) -> T:
    """`write`, tried again while the process has no descriptor left: strangers' connections end by
    themselves.
    """
    until = time.monotonic() + _SECONDS
    while True:
        try:
            return write()
        except OSError as e:
            if e.errno not in (errno.EMFILE, errno.ENFILE) or time.monotonic() >= until:
                raise
            time.sleep(0.05)
