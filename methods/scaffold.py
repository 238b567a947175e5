"""SCAFFOLD: control variates tell every silo how its gradient differs from everybody's, and
training corrects for it.

Karimireddy et al. 2020, "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML. A
silo steps along g - c_i + c; afterwards it sends its update and its new control variate c_i, both
masked; the coordinator moves the model by the mean update, and c is the mean of the survivors' c_i.

Algorithm 1 has silos send the *change* of c_i, and moves c by it. That is memory which nothing in
the sum's context binds: a coordinator that shows one model twice, the first time without a victim,
gets a sum in which everybody else's change is zero and the victim's is its whole gradient
(`memory-difference` in docs/secagg.md). So silos send c_i itself. With all silos in every round
both forms give the same c; with fewer, ours forgets those who were not asked. For the same reason
the correction is with the gradient at the received model, which has just been computed, and not
with the one that was kept: then nothing is kept at all. Before the first sum there is no c, and
nothing is corrected. Under DP=record and with `variate=drift` the variate is known only after
training, so that the kept one corrects; there the update depends on memory.

The new c_i is the gradient of the silo's loss at the received model (option I of the paper). Option
II, (x - y_i) / (K lr) - c + c_i, is the mean gradient of the steps taken only if they are plain
SGD; under Adam, which every sentence task uses, it would be something else by orders of magnitude.
It is refused where a task does not train by SGD.

With DP=record the gradient at the received model would be a second release about the same records.
c_i is then the mean of the noisy gradients of the steps taken, before the correction: what option
II estimates, under any optimizer, and computed from nothing but what DP-SGD has paid for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from config.errors import UserError, check_choice
from config.settings import Settings
from methods.base import (
    Answer,
    Arrays,
    Broadcast,
    Disclosure,
    Exchange,
    Folded,
    Heard,
    Method,
    Privacy,
    RecordPrivacy,
    SiloView,
    State,
)
from methods.common.steps import round_lr
from methods.common.training import (
    apply_update,
    difference,
    load,
    parameters,
    specs,
    train,
)
from methods.common.weighted import update_disclosure
from methods.dp.coverage import TRAINED
from methods.tasks.base import Examples, Task
from models.device import here, there

__all__ = ["CITATION", "TASKS", "Options", "build", "corrected", "full_gradient"]

CITATION = "Karimireddy et al. 2020, SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML"
TASKS = ("sentence", "distant", "document", "ner")


@dataclass(frozen=True)
class Options:
    variate: str = "gradient"  #: gradient (option I) or drift (option II, for SGD)


_VARIATE = Disclosure(
    name="variate",
    channel="masked",
    shape="one number per model parameter: the silo's control variate",
    reveals="nothing of one silo alone; the sum shows the silos' mean gradient",
    privacy="free after DP-SGD (the mean of its noisy gradients); otherwise not protected beyond the sum",
)

#: Of `variate=drift`: what a silo kept decides how far it moves.
_SHOWN_TWICE = (
    "the coordinator lies and shows one model twice, first without this silo and then to all"
)
_PRIVACY = Privacy(
    RecordPrivacy(
        {
            "update": TRAINED,
            "variate": "the mean of DP-SGD's noisy gradients, which are charged as training",
        }
    ),
    silo=True,
)


def corrected(model: nn.Module, shift: Arrays) -> torch.Tensor:
    """A term whose gradient is c - c_i: added to the loss, it turns g into g - c_i + c."""
    own = dict(model.named_parameters())
    return torch.stack([(own[k] * here(v)).sum() for k, v in shift.items()]).sum()


def full_gradient(
    task: Task, model: nn.Module, data: Examples, batch: int
) -> dict[str, np.ndarray]:
    """The gradient of the silo's mean loss at the received model, dropout off."""
    model.eval()
    model.zero_grad(set_to_none=True)
    n = task.size(data)
    for part in task.batches(data, batch, np.random.default_rng(0)):
        (task.loss(model, part) * (_rows(part) / n)).backward()
    return {
        k: (there(p.grad).copy() if p.grad is not None else np.zeros(p.shape, np.float32))
        for k, p in model.named_parameters()
        if p.requires_grad
    }


