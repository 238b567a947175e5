"""Local training and the arithmetic of parameters that all methods share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import nn

from methods.base import Arrays, ArraySpec, SiloView
from methods.common.steps import Steps, rate_changes
from methods.tasks.base import Examples, Loss
from models.device import here, there
from wire.bundle import packed_like

if TYPE_CHECKING:
    from methods.dp.dpsgd import Records

M = TypeVar("M", bound=nn.Module)

_PIECE = 1 << 18  #: numbers that are added at once, in the cache

__all__ = [
    "apply_update",
    "difference",
    "load",
    "parameters",
    "specs",
    "train",
    "trained",
]


def parameters(model: nn.Module) -> dict[str, np.ndarray]:
    """Copies of the trainable floating-point parameters, by name; buffers and frozen constants stay
    home.
    """
    own = {
        name: there(p)
        for name, p in model.named_parameters()
        if p.requires_grad and p.is_floating_point()
    }
    copies = packed_like(own)
    for name, values in own.items():
        copies[name][...] = values
    return copies


def load(model: M, values: Arrays) -> M:
    """Put `values` into the parameters of the same names."""
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, value in values.items():
            own[name].copy_(here(np.ascontiguousarray(value)))
    return model


def difference(model: nn.Module, start: Arrays) -> dict[str, np.ndarray]:
    """What training added to `start`."""
    own = dict(model.named_parameters())
    return {name: there(own[name]) - value for name, value in start.items()}


def apply_update(
    start: Arrays, total: Arrays, divisor: float, prefix: str = "update/"
) -> dict[str, np.ndarray]:
    """start + total / divisor, in float64 and back: the fold of every FedAvg-style sum. In pieces, so
    that beside the result no more than one array is in memory; laid out as it will be broadcast.
    """
    made = packed_like(
        {name: value.astype(np.float32, copy=False) for name, value in start.items()}
    )
    for name, value in start.items():
        flat, added = value.reshape(-1), total[prefix + name].reshape(-1)
        out = made[name].reshape(-1)
        for at in range(0, flat.size, _PIECE):
            part = slice(at, at + _PIECE)
            out[part] = flat[part].astype(np.float64) + added[part] / divisor
    return made


def specs(shapes: Arrays, prefix: str = "update/", cap: float = 8.0) -> dict[str, ArraySpec]:
    """The declaration of one masked array per model parameter."""
    return {prefix + name: ArraySpec(tuple(a.shape), "float32", cap) for name, a in shapes.items()}


def train(
    silo: SiloView,
    model: nn.Module,
    round: int,
    data: Examples | None = None,
    *,
    loss: Loss | None = None,
    batches: Callable[[Any, int, np.random.Generator], Iterable[Any]] | None = None,
    each: Loss | None = None,
    drift: Callable[[nn.Module], torch.Tensor] | None = None,
    records: Records | None = None,
    mean_gradient: dict[str, np.ndarray] | None = None,
) -> dict[str, float]:
    """`epochs` passes over the silo's data (or over `data`); returns figures for its log. The
    optimizer is a fresh one, or with KEEP_OPTIMIZER goes on from the silo's last round.

    Dropout and shuffling are decided by (run seed, silo, round), so that both runners train alike.

    `loss` replaces the task's; `drift` is added to it, and depends on parameters alone. With
    DP=record gradients are clipped record by record: by `each`, the losses of all records of a
    batch, where that is given (or the task's own loss is used) and the network allows it; else by
    `loss` of one record at a time. `records` says what a record is, where it is not the task's
    training unit; `mean_gradient` is filled with the mean of the noisy gradients.
    """
    task, s = silo.task, silo.settings
    data = silo.data if data is None else data
    if s.dp == "record":
        from methods.dp.dpsgd import train_private

        one = task.loss if loss is None else loss
        if each is None and loss is None and records is None:
            each = task.record_losses
        each = each if task.record_rows else None
        return train_private(
            silo,
            model,
            round,
            data=data,
            each=each,
            one=one,
            drift=drift,
            records=records,
            mean_gradient=mean_gradient,
        )
    objective = task.loss if loss is None else loss
    torch.manual_seed(silo.seed(round, "dropout"))
    rng = silo.rng(round, "order")
    a_pass, first = math.ceil(task.size(data) / s.batch), None
    if batches is not None and rate_changes(s):  # how many it makes of the data, only it knows
        first = list(batches(data, s.batch, rng))
        a_pass = len(first)
    optimizer = Steps(s, model, round, s.epochs * a_pass, silo.kept_optimizer(round), spend=True)
    model.train()
    # gradients that are spent where autograd makes them have to be made by it
    quick = None if loss or drift or optimizer.spends else task.gradients(model)
    steps, last = 0, torch.zeros(())
    for batch in _epochs(s.epochs, first, lambda: (batches or task.batches)(data, s.batch, rng)):
        optimizer.clear()
        if quick is not None:
            last = quick(batch)
        else:
            value = objective(model, batch)
            if drift is not None:
                value = value + drift(model)
            value.backward()
            last = value.detach()
        optimizer.step()
        steps += 1
    optimizer.end()
    silo.keep_optimizer(round, optimizer.state)
    return {"steps": float(steps), "loss": float(last), "examples": float(task.size(data))}


def _epochs(
    count: int, first: list[Any] | None, epoch: Callable[[], Iterable[Any]]
) -> Iterator[Any]:
    """The batches of all epochs; `first`: those of the first one, where they are made already."""
    for k in range(count):
        yield from first if k == 0 and first is not None else epoch()


def trained(
    silo: SiloView,
    start: Arrays,
    round: int,
    data: Examples | None = None,
    *,
    loss: Loss | None = None,
    each: Loss | None = None,
) -> tuple[nn.Module, dict[str, float]]:
    """The silo's model after `train` from `start`, and the figures for its log. Without any data
    the model is `start` itself.
    """
    data = silo.data if data is None else data
    model = load(silo.task.new_model(0), start)
    if not silo.task.size(data):
        return model, {"examples": 0.0}
    return model, train(silo, model, round, data, loss=loss, each=each)
