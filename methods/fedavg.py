"""FedAvg: every silo trains on all of its examples, and the models are averaged by size.

McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data",
AISTATS. In this package it is the baseline that does nothing about its task's difficulty: on
distant supervision it believes every distant label, on skewed data it ignores the skew.

The mean weighted by N_k is made from two masked sums, of p and of p times the update, with p =
min(N_k, cap) / cap: nobody learns a silo's size, and no silo can weigh more than one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from config.settings import Settings
from methods.base import (
    Answer,
    ArraySpec,
    Broadcast,
    Disclosure,
    Exchange,
    Folded,
    Heard,
    Method,
    SiloView,
    State,
)
from methods.common.training import apply_update, difference, load, parameters, specs, train

__all__ = [
    "CITATION",
    "TASKS",
    "Options",
    "build",
    "update_disclosure",
    "weight_disclosure",
    "weighted_mean",
]

CITATION = "McMahan et al. 2017, Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS"
TASKS = ("distant", "sentence", "document", "ner")


@dataclass(frozen=True)
class Options:
    #: Silos larger than this weigh as if they had this many examples. Public, and fixed before the
    #: run.
    weight_cap: int = 2000


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


def weight_disclosure() -> Disclosure:
    return Disclosure(
        name="weight",
        channel="masked",
        shape="one number: the silo's number of examples, capped and divided by the cap",
        reveals="nothing of one silo alone; the sum shows how many examples all took part with",
        privacy="outside the privacy budget: it is a count of examples",
    )


def _cap(settings: Settings) -> int:
    return int(settings.options.get("weight_cap", Options.weight_cap))


def answer(silo: SiloView, heard: Heard) -> Answer:
    """The silo's half: E epochs over everything it has."""
    n, cap = silo.task.size(silo.data), _cap(silo.settings)
    # its size would be a release about the whole silo
    p = 1.0 if silo.settings.dp == "silo" else min(n, cap) / cap
    model = load(silo.task.new_model(0), heard.common)
    notes = train(silo, model, heard.round) if n else {"examples": 0.0}
    update = {f"update/{k}": np.float32(p) * v for k, v in difference(model, heard.common).items()}
    return Answer(masked={"weight": np.array([p], np.float32), **update}, notes=notes)


def weighted_mean(state: State, folded: Folded) -> State:
    """The coordinator's half: theta + sum of p * update / sum of p. All silos empty: nothing
    changes.
    """
    weight = float(folded.total["weight"][0])
    if weight <= 0:
        return state
    return State(apply_update(state.model, folded.total, weight), state.memory)


def build(task: Any, settings: Settings) -> Method:
    shapes = parameters(task.new_model(0))

    def init(seed: int) -> State:
        return State(parameters(task.new_model(seed)))

    def broadcast(state: State, round: int, cohort: tuple[int, ...]) -> Broadcast:
        return Broadcast(state.model)

    exchange = Exchange(
        name="train",
        disclosures=(update_disclosure("all of a silo's examples"), weight_disclosure()),
        broadcast=broadcast,
        answer=answer,
        fold=weighted_mean,
        masked={"weight": ArraySpec((1,), "float32", 1.0), **specs(shapes)},
        weight_cap=_cap(settings),
    )
    return Method("fedavg", CITATION, (exchange,), init)
