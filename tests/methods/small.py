"""What the small federations of tests have in common, whatever their task: an encoder made on the
spot, a study with silos given by hand, and what a run of it leaves.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file

from bench.pretrain.make import Plan, make
from bench.simulation.inprocess import run_inprocess
from config.settings import TASK_DEFAULTS, Settings
from corpora.partition import Partition
from methods import build
from methods.base import Arrays
from methods.tasks.base import Task
from study.prepare import Study

torch.set_num_threads(1)

Absent = Mapping[tuple[int, int], frozenset[int]]  #: (round, exchange) -> silos that are lost


def tiny_plan(kind: str, task: str, sentences: int, *, layers: int, width: int, batch: int) -> Plan:
    return Plan(
        kind,
        vocabulary=300,
        layers=layers,
        width=width,
        heads=2,
        positions=64,
        sentences={task: sentences},
        epochs=1,
        batch=batch,
    )


def made(plan: Plan) -> Path:
    """The folder of an encoder made by this plan."""
    folder = Path(tempfile.mkdtemp(prefix="sottovoce-test-encoder-"))
    make(plan, folder)
    return folder


def study_of(method: str, task: Task, silos: Sequence[Sequence[int]], **settings: Any) -> Study:
    """`silos`: per silo the positions of its examples in the training split."""
    some = {"rounds": 1, "epochs": 1, "lr": 0.01, "decay": 0.0, "runner": "inprocess", **settings}
    s = replace(Settings(), method=method, silos=len(silos), **some)
    how = {k: v for k, v in TASK_DEFAULTS[task.name].items() if getattr(s, k) in ("", -1.0)}
    s = replace(s, **{k: v for k, v in how.items() if k != "partition"})
    parts = tuple(np.array(ix, dtype=np.int64) for ix in silos)
    task.divided(parts)
    return Study(s, task, build(method, task, s), Partition(parts, "by hand", 0))


def run(
    study: Study, absent: Absent | None = None, folder: Path | None = None
) -> tuple[Arrays, Path]:
    """The state's model after the last round, and the run folder."""
    folder = folder or Path(tempfile.mkdtemp(prefix="sottovoce-test-run-"))
    assert run_inprocess(folder, study, absent) == 0
    return kept_in(folder, "model"), folder


def gradient_of(x: torch.Tensor) -> torch.Tensor:
    """What a backward pass left there."""
    assert x.grad is not None
    return x.grad


def kept_in(folder: Path, part: str) -> Arrays:
    """The model, or the memory, of the state that a run left."""
    kept = load_file(folder / "checkpoint" / "state.safetensors")
    return {k.removeprefix(f"{part}:"): v for k, v in kept.items() if k.startswith(f"{part}:")}
