"""Whose turn it is in an exchange: cores to compute on, buffers to upload into."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass
from typing import Protocol

from coordinator.stages import Stage, Stages

__all__ = ["Slots", "Turns"]


@dataclass(frozen=True)
class Slots:
    """How many silos compute at once, and over how many cards they are spread: each card has its
    share of them. Silo 5 of a simulation with two cards is on card 1, whoever else computes
    (`models.device.use_device`).
    """

    count: int
    cards: int = 1

    @property
    def each(self) -> int:
        return -(-self.count // self.cards)

    def card_of(self, silo: str) -> int:
        return int(silo.rpartition("-")[2]) % self.cards if self.cards > 1 else 0


class _Sum(Protocol):
    @property
    def can_begin(self) -> bool: ...


class Turns:
    """In order of silo. `slots` limit how many compute at once, which a simulation needs and a
    consortium does not; the sum's buffers limit how many upload at once.
    """

    def __init__(self, stages: Stages, slots: Slots, sum_: _Sum | None) -> None:
        self._stages, self._slots, self._sum = stages, slots, sum_

    def upload(self, away: Container[str]) -> str | None:
        """The next silo that may upload, if any: one arrives while the other is folded."""
        if self._sum is not None and not self._sum.can_begin:
            return None
        if len(self._stages.within(Stage.UPLOADING)) >= 2:
            return None
        return next((s for s in self._stages.within(Stage.READY) if s not in away), None)

    def compute(self, away: Container[str]) -> str | None:
        """The next silo that may compute, if any."""
        busy = self._stages.within(Stage.COMPUTING, Stage.READY, Stage.UPLOADING)
        if len(busy) >= self._slots.count:
            return None
        on, each = Counter(map(self._slots.card_of, busy)), self._slots.each
        waiting = (s for s in self._stages.within(Stage.WAITING) if s not in away)
        return next((s for s in waiting if on[self._slots.card_of(s)] < each), None)
