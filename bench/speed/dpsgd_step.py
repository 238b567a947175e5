"""One process that steps a silo's network in four ways, as it is asked: what `bench.speed.dpsgd`
compares.

It reads a line of JSON per question from standard input and answers with CPU seconds per step. It
uses nothing but names that have been in this program for long, so that the same file measures the
code of an earlier commit: run with PYTHONPATH at that tree.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch import nn

from config.load import load
from config.settings import Settings
from methods.base import SiloView
from methods.common.training import train
from study.prepare import prepare

__all__ = ["ways"]


@lru_cache(maxsize=1)
def _view(method: str, corpus: str, batch: int, part: str) -> SiloView:
    """Silo 0, without a budget."""
    words = {"method": method, "corpus": corpus, "batch": str(batch)}
    if any(f.name == "train" for f in fields(Settings)):
        words["train"] = part
    else:  # before TRAIN was a setting
        words["options.tune"] = "full" if part == "all" else "light"
    study = prepare(load(None, words))
    data = study.task.subset(study.partition.indices[0])
    privacy = study.method.privacy
    return SiloView(0, study.task, data, study.settings, b"bench", privacy=privacy)


def _trained(view: SiloView, round: int) -> float:
    """By the code that silos run."""
    model = view.task.new_model(0)
    began = time.process_time()
    notes = train(view, model, round)
    return (time.process_time() - began) / notes["steps"]


def _plain(view: SiloView, round: int) -> float:
    return _trained(view, round)


def _private(view: SiloView, round: int) -> float:
    return _trained(replace(view, settings=replace(view.settings, dp="record", noise=1.0)), round)


def _ghost(view: SiloView, round: int) -> float:
    """Opacus's ghost clipping, with two backward passes, as its documentation uses it."""
    model = view.task.new_model(0)
    wrapped = GradSampleModuleFastGradientClipping(
        _contiguous(model), loss_reduction="sum", strict=False, max_grad_norm=view.settings.clip
    )
    optimizer = DPOptimizerFastGradientClipping(_optimizer(view, model), **_noise(view))

    def backward(losses: torch.Tensor) -> None:
        DPTensorFastGradientClipping(wrapped, optimizer, losses, "sum").backward()

    return _stock(view, round, model, optimizer, backward)


def _hooks(view: SiloView, round: int) -> float:
    """Opacus's hooks, which write every record's gradient out."""
    model = view.task.new_model(0)
    GradSampleModule(_contiguous(model), loss_reduction="sum", strict=False)
    optimizer = DPOptimizer(_optimizer(view, model), **_noise(view))
    return _stock(view, round, model, optimizer, lambda losses: losses.sum().backward())


def _optimizer(view: SiloView, model: nn.Module) -> torch.optim.Optimizer:
    task: Any = view.task
    if hasattr(task, "optimizer"):  # before OPTIMIZER was a setting
        old: torch.optim.Optimizer = task.optimizer(model, view.settings.lr)
        return old
    from methods.common.steps import optimizer_of

    return optimizer_of(view.settings, model.parameters(), view.settings.lr)


def _contiguous(model: nn.Module) -> nn.Module:
    """Opacus 1.6 cannot compute norms of expanded position numbers."""
    for m in model.modules():
        if isinstance(m, nn.Embedding):
            m.register_forward_pre_hook(lambda _, ids: (ids[0].contiguous(),))
    return model


def _noise(view: SiloView) -> dict[str, Any]:
    s = view.settings
    clip = {"noise_multiplier": 1.0, "max_grad_norm": s.clip}
    return {**clip, "expected_batch_size": s.batch, "loss_reduction": "sum"}


def _stock(
    view: SiloView,
    round: int,
    model: Any,
    optimizer: DPOptimizer,
    backward: Callable[[torch.Tensor], None],
) -> float:
    """The batches that DP-SGD has here: a Poisson sample a step, in the same parts."""
    task, s, n = view.task, view.settings, view.task.size(view.data)
    sampler = UniformWithReplacementSampler(num_samples=n, sample_rate=min(1.0, s.batch / n))
    torch.manual_seed(round)
    model.train()
    began = time.process_time()
    for chosen in sampler:
        parts = list(task.record_chunks(view.data, np.array(chosen, np.int64), s.physical))
        for k, part in enumerate(parts):
            optimizer.signal_skip_step(k < len(parts) - 1)
            backward(task.record_losses(model, task.batch(view.data, part)))
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    return (time.process_time() - began) / len(sampler)


ways = {"plain": _plain, "private": _private, "ghost": _ghost, "hooks": _hooks}


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # about hooks on embeddings, whose inputs have no gradient
    for line in sys.stdin:
        asked = json.loads(line)
        view = _view(*asked["case"])
        print(json.dumps(ways[asked["way"]](view, asked["round"])), flush=True)


if __name__ == "__main__":
    main()
