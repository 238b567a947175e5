"""Whether a program that serves for weeks is alive, and when it last heard of whom: a small file in
its party's folder, `serving.json`, for the operator's page and for `sottovoce study list`.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from config.errors import Busy, UserError

__all__ = ["ALIVE", "Presence", "Seen", "alone", "read_presence"]

ALIVE = 60.0  #: seconds after which a program that wrote nothing is taken for gone
_PAUSE = 2.0  #: seconds between two writings


@dataclass(frozen=True)
class Seen:
    began: float = 0.0  #: seconds since 1970; 0: it never ran
    beat: float = 0.0  #: when it last went round
    heard: Mapping[str, float] = field(default_factory=dict)  #: party -> when it last spoke
    running: Mapping[str, int] = field(default_factory=dict)  #: study -> port

    def alive(self, now: float) -> bool:
        return now - self.beat < ALIVE


class Presence:
    """Kept by the serving program."""

    def __init__(self, home: Path, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = home / "serving.json", clock
        # Who was heard of before a restart is still known.
        self.seen = Seen(began=clock(), heard=dict(read_presence(home).heard))
        self._written = 0.0

    def heard(self, party: str) -> None:
        self.seen = Seen(
            self.seen.began,
            self.seen.beat,
            {**self.seen.heard, party: self._clock()},
            self.seen.running,
        )

    def beat(self, running: Mapping[str, int]) -> None:
        """Once in every turn of its loop."""
        now = self._clock()
        self.seen = Seen(self.seen.began, now, self.seen.heard, dict(running))
        if abs(now - self._written) < _PAUSE:
            return
        self._written = now
        beside = self._path.with_suffix(".new")
        beside.write_text(json.dumps(vars(self.seen)) + "\n", "utf-8")
        beside.replace(self._path)


@contextmanager
def alone(home: Path, doing: str = "serving", busy: str = "is served already") -> Iterator[None]:
    """One program serves a party's folder at a time: two would take part in the same study twice.
    `doing`: what else only one may do; `busy`: what the other is told.
    """
    handle = os.open(home / f"{doing}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"{home} {busy}, by another process; end that one first.") from None
        yield
    finally:
        os.close(handle)


def read_presence(home: Path) -> Seen:
    path = home / "serving.json"
    try:
        return Seen(**json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return Seen()
    except (OSError, ValueError, TypeError) as e:
        raise UserError(f"{path} cannot be read ({e}); remove it.") from None
