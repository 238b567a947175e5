"""Faults with a story: each is one play, and names what must be in the coordinator's events
afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from report.files import read_lines
from study.prepare import Study
from tests.faults.steps import Fault
from tests.faults.world import Result, play, tiny
from tests.methods.small_sentence import tiny_study

__all__ = ["PLAYS", "Play", "two_sums"]

_DRAWN = {"silos": 10, "fraction": 0.3}
_NEVER = 200.0  #: longer than a federation of this size may take: whoever waits for this hangs


@dataclass(frozen=True)
class Play:
    faults: tuple[Fault, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    made: Callable[..., Study] = tiny
    moves: bool = False
    simulated: bool = True  #: False: small cohorts are drawn from nonces, new in every session
    #: of the first round, where the play says how many; who was killed in it may miss the next
    survivors: int = 0
    #: fields of an event that must have happened
    event: dict[str, str] = field(default_factory=dict)

    def run(self, folder: Path) -> Result:
        study = self.made(**self.settings)
        result = play(
            folder,
            study,
            list(self.faults),
            keep=True,
            moves=self.moves,
            simulated=self.simulated,
        )
        events = read_lines(folder / "run" / "events.jsonl")
        if result.ok and result.restarts > (
            kills := sum(f.action.startswith("kill") for f in self.faults)
        ):
            result.ok, result.why = False, f"{result.restarts} restarts after {kills} kills"
        rounds = read_lines(folder / "run" / "rounds.jsonl")
        if result.ok and self.survivors and len(rounds[0]["survivors"]) != self.survivors:
            result.ok, result.why = False, f"survivors {[len(r['survivors']) for r in rounds]}"
        if result.ok and self.event and not any(self.event.items() <= e.items() for e in events):
            result.ok, result.why = False, f"no event {self.event}"
        return result


def two_sums(**settings: Any) -> Study:
    """FedCMC, whose round has two sums, the second standing on the first."""
    silos = [list(range(12 * i, 12 * i + 12)) for i in range(5)]
    return tiny_study("fedcmc", silos, rounds=2, batch=16, deadline=10.0, **settings)


def _full(actor: str, name: str, *times: int) -> tuple[Fault, ...]:
    return tuple(Fault(actor, 0, "full", name=f"{name}:before", occurrence=k) for k in times)


PLAYS = {
    # Started again an hour behind, with a silo that is two hours ahead: numbers of exchanges still
    # rise.
    "clocks": Play(
        (
            Fault("coordinator", 0, "kill", name="midway:after"),
            Fault("coordinator", 1, "clock", seconds=-3600.0),
            Fault("silo-002", 0, "clock", seconds=7200.0),
        )
    ),
    # Three of four are enough: nobody waits for the one that sleeps.
    "quorum": Play(
        (Fault("silo-003", 0, "delay", name="hear:go", seconds=_NEVER),),
        {"quorum": 0.75, "deadline": _NEVER},
        event={"event": "out", "silo": "silo-003", "why": "enough others were in"},
    ),
    # The next coordinator is elsewhere; silos that were told both addresses find it by themselves.
    "moved": Play((Fault("coordinator", 0, "kill", name="sum:after"),), moves=True),
    # A silo whose disk is full sits out, and goes on when there is room.
    "disk": Play(
        (*_full("silo-001", "journal", 2, 3), *_full("silo-002", "release", 0)),
        event={"event": "refused-by-silo", "attack": "disk"},
    ),
    # Killed with its answer noted, before it had said it, when no other silo's could stand in:
    # asked again, it does.
    "last-word": Play(
        (
            Fault("silo-002", 0, "kill", name="hear:sum-propose"),
            Fault("silo-001", 0, "kill", name="send:sum-release"),
        ),
        survivors=4,
    ),
    # The same, killed on hearing what it is asked: its answer has been on its disk since it signed.
    "last-ear": Play(
        (
            Fault("silo-002", 0, "kill", name="hear:sum-propose"),
            Fault("silo-001", 0, "kill", name="hear:sum-unmask"),
        ),
        survivors=4,
    ),
    # Killed with its signature sent and nothing asked yet, while others are slow to sign: it is
    # still counted on.
    "last-hand": Play(
        (
            Fault("silo-002", 0, "kill", name="hear:sum-propose"),
            Fault("silo-003", 0, "delay", name="hear:sum-propose", seconds=3.0),
            Fault("silo-001", 0, "kill-after", name="send:sum-endorse"),
        ),
        survivors=4,
    ),
    # Cut off in the middle of an upload that the sum cannot do without: not resumed, but asked for
    # again.
    "upload-cut": Play(
        (Fault("silo-001", 0, "cut", name="send:upload"),),
        {"silos": 3, "deadline": _NEVER},
        survivors=3,
        event={"event": "sum-failed"},
    ),
    # All are needed, one loses what the round's scoring left: begun again at once, without
    # waiting in vain.
    "all-needed": Play(
        (Fault("silo-001", 0, "kill", name="hear:go", occurrence=3),),
        {"silos": 3, "deadline": _NEVER},
        event={"event": "round-again"},
    ),
    # Killed with the first of two sums on its disk: opened again, the second stands on it as before.
    "two-sums": Play((Fault("coordinator", 0, "kill", name="sum:after"),), made=two_sums),
    # Three of ten are drawn for every round. A new coordinator, with new keys, draws the same three
    # in a simulation, and goes on between two exchanges.
    "drawn": Play((Fault("coordinator", 0, "kill", name="midway:after"),), _DRAWN, survivors=3),
    # From nonces it draws others: the round begins again.
    "drawn-anew": Play(
        (Fault("coordinator", 0, "kill", name="midway:after"),),
        _DRAWN,
        survivors=3,
        simulated=False,
    ),
    # One of those drawn is killed: nobody stands in for it, and all are drawn anew.
    "drawn-lost": Play(
        tuple(Fault(f"silo-{i:03d}", 0, "kill", name="hear:go", occurrence=1) for i in (1, 8, 9)),
        _DRAWN,
        survivors=3,
        event={"event": "round-again"},
    ),
}
