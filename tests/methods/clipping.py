"""Sums of clipped gradients by three ways, for tests that compare them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from methods.dp.engine import OneByOne, OnePass

__all__ = ["by_hand", "clipped_sum", "one_by_one", "still", "taken"]


def taken(model: nn.Module) -> list[torch.Tensor]:
    """The trained parameters' gradients, taken off."""
    own = [p for p in model.parameters() if p.requires_grad]
    found = [torch.zeros_like(p) if p.grad is None else p.grad for p in own]
    for p in own:
        p.grad = None
    return found


def clipped_sum(
    model: nn.Module, losses: Callable[[], torch.Tensor], clip: float, records: int
) -> list[torch.Tensor]:
    """In one pass over all records."""
    engine = OnePass(model, clip)
    try:
        engine.clipped_backward(losses, records)
    finally:
        engine.to_standard_module()
    return taken(model)


def one_by_one(
    model: nn.Module, losses: Sequence[Callable[[], torch.Tensor]], clip: float
) -> list[torch.Tensor]:
    engine = OneByOne(model, clip)
    engine.clipped_backward(losses)
    engine.to_standard_module()
    return taken(model)


def by_hand(
    task: Any, model: nn.Module, data: Any, rows: np.ndarray, clip: float
) -> list[torch.Tensor]:
    """One backward pass per record, each gradient clipped by hand."""
    own = [p for p in model.parameters() if p.requires_grad]
    total = [torch.zeros_like(p) for p in own]
    for row in rows:
        loss = task.record_losses(model, task.batch(data, np.array([row]))).sum()
        grads = torch.autograd.grad(loss, own, allow_unused=True)
        norm = math.sqrt(sum(float((g**2).sum()) for g in grads if g is not None))
        for t, g in zip(total, grads):
            if g is not None:
                t += g * min(1.0, clip / norm)
    return total


def still(model: nn.Module) -> nn.Module:
    """In training mode, as DP-SGD has it, but with nothing random in it."""
    for m in model.modules():
        if isinstance(m, nn.Dropout):
            m.p = 0.0
        if hasattr(m, "dropout_prob"):
            setattr(m, "dropout_prob", 0.0)  # noqa: B010 (torch types a module's attributes as tensors)
    return model.train()
