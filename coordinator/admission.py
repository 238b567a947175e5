"""Who is let in before a round: all who come in time, and keys with everybody who is here. A round
that lacks silos waits for them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection

from config.settings import Settings
from coordinator.cohorts import draws, least_in_a_session, least_in_a_sum
from coordinator.exchange import RoundFailed
from coordinator.membership import Membership
from coordinator.runlog import RunLog
from coordinator.waiting import wait_for_silos
from methods.base import silo_name
from report import events

__all__ = ["Admission"]

log = logging.getLogger("coordinator")


class Admission:
    def __init__(
        self, members: Membership, settings: Settings, runlog: RunLog, patience: float
    ) -> None:
        """`patience`: seconds for which a round that lacks silos waits; 0: it does not."""
        self._members, self._settings, self._runlog = members, settings, runlog
        self._patience = patience

    def enrol(self, seconds: float, round: int, wanted: Collection[str] = ()) -> None:
        """Wait for everybody (or for `wanted`, who were here before a crash), or for `seconds`;
        then agree on keys.
        """
        everybody = set(self._members.names)
        names = everybody if draws(self._settings) else set(wanted) or everybody
        began = time.monotonic()
        self._members.wait(seconds, lambda: names <= self._members.here)
        self.wait(round)
        absent = sorted(everybody - self._members.here)
        if absent:
            log.warning("starting without %s", ", ".join(absent))
            self._runlog.event(events.Absent(silos=tuple(absent)))
        self.let_in(round, began=began)

    def wait(self, round: int) -> None:
        """Until a round can be made with those who are here."""
        if self._patience <= 0:
            return
        least = least_in_a_sum(self._settings) if self._settings.secagg else 1
        wait_for_silos(
            self._members,
            self._runlog,
            round=round,
            needed=max(least, least_in_a_session(self._settings)),
            patience=self._patience,
        )

    def let_in(self, round: int, spent: Collection[int] = (), began: float | None = None) -> None:
        """Keys with everybody here. Silos that are lost on the way are waited for. `spent`: silos
        whose privacy budget is; where a cohort is drawn, none of them may be drawn.
        """
        began = time.monotonic() if began is None else began
        without = {silo_name(i) for i in spent} if draws(self._settings) else set()
        while True:
            try:
                self._members.agree(round, without)
                break
            except RoundFailed:
                if self._patience <= 0 or without:
                    raise
                self.wait(round)
        seconds = time.monotonic() - began
        self._runlog.event(events.Enrolled(silos=len(self._members.present), seconds=seconds))
