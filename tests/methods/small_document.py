"""A federation of documents small enough to check by hand: a one-layer encoder, windows of a few
pieces.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file

from bench.pretrain.make import Plan, make
from bench.simulation.inprocess import run_inprocess
from config.settings import Settings
from corpora.document.generate import Recipe, generate
from corpora.document.table import SPLITS, Content, Document, DocumentCorpus, count
from corpora.partition import Partition
from methods import build
from methods.base import Arrays
from methods.tasks.document import DocumentTask, Knobs
from models.backbone import Checkpoint, load_checkpoint
from models.document_pieces import STAR
from study.prepare import Study

torch.set_num_threads(1)
TINY = Plan(
    "bert",
    vocabulary=300,
    layers=2,
    width=16,
    heads=2,
    positions=64,
    sentences={"document": 30},
    epochs=1,
    batch=10,
)


@functools.cache
def tiny_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="sottovoce-test-encoder-"))
    make(TINY, folder)
    return folder


@functools.cache
def tiny_checkpoint() -> Checkpoint:
    return load_checkpoint(str(tiny_folder()), "bert", (STAR,))


class InMemory(DocumentCorpus):
    """A corpus that never touched the cache."""

    def __init__(self, content: Content) -> None:
        meta = {
            "name": content.name,
            "note": content.note,
            "hash": "by hand",
            "relations": list(content.relations),
            "counts": {s: asdict(count(content.splits[s])) for s in SPLITS},
        }
        super().__init__(Path("nowhere"), meta)
        object.__setattr__(self, "_content", content)

    def documents(self, split: str) -> Any:
        return iter(self._content.splits[split])  # type: ignore[attr-defined]


@functools.cache
def tiny_content(relations: int = 1) -> Content:
    return generate(Recipe(documents=24, dev=10, test=10, relations=relations, label_noise=0.0))


def content_of(documents: Sequence[Document], relations: tuple[str, ...] = ("causes",)) -> Content:
    return Content("by hand", "", relations, {s: list(documents) for s in SPLITS})


def tiny_task(content: Content | None = None, **knobs: Any) -> DocumentTask:
    k = Knobs(**{"block": 8, **knobs})
    return DocumentTask(InMemory(content or tiny_content()), k, tiny_checkpoint())


def tiny_study(
    method: str, silos: Sequence[Sequence[int]], task: DocumentTask | None = None, **settings: Any
) -> Study:
    """`silos`: per silo the positions of its documents in the training split."""
    task = task or tiny_task()
    some = {
        "rounds": 1,
        "epochs": 1,
        "batch": 3,
        "lr": 0.01,
        "decay": 0.0,
        "runner": "inprocess",
        **settings,
    }
    s = replace(Settings(), method=method, silos=len(silos), **some)
    parts = tuple(np.array(ix, dtype=np.int64) for ix in silos)
    return Study(s, task, build(method, task, s), Partition(parts, "by hand", 0))


def run(study: Study, folder: Path | None = None) -> tuple[Arrays, Path]:
    """The state's model after the last round, and the run folder."""
    folder = folder or Path(tempfile.mkdtemp(prefix="sottovoce-test-run-"))
    assert run_inprocess(folder, study) == 0
    kept = load_file(folder / "checkpoint" / "state.safetensors")
    return {k.removeprefix("model:"): v for k, v in kept.items() if k.startswith("model:")}, folder
