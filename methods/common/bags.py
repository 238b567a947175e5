"""What ONE, AVE, ATT and ATT_RA have in common: each silo forms bags of its own sentences and
denoises within them.

Everything but the bag is as in Lazy MIL (the paper's section 4.3: only the denoising module is
replaced): the same network, optimizer and schedule, and a mean in which every silo counts the same
(its equation 5).

With DP=record the record is the bag: a bag's loss is no sum over its sentences, so that it is a bag
that is sampled, has its gradient clipped, and hides (PRIVACY.md says what follows for one
sentence).
"""

from __future__ import annotations

from typing import Any

from methods.base import Answer, Broadcast, Exchange, Folded, Heard, Method, SiloView, State
from methods.common.training import apply_update, difference, load, parameters, specs, train
from methods.dp.dpsgd import Records
from methods.fedavg import update_disclosure

__all__ = ["build_bag_method"]


def answer(silo: SiloView, heard: Heard) -> Answer:
    """E epochs over the silo's bags, B bags to a step; an empty silo returns an update of zeros."""
    task = silo.task
    model = load(task.new_model(0), heard.common)
    notes = {"examples": 0.0}
    if task.size(silo.data):
        bags = task.bags(silo.data)
        records = Records(len(bags), lambda chosen: task.bag_batch(silo.data, bags, chosen))
        notes = train(
            silo, model, heard.round, loss=task.bag_loss, batches=task.bag_batches, records=records
        )
    return Answer(
        masked={f"update/{k}": v for k, v in difference(model, heard.common).items()}, notes=notes
    )


def uniform_mean(state: State, folded: Folded) -> State:
    if not folded.survivors:
        return state
    return State(apply_update(state.model, folded.total, len(folded.survivors)), state.memory)


def build_bag_method(name: str, citation: str, task: Any) -> Method:
    """The bag rule itself is the task's, since testing uses it too; `methods.tasks` reads it from
    `BAG_RULE`.
    """

    def init(seed: int) -> State:
        return State(parameters(task.new_model(seed)))

    def broadcast(state: State, round: int, cohort: tuple[int, ...]) -> Broadcast:
        return Broadcast(state.model)

    exchange = Exchange(
        name="train",
        disclosures=(update_disclosure("a silo's bags"),),
        broadcast=broadcast,
        answer=answer,
        fold=uniform_mean,
        masked=specs(parameters(task.new_model(0))),
    )
    return Method(name, citation, (exchange,), init)
