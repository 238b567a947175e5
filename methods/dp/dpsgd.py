"""DP-SGD: every record's gradient is clipped, their sum is noised, and only then is a step taken.

Abadi et al. 2016, "Deep Learning with Differential Privacy", CCS. A step takes each record with
probability q, independently (Poisson sampling; a step may be empty, and is taken all the same),
clips each record's gradient to norm C, adds Gaussian noise of standard deviation z C to the sum,
and divides by the expected number of records q N. Clipped sums come from `methods.dp.clipping`, at
most `physical` records at a time. Weight decay, Adam's moments and terms of the loss that depend on
parameters alone (`drift`) are computed from the noisy gradient and the model, and cost nothing.

The event is charged before the first step, so a silo killed in the middle has paid for what it may
have done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from config.settings import Settings
from methods.base import RecordPrivacy, SiloView
from methods.common.steps import Steps
from methods.dp.clipping import Bookkeeper, one_by_one
from methods.dp.releases import beside, planned_rounds, record_privacy
from methods.tasks.base import Examples, Loss
from privacy.accountant import solve_dpsgd
from privacy.events import DpSgd
from privacy.noise import SecretStream

__all__ = ["Records", "plan", "rate_of", "train_private"]


@dataclass(frozen=True)
class Records:
    """What is sampled, clipped and protected, where it is not the task's own training unit: bags of
    sentences.
    """

    count: int
    batch: Callable[[np.ndarray], Any]  #: positions -> what `loss` takes
    #: The number that sampling rate and divisor are made of, where `count` itself would tell
    #: something; None: `count`.
    nominal: int | None = None
    #: positions, most at once -> the same in parts that are computed at once; None: one part after
    #: another
    chunks: Callable[[np.ndarray, int], Iterable[np.ndarray]] | None = None


def rate_of(records: int, batch: int) -> float:
    """q: the share of the records in an expected batch, three digits, upwards; silos of nearly a
    size share a plan.
    """
    exact = min(1.0, batch / records)
    digits = 2 - math.floor(math.log10(exact))
    return min(1.0, math.ceil(exact * 10**digits - 1e-9) / 10**digits)


def plan(settings: Settings, records: int, declared: RecordPrivacy) -> DpSgd:
    """One round's training as an event: the noise is the user's, or solved so that all planned
    rounds meet epsilon, together with whatever else the method releases.

    Solved as if the ledger were empty: what an earlier run spent makes the silo stop earlier.
    """
    rate = rate_of(records, settings.batch)
    steps = settings.epochs * math.ceil(1 / rate)
    noise = settings.noise
    if not noise:
        epsilon, rounds = settings.epsilon * declared.spent, planned_rounds(settings)
        noise = solve_dpsgd(
            epsilon, settings.delta, rate, steps * rounds, beside(settings, declared)
        )
    return DpSgd(noise, rate, steps)


def padding_rows(model: nn.Module) -> dict[torch.Tensor, int]:
    """Rows of embeddings that stand for padding and are never trained: a vector that moved would
    tell a padded sentence from one that is not.
    """
    tables = (
        m for m in model.modules() if isinstance(m, nn.Embedding) and m.padding_idx is not None
    )
    return {m.weight: int(m.padding_idx) for m in tables if m.padding_idx is not None}


def train_private(
    silo: SiloView,
    model: nn.Module,
    round: int,
    *,
    data: Examples,
    each: Loss | None = None,
    one: Loss | None = None,
    drift: Callable[[nn.Module], torch.Tensor] | None = None,
    records: Records | None = None,
    mean_gradient: dict[str, np.ndarray] | None = None,
) -> dict[str, float]:
    """`epochs` times 1/q private steps; returns figures for the silo's own log. What a kept
    optimizer holds comes from noisy gradients, and costs nothing more.

    `each` gives the losses of all records of a batch, for networks in which the first axis is the
    record; without it, `one` gives the loss of a batch of one record, and gradients are had one by
    one. `mean_gradient` is filled with the mean over the steps of the noisy gradient.
    """
    task, s = silo.task, silo.settings
    records = records or Records(
        task.size(data),
        lambda chosen: task.batch(data, chosen),
        chunks=lambda chosen, most: task.record_chunks(data, chosen, most),
    )
    nominal = records.count if records.nominal is None else records.nominal
    event = plan(s, nominal, record_privacy(silo.privacy))
    silo.spend("training", event)
    stream = SecretStream(silo.noise_key(round, "dp-sgd"))
    # Batch membership determines each record's dropout mask. If others knew the masks, records
    # would no longer be independent, so masks come from the silo's secret key.
    torch.manual_seed(int.from_bytes(silo.noise_key(round, "dropout")[:8], "little"))
    optimizer = Steps(s, model, round, event.steps, silo.kept_optimizer(round))
    model.train()
    names = [k for k, p in model.named_parameters() if p.requires_grad]
    own, padding = [p for p in model.parameters() if p.requires_grad], padding_rows(model)
    with torch.no_grad():
        # were it not zero, a sentence would feel how long others of its batch are
        for table, row in padding.items():
            table[row] = 0.0
    sums = [torch.zeros_like(p) for p in own] if mean_gradient is not None else []
    keeper = Bookkeeper(model) if each is not None else None
    scale = 1.0 / (event.rate * nominal)
    try:
        for _ in range(event.steps):
            chosen = np.flatnonzero(stream.uniform(records.count) < event.rate)
            total = _clipped(
                model,
                records=records,
                chosen=chosen,
                settings=s,
                own=own,
                each=each,
                one=one,
                keeper=keeper,
            )
            noise = torch.from_numpy(stream.normal(sum(p.numel() for p in own))).mul_(
                event.noise * s.clip * scale
            )
            for p, summed, part in zip(own, total, noise.split([p.numel() for p in own])):
                p.grad = part.view_as(p).add_(summed, alpha=scale)
                if p in padding:
                    p.grad[padding[p]] = 0.0
            if sums:
                torch._foreach_add_(sums, [p.grad for p in own if p.grad is not None])
            if drift is not None:
                _add_drift(own, drift, model)
            optimizer.step()
    finally:
        if keeper is not None:
            keeper.close()
        for p in own:
            p.grad = None
    silo.keep_optimizer(round, optimizer.state)
    if mean_gradient is not None:
        mean_gradient.update({k: (g / max(event.steps, 1)).numpy() for k, g in zip(names, sums)})
    return {
        "steps": float(event.steps),
        "examples": float(records.count),
        "noise": event.noise,
        "rate": event.rate,
    }


def _clipped(
    model: nn.Module,
    *,
    records: Records,
    chosen: np.ndarray,
    settings: Settings,
    own: list[nn.Parameter],
    each: Loss | None,
    one: Loss | None,
    keeper: Bookkeeper | None,
) -> list[torch.Tensor]:
    if keeper is None:
        assert one is not None
        single = (records.batch(chosen[i : i + 1]) for i in range(len(chosen)))
        return one_by_one(own, single, partial(one, model), settings.clip)
    assert each is not None
    total = [torch.zeros_like(p) for p in own] if len(chosen) == 0 else []
    consecutive = (
        chosen[at : at + settings.physical] for at in range(0, len(chosen), settings.physical)
    )
    for some in (
        consecutive if records.chunks is None else records.chunks(chosen, settings.physical)
    ):
        batch = records.batch(some)
        part = keeper.clipped_sum(partial(each, model, batch), settings.clip, len(some))
        if total:
            torch._foreach_add_(total, part)
        else:
            total = part
    return total


def _add_drift(
    own: list[nn.Parameter], drift: Callable[[nn.Module], torch.Tensor], model: nn.Module
) -> None:
    """The gradient of a term that no record is in."""
    kept = [(p, p.requires_grad) for p in own]
    for p in own:
        p.requires_grad_(True)
    found = torch.autograd.grad(drift(model), own, allow_unused=True)
    for (p, was), g in zip(kept, found):
        p.requires_grad_(was)
        if g is not None and p.grad is not None:
            p.grad.add_(g)
