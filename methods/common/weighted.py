"""The frame that most methods share: silos train from the model they are sent, and what training
added is averaged.

A method that changes only what a silo minimises gives an `Objective` and is done (`averaged`). The
pieces stand by themselves for methods that exchange more.

The mean weighted by N_k is made from two masked sums, of p and of p times the update, with p =
min(N_k, cap) / cap: nobody learns a silo's size, and no silo can weigh more than one. In the
uniform mean every silo that answered counts the same; with a cap of one, every silo that has data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    Disclosure,
    Exchange,
    Folded,
    Heard,
    Method,
    Privacy,
    RecordPrivacy,
    Release,
    SiloView,
    State,
)
from methods.common.previous import remembered
from methods.common.training import apply_update, difference, load, parameters, specs, train
from methods.dp.coverage import COUNT, TRAINED
from methods.dp.dpsgd import Records
from methods.tasks.base import Loss, Task

__all__ = [
    "COVERED",
    "COVERED_WITH_COUNTS",
    "Aim",
    "Objective",
    "averaged",
    "plain",
    "first_model",
    "send_model",
    "shared_weight",
    "uniform_mean",
    "update_disclosure",
    "updates",
    "weight_disclosure",
    "weight_spec",
    "weighted_mean",
    "weighted_update",
]

#: The declaration of a method that sends what this frame sends and whose loss, for each record,
#: depends on that record, on models and on public things alone.
COVERED = Privacy(RecordPrivacy({"update": TRAINED, "weight": COUNT}), silo=True)
#: The same where each record's loss also reads the silo's class counts, which are noised and
#: released once.
COVERED_WITH_COUNTS = Privacy(
    RecordPrivacy({"update": TRAINED, "weight": COUNT}, release=Release("class counts", often=1)),
    silo=True,
)


# What the coordinator holds and says


def first_model(task: Task) -> Callable[[int], State]:
    """Before round 0: the task's network, decided by the seed."""
    return lambda seed: State(parameters(task.new_model(seed)))


def send_model(state: State, round: int, cohort: tuple[int, ...]) -> Broadcast:
    return Broadcast(state.model)


# What a silo sends, and in which words


def update_disclosure(of: str, unless: str = "") -> Disclosure:
    """`unless`: how a coordinator that lies in this method could make the sum one silo's own."""
    return Disclosure(
        name="update",
        channel="masked",
        shape="one number per model parameter",
        reveals=("" if unless else "nothing of one silo alone; ")
        + f"the sum shows what training on {of} added to the model",
        privacy="covered by DP-SGD when a budget is set; otherwise not protected beyond the sum",
        unless=unless,
    )


def weight_disclosure(cap: int = 0) -> Disclosure:
    """`cap` 1: all silos that have any examples count the same, and empty ones do not."""
    if cap == 1:
        return Disclosure(
            name="weight",
            channel="masked",
            shape="one number: 1 if the silo has examples, else 0",
            reveals="nothing of one silo alone; the sum shows how many silos had examples",
            privacy="outside the privacy budget: it says whether there are examples at all",
        )
    return Disclosure(
        name="weight",
        channel="masked",
        shape="one number: the silo's number of examples, capped and divided by the cap",
        reveals="nothing of one silo alone; the sum shows how many examples all took part with",
        privacy="outside the privacy budget: it is a count of examples",
    )


def weight_spec() -> dict[str, ArraySpec]:
    return {"weight": ArraySpec((1,), "float32", 1.0, public_count=True)}


def updates(model: nn.Module, start: Arrays) -> dict[str, np.ndarray]:
    """The masked arrays of a uniform mean: what training added to `start`."""
    return {f"update/{k}": v for k, v in difference(model, start).items()}


def shared_weight(silo: SiloView, cap: int) -> float:
    """p: the silo's share of a full weight. Nobody learns N_k, and no silo weighs more than one.

    With DP=silo every silo weighs one: its size would be a release about the whole silo.
    """
    if silo.settings.dp == "silo":
        return 1.0
    return min(silo.task.size(silo.data), cap) / cap


def weighted_update(model: nn.Module, start: Arrays, p: float) -> dict[str, np.ndarray]:
    """The masked arrays of a weighted mean: p, and p times what training added."""
    scaled = {k: np.float32(p) * v for k, v in updates(model, start).items()}
    return {"weight": np.array([p], np.float32), **scaled}


# What the coordinator makes of the sum


def uniform_mean(state: State, folded: Folded) -> State:
    """theta + sum of updates / survivors. Nobody there: nothing changes."""
    if not folded.survivors:
        return state
    return State(apply_update(state.model, folded.total, len(folded.survivors)), state.memory)


def weighted_mean(state: State, folded: Folded) -> State:
    """theta + sum of p * update / sum of p. All silos empty: nothing changes."""
    weight = float(folded.total["weight"][0])
    if weight <= 0:
        return state
    return State(apply_update(state.model, folded.total, weight), state.memory)


# The whole frame


@dataclass(frozen=True)
class Aim:
    """What a silo minimises this round (see `methods.common.training.train`), and what it keeps
    beside its model.
    """

    loss: Loss | None = None  #: None: the task's plain loss
    each: Loss | None = None  #: the same by record, for DP=record
    drift: Callable[[nn.Module], torch.Tensor] | None = None
    memory: Arrays | None = None
    batches: Callable[[Any, int, np.random.Generator], Iterable[Any]] | None = None
    records: Records | None = None


Objective = Callable[[SiloView[Any, Any], Heard], Aim]


def plain(silo: SiloView, heard: Heard) -> Aim:
    """FedAvg's objective: the task's own loss, over everything the silo has."""
    return Aim()


def averaged(
    name: str,
    citation: str,
    task: Task,
    *,
    objective: Objective,
    privacy: Privacy | None,
    of: str = "all of a silo's examples",
    weight_cap: int | None = None,
    remember: bool = False,
) -> Method:
    """A method that trains on `objective` and averages: by size, up to `weight_cap` examples, or
    each silo alike where there is no cap. A cap of 1: each silo alike that has any examples.
    `remember`: the silo keeps its trained model.
    """

    def answer(silo: SiloView[Any, Any], heard: Heard) -> Answer:
        model = load(task.new_model(0), heard.common)
        notes: dict[str, float] = {"examples": 0.0}
        memory: Arrays | None = None
        if task.size(silo.data):
            aim = objective(silo, heard)
            notes = train(
                silo,
                model,
                heard.round,
                loss=aim.loss,
                each=aim.each,
                drift=aim.drift,
                batches=aim.batches,
                records=aim.records,
            )
            memory = aim.memory
            if remember:
                memory = remembered(silo.memory, heard.round, parameters(model))
        if weight_cap is None:
            return Answer(masked=updates(model, heard.common), memory=memory, notes=notes)
        masked = weighted_update(model, heard.common, shared_weight(silo, weight_cap))
        return Answer(masked=masked, memory=memory, notes=notes)

    declared = specs(parameters(task.new_model(0)))
    weighs = weight_cap is not None
    exchange = Exchange(
        name="train",
        disclosures=(
            update_disclosure(of),
            *((weight_disclosure(weight_cap),) if weight_cap is not None else ()),
        ),
        broadcast=send_model,
        answer=answer,
        fold=weighted_mean if weighs else uniform_mean,
        masked={**(weight_spec() if weighs else {}), **declared},
        weight_cap=1.0 if weight_cap is None else weight_cap,
    )
    return Method(name, citation, (exchange,), first_model(task), privacy=privacy)
