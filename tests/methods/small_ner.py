"""A federation small enough to check by hand: a one-layer BART of sixteen dimensions and a dozen
sentences.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corpora.ner.generate import Recipe, generate
from corpora.ner.table import Content, NerCorpus, Sentence, meta_of, pack
from methods.tasks.ner import Knobs, NerTask
from methods.tasks.ner_networks import PointerNetwork, TaggerNetwork
from models.backbone import Checkpoint, load_checkpoint
from study.prepare import Study
from tests.methods.small import made, study_of, tiny_plan
from tests.methods.small_sentence import tiny_checkpoint as tiny_bert

TINY = tiny_plan("bart", "ner", 40, layers=1, width=16, batch=20)


@functools.cache
def tiny_folder() -> Path:
    return made(TINY)


def tiny_bart() -> Checkpoint:
    return load_checkpoint(str(tiny_folder()), "bart")


def corpus_of(content: Content) -> NerCorpus:
    """A corpus that never touched the cache."""
    splits = {s: pack(some, content.types, content.domains) for s, some in content.splits.items()}
    return NerCorpus(Path("nowhere"), meta_of(content, "by hand"), splits)


@functools.cache
def tiny_content() -> Content:
    return generate(Recipe(sentences=36, dev=12, test=12, sloppy=0.0))


def by_hand(
    *sentences: tuple[str, tuple[tuple[int, int, str], ...]], types: tuple[str, ...] = ("A", "B")
) -> Content:
    """One domain; every split has the same sentences."""
    made = [Sentence(tuple(text.split()), entities, "d") for text, entities in sentences]
    return Content(
        "by hand",
        "",
        types,
        ("d",),
        {"d": frozenset(types)},
        dict.fromkeys(("train", "dev", "test"), made),
    )


def tiny_task(content: Content | None = None, network: str = "pointer", **knobs: Any) -> NerTask:
    k = Knobs(**{"max_length": 64, "prompts": 3, "hidden": 8, "dropout": 0.0, **knobs})
    corpus = corpus_of(content or tiny_content())
    if network == "tagger":
        return NerTask(corpus, k, TaggerNetwork(tiny_bert(), corpus.types, k), 0)
    return NerTask(corpus, k, PointerNetwork(tiny_bart(), corpus.types, k), 0)


def tiny_study(
    method: str, task: NerTask, silos: Sequence[Sequence[int]], **settings: Any
) -> Study:
    """`silos`: per silo the positions of its sentences in the training split."""
    return study_of(method, task, silos, **{"batch": 4, "partition": "domain", **settings})


def natural(task: NerTask) -> list[list[int]]:
    """One silo per domain."""
    domain = np.asarray(task.corpus.splits["train"].domain)
    return [np.flatnonzero(domain == d).tolist() for d in range(len(task.corpus.domains))]
