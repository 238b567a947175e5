"""A program of ours as the child of another: a study runs in a process of its own, and whoever serves
for weeks never runs one itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from config.program import PARENT

__all__ = ["Child"]

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_END_SECONDS = 60.0
_LONG = 300.0  #: seconds of life after which a crash counts as the first one


class Child:
    """`python -m WORDS`, its output appended to a log. After a crash it is started again, after a
    longer pause each time.
    """

    def __init__(
        self, words: list[str], log: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._words, self.log, self._clock = words, log, clock
        self._process: subprocess.Popen[bytes] | None = None
        self._failures, self._not_before, self._began = 0, 0.0, 0.0

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> bool:
        """Whether it runs now. It does not while a pause lasts."""
        if self.alive:
            return True
        if self._clock() < self._not_before:
            return False
        self._began = self._clock()
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *self._words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONUNBUFFERED": "1", PARENT: str(os.getpid())},
                # Ctrl-C at the terminal is for the parent, which ends it in good order
                start_new_session=True,
            )
        return True

    def ended(self) -> int | None:
        """Its status, once; None while it runs or was never started."""
        if self._process is None or self._process.poll() is None:
            return None
        status, self._process = self._process.returncode, None
        return status

    def pause(self) -> None:
        """Before it is started again: longer each time, unless it had run for long."""
        if self._clock() - self._began > _LONG:
            self._failures = 0
        self._failures += 1
        self._not_before = self._clock() + min(
            _FIRST_PAUSE * 2 ** min(self._failures - 1, 10), _LONGEST_PAUSE
        )

    def end(self) -> None:
        """Ask it to end, and wait; after a minute it is killed."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def last_words(self, lines: int = 1) -> str:
        """The end of its log, for people."""
        if not self.log.exists():
            return ""
        text = self.log.read_bytes()[-8192:].decode("utf-8", "replace")
        said = [line for line in text.splitlines() if line.strip() and not line.startswith("{")]
        return "\n".join(said[-lines:])
