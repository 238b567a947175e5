"""FedAvg with a pass over the public set D_v: after each round's mean, the coordinator trains on D_v
once.

A control for FedED, whose coordinator makes one pass over D_v in each round as well. Whoever has a
labelled public set could also use it so, with parameters that travel as in FedAvg.
"""

from __future__ import annotations

from dataclasses import replace

from config.errors import UserError
from config.settings import Settings
from methods import fedavg
from methods.base import Folded, Method, State
from methods.common.public import plain_loss, public_passes
from methods.tasks.sentence import SentenceTask

__all__ = ["CITATION", "NETWORK", "PUBLIC", "TASKS", "Options", "build"]

CITATION = "a control of this project: FedAvg, then a pass over the public set, in each round"
TASKS = ("sentence",)
NETWORK = "feded"
PUBLIC = True
Options = fedavg.Options


def build(task: SentenceTask, settings: Settings, options: fedavg.Options) -> Method:
    if task.size(task.public) == 0:
        raise UserError('There is no public set to pass over; set option "public" above 0.')
    method = fedavg.build(task, settings, options)
    (exchange,) = method.exchanges

    def fold(state: State, folded: Folded) -> State:
        mean = exchange.fold(state, folded)
        model = public_passes(
            task,
            settings,
            mean.model,
            round=folded.round,
            loss=plain_loss(task),
            passes=1,
            purpose="public",
        )
        return State(model, mean.memory)

    return replace(method, citation=CITATION, exchanges=(replace(exchange, fold=fold),))
