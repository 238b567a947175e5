"""What a silo writes down of one run, so that a restart does not make it do anything twice.

The keys of the journal are part of what is on disk at silos: they never change.
"""

from __future__ import annotations

from crypto.errors import Refusal
from crypto.sum.records import SumHeader
from crypto.sum.silo_kept import begun
from crypto.sum.silo_limits import Journal

__all__ = ["RunNotes"]


class RunNotes:
    def __init__(self, journal: Journal, run_id: bytes) -> None:
        self.journal, self._run = journal, run_id.hex()

    def sessions(self) -> int:
        """How many setups of this run were tried, finished or not."""
        return int(self.journal.get(self._named("sessions")) or 0)

    def count_session(self, most: int) -> None:
        """One setup more, written down before anything comes of it."""
        sessions = self.sessions() + 1
        if sessions > most:
            raise Refusal("graph-steering", f"more than {most} sessions were set up for one run")
        self.journal.put(self._named("sessions"), str(sessions))

    def count_on_from(self, earlier: RunNotes) -> None:
        """A run that takes another's place goes on where that one's count was: else a coordinator
        would name a new run for every thousand setups.
        """
        if earlier.sessions() > self.sessions():
            self.journal.put(self._named("sessions"), str(earlier.sessions()))

    def last(self) -> tuple[int, int]:
        """Number and round of the last sum that was begun in this run, in any session."""
        kept = self.journal.get(self._named("last"))
        if kept is None:
            return -1, 0
        number, round = kept.split(" ")
        return int(number), int(round)

    def payload(self, header: SumHeader) -> str:
        """The journal's key of what a sum is over: released for once, whatever the sum's number."""
        return f"{self._named('released')}/{header.round}/{header.exchange}"

    def released(self, payload: str) -> bool:
        return self.journal.get(payload) is not None

    def note_begun(self, header: SumHeader) -> None:
        self.journal.put(self._named("last"), f"{header.number} {header.round}")
        self.journal.put(begun(self.payload(header)), header.h.hex())

    def _named(self, what: str) -> str:
        return f"{what}/{self._run}"
