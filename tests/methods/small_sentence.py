"""A federation small enough to check by hand: a one-layer encoder, a few dozen sentences, silos of
every odd kind.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file

from bench.pretrain.make import Plan, make
from bench.simulation.inprocess import run_inprocess
from config.settings import Settings
from corpora.partition import Partition
from corpora.sentence.generate import Recipe, generate
from corpora.sentence.table import Content, SentenceCorpus, pack
from methods import build
from methods.base import Arrays
from methods.tasks.base import Task
from methods.tasks.sentence import Knobs, SentenceTask, style_of
from models.backbone import Checkpoint, load_checkpoint
from models.marking import MARKERS
from study.prepare import Study

torch.set_num_threads(1)
TINY = Plan(
    "bert",
    vocabulary=300,
    layers=1,
    width=8,
    heads=2,
    positions=64,
    sentences={"sentence": 40},
    epochs=1,
    batch=20,
)


@functools.cache
def tiny_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="sottovoce-test-encoder-"))
    make(TINY, folder)
    return folder


@functools.cache
def tiny_checkpoint() -> Checkpoint:
    return load_checkpoint(str(tiny_folder()), "bert", MARKERS)


def corpus_of(content: Content) -> SentenceCorpus:
    """A corpus that never touched the cache."""
    meta = {
        "name": content.name,
        "note": content.note,
        "hash": "by hand",
        "relations": list(content.relations),
        "types": list(content.types),
        "none": content.none,
    }
    splits = {s: pack(e, content.types, content.relations) for s, e in content.splits.items()}
    return SentenceCorpus(Path("nowhere"), meta, splits)


@functools.cache
def tiny_content() -> Content:
    return generate(Recipe(sentences=75, dev=20, test=20, label_noise=0.0), public=0.2)


def tiny_task(model: str = "fedcmc", content: Content | None = None, **knobs: Any) -> SentenceTask:
    k = Knobs(model=model, max_length=64, **knobs)
    return SentenceTask(
        corpus_of(content or tiny_content()), k, style_of(k, model), tiny_checkpoint()
    )


def tiny_study(
    method: str, silos: Sequence[Sequence[int]], task: Task | None = None, **settings: Any
) -> Study:
    """`silos`: per silo the positions of its examples in the training split."""
    task = task or tiny_task()
    some = {
        "rounds": 1,
        "epochs": 1,
        "batch": 4,
        "lr": 0.01,
        "decay": 0.0,
        "runner": "inprocess",
        **settings,
    }
    s = replace(Settings(), method=method, silos=len(silos), **some)
    parts = tuple(np.array(ix, dtype=np.int64) for ix in silos)
    return Study(s, task, build(method, task, s), Partition(parts, "by hand", 0))


def run(study: Study, absent: Any = None) -> tuple[Arrays, Path]:
    """The state's model after the last round, and the run folder."""
    folder = Path(tempfile.mkdtemp(prefix="sottovoce-test-run-"))
    assert run_inprocess(folder, study, absent) == 0
    kept = load_file(folder / "checkpoint" / "state.safetensors")
    return {k.removeprefix("model:"): v for k, v in kept.items() if k.startswith("model:")}, folder


def memory_of(folder: Path) -> Arrays:
    kept = load_file(folder / "checkpoint" / "state.safetensors")
    return {k.removeprefix("memory:"): v for k, v in kept.items() if k.startswith("memory:")}
