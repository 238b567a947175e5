"""Whose turn it is in an exchange: cores to compute on, buffers to upload into."""

from __future__ import annotations

from collections.abc import Container
from typing import Protocol

from coordinator.stages import Stage, Stages

__all__ = ["Turns"]


class _Sum(Protocol):
    @property
    def can_begin(self) -> bool: ...


class Turns:
    """In order of silo. `slots` limit how many compute at once, which a simulation needs and a
    consortium does not; the sum's buffers limit how many upload at once.
    """

    def __init__(self, stages: Stages, slots: int, sum_: _Sum | None) -> None:
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
        if len(busy) >= self._slots:
            return None
        return next((s for s in self._stages.within(Stage.WAITING) if s not in away), None)
