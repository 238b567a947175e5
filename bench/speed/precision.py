"""A training step of an encoder in bfloat16 beside the same step in float32, one core, in turns.

    .venv/bin/python -m bench.speed.precision [ENCODER=folder] [PAIRS=30]

A folder with a full-size checkpoint; without one, random weights in the shape of a MiniLM. Wanted:
at least 1.4 times as fast where the processor has bfloat16.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.speed.large import MINILM, make_encoder
from config.load import load
from methods.common.steps import Steps
from models.precision import gain
from study.prepare import Study, prepare

__all__ = ["main", "measure"]

_BATCH, _WANTED = 8, 1.4


def _study(encoder: str, precision: str) -> Study:
    words = {"method": "fedavg", "corpus": "sentence", "encoder": encoder, "precision": precision}
    return prepare(load(None, {**words, "batch": str(_BATCH)}))


class _Loop:
    def __init__(self, encoder: str, precision: str, steps: int) -> None:
        study = _study(encoder, precision)
        self._task: Any = study.task
        self._model = self._task.new_model(0).train()
        data = self._task.subset(np.arange(self._task.train_size()))
        self._batches = self._task.batches(data, _BATCH, np.random.default_rng(0))
        self._steps = Steps(study.settings, self._model, 0, steps)

    def step(self) -> tuple[float, float]:
        """CPU seconds of one, and its loss."""
        batch = next(self._batches)
        began = time.process_time()
        self._steps.clear()
        loss = self._task.loss(self._model, batch)
        loss.backward()
        self._steps.step()
        return time.process_time() - began, float(loss.detach())


def measure(encoder: str, pairs: int) -> dict[str, float]:
    """The median over `pairs` of steps on the same batch of how many times faster bfloat16 is."""
    loops = {p: _Loop(encoder, p, pairs + 2) for p in ("float32", "bfloat16")}
    ratios, seconds, losses = [], [], []
    for k in range(pairs + 2):  # the first two make kernels and the optimizer's state
        taken = {p: loop.step() for p, loop in loops.items()}
        if k >= 2:
            ratios.append(taken["float32"][0] / taken["bfloat16"][0])
            seconds.append(taken["float32"][0])
            losses.append(abs(taken["float32"][1] - taken["bfloat16"][1]))
    return {
        "ratio": statistics.median(ratios),
        "float32_seconds": statistics.median(seconds),
        "loss_apart": statistics.median(losses),
    }


def main() -> None:
    torch.set_num_threads(1)
    given = dict(w.partition("=")[::2] for w in sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        if not given.get("ENCODER"):
            make_encoder(Path(folder), MINILM)
        found = measure(given.get("ENCODER") or folder, int(given.get("PAIRS", "30")))
    print(f"products alone: {gain():.2f} times as fast in bfloat16")
    print(
        f"a step of {_BATCH} sentences: {found['ratio']:.2f} times as fast as the {found['float32_seconds']:.3f} s "
        f"in float32 (wanted: {_WANTED}); losses apart by {found['loss_apart']:.4f} in the median"
    )


if __name__ == "__main__":
    main()
