"""FedED's teacher alone (a reference): a round's silos' own models answer together, and no student.

Training is FedED's, round by round. What is scored is the ensemble that the student learns from:
the mean of the log-probabilities of the models that this round's silos trained. For that the
models stand in one place, which FedED is there to avoid; so this runs in a simulation only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import nn

from config.errors import UserError
from config.settings import Settings
from methods import feded
from methods.base import (
    Answer,
    Arrays,
    ArraySpec,
    Broadcast,
    Disclosure,
    Folded,
    Heard,
    Method,
    SiloView,
    State,
)
from methods.common.training import load, parameters, trained
from methods.tasks.base import Evaluation, Split
from methods.tasks.sentence import Data, SentenceTask

__all__ = ["CITATION", "NETWORK", "PUBLIC", "REFERENCE", "TASKS", "Options", "build"]

CITATION = "a reference of this project: the ensemble that FedED (Sui et al. 2020) distils"
TASKS = ("sentence",)
NETWORK = "feded"
PUBLIC = True
REFERENCE = "A reference, not a federation: silos' models stood in one place to answer together."
Options = feded.Options

_STUDENT = "student/"
_MODEL = Disclosure(
    name="model",
    channel="sealed",
    shape="every parameter of the model that the silo trained in the round",
    reveals="the whole model; for a simulation only",
    privacy="not protected: this is a yardstick, not a federation",
)


class _Together(nn.Module):
    """The mean of what several models answer, as FedED's equation 5 has it."""

    def __init__(self, models: list[nn.Module]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        each = [F.log_softmax(m(*inputs), dim=-1).clamp(min=feded.FLOOR) for m in self.models]
        return torch.stack(each).mean(dim=0)


def build(task: SentenceTask, settings: Settings, options: feded.Options) -> Method:
    if settings.runner != "inprocess":
        raise UserError(
            "The teacher alone needs silos' models in one place, so it is for a simulation: say "
            "RUNNER=inprocess."
        )
    if options.logits != "sealed" or options.form != "logits":
        raise UserError("The teacher alone is of logits=sealed and form=logits.")
    inner = feded.build(task, settings, options)
    (exchange,) = inner.exchanges
    shapes = parameters(task.new_model(0))

    def student(state: State) -> State:
        own = {k.removeprefix(_STUDENT): v for k, v in state.model.items() if _STUDENT in k}
        return State(own)

    def with_teacher(own: State, models: Sequence[Arrays]) -> State:
        """As many as a round has silos; a round that lost some has one of them twice."""
        named = {f"{_STUDENT}{n}": v for n, v in own.model.items()}
        for k in range(settings.cohort_size):
            named |= {f"{k}/{n}": v for n, v in models[k % len(models)].items()}
        return State(named)

    def init(seed: int) -> State:
        own = inner.init(seed)
        return with_teacher(own, [own.model])

    def broadcast(state: State, round: int, cohort: tuple[int, ...]) -> Broadcast:
        return exchange.broadcast(student(state), round, cohort)

    def answer(silo: SiloView[SentenceTask, Data], heard: Heard) -> Answer:
        model, notes = trained(silo, heard.common, heard.round)
        coded = feded.encode(task.log_probabilities(model, task.public), options)
        mine = {f"model/{n}": v for n, v in parameters(model).items()}
        return Answer(sealed={"predictions": coded, **mine}, notes=notes)

    def fold(state: State, folded: Folded) -> State:
        models = [
            {n.removeprefix("model/"): v for n, v in folded.sealed[s].items() if "model/" in n}
            for s in sorted(folded.sealed)
        ]
        return with_teacher(exchange.fold(student(state), folded), models) if models else state

    def evaluate(model: Arrays, split: Split) -> Evaluation:
        each: list[nn.Module] = [
            load(task.new_model(0), {n: model[f"{k}/{n}"] for n in shapes})
            for k in range(settings.cohort_size)
        ]
        return task.evaluate(_Together(each), split)

    sealed = {f"model/{n}": ArraySpec(tuple(a.shape), "float32") for n, a in shapes.items()}
    with_models = replace(
        exchange,
        disclosures=(*exchange.disclosures, _MODEL),
        broadcast=broadcast,
        answer=answer,
        fold=fold,
        sealed={**exchange.sealed, **sealed},
    )
    return Method("feded_teacher", CITATION, (with_models,), init, evaluate)
