"""Every tensor of a step is on one device, though there is no accelerator here to say so.

A pretended device: tensors that `here`, `place` and torch's own makers give are on it, what is
computed from them is too, and an array is not. Whatever mixes a tensor that is on it with one that
is not, or reads one without `there`, is an error, as it would be on a card. All of it is computed on
the processor, so that steps have their real values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import models.device
from bench.simulation.inprocess import run_inprocess
from config.errors import UserError
from methods import METHODS, tasks_of
from methods.common.training import load, train
from methods.tasks.base import Task
from models.device import here, there, use_device
from study.prepare import Study
from tests.methods import small_distant, small_document, small_ner, small_private, small_sentence
from tests.methods.small import study_of


class Mixed(Exception):
    """Tensors of two devices in one operation."""


class Pretended(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self._there: dict[int, Any] = {}  # by storage: views are where their base is

    def _key(self, t: torch.Tensor) -> int:
        return t.untyped_storage()._cdata

    def mark(self, t: torch.Tensor) -> torch.Tensor:
        storage = t.untyped_storage()
        self._there[storage._cdata] = storage  # kept, so that no other one gets its address
        return t

    def forget(self, t: torch.Tensor) -> torch.Tensor:
        self._there.pop(self._key(t), None)
        return t

    def has(self, t: torch.Tensor) -> bool:
        return self._key(t) in self._there

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        large = [x for x in given if x.dim() > 0]  # numbers may come from the processor
        on = [self.has(x) for x in given]
        carried = str(func).startswith(("aten.copy_", "aten._to_copy"))  # from one to the other
        if not carried and any(on) and not all(self.has(x) for x in large):
            raise Mixed(f"{func} of tensors on two devices")
        out = func(*args, **kwargs)
        if any(on) or not given or str(func).startswith("aten.lift_fresh"):
            for x in tree_leaves(out):
                if isinstance(x, torch.Tensor):
                    self.mark(x)
        return out


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    mode, read, made = Pretended(), torch.Tensor.numpy, torch.from_numpy

    def array(a: np.ndarray) -> torch.Tensor:
        return mode.forget(made(a))

    def off(t: torch.Tensor) -> torch.Tensor:
        return array(read(t.detach()).copy())

    def numpy(t: torch.Tensor, *_: Any, **how: Any) -> Any:
        if mode.has(t):
            raise Mixed("an array of a tensor that is on the device")
        return read(t, **how)

    monkeypatch.setattr(models.device, "_on", lambda t: mode.mark(t.clone()))
    monkeypatch.setattr(models.device, "_off", off)
    monkeypatch.setattr(torch.Tensor, "numpy", numpy)
    monkeypatch.setattr(torch, "from_numpy", array)
    return mode


def test_the_pretended_device_refuses_what_a_card_would(pretended: Pretended) -> None:
    with pretended:
        on, off = torch.arange(3), torch.from_numpy(np.arange(3))
        assert pretended.has(on + 1) and not pretended.has(off)
        with pytest.raises(Mixed):
            on + off
        with pytest.raises(Mixed):
            on.numpy()
        assert pretended.has(torch.zeros(2)[1:]) and pretended.has(torch.tensor([1.0, 2.0]))


SILOS = [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9, 10]]
TASKS: dict[str, Callable[[], Task]] = {
    "distant": lambda: small_distant.twelve(),
    "sentence": lambda: small_sentence.tiny_task(),
    "document": lambda: small_document.tiny_task(),
    "pointer": lambda: small_ner.tiny_task(),
    "tagger": lambda: small_ner.tiny_task(network="tagger"),
}


@pytest.mark.parametrize("name", TASKS)
def test_each_network_steps_and_scores_on_one_device(name: str, pretended: Pretended) -> None:
    task = TASKS[name]()
    with pretended:
        model = task.new_model(0)
        for batch in task.batches(task.subset(np.arange(4)), 2, np.random.default_rng(0)):
            task.loss(model, batch).backward()
        if task.record_rows:
            task.record_losses(model, task.batch(task.subset(np.arange(3)), np.arange(3))).sum()
        with torch.no_grad():
            assert 0 <= task.evaluate(model.eval(), "dev").value <= 1


def _study(method: str) -> Study:
    task = tasks_of(method)[0]
    if task == "sentence":
        model = "feded" if method in ("feded", "public_only") else "fedcmc"
        return small_sentence.tiny_study(method, SILOS, small_sentence.tiny_task(model))
    if task == "document":
        return small_document.tiny_study(method, SILOS)
    if task == "ner":
        network = "tagger" if method == "tagger" else "pointer"
        return small_ner.tiny_study(method, small_ner.tiny_task(network=network), SILOS)
    return study_of(method, small_distant.twelve(), SILOS, batch=4)


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"local", "centralised"}))
def test_each_methods_rounds_are_on_one_device(
    method: str, pretended: Pretended, tmp_path: Path
) -> None:
    study = _study(method)
    study = replace(
        study,
        settings=replace(study.settings, rounds=1 if method in ("fadv_ganin", "fadv_peng") else 2),
    )
    with pretended:
        assert run_inprocess(tmp_path, study) == 0


def test_private_training_is_on_one_device(pretended: Pretended) -> None:
    view = small_private.private_view()
    with pretended:
        assert train(view, view.task.new_model(0), 0)["steps"] > 0


def test_a_device_that_is_not_there_is_refused_in_a_sentence() -> None:
    missing = "mps" if not torch.backends.mps.is_available() else "cuda"
    with pytest.raises(UserError, match=f"DEVICE={missing}: torch finds none on this machine"):
        use_device(missing)
    assert use_device("cpu").type == "cpu"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_a_step_on_a_card_is_nearly_the_processors() -> None:
    task = small_sentence.tiny_task()
    batch_of = lambda: task.batch(task.subset(np.arange(4)), np.arange(4))  # noqa: E731
    wanted = float(task.loss(task.new_model(0).eval(), batch_of()))
    start = {k: there(p) for k, p in task.new_model(0).named_parameters()}
    try:
        use_device("cuda")
        model = task.new_model(0).eval()
        assert next(model.parameters()).is_cuda and here(np.zeros(1)).is_cuda
        load(model, start)
        loss = task.loss(model, batch_of())
        loss.backward()
        assert float(loss) == pytest.approx(wanted, rel=1e-3)
    finally:
        use_device("cpu")
