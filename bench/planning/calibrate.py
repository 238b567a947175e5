"""How long and how much memory a run will take, from a few batches of the real thing on this
machine.

One silo's half of a round is computed on two small pieces of its data, in a forked child that
shares what the silos of a simulation will share; a line through the two times is extended to every
silo's size. What the coordinator does by itself (folding, scoring) is done once in another child.
The children end and leave nothing behind.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import psutil
import torch

from coordinator.rundir import shared_secret
from methods.base import Folded, Heard, SiloView
from methods.common.training import load
from models.device import slots_of
from study.apart import apart
from study.prepare import Study
from wire.stored import give_back

__all__ = ["Calibration", "calibrate"]

_MB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Calibration:
    seconds: float  #: what the calibration itself took
    slots: int  #: silos that compute at once on this machine's device
    #: Per sampled round and exchange: (seconds for nothing, seconds per training unit) of one silo.
    answers: Sequence[Sequence[tuple[float, float]]]
    coordinator_seconds: float  #: folding and scoring, a round
    shared_mb: float  #: of the warmed process that all others are forked from
    silo_mb: float  #: a silo's own, at most
    silo_idle_mb: float  #: a silo's own between its turns
    coordinator_mb: float  #: the coordinator's own, without upload buffers

    def round_seconds(self, sizes: Sequence[int], slots: int) -> float:
        """A round over silos of these sizes, so many computing at once: the mean of the sampled
        rounds.
        """
        means = []
        for exchanges in self.answers:
            total = 0.0
            for fixed, each in exchanges:
                work = [fixed + each * n for n in sizes]
                total += max(sum(work) / max(1, min(slots, len(work))), max(work, default=0.0))
            means.append(total)
        return sum(means) / max(1, len(means)) + self.coordinator_seconds


def calibrate(study: Study) -> Calibration:
    began = time.monotonic()
    give_back()
    gc.freeze()  # as the launcher does: pages that the collector does not touch stay shared
    found = psutil.Process().memory_full_info()
    shared = int(getattr(found, "pss", found.uss))  # only Linux counts shared pages in parts
    try:
        silo = _apart(lambda: _silo(study), study.settings.device)
        coordinator = _apart(lambda: _coordinator(study), study.settings.device)
    finally:
        gc.unfreeze()
    return Calibration(
        seconds=time.monotonic() - began,
        slots=silo["slots"],
        answers=silo["answers"],
        coordinator_seconds=coordinator["seconds"],
        shared_mb=shared / _MB,
        silo_mb=silo["peak"] / _MB,
        silo_idle_mb=silo["left"] / _MB,
        coordinator_mb=coordinator["peak"] / _MB,
    )


def _silo(study: Study) -> dict[str, Any]:
    """One silo's half of a round near the start and of one at the end, on few examples and on some
    more.
    """
    settings = study.settings
    # solving for the noise of a few records would tell nothing
    if settings.dp == "record" and not settings.noise:
        settings = replace(settings, noise=1.0)
    largest = max(
        range(len(study.partition.indices)), key=lambda i: len(study.partition.indices[i])
    )
    indices = study.partition.indices[largest]
    few = min(len(indices), 2 * settings.batch)
    some = min(len(indices), 4 * few)
    samples = []
    with _Peak() as peak:
        for round in sorted({min(1, settings.rounds - 1), settings.rounds - 1}):
            # whatever is loaded on first use
            _half_round(study, settings, largest, indices[:few], round)
            low = _half_round(study, settings, largest, indices[:few], round)
            high = (
                _half_round(study, settings, largest, indices[:some], round) if some > few else low
            )
            lines = []
            for a, b in zip(low, high):
                each = max(0.0, (b - a) / (some - few)) if some > few else a / max(1, few)
                lines.append((max(0.0, a - each * few), each))
            samples.append(lines)
    give_back()  # as a silo does after its turn
    # asked here: who counts cards has used one
    slots = slots_of(settings.slots)
    return {"slots": slots, "answers": samples, "peak": peak.bytes, "left": _own()}


def _half_round(
    study: Study, settings: Any, index: int, indices: np.ndarray, round: int
) -> list[float]:
    view = SiloView(
        index,
        study.task,
        study.task.subset(indices),
        settings,
        shared_secret(settings),
        privacy=study.method.privacy,
    )
    state, me, times = study.method.init(0), (index,), []
    for e, exchange in enumerate(study.method.exchanges):
        if exchange.skip(state, round, me):
            times.append(0.0)
            continue
        said = exchange.broadcast(state, round, me)
        heard = Heard(round, me, said.common, said.private.get(index, {}))
        began = time.monotonic()
        answer = exchange.answer(view, heard)
        times.append(time.monotonic() - began)
        view = replace(view, carry={**view.carry, **answer.carry})
        if e + 1 < len(study.method.exchanges):
            total = {name: value.astype(np.float64) for name, value in answer.masked.items()}
            state = exchange.fold(state, Folded(round, me, total, {index: answer.sealed}))
    return times


def _coordinator(study: Study) -> dict[str, Any]:
    """Folding blank answers of the last exchange, and scoring a new model once."""
    from bench.planning.bytes import blank_fold

    state = study.method.init(0)
    with _Peak() as peak:
        began = time.monotonic()
        # a fold that cannot take blanks costs the estimate its part, no more
        with contextlib.suppress(Exception):
            blank_fold(study, state)
        folded = time.monotonic()
        model = state.model
        if study.method.evaluate is not None:
            study.method.evaluate(model, "dev")
        else:
            network = load(study.task.new_model(0), model)
            network.eval()
            with torch.no_grad():
                study.task.evaluate(network, "dev")
        scored = time.monotonic()
    # scored beside the rounds, on cores that silos use as well; a card is fed by one thread
    on_cores = torch.get_default_device().type == "cpu"
    seconds = folded - began + (scored - folded) / ((os.cpu_count() or 1) if on_cores else 1)
    return {"seconds": seconds, "peak": peak.bytes}


# Children and their memory
# ---------------------------------------------------------------------------------------


def _apart(work: Callable[[], Mapping[str, Any]], device: str = "cpu") -> dict[str, Any]:
    return apart("calibration", work, device)


def _own() -> int:
    """Bytes that this process shares with nobody."""
    return int(psutil.Process().memory_full_info().uss)


class _Peak:
    """The most that this process has of its own while the block runs, looked at twenty times a
    second.

    Not from the kernel's high-water mark: that counts pages of libraries, which all processes
    share.
    """

    def __enter__(self) -> _Peak:
        self.bytes, self._over = _own(), threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.bytes = max(self.bytes, _own())

    def _look(self) -> None:
        while not self._over.wait(0.05):
            self.bytes = max(self.bytes, _own())
