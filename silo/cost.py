"""What a study would cost this silo's privacy budget, on top of what its ledger holds: shown to its
operator before anybody agrees. A study of which not one round could be paid for is refused then.

What the study plans to charge (silo.forecast) was computed when it was proposed and stands in its
`look.json`; the ledger is read anew each time.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.errors import UserError
from privacy.accountant import Total, total
from privacy.events import Event, Unit, UnknownEvent, from_record, to_record

__all__ = ["Cost", "Planned", "cost_of", "epsilon_words", "read_ledger"]


@dataclass(frozen=True)
class Planned:
    """All that a study would charge, if nothing is lost and nothing goes wrong."""

    events: Sequence[Event]
    delta: float
    unit: Unit
    allowed: float = math.inf  #: epsilon that the study and the silo's own limit leave

    def to_record(self) -> dict[str, Any]:
        times = Counter(self.events)
        return {
            "events": [[to_record(event), n] for event, n in times.items()],
            "delta": self.delta,
            "unit": self.unit,
            "allowed": None if math.isinf(self.allowed) else self.allowed,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Planned:
        events = [from_record(e) for e, n in record["events"] for _ in range(n)]
        allowed = record["allowed"]
        most = math.inf if allowed is None else allowed
        return cls(events, record["delta"], record["unit"], most)


@dataclass(frozen=True)
class Cost:
    now: Total  #: what the ledger holds, at the study's delta
    first: Total  #: with the first thing that the study would charge
    alone: Total  #: the study by itself, if the silo takes part in every round
    after: Total  #: the ledger with all of it that is still to come
    allowed: float
    charged: int = 0  #: releases of this very study that the ledger has already
    planned: int = 0  #: releases that it plans

    @property
    def unpayable(self) -> str:
        """Why not one round of it could be paid for; empty: it could."""
        if self.first.epsilon <= self.allowed:
            return ""
        budget = f"a budget of epsilon {self.allowed:g} at delta {self.first.delta:g}"
        if math.isinf(self.now.epsilon):
            return (
                "the records were released without noise before, as the privacy ledger says; "
                f"{budget} cannot be kept"
            )
        return (
            f"the privacy ledger stands at epsilon {epsilon_words(self.now.epsilon)}, and {budget} "
            "leaves no room for one round"
        )

    @property
    def lines(self) -> list[str]:
        """For the operator."""
        said = [
            f"spent so far          epsilon {epsilon_words(self.now.epsilon)}",
            f"this study alone      epsilon {epsilon_words(self.alone.epsilon)}",
            f"with this study       epsilon {epsilon_words(self.after.epsilon)}",
        ]
        if self.charged >= self.planned > 0:
            return [*said[:2], "charged already       nothing more is added: a study runs once"]
        if self.charged:
            said.append(f"charged already       {self.charged} of its {self.planned} releases")
        if math.isinf(self.allowed):
            return [*said, "no limit is set       (limits.maximum_epsilon in the silo's file)"]
        left = self.allowed - self.after.epsilon
        words = f"epsilon {left:.4g} would be left"
        if left < 0:
            words = "this silo would stop before its end"
        if self.unpayable:
            words = self.unpayable
        return [*said, f"of {self.allowed:g} allowed       {words}"]


def epsilon_words(epsilon: float) -> str:
    return "infinite" if math.isinf(epsilon) else f"{epsilon:.4g}"


def cost_of(planned: Planned, ledger: Path, study: str = "") -> Cost:
    """`study`: its hash; what the ledger has of it already is not counted a second time."""
    lines, p = _read(ledger), planned
    spent = [event for event, _ in lines]
    charged = sum(1 for _, of in lines if study and of == study)
    coming = p.events[charged:]
    return Cost(
        now=total(spent, p.delta, p.unit),
        first=total([*spent, *coming[:1]], p.delta, p.unit),
        alone=total(p.events, p.delta, p.unit),
        after=total([*spent, *coming], p.delta, p.unit),
        allowed=p.allowed,
        charged=charged,
        planned=len(p.events),
    )


def read_ledger(path: Path) -> list[Event]:
    """Every event, without taking the file from a silo that runs. A last line still being written
    is left out.
    """
    return [event for event, _ in _read(path)]


def _read(path: Path) -> list[tuple[Event, str]]:
    """Every event, and the hash of the study that it belongs to."""
    if not path.exists():
        return []
    text = path.read_text("utf-8")
    events = []
    for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), 1):
        try:
            charge = json.loads(line)
            events.append((from_record(charge["event"]), str(charge.get("study", ""))))
        except (ValueError, KeyError, TypeError, AttributeError, UnknownEvent):
            raise UserError(
                f"{path}, line {number}: it is not a line of a privacy ledger."
            ) from None
    return events
