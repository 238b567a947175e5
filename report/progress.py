"""What a person sees while a run goes on. It only reads events.jsonl, so any run can be followed by
anybody.

On a terminal: a bar over the rounds, who is computing, bytes, metric, time left. Elsewhere: a plain
line a round, and one at least every fifteen seconds inside a long round.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from report.units import human_bytes

__all__ = ["Follower"]

_QUIET = 15.0  #: seconds without a terminal after which a line says how far the round is


class Follower:
    """Reads what a run appends to its events and shows it. `clock` counts seconds."""

    def __init__(
        self,
        run: Path,
        console: Console,
        rounds: int,
        metric: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = run / "events.jsonl"
        self._console, self._rounds, self._metric, self._clock = console, rounds, metric, clock
        self._at = self._path.stat().st_size if self._path.exists() else 0
        self._rest = b""
        # The loop of a simulation reads, and so does the thread of `ticking`.
        self._lock = threading.Lock()
        self._began = self._spoke = clock()
        self._round: int | None = None
        self._since = self._began  # the start of the round, or of the wait for silos
        self._exchange, self._cohort = "", 0
        self._answered: set[str] = set()
        self._done, self._first, self._bytes, self._value = 0, None, 0, float("nan")
        self._computing: list[str] = []
        self._lost: dict[str, int] = {}
        self._live: Live | None = None
        if console.is_terminal:
            self._bar = Progress(
                TextColumn("round"),
                MofNCompleteColumn(),
                BarColumn(),
                TimeElapsedColumn(),
                console=console,
            )
            self._task = self._bar.add_task("rounds", total=rounds)

    def started(self) -> None:
        if self._console.is_terminal:
            self._live = Live(
                self._picture(), console=self._console, auto_refresh=False, transient=True
            )
            self._live.start()

    def catch_up(self) -> None:
        """Read what was appended since the last call."""
        with self._lock:
            self._read()
            if self._live is not None:
                self._live.update(self._picture(), refresh=True)
            elif self._clock() - self._spoke >= _QUIET:
                self._say(self._how_far())

    @contextmanager
    def ticking(self, seconds: float = 1.0) -> Iterator[None]:
        """Catch up every few seconds from a thread, where the run computes in this very process."""
        ended = threading.Event()

        def tick() -> None:
            while not ended.wait(seconds):
                self.catch_up()

        thread = threading.Thread(target=tick, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _read(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as f:
            f.seek(self._at)
            new = f.read()
        self._at += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _how_far(self) -> str:
        seconds = f"{self._clock() - self._since:.0f} s"
        if self._round is None:
            return f"waiting for the first round, {seconds}"
        if self._round < self._done:
            return f"round {self._round + 1} of {self._rounds} is done, {seconds} ago"
        where = f"round {self._round + 1} of {self._rounds}"
        if self._exchange:
            where += f", {self._exchange}"
        return f"{where}: {len(self._answered)} of {self._cohort} silos have answered, {seconds}"

    def stop(self) -> None:
        self.catch_up()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _take(self, e: dict[str, Any]) -> None:
        kind = e["event"]
        if kind == "enrolled":
            self._say(f"{e['silos']} silos enrolled in {e['seconds']:.1f} s")
        elif kind in ("computing", "answered"):
            self._note(e)
        elif kind == "round":
            self._first = e["round"] if self._first is None else self._first
            self._computing, self._exchange, self._answered = [], "", set()
            self._round, self._since, self._cohort = e["round"], self._clock(), len(e["cohort"])
        elif kind == "round-done":
            self._since = self._clock()
            self._done, self._value = e["round"] + 1, e["dev"]
            self._bytes += e["bytes_up"]
            missed = f", missed by {', '.join(e['missed'])}" if e["missed"] else ""
            if self._live is None or e["missed"]:
                self._say(
                    f"round {e['round'] + 1}/{self._rounds}: dev {self._metric} {e['dev']:.4f}, "
                    f"{human_bytes(e['bytes_up'])} up, {e['seconds']:.1f} s{missed}"
                )
        elif kind == "lost" and e["silo"] not in self._lost:
            self._lost[e["silo"]] = e["round"]
            self._say(
                f"{e['silo']} was lost in round {e['round'] + 1}; the round goes on without it"
            )
        elif kind in ("refused", "refused-by-silo"):
            self._say(f"refused ({e['attack']}): {e['silo']}: {e['detail']}")
        elif kind == "sum-failed":
            self._say(f"round {e['round'] + 1}: the sum failed ({e['why']}); trying again")
        elif kind == "absent":
            self._say(f"starting without {', '.join(e['silos'])}")

    def _note(self, e: dict[str, Any]) -> None:
        """A silo computes, or has answered; every exchange of a round counts from the start."""
        if e["exchange"] != self._exchange:
            self._exchange, self._answered = e["exchange"], set()
        if e["event"] == "answered":
            self._answered.add(e["silo"])
        else:
            self._computing = [s for s in self._computing if s != e["silo"]][-3:] + [e["silo"]]

    def _say(self, text: str) -> None:
        self._spoke = self._clock()
        (self._live.console if self._live is not None else self._console).print(
            text, highlight=False
        )

    def _picture(self) -> Group:
        self._bar.update(self._task, completed=self._done)
        elapsed, here = self._clock() - self._began, self._done - (self._first or 0)
        left = (
            f", about {elapsed / here * (self._rounds - self._done):.0f} s left" if here > 0 else ""
        )
        value = f", dev {self._metric} {self._value:.4f}" if self._done else ""
        busy = ", ".join(self._computing) or "nobody"
        return Group(
            self._bar,
            Text(
                f"computing: {busy}; {human_bytes(self._bytes)} uploaded{value}{left}", style="dim"
            ),
        )
