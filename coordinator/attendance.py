"""Who of a round's cohort can be asked in an exchange, and for whom it is worth waiting there.

In a round's first exchange nothing is lost by beginning again, and that is where silos are waited
for (coordinator.admission). A later exchange needs silos that have what the earlier ones left: those
of the session, and those who were restarted and have it on their disks. While no sum of the round is
in the model, the round may still begin again. Once one is, the round can be completed by those silos
alone; they are waited for as long as the study's operator said, unless it is certain that too few
will come.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from config.settings import Settings
from coordinator.cohorts import draws, least_in_a_sum
from coordinator.exchange import Call, RoundFailed, WaitedInVain
from coordinator.membership import Membership
from coordinator.runlog import RunLog
from coordinator.waiting import Wait
from methods.base import silo_name
from report import events

__all__ = ["Attendance"]

_LOOK = 5.0  #: seconds between two looks at who is here


class Attendance:
    def __init__(
        self, members: Membership, settings: Settings, runlog: RunLog, patience: float
    ) -> None:
        """`patience`: seconds for which silos are waited for; 0: they are not."""
        self._members, self._settings, self._runlog = members, settings, runlog
        self._patience = patience

    def least(self, call: Call) -> int:
        """Silos below which no sum is asked for: every silo would refuse it."""
        if not self._settings.secagg or not call.exchange.masked:
            return 1
        return least_in_a_sum(self._settings)

    def gathered(
        self, call: Call, said: Collection[int], until: float, spent: Collection[int]
    ) -> tuple[int, ...]:
        """Those of the cohort who can be asked, at `until` at the latest. `said`: the exchanges of
        this round so far, with this one; `spent`: silos whose privacy budget is.
        """
        wait: Wait | None = None
        while True:
            here = tuple(i for i in call.cohort if i in self._here(call, said) and i not in spent)
            if len(here) >= self.least(call):
                if wait is not None:
                    wait.over(len(here))
                return here
            if self._stands(call):
                if self._let_back(call, said):
                    continue
                paying = self._possible(call, said) - {silo_name(i) for i in spent}
                if len(paying) < self.least(call):
                    return here
                wait = wait or Wait(self._runlog, call.round, self._patience)
                self._say(call, wait, here)
                self._members.one(min(wait.left, _LOOK))
                continue
            if time.monotonic() >= until or self.nobody_else(call, said):
                return here
            self._members.one(until - time.monotonic())

    def nobody_else(self, call: Call, said: Collection[int]) -> bool:
        """Whether it is of no use to wait within the round: all who can come are here."""
        if min(said, default=call.index) == call.index:  # nothing was said before
            return self._patience > 0
        cohort = {silo_name(i) for i in call.cohort}
        if self._stands(call):
            return self._possible(call, said) <= self._members.present
        return cohort & self._members.session <= self._members.present | self._members.resting.silos

    def _stands(self, call: Call) -> bool:
        """Whether the round can only be completed as it is, and silos are waited for."""
        return self._patience > 0 and call.opened and not call.exchange.everyone

    def _here(self, call: Call, said: Collection[int]) -> set[int]:
        present = self._members.present
        if self._stands(call):
            present = self._carrying(present, call, said)
        return {self._members.names[s] for s in present}

    def _carrying(self, silos: Collection[str], call: Call, said: Collection[int]) -> set[str]:
        earlier = [k for k in said if k < call.index]
        return self._members.remembered.carrying(silos, call.round, earlier)

    def _possible(self, call: Call, said: Collection[int]) -> set[str]:
        """Those of the cohort who have, or may have, what the earlier exchanges left: all but those
        who said that they do not, or who are not let in any more.
        """
        cohort = {silo_name(i) for i in call.cohort}
        told = self._members.anew | self._members.present
        return cohort - (told - self._carrying(told, call, said)) - self._members.banned

    def _let_back(self, call: Call, said: Collection[int]) -> bool:
        """New keys with those who were restarted and can go on, once they are enough."""
        back = self._carrying(self._members.newcomers, call, said)
        able = self._carrying(self._members.present, call, said) | back
        enough = len(able & {silo_name(i) for i in call.cohort}) >= self.least(call)
        if not back or not enough or draws(self._settings):  # new keys would mean another draw
            return False
        began = time.monotonic()
        try:
            self._members.agree(call.round, self._members.newcomers - back)
        except RoundFailed:
            return False
        seconds = time.monotonic() - began
        self._runlog.event(events.Enrolled(silos=len(self._members.present), seconds=seconds))
        return True

    def _say(self, call: Call, wait: Wait, here: Collection[int]) -> None:
        missing = {silo_name(i) for i in call.cohort if i not in here}
        what = f"it is in the middle of a round, and {len(here)} of {self.least(call)} are here"
        wait.say(missing, len(here), self.least(call), what, self._members.resting.why(missing))
        if wait.left <= 0:
            raise WaitedInVain(
                f"Round {call.round + 1} ({call.exchange.name}): {', '.join(sorted(missing))} did "
                f"not come back within {self._patience:.0f} s. The round is kept."
            )
