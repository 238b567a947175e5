"""What the coordinator does with the public set D_v: passes over it, from a model that it holds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from config.settings import Settings
from methods.base import Arrays, derived_seed
from methods.common.steps import Steps
from methods.common.training import load, parameters
from methods.tasks.sentence import Batch, SentenceTask

__all__ = ["PublicLoss", "plain_loss", "public_passes"]

#: (model, batch, its rows of D_v) -> loss
PublicLoss = Callable[[nn.Module, Batch, np.ndarray], torch.Tensor]


def plain_loss(task: SentenceTask) -> PublicLoss:
    """Cross-entropy of the labels of D_v."""
    return lambda model, batch, rows: task.loss(model, batch)


def public_passes(
    task: SentenceTask,
    settings: Settings,
    start: Arrays,
    *,
    round: int,
    loss: PublicLoss,
    passes: int,
    purpose: str,
) -> dict[str, np.ndarray]:
    """The model after `passes` passes over D_v from `start`. `purpose` names its random numbers."""
    model = load(task.new_model(0), start)
    steps = passes * math.ceil(task.size(task.public) / settings.batch)
    optimizer = Steps(settings, model, round, steps)
    rng = np.random.default_rng(derived_seed(settings.seed, purpose, round))
    torch.manual_seed(derived_seed(settings.seed, f"{purpose} dropout", round))
    model.train()
    for _ in range(passes):
        for rows in task.batch_rows(task.public, settings.batch, rng):
            optimizer.clear()
            loss(model, task.batch(task.public, rows), rows).backward()
            optimizer.step()
    return parameters(model)
