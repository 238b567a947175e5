"""Public only (a reference): the coordinator trains on the public set D_v alone; no silo sends
anything.

The first column of FedED's Table 6: what a third party could do with its own small labelled set,
without the silos. A round is E epochs over D_v from the last round's model, on the same schedule as
the methods it is compared with. FedED makes one pass a round: EPOCHS=1 gives as many.
"""

from __future__ import annotations

from dataclasses import dataclass

from config.errors import UserError
from config.settings import Settings
from methods.base import (
    Answer,
    Broadcast,
    Exchange,
    Folded,
    Heard,
    Method,
    SiloView,
    State,
)
from methods.common.public import plain_loss, public_passes
from methods.common.weighted import first_model
from methods.dp.coverage import refuse_reference
from methods.feded import FULL_SIZE
from methods.tasks.sentence import SentenceTask

__all__ = ["CITATION", "FULL_SIZE", "NETWORK", "PUBLIC", "REFERENCE", "TASKS", "Options", "build"]

CITATION = "Sui et al. 2020, FedED, EMNLP: the column trained on the validation set of its Table 6"
TASKS = ("sentence",)
NETWORK = "feded"
PUBLIC = True
REFERENCE = "A reference, not a federation: the coordinator trained on the public set alone."
_NOTHING_TO_PROTECT = "no silo trains or sends anything, so there is nothing to protect"


@dataclass(frozen=True)
class Options:
    """Nothing of its own; `public` of the task says how large D_v is."""


def build(task: SentenceTask, settings: Settings, options: Options) -> Method:
    refuse_reference("public_only", settings, _NOTHING_TO_PROTECT)
    if settings.keep_optimizer:
        raise UserError("KEEP_OPTIMIZER=on means nothing for public_only: no silo trains.")
    if task.size(task.public) == 0:
        raise UserError('There is no public set to train on; set option "public" above 0.')

    def broadcast(state: State, round: int, cohort: tuple[int, ...]) -> Broadcast:
        return Broadcast({})

    def answer(silo: SiloView, heard: Heard) -> Answer:
        return Answer()

    def fold(state: State, folded: Folded) -> State:
        model = public_passes(
            task,
            settings,
            state.model,
            round=folded.round,
            loss=plain_loss(task),
            passes=settings.epochs,
            purpose="public",
        )
        return State(model, state.memory)

    exchange = Exchange("public", (), broadcast, answer, fold)
    return Method("public_only", CITATION, (exchange,), first_model(task))
