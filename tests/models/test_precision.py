"""PRECISION: what computes in bfloat16, what never does, and who decides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from config.errors import UserError
from config.load import load
from methods.tasks.base import Task
from models import precision
from models.precision import only_read
from study import prepare as prepared
from study.prepare import prepare
from tests.methods import small_document, small_ner, small_sentence
from tests.study.test_full_size import encoder  # noqa: F401 (a fixture)

TASKS: dict[str, Callable[[], Task]] = {
    "sentence": lambda: small_sentence.tiny_task(),
    "document": lambda: small_document.tiny_task(),
    "tagger": lambda: small_ner.tiny_task(network="tagger"),
}


def _step(task: Task, precision: str) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The loss of one batch, dropout off, and all gradients."""
    task.compute_in(precision)
    try:
        model = task.new_model(0).eval()
    finally:
        task.compute_in("float32")  # tests share their checkpoints
    loss = task.loss(model, task.batch(task.subset(np.arange(4)), np.arange(4)))
    loss.backward()
    found = {k: p.grad for k, p in model.named_parameters() if p.grad is not None}
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    return loss.detach(), found


@pytest.mark.parametrize("name", TASKS)
def test_an_encoder_in_bfloat16_is_nearly_the_same_and_all_that_is_kept_is_float32(
    name: str,
) -> None:
    task = TASKS[name]()
    loss, gradients = _step(task, "bfloat16")
    exact, wanted = _step(task, "float32")
    assert loss.dtype == torch.float32 and {g.dtype for g in gradients.values()} == {torch.float32}
    assert loss == pytest.approx(float(exact), rel=0.02)
    assert gradients.keys() == wanted.keys()
    inside = [k for k in wanted if k.startswith("backbone.") and "layer" in k]
    assert any(not torch.equal(gradients[k], wanted[k]) for k in inside)  # it was rounded
    for k in wanted:
        apart = float((gradients[k] - wanted[k]).norm())
        assert apart <= 0.1 * float(wanted[k].norm()) + 1e-4, k


@pytest.mark.parametrize("name", TASKS)
def test_weights_that_are_made_anew_for_backward_give_the_same_gradients(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[torch.Size] = []
    task, is_large = TASKS[name](), precision._is_large_parameter

    def noted(weight: torch.Tensor) -> bool:
        made.extend([weight.shape] if is_large(weight) else [])
        return is_large(weight)

    monkeypatch.setattr(precision, "_is_large_parameter", noted)
    kept = _step(task, "bfloat16")
    assert not made  # those of small encoders are kept
    monkeypatch.setattr(precision, "_LARGE", 0)
    anew = _step(task, "bfloat16")
    assert made
    assert torch.equal(kept[0], anew[0])
    assert all(torch.equal(kept[1][k], anew[1][k]) for k in kept[1])


def test_a_weight_that_was_changed_before_backward_is_no_surprise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(precision, "_LARGE", 0)
    weight = torch.nn.Parameter(torch.ones(3, 3))
    with torch.autocast("cpu", dtype=torch.bfloat16), precision._Weights():
        x = torch.nn.functional.linear(torch.ones(2, 3, requires_grad=True), weight)
    with torch.no_grad():
        weight.mul_(2)
    with pytest.raises(RuntimeError, match="changed between"):
        x.sum().backward()


@pytest.mark.parametrize("name", TASKS)
def test_a_network_that_is_only_read_has_its_weights_in_bfloat16_and_the_same_answers(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "_LARGE", 0)
    task = TASKS[name]()
    task.compute_in("bfloat16")
    try:
        plain, read = task.new_model(0).eval(), only_read(task.new_model(0)).eval()
    finally:
        task.compute_in("float32")
    kinds = {p.dtype for p in read.parameters()}
    assert kinds == {torch.bfloat16, torch.float32}
    with torch.no_grad():
        assert task.evaluate(read, "dev") == task.evaluate(plain, "dev")
    assert only_read(task.new_model(0)).state_dict().keys() == read.state_dict().keys()


def _precision(monkeypatch: Any, gain: float, words: dict[str, str], holder: int | None) -> str:
    asked: list[int] = []

    def timed() -> float:
        asked.append(1)
        return gain

    monkeypatch.setattr(prepared, "gain", timed)
    corpus = {"corpus": "sentence:sentences=200,dev=20,test=20", "method": "fedavg", "silos": "4"}
    said = prepare(load(None, corpus | words), holder).settings.precision
    assert bool(asked) == (said == "bfloat16" and "precision" not in words) or gain < 1.2
    return said


def test_auto_is_bfloat16_for_a_full_size_encoder_that_gains(
    monkeypatch: pytest.MonkeyPatch,
    encoder: Path,  # noqa: F811
) -> None:
    large = {"encoder": str(encoder)}
    assert _precision(monkeypatch, 2.0, large, None) == "bfloat16"
    assert _precision(monkeypatch, 1.1, large, None) == "float32"
    # small networks, budgets and machines that must compute alike: nothing is even measured
    assert _precision(monkeypatch, 2.0, {}, None) == "float32"
    budget = {"dp": "record", "epsilon": "8"}
    assert _precision(monkeypatch, 2.0, large | budget, None) == "float32"
    assert _precision(monkeypatch, 2.0, large, 0) == "float32"
    # the user's word, and so what a resumed run reads from config.toml, wins
    assert _precision(monkeypatch, 2.0, large | {"precision": "float32"}, None) == "float32"
    assert _precision(monkeypatch, 1.3, {"precision": "bfloat16"}, None) == "bfloat16"


def test_where_it_would_mean_nothing_or_break_a_promise_it_is_refused() -> None:
    with pytest.raises(UserError, match="the bound that the noise is made for would not hold"):
        load(None, {"dp": "record", "epsilon": "8", "precision": "bfloat16"})
    with pytest.raises(UserError, match="PRECISION must be auto, float32 or bfloat16"):
        load(None, {"precision": "half"})
    small = {"corpus": "distant:sentences=300", "precision": "bfloat16"}
    with pytest.raises(UserError, match="lazymil on this corpus .distant. computes in float32"):
        prepare(load(None, small))
