"""Prompts under DP=record. All sentences share them, so gradients are had one sentence at a time, by
Opacus's module without hooks. What leaves is compared with plain backward passes, each over a model
and a sentence of its own, clipped by hand; on every family of language models.
"""

from __future__ import annotations

import functools
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.audit.plays import noise_of
from config.part import parse_part
from methods.base import SiloView
from methods.common.instance_weights import instance_gradients
from methods.common.training import load, parameters, trained
from methods.dp.engine import OneByOne, OnePass
from methods.tasks.ner import Data, Knobs, NerTask
from methods.tasks.ner_networks import PointerNetwork
from models.backbone import load_checkpoint
from privacy.events import DpSgd, Event
from study.prepare import Study
from tests.methods.clipping import still
from tests.methods.small_ner import corpus_of, tiny_content, tiny_study
from tests.models.test_seq2seq_families import FAMILIES, model_folder

SENTENCES = 6


@functools.cache
def task_of(kind: str, train: str) -> NerTask:
    folder = model_folder(kind, Path(tempfile.mkdtemp(prefix="sottovoce-test-prompts-")))
    knobs, corpus = (
        Knobs(max_length=64, prompts=3, hidden=8, dropout=0.0),
        corpus_of(tiny_content()),
    )
    checkpoint = load_checkpoint(str(folder), "bart")
    still(checkpoint.backbone)
    return NerTask(
        corpus, knobs, PointerNetwork(checkpoint, corpus.types, knobs, parse_part(train)), 0
    )


def study_of(task: NerTask, clip: float, rows: list[int]) -> Study:
    """One step over all sentences of the silo, at a rate of one."""
    plain = {"optimizer": "sgd", "lr": 1.0, "weight_decay": 0.0, "batch": len(rows)}
    dp = {"dp": "record", "noise": 1.0, "clip": clip, "options": {"weights": "shifted"}}
    return tiny_study("fedner", task, [rows], **plain, **dp)


def data_of(task: NerTask, rows: list[int]) -> Data:
    """As FedNER has them in a later round: weights, and types that the silo does not annotate."""
    data = task.subset(np.array(rows))
    known = np.ones_like(data.known)
    known[:, ::2] = False
    pseudo = [[s for s in data.rows.spans(row) if s[2] % 2 == 0] for row in rows]
    weights = np.linspace(0.4, 1.6, SENTENCES)[rows].astype(np.float32)
    return replace(data, known=known, pseudo=pseudo, weights=weights)


def start_of(task: NerTask) -> dict[str, np.ndarray]:
    """Away from zeros, where label weights begin."""
    rng = np.random.default_rng(3)
    first = parameters(task.new_model(1))
    return {k: (v + rng.normal(0, 0.3, v.shape)).astype(np.float32) for k, v in first.items()}


def summed(
    task: NerTask, clip: float, rows: list[int], charged: list[tuple[str, Event]] | None = None
) -> np.ndarray:
    """What training changes, without its noise: the sum of the clipped gradients."""
    study, start = study_of(task, clip, rows), start_of(task)
    view: Any = SiloView(
        0,
        task,
        data_of(task, rows),
        study.settings,
        b"",
        privacy=study.method.privacy,
        spend=lambda what, event: charged.append((what, event)) if charged is not None else None,
    )
    with noise_of(0):
        model, _ = trained(view, start, 1, view.data)
    after = parameters(model)
    return np.concatenate([((start[k] - after[k]) * len(rows)).ravel() for k in start])


def by_hand(task: NerTask, rows: list[int]) -> np.ndarray:
    """Each sentence's gradient: a model and a batch of its own, nothing of Opacus."""
    found = []
    for row in rows:
        model = load(task.new_model(1), start_of(task)).train()
        data = data_of(task, [row])
        task.network.loss(model, task.batch(data, np.array([0]))).backward()
        own = {n: p for n, p in model.named_parameters() if p.requires_grad}
        assert all(p.grad is not None for p in own.values())
        found.append(np.concatenate([p.grad.double().numpy().ravel() for p in own.values()]))  # type: ignore[union-attr]
    return np.array(found)


@pytest.mark.parametrize("train", ["prompts", "bias"])
@pytest.mark.parametrize("kind", FAMILIES)
def test_what_leaves_is_the_sum_of_gradients_clipped_one_by_one(
    kind: str, train: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, rows = task_of(kind, train), list(range(SENTENCES))
    used = []
    for engine in (OneByOne, OnePass):

        def begun(
            self: Any, model: Any, clip: float, of: Any = engine, init: Any = engine.__init__
        ) -> None:
            used.append(of)
            init(self, model, clip)

        monkeypatch.setattr(engine, "__init__", begun)
    each = by_hand(task, rows)
    norms = np.linalg.norm(each, axis=1)
    assert norms.min() > 0 and norms.max() / norms.min() > 1.2
    for clip in (float(norms.min()) / 10, float(np.median(norms)), float(norms.max()) * 2):
        charged: list[tuple[str, Event]] = []
        total = summed(task, clip, rows, charged)
        wanted = (each * np.minimum(1.0, clip / norms)[:, None]).sum(axis=0)
        np.testing.assert_allclose(total, wanted, rtol=2e-3, atol=2e-5 * clip)
        assert charged == [("training", DpSgd(1.0, 1.0, 1))]
    # of each sentence alone: its norm, and no more than the clip
    middle = float(np.median(norms))
    alone = [np.linalg.norm(summed(task, middle, [row])) for row in rows]
    np.testing.assert_allclose(alone, np.minimum(norms, middle), rtol=1e-3)
    assert set(used) == {OneByOne if train == "prompts" else OnePass}


@pytest.mark.parametrize("kind", FAMILIES)
def test_target_gradients_are_those_of_each_sentence_alone(kind: str) -> None:
    """They are released too: every sentence reads a copy of q of its own."""
    task, rows = task_of(kind, "prompts"), list(range(SENTENCES))
    seen: list[np.ndarray] = []

    def kept(found: np.ndarray) -> np.ndarray:
        seen.append(found)
        return found

    model = load(task.new_model(1), start_of(task))
    data = data_of(task, rows)
    instance_gradients(task, model, data, kept)
    order = np.argsort(np.concatenate(list(task.chunks(data, SENTENCES))))
    (together,) = (found[order] for found in seen)
    assert (np.linalg.norm(together, axis=1) > 0).sum() > 2
    for row in rows:
        seen.clear()
        instance_gradients(task, model, data_of(task, [row]), kept)
        np.testing.assert_allclose(seen[0][0], together[row], rtol=1e-3, atol=1e-6)
