"""FedAtt: layer by layer, silos that moved further from the global model weigh more.

Ji et al. 2019, "Learning Private Neural Language Modeling with Attentive Aggregation", IJCNN. For
every parameter tensor l: s_k = ||w - w_k||, a = softmax over k of s, and w <- w - eps * sum_k a_k
(w - w_k).

The published method reads every silo's parameters. Here it runs under secure aggregation, in one
exchange and without a word to any silo alone: with e_k = exp(s_k - M), a silo sends e_k times its
update and e_k itself, both masked, and the quotient of the two sums is the softmax over those who
survived. M is one number per tensor, the same for all: it is broadcast, and cancels. It keeps e_k
near one, where fixed point is exact: it is the level that the last round's silos had, log mean
exp(s), and 0 before the first. s - M counts within one either way: trained models lie within that,
and no made one gets further.

Frobenius norms, eps 1 and no noise by default (docs/methods.md, "FedAtt"); the authors' own norm of
a matrix is the spectral one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from config.errors import check_choice
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
    Privacy,
    RecordPrivacy,
    SiloView,
    State,
)
from methods.common.training import difference, parameters, specs, trained
from methods.common.weighted import update_disclosure
from methods.dp.coverage import TRAINED
from methods.tasks.base import Task

__all__ = ["CITATION", "TASKS", "Options", "attention", "build", "norms"]

CITATION = (
    "Ji et al. 2019, Learning Private Neural Language Modeling with Attentive Aggregation, IJCNN"
)
TASKS = ("sentence", "document", "distant", "ner")

#: s - M is held within this, which bounds what one silo can weigh against another by e^2: a model
#: can be made under which one silo moves far beyond all others, and the sum would be that silo's.
_REACH = 1.0
_LEAST = 1e-6  #: a sum of e below this is no weight
_FAR = 4.0  #: how many times as far the level then moves


@dataclass(frozen=True)
class Options:
    eps: float = 1.0  #: step size of the coordinator
    norm: str = "frobenius"  #: or spectral, as in the authors' code


_ATTENTION = Disclosure(
    name="attention",
    channel="masked",
    shape="one number per parameter tensor: the exponential of how far training moved it, less a common level",
    reveals="nothing of one silo alone; the sum shows how far training moved each tensor on the whole",
    privacy="free after DP-SGD (it is computed from the trained model); otherwise not protected beyond the sum",
)
_PRIVACY = Privacy(RecordPrivacy({"attention": TRAINED, "update": TRAINED}), silo=True)


def norms(update: Arrays, kind: str = "frobenius") -> np.ndarray:
    """s_k for every tensor, float32."""
    order = 2 if kind == "spectral" else None
    return np.array(
        [
            np.linalg.norm(v.astype(np.float64), ord=order if v.ndim == 2 else None)
            for v in update.values()
        ],
        dtype=np.float32,
    )


def attention(distances: np.ndarray, level: np.ndarray) -> np.ndarray:
    """e: softmax's numerator for every tensor, float32. The level cancels in the quotient."""
    above = distances.astype(np.float64) - level
    return np.exp(np.clip(above, -_REACH, _REACH)).astype(np.float32)


def build(task: Task, settings: Settings, options: Options) -> Method:
    check_choice("norm", options.norm, ("frobenius", "spectral"))
    shapes = parameters(task.new_model(0))

    def init(seed: int) -> State:
        level = np.zeros(len(shapes), np.float32)
        return State(parameters(task.new_model(seed)), {"level": level})

    def send(state: State, round: int, cohort: tuple[int, ...]) -> Broadcast:
        return Broadcast({**{f"w/{k}": v for k, v in state.model.items()}, **state.memory})

    def answer(silo: SiloView, heard: Heard) -> Answer:
        w = {k: heard.common[f"w/{k}"] for k in shapes}
        model, notes = trained(silo, w, heard.round)
        update = difference(model, w)
        e = attention(norms(update, options.norm), heard.common["level"])
        weighed = {f"update/{k}": e[l] * v for l, (k, v) in enumerate(update.items())}
        return Answer(masked={"attention": e, **weighed}, notes=notes)

    def attend(state: State, folded: Folded) -> State:
        """w + eps sum_k a_k (w_k - w), tensor by tensor. Where noise left no weight, w stays."""
        given = np.asarray(folded.total["attention"], np.float64)
        there = given > _LEAST
        model = {
            k: (v + options.eps * folded.total[f"update/{k}"] / given[l]).astype(np.float32)
            if there[l]
            else v
            for l, (k, v) in enumerate(state.model.items())
        }
        mean = np.where(there, given, 1.0) / max(len(folded.survivors), 1)
        moved = np.where(there, np.log(mean), 0.0)
        # where all silos are at one end, the level is further away than can be seen
        moved *= np.where(np.abs(moved) > 0.9 * _REACH, _FAR, 1.0)
        return State(model, {"level": (state.memory["level"] + moved).astype(np.float32)})

    exchange = Exchange(
        name="train",
        disclosures=(
            _ATTENTION,
            update_disclosure("all of a silo's examples, weighted by attention,"),
        ),
        broadcast=send,
        answer=answer,
        fold=attend,
        masked={
            "attention": ArraySpec((len(shapes),), "float32", float(np.exp(_REACH))),
            **specs(shapes),
        },
    )
    return Method("fedatt", CITATION, (exchange,), init, privacy=_PRIVACY)
