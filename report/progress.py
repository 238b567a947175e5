"""What a person sees while a run goes on. It only reads events.jsonl, so any run can be followed by
anybody.

On a terminal: a bar over the rounds, who is computing, bytes, metric, time left. Elsewhere: a plain
line a round, and one at least every fifteen seconds inside a long round.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from report import events
from report.event_file import EventFile
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
        # Of a resumed run, only what is new.
        self._events = EventFile(run / "events.jsonl", from_end=True)
        self._console, self._rounds, self._metric, self._clock = console, rounds, metric, clock
        # The loop of a simulation reads, and so does the thread of `ticking`.
        self._lock = threading.Lock()
        self._began = self._spoke = clock()
        self._round: int | None = None
        self._since = self._began  # the start of the round, or of the wait for silos
        self._exchange, self._cohort = "", 0
        self._answered: set[str] = set()
        self._done, self._bytes, self._value = 0, 0, float("nan")
        self._first: int | None = None
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
            for event in self._events.new():
                self._take(event)
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

    def _take(self, event: events.Event) -> None:
        match event:
            case events.Enrolled(silos=count, seconds=seconds):
                self._say(f"{count} silos enrolled in {seconds:.1f} s")
            case events.Computing() | events.Answered():
                self._note(event)
            case events.Round(round=round, cohort=cohort):
                self._first = round if self._first is None else self._first
                self._computing, self._exchange, self._answered = [], "", set()
                self._round, self._since, self._cohort = round, self._clock(), len(cohort)
            case events.RoundDone():
                self._take_done(event)
            case events.Lost(silo=silo, round=round) if silo not in self._lost:
                self._lost[silo] = round
                self._say(f"{silo} was lost in round {round + 1}; the round goes on without it")
            case (
                events.Refused(silo=silo, attack=attack, detail=detail)
                | events.RefusedBySilo(silo=silo, attack=attack, detail=detail)
            ):
                self._say(f"refused ({attack}): {silo}: {detail}")
            case events.SumFailed(round=round, why=why):
                self._say(f"round {round + 1}: the sum failed ({why}); trying again")
            case events.Absent(silos=silos):
                self._say(f"starting without {', '.join(silos)}")

    def _take_done(self, done: events.RoundDone) -> None:
        if done.round == self._round:  # else the next one is under way: it is scored beside that
            self._since = self._clock()
        self._done = done.round + 1
        self._value = self._value if done.dev is None else done.dev
        self._bytes += done.bytes_up
        missed = f", missed by {', '.join(done.missed)}" if done.missed else ""
        if self._live is None or done.missed:
            value = "not scored" if done.dev is None else f"dev {self._metric} {done.dev:.4f}"
            self._say(
                f"round {done.round + 1}/{self._rounds}: {value}, "
                f"{human_bytes(done.bytes_up)} up, {done.seconds:.1f} s{missed}"
            )

    def _note(self, event: events.Computing | events.Answered) -> None:
        """A silo computes, or has answered; every exchange of a round counts from the start."""
        if event.exchange != self._exchange:
            self._exchange, self._answered = event.exchange, set()
        if isinstance(event, events.Answered):
            self._answered.add(event.silo)
        else:
            others = [s for s in self._computing if s != event.silo]
            self._computing = [*others[-3:], event.silo]

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
        value = f", dev {self._metric} {self._value:.4f}" if self._value == self._value else ""
        busy = ", ".join(self._computing) or "nobody"
        return Group(
            self._bar,
            Text(
                f"computing: {busy}; {human_bytes(self._bytes)} uploaded{value}{left}", style="dim"
            ),
        )
