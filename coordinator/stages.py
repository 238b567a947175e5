"""Where each silo of an exchange stands, and how long it has been there."""

from __future__ import annotations

import time
from collections.abc import Iterable
from enum import Enum

from coordinator.exchange import Phases

__all__ = ["Stage", "Stages"]


class Stage(Enum):
    WAITING = "waiting"  # told, waits for a core
    COMPUTING = "computing"
    READY = "ready"  # waits for a buffer
    UPLOADING = "uploading"
    DONE = "done"
    OUT = "out"  # gone, refused or misbehaved


class Stages:
    """All begin by waiting. Time spent in a stage is added up over the silos, in `phases`."""

    def __init__(self, silos: Iterable[str], phases: Phases) -> None:
        self._phases = phases
        self._stage = dict.fromkeys(silos, Stage.WAITING)
        self._since = dict.fromkeys(self._stage, time.monotonic())

    def __contains__(self, silo: object) -> bool:
        return silo in self._stage

    def __len__(self) -> int:
        return len(self._stage)

    def __getitem__(self, silo: str) -> Stage:
        """Whoever is not asked in this exchange is out of it."""
        return self._stage.get(silo, Stage.OUT)

    @property
    def all_ended(self) -> bool:
        return all(stage in (Stage.DONE, Stage.OUT) for stage in self._stage.values())

    def within(self, *stages: Stage) -> list[str]:
        """The silos in any of these stages, in order of silo."""
        return [silo for silo, stage in self._stage.items() if stage in stages]

    def move(self, silo: str, stage: Stage) -> Stage:
        """Into the next stage; returns the last one."""
        was, now = self._stage[silo], time.monotonic()
        if was is not Stage.DONE:
            self._phases.add_silo(was.value, now - self._since[silo])
        self._stage[silo], self._since[silo] = stage, now
        return was
