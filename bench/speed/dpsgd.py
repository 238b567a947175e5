"""What DP-SGD adds to a training step: `python -m bench.speed.dpsgd`, part of `make bench`.

The same network, records and expected batch size, stepped plainly and privately by the code that
silos run, in turn; CPU seconds of this process per step, one thread. Goals: 2.5 times a plain step
for the PCNN, 3 for the sentence encoder. Both sides build their own batches; DP-SGD draws its by
Poisson sampling, so they vary in size and are not sorted by length. Batches are as plain training
has them by default, and as DP=record has; all parameters are trained (DP=record by itself trains
few, which costs less).

Beside them the same steps through Opacus's ghost clipping (two backward passes), as its
documentation uses it: why `methods.dp.clipping` keeps books of its own.
"""

from __future__ import annotations

import resource
import statistics
import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping
from torch import nn

from config.load import load
from config.settings import RECORD_DEFAULTS, TASK_DEFAULTS
from methods.base import SiloView
from methods.common.training import train
from study.prepare import prepare

__all__ = ["main", "measure"]


def _per_step(view: SiloView, round: int) -> float:
    model = view.task.new_model(0)
    began = time.process_time()
    notes = train(view, model, round)
    return (time.process_time() - began) / notes["steps"]


def _per_step_by_opacus(view: SiloView, round: int) -> float:
    """One epoch of batches of the task's own making, so that no Poisson batch is larger than a
    plain one.
    """
    task, settings = view.task, view.settings
    inner: Any = task.new_model(0)
    for m in inner.modules():
        # whose norms Opacus 1.6 cannot compute of expanded position numbers
        if isinstance(m, nn.Embedding):
            m.register_forward_pre_hook(lambda _, ids: (ids[0].contiguous(),))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about hooks on embeddings, whose inputs have no gradient
        model = GradSampleModuleFastGradientClipping(
            inner,
            loss_reduction="sum",
            strict=False,
            max_grad_norm=settings.clip,
            use_ghost_clipping=True,
        )
        optimizer = DPOptimizerFastGradientClipping(
            task.optimizer(inner, settings.lr),
            noise_multiplier=1.0,
            max_grad_norm=settings.clip,
            expected_batch_size=settings.batch,
            loss_reduction="sum",
        )
        inner.train()
        began, steps = time.process_time(), 0
        for batch in task.batches(view.data, settings.batch, np.random.default_rng(round)):
            optimizer.zero_grad(set_to_none=True)
            DPTensorFastGradientClipping(
                model, optimizer, task.record_losses(inner, batch), "sum"
            ).backward()
            optimizer.step()
            steps += 1
    return (time.process_time() - began) / steps


def measure(method: str, corpus: str, batch: int, repeats: int) -> dict[str, float]:
    """CPU seconds per step, and the median over repeats of the private step's ratio to a plain one,
    both ways.
    """
    words = {"method": method, "corpus": corpus, "batch": str(batch), "train": "all"}
    study = prepare(load(None, words))
    plain = SiloView(
        0,
        study.task,
        study.task.subset(study.partition.indices[0]),
        study.settings,
        b"bench",
        privacy=study.method.privacy,
    )
    private = replace(plain, settings=replace(study.settings, dp="record", noise=1.0))
    ways = ((_per_step, plain), (_per_step, private), (_per_step_by_opacus, plain))
    for way, view in ways:
        way(view, 0)  # the first one loads torch's optimizers
    rows = [[way(view, k) for way, view in ways] for k in range(repeats)]
    return {
        "plain": statistics.median(r[0] for r in rows),
        "private": statistics.median(r[1] for r in rows),
        "ratio": statistics.median(r[1] / r[0] for r in rows),
        "opacus": statistics.median(r[2] / r[0] for r in rows),
    }


def main() -> None:
    torch.set_num_threads(1)
    print("DP-SGD beside a plain step of the same silo, one core, median of seven")
    for what, method, task in (
        ("PCNN", "fedavg", "distant"),
        ("sentence encoder", "feded", "sentence"),
    ):
        for batch in (TASK_DEFAULTS[task]["batch"], RECORD_DEFAULTS[task]["batch"]):
            f = measure(method, task, batch, 7)
            took = f"{1e3 * f['plain']:.1f} ms plain, {1e3 * f['private']:.1f} ms private"
            ratios = f"ratio {f['ratio']:.2f}; by Opacus's ghost clipping {f['opacus']:.2f}"
            print(f"  {what}, batches of {batch}: {took}, {ratios}", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"  peak of this process {peak:.0f} MB; gradients of at most PHYSICAL=64 records are in memory at once"
    )


if __name__ == "__main__":
    main()
