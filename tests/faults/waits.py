"""Silos that are away for longer than the grace, where all of them are needed: at every point of the
opening of a sum the coordinator waits, says for whom, and no round is lost.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from report.files import read_lines
from study.prepare import Study
from tests.faults.steps import Fault
from tests.faults.world import GRACE, Result, play, tiny
from tests.methods import small_ner
from tests.methods.small_sentence import tiny_study

__all__ = ["WAITS", "Waits"]

_AWAY = GRACE + 2.5
_LONG = 12.0  #: longer than a coordinator that was started again waits for greetings
_HERE = (
    3  #: of four in the roster: with one that may be corrupt, the shares of all three are needed
)


def _one_sum() -> Study:
    return tiny("fedavg", silos=4, minimum=_HERE)


@dataclass(frozen=True)
class Waits:
    faults: tuple[Fault, ...]
    made: Callable[[], Study] = _one_sum
    again: bool = False  #: whether the round begins again
    once: bool = True  #: whether nobody computes, and pays, twice
    simulated: bool = True  #: silos of a simulation do not keep a round on disk
    #: for whom the coordinator says that it waits; nobody: for all who are killed
    waited: tuple[str, ...] = ()

    def run(self, folder: Path) -> Result:
        study = self.made()
        result = play(
            folder, study, list(self.faults), keep=True, absent=1, simulated=self.simulated
        )
        if result.ok and (why := self._wrong(folder, study, result)):
            result.ok, result.why = False, why
        return result

    def _wrong(self, folder: Path, study: Study, result: Result) -> str:
        run = folder / "run"
        events, rounds = read_lines(run / "events.jsonl"), read_lines(run / "rounds.jsonl")
        if len(result.met) != len(self.faults):
            return f"only {result.met} came to pass"
        if [len(r["survivors"]) for r in rounds] != [_HERE] * study.settings.rounds:
            return f"survivors {[len(r['survivors']) for r in rounds]}"
        lost = set(self.waited) or {f.actor for f in self.faults} - {"coordinator"}
        waiting = [e for e in events if e["event"] == "waiting"]
        waited = {s for e in waiting for s in e["silos"]} - {"silo-003"}
        if waited != lost:
            return f"it said that it waits for {sorted(waited)}"
        if failed := [e["why"] for e in events if e["event"] == "failed"]:
            return f"it gave up: {failed}"
        stopped = any(f.action == "stop" for f in self.faults)
        if stopped != any(e["event"] == "interrupted" for e in events):
            return "it did not end in good order"
        if self.again != any(e["event"] == "round-again" for e in events):
            return f"the round was {'not ' * self.again}begun again"
        if _undisturbed(self.made, folder.parent / f"quiet-{study.settings.method}") != _hashes(
            rounds
        ):
            return "another model than the undisturbed run's"
        return self._charged(run, study) if self.once else ""

    def _charged(self, run: Path, study: Study) -> str:
        """Every silo once for everything it disclosed in every round, here and at the coordinator."""
        wanted = sorted(
            (r, d.name)
            for r in range(study.settings.rounds)
            for e in study.method.exchanges
            for d in e.disclosures
        )
        told = read_lines(run / "privacy.jsonl")
        for path in sorted((run / "silos").iterdir())[:_HERE]:
            paid = sorted((x["round"], x["disclosure"]) for x in read_lines(path / "ledger.jsonl"))
            if paid != wanted:
                return f"{path.name} was charged {paid}"
            known = sorted((x["round"], x["disclosure"]) for x in told if x["silo"] == path.name)
            if known != wanted:
                return f"the coordinator says of {path.name} {known}"
        return ""


@functools.cache
def _undisturbed(made: Callable[[], Study], folder: Path) -> list[str]:
    """The models of the same silos without any fault."""
    done = play(folder, made(), [], keep=True, absent=1)
    return _hashes(read_lines(folder / "run" / "rounds.jsonl")) if done.ok else [done.why]


def _hashes(rounds: list[dict[str, Any]]) -> list[str]:
    return [r["model_sha256"] for r in rounds]


def _kill(name: str, actor: str = "silo-001", away: float = _AWAY, times: int = 0) -> Fault:
    how = "kill-after" if name == "send:sum-endorse" else "kill"
    return Fault(actor, 0, how, name=name, occurrence=times, down=away)


def _closed(times: int = 0) -> Fault:
    """Its hours end while it computes, and begin again later than its connection may be gone."""
    return Fault("silo-001", 0, "closed", name="hear:go", occurrence=times, seconds=_AWAY)


def _full(times: int) -> tuple[Fault, ...]:
    """Its disk has no room for what it must note before it signs, so many times."""
    name = "release:before"
    return tuple(Fault("silo-001", 0, "full", name=name, occurrence=k) for k in range(times))


def _two_sums() -> Study:
    """FedCMC, whose round has two sums, the second standing on the first."""
    silos = [list(range(12 * i, 12 * i + 12)) for i in range(4)]
    return tiny_study("fedcmc", silos, rounds=2, batch=16, deadline=10.0, minimum=_HERE)


def _computed_again() -> Study:
    """FedNER, whose second exchange stands on more than arrays of the first."""
    silos = [list(range(9 * i, 9 * i + 9)) for i in range(4)]
    settings = {"rounds": 2, "epochs": 1, "deadline": 10.0, "minimum": _HERE}
    return small_ner.tiny_study("fedner", small_ner.tiny_task(), silos, **settings)


def _later(
    *faults: Fault, made: Callable[[], Study] = _two_sums, once: bool = True, again: bool = False
) -> Waits:
    return Waits(faults, made=made, once=once, again=again, simulated=False)


#: the coordinator, with the shares of the two others: it waits for the third
_HUB = Fault("coordinator", 0, "kill", name="hear:sum-release", occurrence=1)

WAITS = {
    # Asked to sign, and dead: nothing is open, and the round begins again when it is back.
    "opening, before signing": Waits((_kill("hear:sum-propose"),), again=True, once=False),
    "opening, with its answer written, not signed": Waits(
        (_kill("release:after"),), again=True, once=False
    ),
    # Signed, and dead before it is asked.
    "opening, after signing": Waits((_kill("send:sum-endorse"),)),
    "opening, asked for shares": Waits((_kill("hear:sum-unmask"),)),
    "opening, with its release noted, not said": Waits((_kill("send:sum-release"),)),
    # Two of three, in the second round.
    "opening, two of three": Waits(
        (_kill("hear:sum-unmask", times=1), _kill("hear:sum-unmask", "silo-002", GRACE + 4, 1))
    ),
    # The coordinator dies while it waits, and goes on waiting, for longer than it waits for
    # greetings.
    "opening, the coordinator too": Waits((_kill("hear:sum-unmask", away=_LONG), _HUB)),
    # Its operator stops it while it waits: the run goes on from the sum that it kept.
    "opening, stopped while it waits": Waits(
        (_kill("hear:sum-unmask"), replace(_HUB, action="stop")),
    ),
    # It is here, and says that it cannot be asked now: its hours end, or its disk is full for longer
    # than a sum is tried again.
    "later, hours between two rounds": Waits((_closed(),), again=True),
    "later, hours in the middle of a round": _later(_closed(), made=_two_sums),
    "later, hours before a round of two sums": _later(_closed(times=1), again=True),
    "later, no room on its disk": Waits(_full(4), again=True, once=False),
    "later, no room in the middle of a round": _later(*_full(5)[1:]),
    # Between two sums of one round, of which the first is in the model: the second stands on what
    # each silo has on its disk.
    "two sums, opening the first": _later(_kill("hear:sum-unmask")),
    "two sums, between them": _later(_kill("hear:go", times=1)),
    "two sums, before signing the second": _later(_kill("hear:sum-propose", times=1), once=False),
    "two sums, asked for shares of the second": _later(_kill("hear:sum-unmask", times=1)),
    "two sums of FedNER, between them": _later(_kill("hear:go", times=3), made=_computed_again),
    "two sums, between them, and the coordinator": _later(
        _kill("hear:go", times=1, away=_LONG),
        Fault("coordinator", 0, "kill", name="hear:sum-release", occurrence=1),
    ),
}