def _rows(batch: Any) -> int:
    if isinstance(batch, tuple):  # documents and their labels
        return len(batch[0].window)
    return len(batch.relation) if hasattr(batch, "relation") else len(batch)


def build(task: Task, settings: Settings, options: Options) -> Method:
    o = options
    check_choice("variate", o.variate, ("gradient", "drift"))
    plain = (settings.optimizer, settings.schedule) == ("sgd", "constant")
    if o.variate == "drift" and not (plain and not settings.warmup and not settings.clip_norm):
        # Under Adam a first step is as long whatever the gradient: a second showing of one model
        # would cancel what the first left in memory, and `memory-difference` would work again. A
        # schedule or clipping makes (x - y_i) / (K lr) something else than a mean gradient.
        raise UserError(
            'Option "variate" can be drift only with OPTIMIZER=sgd at a constant rate (SCHEDULE=constant WARMUP=0 '
            "CLIP_NORM=0)."
        )
    shapes = parameters(task.new_model(0))
    zero = {k: np.zeros_like(v) for k, v in shapes.items()}

    kept = o.variate == "drift" and settings.dp != "record"
    unless = _SHOWN_TWICE if kept else ""

    def init(seed: int) -> State:
        return State(parameters(task.new_model(seed)), {f"c/{k}": v for k, v in zero.items()})

    def broadcast(state: State, round: int, cohort: tuple[int, ...]) -> Broadcast:
        return Broadcast({**{f"x/{k}": v for k, v in state.model.items()}, **state.memory})

    def answer(silo: SiloView, heard: Heard) -> Answer:
        """The loop over i of Algorithm 1: y_i from x along g - c_i + c, then the new c_i."""
        if not task.size(silo.data):
            nothing = {f"{part}/{k}": v for part in ("update", "variate") for k, v in zero.items()}
            return Answer(masked=nothing, notes={"examples": 0.0})
        s = silo.settings
        x = {k: heard.common[f"x/{k}"] for k in shapes}
        c = {k: heard.common[f"c/{k}"] for k in shapes}
        model = load(task.new_model(0), x)
        exact = o.variate == "gradient" and s.dp != "record"
        new_c_i: Arrays = full_gradient(task, model, silo.data, s.batch) if exact else {}
        # a silo that joins late starts at zero, as all did
        c_i = new_c_i if exact else {k: silo.memory.get(k, zero[k]) for k in shapes}
        told = any(
            v.any() for v in c.values()
        )  # before the first sum there is nothing to correct to
        shift = {k: c[k] - c_i[k] if told or not exact else zero[k] for k in shapes}
        noisy: dict[str, np.ndarray] = {}
        notes = train(
            silo, model, heard.round, drift=lambda m: corrected(m, shift), mean_gradient=noisy
        )
        update = difference(model, x)  # y_i - x
        if o.variate == "gradient" and not exact:
            new_c_i = {k: noisy[k].astype(np.float32) for k in shapes}
        if o.variate == "drift":
            scale = 1.0 / (notes["steps"] * round_lr(s.lr, s.decay, heard.round))
            new_c_i = {
                k: (c_i[k] - c[k] - np.float32(scale) * update[k]).astype(np.float32)
                for k in shapes
            }
        masked = {f"update/{k}": v for k, v in update.items()}
        masked |= {f"variate/{k}": v for k, v in new_c_i.items()}
        return Answer(masked=masked, memory=None if exact else new_c_i, notes=notes)

    def fold(state: State, folded: Folded) -> State:
        """x moves by the mean over the survivors; c is the mean of their c_i."""
        if not folded.survivors:
            return state
        n = len(folded.survivors)
        c = {f"c/{k}": (folded.total[f"variate/{k}"] / n).astype(np.float32) for k in shapes}
        return State(apply_update(state.model, folded.total, n), c)

    exchange = Exchange(
        name="train",
        disclosures=(update_disclosure("all of a silo's examples", unless), _VARIATE),
        broadcast=broadcast,
        answer=answer,
        fold=fold,
        masked={**specs(shapes), **specs(shapes, "variate/")},
    )
    return Method("scaffold", CITATION, (exchange,), init, privacy=_PRIVACY)
