"""A federation of documents small enough to check by hand: a one-layer encoder, windows of a few
pieces.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from config.part import ALL, Part
from corpora.document.generate import Recipe, generate
from corpora.document.table import SPLITS, Content, Document, DocumentCorpus, count
from methods.tasks.document import DocumentTask, Knobs
from models.backbone import Checkpoint, load_checkpoint
from models.document_pieces import STAR
from study.prepare import Study
from tests.methods.small import made, study_of, tiny_plan

TINY = tiny_plan("bert", "document", 30, layers=2, width=16, batch=10)


@functools.cache
def tiny_folder() -> Path:
    return made(TINY)


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


def tiny_task(content: Content | None = None, part: Part = ALL, **knobs: Any) -> DocumentTask:
    k = Knobs(**{"block": 8, **knobs})
    return DocumentTask(InMemory(content or tiny_content()), k, tiny_checkpoint(), part)


def tiny_study(
    method: str, silos: Sequence[Sequence[int]], task: DocumentTask | None = None, **settings: Any
) -> Study:
    """`silos`: per silo the positions of its documents in the training split."""
    return study_of(method, task or tiny_task(), silos, **{"batch": 3, **settings})
