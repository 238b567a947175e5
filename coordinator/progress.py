"""How far a run has come: what is carried beside the model, within a round and between rounds.

Both records are kept in checkpoints by the names of their fields: with other fields a checkpoint
has another name (coordinator.checkpoint).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from coordinator.exchange import Call, message_bytes, numbers_sent
from methods.base import Folded, silo_name

__all__ = ["Progress", "RoundSoFar"]


@dataclass
class Progress:
    """What the loop carries beside the state; JSON, so that a checkpoint holds it."""

    best_value: float = float("-inf")
    best_round: int = -1
    wall: float = 0.0
    ranges: dict[str, list[float]] = field(default_factory=dict)
    #: The rounds whose sums are folded and which have no line yet: of each its `line` as far as it
    #: is known, its `traffic`, who `sent` what, and what was `charged` for it.
    pending: list[dict[str, Any]] = field(default_factory=list)
    before: float | None = None  #: the test metric before the first round, once it is known
    #: who was in the last round: after a crash, they are waited for
    members: list[str] = field(default_factory=list)


@dataclass
class RoundSoFar:
    """A round on its way through its exchanges; JSON too, for the same reason."""

    asked: list[int]
    cohort: list[int]
    next: int = 0  #: the exchange to come
    #: whether a sum of this round is folded: then its exchange cannot be asked for again
    opened: bool = False
    sent: list[list[str]] = field(default_factory=list)
    by_exchange: list[list[int]] = field(default_factory=list)  #: who survived each exchange
    told: list[list[int]] = field(default_factory=list)  #: who was asked in it; nobody: passed over
    arrays: dict[str, int] = field(default_factory=lambda: {"up": 0, "down": 0})
    #: how many numbers of each disclosure were sent
    numbers: dict[str, int] = field(default_factory=dict)
    charged: list[dict[str, Any]] = field(default_factory=list)
    ranges: dict[str, list[float]] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    traffic: list[dict[str, Any]] = field(default_factory=list)

    def add(self, call: Call, folded: Folded) -> None:
        """An exchange is done: who survived it, and what was sent in it."""
        for direction, size in message_bytes(call, folded).items():
            self.arrays[direction] += size
        for name, count in numbers_sent(call, folded).items():
            self.numbers[name] = self.numbers.get(name, 0) + count
        if call.exchange.everyone:  # who is not of this round was asked too
            self.cohort = [i for i in self.cohort if i in folded.survivors]
        else:
            self.cohort = list(folded.survivors)
        self.next = call.index + 1
        self.opened = self.opened or bool(call.exchange.masked)
        for table, silos in ((self.told, call.cohort), (self.by_exchange, folded.survivors)):
            table += [[]] * (call.index - len(table)) + [list(silos)]
        self.sent += [[silo_name(i), call.exchange.name] for i in folded.survivors]

    def line(self, missed: tuple[str, ...]) -> dict[str, Any]:
        """Its line of rounds.jsonl, as far as it is known when its sums are folded."""
        return {
            "participants": [silo_name(i) for i in self.asked],
            "survivors": [silo_name(i) for i in self.cohort],
            "asked_by_exchange": [list(map(silo_name, who)) for who in self.told],
            "survivors_by_exchange": [list(map(silo_name, who)) for who in self.by_exchange],
            "missed": list(missed),
            "arrays_up": self.arrays["up"],
            "arrays_down": self.arrays["down"],
            "numbers_sent": self.numbers,
        }
