"""A federation small enough to check by hand: a one-layer encoder, a few dozen sentences, silos of
every odd kind.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corpora.sentence.generate import Recipe, generate
from corpora.sentence.table import Content, SentenceCorpus, pack
from methods.tasks.base import Task
from methods.tasks.sentence import Knobs, SentenceTask, style_of
from models.backbone import Checkpoint, load_checkpoint
from models.marking import MARKERS
from study.prepare import Study
from tests.methods.small import made, study_of, tiny_plan

TINY = tiny_plan("bert", "sentence", 40, layers=1, width=8, batch=20)


@functools.cache
def tiny_folder() -> Path:
    return made(TINY)


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
    return study_of(method, task or tiny_task(), silos, **{"batch": 4, **settings})
