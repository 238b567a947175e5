"""A coordinator that lacks silos waits: it says for whom and until when, and goes on the moment they
are back. It gives up when its operator ends it, or at a deadline that was stated before.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from coordinator.exchange import WaitedInVain
from coordinator.resting import Resting
from coordinator.runlog import RunLog
from report import events
from report.units import clock

__all__ = ["FOR_EVER", "LACKS", "Patience", "Wait", "wait_for_silos"]

log = logging.getLogger("coordinator")
FOR_EVER = math.inf
#: of a round whose sum is being opened
LACKS = "its sum is being opened, and lacks their shares"
_LOOK = 5.0  #: seconds between two looks at who is here


class Members(Protocol):
    """What waiting needs of coordinator.membership."""

    names: dict[str, int]

    resting: Resting

    @property
    def here(self) -> set[str]: ...
    def one(self, seconds: float) -> None: ...


class Wait:
    """One wait: for whom and until when, said whenever it changes, and that it is over."""

    def __init__(self, runlog: RunLog, round: int, patience: float) -> None:
        self._runlog, self._round = runlog, round
        self._until, self._deadline = time.time() + patience, time.monotonic() + patience
        self._told: tuple[set[str], str] = (set(), "")

    @property
    def left(self) -> float:
        """Seconds until the stated deadline."""
        return self._deadline - time.monotonic()

    def say(
        self, missing: Collection[str], here: int, needed: int, what: str = "", why: str = ""
    ) -> None:
        """`here`: how many of the `needed` silos are. `what`: the sentence for the log, where it is
        not the presence of silos that is lacking. `why`: what those said who cannot be asked now.
        """
        if (set(missing), why) == self._told:
            return
        self._told = (set(missing), why)
        ends = "until you end it"
        if math.isfinite(self._until):
            ends = f"until {clock(self._until)}"
        log.warning(
            "round %d waits for %s: %s%s; it waits %s",
            self._round + 1,
            ", ".join(sorted(missing)),
            what or f"{here} silos are here and {needed} are needed",
            f" ({why})" if why else "",
            ends,
        )
        self._runlog.event(
            events.Waiting(
                round=self._round,
                silos=tuple(sorted(missing)),
                here=here,
                needed=needed,
                until=self._until if math.isfinite(self._until) else 0.0,
                why=why or None,
            )
        )

    def over(self, here: int) -> None:
        """Enough are here. Nothing is said where nobody was waited for."""
        if self._told[0]:
            log.info("%d silos are here; the run goes on", here)
            self._runlog.event(events.Gathered(round=self._round, silos=here))
        self._told = (set(), "")


@dataclass(frozen=True)
class Patience:
    """How long holders are waited for whose shares a sum lacks, and where that is told."""

    seconds: float
    runlog: RunLog
    round: int

    def wait(self) -> Wait:
        return Wait(self.runlog, self.round, self.seconds)

    def missed(self, silos: Collection[str]) -> WaitedInVain:
        return WaitedInVain(
            f"Round {self.round + 1}: its sum is being opened, and {', '.join(sorted(silos))} did "
            f"not come back within {self.seconds:.0f} s to release shares. The sum is kept."
        )


def wait_for_silos(
    members: Members, runlog: RunLog, *, round: int, needed: int, patience: float
) -> None:
    """Return once `needed` silos can be asked; WaitedInVain after `patience` seconds without
    them.
    """
    wait = Wait(runlog, round, patience)
    while len(here := members.here) < needed:
        missing = set(members.names) - here
        why = members.resting.why(missing)
        wait.say(missing, len(here), needed, why=why)
        if (left := wait.left) <= 0:
            raise WaitedInVain(
                f"Round {round + 1} needs {needed} silos and {len(here)} are here; "
                f"{', '.join(sorted(missing))} did not come back within {patience:.0f} s"
                f"{f' ({why})' if why else ''}."
            )
        members.one(min(left, _LOOK))
    wait.over(len(members.here))
