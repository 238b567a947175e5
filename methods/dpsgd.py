"""DP-SGD: every record's gradient is clipped, their sum is noised, and only then is a step taken.

Abadi et al. 2016, "Deep Learning with Differential Privacy", CCS. A step takes each record with probability q,
independently (Poisson sampling; a step may be empty, and is taken all the same), clips each record's gradient to norm
C, adds Gaussian noise of standard deviation z C to the sum, and divides by the expected number of records q N.
Per-record gradients come from Opacus (Yousefpour et al. 2021), at most `physical` records at a time. Weight decay and
Adam's moments are computed from the noisy gradient and cost nothing.

The event is charged before the first step, so a silo killed in the middle has paid for what it may have done.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from config.settings import Settings
from methods.base import SiloView
from privacy.accountant import solve_dpsgd
from privacy.events import DpSgd
from privacy.noise import SecretStream

__all__ = ["clipped_sum", "padding_rows", "plan", "rate_of", "train_private"]


def rate_of(records: int, batch: int) -> float:
    """q: the share of the records in an expected batch, three digits, upwards; silos of nearly a size share a plan."""
    exact = min(1.0, batch / records)
    digits = 2 - math.floor(math.log10(exact))
    return min(1.0, math.ceil(exact * 10**digits - 1e-9) / 10**digits)


def _planned_rounds(settings: Settings) -> int:
    """How often a silo must expect to be asked: every round, or its share of them and two deviations more."""
    c, t = settings.fraction, settings.rounds
    return t if c >= 1 else min(t, math.ceil(c * t + 2 * math.sqrt(t * c * (1 - c))))


def plan(settings: Settings, records: int) -> DpSgd:
    """One round's training as an event: the noise is the user's, or solved so that all planned rounds meet epsilon.

    Solved as if the ledger were empty: what an earlier run spent makes the silo stop earlier.
    """
    rate = rate_of(records, settings.batch)
    steps = settings.epochs * math.ceil(1 / rate)
    noise = settings.noise
    if not noise:
        noise = solve_dpsgd(settings.epsilon, settings.delta, rate, steps * _planned_rounds(settings))
    return DpSgd(noise, rate, steps)


def padding_rows(model: nn.Module) -> dict[Any, int]:
    """Rows of embeddings that stand for padding and are never trained.

    Opacus gives them a gradient all the same. It hangs on how far a record was padded, that is, on the longest record
    beside it, and then no record's share of a sum would be its own.
    """
    tables = (m for m in model.modules() if isinstance(m, nn.Embedding) and m.padding_idx is not None)
    return {m.weight: int(m.padding_idx) for m in tables if m.padding_idx is not None}


def clipped_sum(parameters: list[nn.Parameter], clip: float, padding: Mapping[Any, int]) -> list[torch.Tensor]:
    """Sum over the records of their gradients, each scaled down to norm `clip` over all parameters together."""
    samples = [_sample(p) for p in parameters]
    for p, g in zip(parameters, samples):
        if p in padding:
            g[:, padding[p]] = 0.0
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in samples]).norm(dim=0)
    factor = (clip / norms.clamp(min=1e-12)).clamp(max=1.0)
    return [torch.tensordot(factor, g, dims=1) for g in samples]


def _sample(p: nn.Parameter) -> torch.Tensor:
    found = getattr(p, "grad_sample", None)
    if not isinstance(found, torch.Tensor):  # not reached, or reached twice: then clipping would miss a part
        raise RuntimeError("a parameter has no single gradient by record")
    return found


def train_private(silo: SiloView, model: nn.Module, round: int, data: Any, lr: float) -> dict[str, float]:
    """`epochs` times 1/q private steps with a fresh optimizer; returns figures for the silo's own log."""
    from opacus.grad_sample import GradSampleModule

    task, s, n = silo.task, silo.settings, silo.task.size(data)
    event = plan(s, n)
    silo.spend("training", event)
    stream = SecretStream(silo.noise_key(round, "dp-sgd"))
    torch.manual_seed(silo.seed(round, "dropout"))
    optimizer = task.optimizer(model, lr)
    model.train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about hooks on inputs that need no gradient
        wrapped = GradSampleModule(model, batch_first=True, loss_reduction="sum")
        own, padding = [p for p in model.parameters() if p.requires_grad], padding_rows(model)
        try:
            for _ in range(event.steps):
                chosen = np.flatnonzero(stream.uniform(n) < event.rate)
                total = [torch.zeros_like(p) for p in own]
                for at in range(0, len(chosen), s.physical):
                    wrapped.zero_grad(set_to_none=True)
                    task.record_losses(model, task.batch(data, chosen[at : at + s.physical])).sum().backward()
                    for summed, part in zip(total, clipped_sum(own, s.clip, padding)):
                        summed += part
                wrapped.zero_grad(set_to_none=True)
                for p, summed in zip(own, total):
                    noise = torch.from_numpy(stream.normal(p.numel()) * (event.noise * s.clip)).view_as(p)
                    if p in padding:  # a vector that moved would tell a padded sentence from one that is not
                        noise[padding[p]] = 0.0
                    p.grad = ((summed.double() + noise) / (event.rate * n)).to(p.dtype)
                optimizer.step()
        finally:
            wrapped.zero_grad(set_to_none=True)
            wrapped.to_standard_module()
    return {"steps": float(event.steps), "examples": float(n), "noise": event.noise, "rate": event.rate}
