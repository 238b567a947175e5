"""Local (a reference, not a federation): every silo trains alone on what it has; the metric is the
silos' mean.

What a silo would have without the others. The method named by the option `of` runs unchanged in a
federation of one at each silo, from the same initial model and on the same schedule. Each silo's
model is then scored on the same held-out pairs. For that the models must be in one place: a
simulation may do this, a consortium has no reason to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from config.errors import UserError
from config.settings import Settings
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
    SiloView,
    State,
)
from methods.centralised import IN_ONE_PLACE
from methods.common.training import load, parameters
from methods.dp.coverage import refuse_reference
from methods.tasks.base import Evaluation, Split, Task

__all__ = ["CITATION", "REFERENCE", "TASKS", "Options", "adjust", "build", "inner_of"]

CITATION = "a reference of this project: the method named by `of` at every silo alone"
TASKS = ("distant", "sentence", "document", "ner")
REFERENCE = "A reference, not a federation: every silo trained alone, and the figures are the mean over the silos."


@dataclass(frozen=True)
class Options:
    #: the method that each silo runs on its own; empty: lazymil on bags, fedavg elsewhere
    of: str = ""


_MODEL = Disclosure(
    name="model",
    channel="sealed",
    shape="every parameter of the silo's own model",
    reveals="the whole model trained on the silo's sentences alone; for a simulation only",
    privacy="not protected: this is a yardstick, not a federation",
)


def inner_of(options: Options, task: str) -> str:
    """The method that every silo runs alone."""
    return options.of or ("lazymil" if task == "distant" else "fedavg")


def adjust(settings: Settings) -> Settings:
    """All silos in every round: nobody waits for anybody."""
    return replace(settings, fraction=1.0, runner="inprocess")


def one_round_alone(inner: Method, silo: SiloView, state: State, round: int) -> State:
    """A round of `inner` in which this silo is the whole federation."""
    me = (silo.index,)
    for exchange in inner.exchanges:
        if exchange.skip(state, round, me):
            continue
        said = exchange.broadcast(state, round, me)
        answer = exchange.answer(
            silo, Heard(round, me, said.common, said.private.get(silo.index, {}))
        )
        silo = replace(silo, carry=answer.carry)
        total = {name: value.astype(np.float64) for name, value in answer.masked.items()}
        state = exchange.fold(state, Folded(round, me, total, {silo.index: answer.sealed}))
    return state


def build(task: Task, settings: Settings, options: Options, inner: Method) -> Method:
    refuse_reference("local", settings, IN_ONE_PLACE)
    shapes = parameters(task.new_model(0))
    if inner.init(0).memory:
        raise UserError(
            f'The method "{inner.name}" keeps more than a model between rounds; local cannot run it alone.'
        )

    def init(seed: int) -> State:
        start = inner.init(seed).model
        return State(
            {f"{k}/{name}": value for k in range(settings.silos) for name, value in start.items()}
        )

    def broadcast(state: State, round: int, cohort: tuple[int, ...]) -> Broadcast:
        own = {k: {name: state.model[f"{k}/{name}"] for name in shapes} for k in cohort}
        return Broadcast({}, own)

    def answer(silo: SiloView, heard: Heard) -> Answer:
        after = one_round_alone(inner, silo, State(heard.private), heard.round)
        return Answer(sealed={f"model/{name}": value for name, value in after.model.items()})

    def fold(state: State, folded: Folded) -> State:
        new = {
            f"{k}/{name.removeprefix('model/')}": value
            for k, arrays in folded.sealed.items()
            for name, value in arrays.items()
        }
        return State({**state.model, **new})

    def evaluate(model: Arrays, split: Split) -> Evaluation:
        """The mean over the silos of each figure of their own models."""
        network = task.new_model(0)
        each = []
        for k in range(settings.silos):
            each.append(
                task.evaluate(load(network, {name: model[f"{k}/{name}"] for name in shapes}), split)
            )
        return Evaluation(
            value=float(np.mean([e.value for e in each])),
            figures={f: float(np.mean([e.figures[f] for e in each])) for f in each[0].figures},
            per_class={
                c: float(np.mean([e.per_class[c] for e in each])) for c in each[0].per_class
            },
        )

    exchange = Exchange(
        name="train",
        disclosures=(_MODEL,),
        broadcast=broadcast,
        answer=answer,
        fold=fold,
        sealed={
            f"model/{name}": ArraySpec(tuple(a.shape), "float32") for name, a in shapes.items()
        },
    )
    return Method("local", CITATION, (exchange,), init, evaluate)
