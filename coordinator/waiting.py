"""A coordinator that lacks silos waits: it says for whom and until when, and goes on the moment they
are back. It gives up when its operator ends it, or at a deadline that was stated before.
"""

from __future__ import annotations

import logging
import math
import time
from typing import Protocol

from coordinator.exchange import RoundFailed
from coordinator.runlog import RunLog
from report import events
from report.units import clock

__all__ = ["FOR_EVER", "wait_for_silos"]

log = logging.getLogger("coordinator")
FOR_EVER = math.inf
_LOOK = 5.0  #: seconds between two looks at who is here


class Members(Protocol):
    """What waiting needs of coordinator.membership."""

    names: dict[str, int]

    @property
    def here(self) -> set[str]: ...
    def one(self, seconds: float) -> None: ...


def wait_for_silos(
    members: Members, runlog: RunLog, *, round: int, needed: int, patience: float
) -> None:
    """Return once `needed` silos are here; RoundFailed after `patience` seconds without them."""
    if len(members.here) >= needed:
        return
    until, deadline = time.time() + patience, time.monotonic() + patience
    told: set[str] = set()
    while len(here := members.here) < needed:
        missing = set(members.names) - here
        if missing != told:
            told = missing
            _tell(runlog, round, sorted(missing), len(here), needed, until)
        left = deadline - time.monotonic()
        if left <= 0:
            raise RoundFailed(
                f"Round {round + 1} needs {needed} silos and {len(here)} are here; "
                f"{', '.join(sorted(missing))} did not come back within {patience:.0f} s."
            )
        members.one(min(left, _LOOK))
    log.info("%d silos are here; the run goes on", len(members.here))
    runlog.event(events.Gathered(round=round, silos=len(members.here)))


def _tell(
    runlog: RunLog, round: int, missing: list[str], here: int, needed: int, until: float
) -> None:
    ends = "until you end it"
    if math.isfinite(until):
        ends = f"until {clock(until)}"
    log.warning(
        "round %d waits for %s: %d silos are here and %d are needed; it waits %s",
        round + 1,
        ", ".join(missing),
        here,
        needed,
        ends,
    )
    runlog.event(
        events.Waiting(
            round=round,
            silos=tuple(missing),
            here=here,
            needed=needed,
            until=until if math.isfinite(until) else 0.0,
        )
    )
