"""Who was away and for how long, as the events of a run tell it: every loss with its return, and
every time that the run stood still for want of silos.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from report import events

__all__ = ["Absence", "Standstill", "absences", "absences_words", "standstills"]


@dataclass(frozen=True)
class Absence:
    silo: str
    round: int  #: in which it was lost, or from which on it was absent
    lost: float  #: seconds since 1970
    back: float | None = None  #: None: it did not come back


@dataclass(frozen=True)
class Standstill:
    """The run waited, because too few silos were here."""

    round: int
    silos: tuple[str, ...]  #: who was missing when it began to wait
    began: float
    ended: float | None = None  #: None: it waited until it was ended


def absences(happened: Iterable[events.Event]) -> list[Absence]:
    """In the order of the losses. A silo that loses its connection twice before it is back was away
    once.
    """
    found: list[Absence] = []
    away: dict[str, int] = {}
    first = 0

    def leaves(silo: str, round: int, time: float) -> None:
        if silo not in away:
            away[silo] = len(found)
            found.append(Absence(silo, round, time))

    for event in happened:
        match event:
            case events.Listening(round=round):
                first = round
            case events.Lost(silo=silo, round=round, time=time):
                leaves(silo, round, time)
            case events.Absent(silos=silos, time=time):
                for silo in silos:
                    leaves(silo, first, time)
            case events.Hello(silo=silo, time=time) | events.Back(silo=silo, time=time):
                if silo in away:
                    at = away.pop(silo)
                    found[at] = replace(found[at], back=time)
    return found


def absences_words(found: Sequence[Absence]) -> str:
    """For whoever reads that all answers arrived; empty: nobody was ever away."""
    back = sum(a.back is not None for a in found)
    came = f"{back} connections were lost and came back"
    stayed = f"{len(found) - back} silos were lost and did not come back"
    if back == 1:
        came = "1 connection was lost and came back"
    if len(found) - back == 1:
        stayed = "1 silo was lost and did not come back"
    return "; ".join([came] * (back > 0) + [stayed] * (back < len(found)))


def standstills(happened: Sequence[events.Event]) -> list[Standstill]:
    found: list[Standstill] = []
    for event in happened:
        open_ = bool(found) and found[-1].ended is None
        match event:
            case events.Waiting(round=round, silos=silos, time=time) if not open_:
                found.append(Standstill(round, silos, time))
            case (
                events.Gathered(time=time)
                | events.Interrupted(time=time)
                | events.Failed(time=time)
                | events.Listening(time=time)
            ) if open_:
                found[-1] = replace(found[-1], ended=time)
    return found
