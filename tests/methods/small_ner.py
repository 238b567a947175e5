"""A federation small enough to check by hand: a one-layer BART of sixteen dimensions and a dozen
sentences.
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
from corpora.ner.generate import Recipe, generate
from corpora.ner.table import Content, NerCorpus, Sentence, meta_of, pack
from corpora.partition import Partition
from methods import build
from methods.base import Arrays
from methods.tasks.ner import Knobs, NerTask
from methods.tasks.ner_networks import PointerNetwork, TaggerNetwork
from models.backbone import Checkpoint, load_checkpoint
from study.prepare import Study
from tests.methods.small_sentence import tiny_checkpoint as tiny_bert

torch.set_num_threads(1)
TINY = Plan(
    "bart",
    vocabulary=300,
    layers=1,
    width=16,
    heads=2,
    positions=64,
    sentences={"ner": 40},
    epochs=1,
    batch=20,
)


@functools.cache
def tiny_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="sottovoce-test-bart-"))
    make(TINY, folder)
    return folder


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
    some = {
        "rounds": 1,
        "epochs": 1,
        "batch": 4,
        "lr": 0.01,
        "decay": 0.0,
        "runner": "inprocess",
        **settings,
    }
    s = replace(Settings(), method=method, silos=len(silos), partition="domain", **some)
    parts = tuple(np.array(ix, dtype=np.int64) for ix in silos)
    task.divided(parts)
    return Study(s, task, build(method, task, s), Partition(parts, "by hand", 0))


def natural(task: NerTask) -> list[list[int]]:
    """One silo per domain."""
    domain = np.asarray(task.corpus.splits["train"].domain)
    return [np.flatnonzero(domain == d).tolist() for d in range(len(task.corpus.domains))]


def run(study: Study, absent: Any = None) -> tuple[Arrays, Path]:
    """The state's model after the last round, and the run folder."""
    folder = Path(tempfile.mkdtemp(prefix="sottovoce-test-run-"))
    assert run_inprocess(folder, study, absent) == 0
    kept = load_file(folder / "checkpoint" / "state.safetensors")
    return {k.removeprefix("model:"): v for k, v in kept.items() if k.startswith("model:")}, folder
