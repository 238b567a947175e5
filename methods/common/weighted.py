"""FedAvg's frame around another local objective: FedProx, MOON, FedRS and FedLC change what a silo
minimises, no more.

What travels is what FedAvg sends (p and p times the update, both masked, p = min(N_k, cap) / cap);
what differs is the loss, and for MOON what the silo remembers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from methods.base import (
    Answer,
    Arrays,
    ArraySpec,
    Broadcast,
    Exchange,
    Heard,
    Method,
    SiloView,
    State,
)
from methods.common.previous import remembered
from methods.common.training import Loss, difference, load, parameters, specs, train
from methods.fedavg import update_disclosure, weight_disclosure, weighted_mean

__all__ = ["Aim", "Loss", "Objective", "build_weighted", "shared_weight", "weighted_update"]


@dataclass(frozen=True)
class Aim:
    """What a silo minimises this round (see `methods.common.training.train`), and what it keeps
    beside its model.
    """

    loss: Loss | None = None  #: None: the task's plain loss
    each: Loss | None = None  #: the same by record, for DP=record
    drift: Callable[[nn.Module], torch.Tensor] | None = None
    memory: Arrays | None = None


Objective = Callable[[SiloView, Heard], Aim]


def shared_weight(silo: SiloView, cap: int) -> float:
    """p: the silo's share of a full weight. Nobody learns N_k, and no silo weighs more than one.

    With DP=silo every silo weighs one: its size would be a release about the whole silo.
    """
    if silo.settings.dp == "silo":
        return 1.0
    return min(silo.task.size(silo.data), cap) / cap


def weighted_update(model: nn.Module, start: Arrays, p: float) -> dict[str, np.ndarray]:
    """The masked arrays of a weighted mean: p, and p times what training added."""
    update = {f"update/{k}": np.float32(p) * v for k, v in difference(model, start).items()}
    return {"weight": np.array([p], np.float32), **update}


def build_weighted(
    name: str, citation: str, task: Any, cap: int, objective: Objective, remember: bool = False
) -> Method:
    """A method that trains on `objective` and averages by size. `remember`: the silo keeps its
    trained model.
    """
    shapes = parameters(task.new_model(0))

    def init(seed: int) -> State:
        return State(parameters(task.new_model(seed)))

    def broadcast(state: State, round: int, cohort: tuple[int, ...]) -> Broadcast:
        return Broadcast(state.model)

    def answer(silo: SiloView, heard: Heard) -> Answer:
        model = load(task.new_model(0), heard.common)
        notes: dict[str, float] = {"examples": 0.0}
        memory: Arrays | None = None
        if task.size(silo.data):
            aim = objective(silo, heard)
            notes = train(silo, model, heard.round, loss=aim.loss, each=aim.each, drift=aim.drift)
            memory = (
                remembered(silo.memory, heard.round, parameters(model)) if remember else aim.memory
            )
        masked = weighted_update(model, heard.common, shared_weight(silo, cap))
        return Answer(masked=masked, memory=memory, notes=notes)

    exchange = Exchange(
        name="train",
        disclosures=(update_disclosure("all of a silo's examples"), weight_disclosure()),
        broadcast=broadcast,
        answer=answer,
        fold=weighted_mean,
        masked={"weight": ArraySpec((1,), "float32", 1.0), **specs(shapes)},
        weight_cap=cap,
    )
    return Method(name, citation, (exchange,), init)
