"""DP-SGD: every record's gradient is clipped, their sum is noised, and only then is a step taken.

Abadi et al. 2016, "Deep Learning with Differential Privacy", CCS. A step takes each record with
probability q, independently (Poisson sampling; a step may be empty, and is taken all the same),
clips each record's gradient to norm C, adds Gaussian noise of standard deviation z C to the sum,
and divides by the expected number of records q N. Opacus does it: its hooks with our norms make the
clipped sums (`methods.dp.engine`), at most `physical` records at a time, and its sampler and its
optimizer with our secret stream do the rest (`methods.dp.optimizer`). Weight decay, Adam's moments
and terms of the loss that depend on parameters alone (`drift`) are computed from the noisy gradient
and the model, and cost nothing.

The event is charged before the first step, so a silo killed in the middle has paid for what it may
have done. Opacus's accountant counts the steps that are really taken; another number than was
charged is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from config.settings import Settings
from methods.base import RecordPrivacy, SiloView
from methods.common.steps import Steps
from methods.dp.releases import beside, planned_rounds, record_privacy
from methods.tasks.base import Examples, Loss
from models.device import there
from privacy.accountant import solve_dpsgd
from privacy.events import DpSgd
from privacy.noise import SecretStream

if TYPE_CHECKING:
    from methods.dp.optimizer import SecretOptimizer

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

    def parts(self, chosen: np.ndarray, most: int) -> Iterable[np.ndarray]:
        """The chosen in parts of at most `most`; of nobody, one part without records."""
        if len(chosen) and self.chunks is not None:
            return self.chunks(chosen, most)
        return (chosen[at : at + most] for at in range(0, max(len(chosen), 1), most))


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
    # here: a second and 1400 modules, which whoever only plans or runs without a budget saves
    from opacus.accountants import PRVAccountant

    from methods.dp.optimizer import SecretOptimizer, SecretPoisson

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
    model.train()
    padding = padding_rows(model)
    with torch.no_grad():
        # were it not zero, a sentence would feel how long others of its batch are
        for table, row in padding.items():
            table[row] = 0.0
    steps = Steps(s, model, round, event.steps, silo.kept_optimizer(round))
    optimizer = SecretOptimizer(
        steps.optimizer,
        noise_multiplier=event.noise,
        max_grad_norm=s.clip,
        expected_batch_size=event.rate * nominal,
        stream=stream,
        still=padding,
    )
    accountant = PRVAccountant()
    sums = _Sums(model) if mean_gradient is not None else None
    counted = accountant.get_optimizer_hook_fn(sample_rate=event.rate)

    def noised(of: SecretOptimizer) -> None:
        """The noise is in the gradient, and the step is not yet taken."""
        counted(of)
        if sums is not None:
            sums.add()
        if drift is not None:
            _add_drift(of.params, drift, model)
        steps.ready()

    optimizer.attach_step_hook(noised)
    backward, close = _engine(model, records=records, clip=s.clip, each=each, one=one)
    try:
        for chosen in SecretPoisson(
            count=records.count, rate=event.rate, steps=event.steps, stream=stream
        ):
            parts = list(records.parts(chosen, s.physical))
            for left, part in zip(range(len(parts) - 1, -1, -1), parts):
                optimizer.signal_skip_step(left > 0)
                backward(part)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
    finally:
        close()
        optimizer.close()
    taken = [DpSgd(*run) for run in accountant.history]
    if taken != ([event] if event.steps else []):
        raise RuntimeError(f"charged {event.words}, and took {[e.words for e in taken]}")
    silo.keep_optimizer(round, steps.state)
    if mean_gradient is not None and sums is not None:
        mean_gradient.update(sums.mean(event.steps))
    return {
        "steps": float(event.steps),
        "examples": float(records.count),
        "noise": event.noise,
        "rate": event.rate,
    }


def _engine(
    model: nn.Module, *, records: Records, clip: float, each: Loss | None, one: Loss | None
) -> tuple[Callable[[np.ndarray], None], Callable[[], object]]:
    """What leaves the clipped sum over a part of a batch in the parameters' gradients, and what
    takes the hooks off again.
    """
    from methods.dp.engine import OneByOne, OnePass

    if each is None:
        assert one is not None
        slow, loss = OneByOne(model, clip), one

        def by_record(part: np.ndarray) -> None:
            single = (records.batch(part[i : i + 1]) for i in range(len(part)))
            slow.clipped_backward(partial(loss, model, batch) for batch in single)

        return by_record, slow.to_standard_module
    fast, losses = OnePass(model, clip), each

    def at_once(part: np.ndarray) -> None:
        if len(part):
            fast.clipped_backward(partial(losses, model, records.batch(part)), len(part))

    return at_once, fast.to_standard_module


class _Sums:
    """Of every trained parameter's noisy gradient, over the steps."""

    def __init__(self, model: nn.Module) -> None:
        self._own = {k: p for k, p in model.named_parameters() if p.requires_grad}
        self._total = [torch.zeros_like(p) for p in self._own.values()]

    def add(self) -> None:
        torch._foreach_add_(self._total, [p.grad for p in self._own.values() if p.grad is not None])

    def mean(self, steps: int) -> dict[str, np.ndarray]:
        return {k: there(g / max(steps, 1)) for k, g in zip(self._own, self._total)}


def _add_drift(
    own: list[nn.Parameter], drift: Callable[[nn.Module], torch.Tensor], model: nn.Module
) -> None:
    """The gradient of a term that no record is in."""
    for p, g in zip(own, torch.autograd.grad(drift(model), own, allow_unused=True)):
        if g is not None and p.grad is not None:
            p.grad.add_(g)
