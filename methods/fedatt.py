"""FedAtt: layer by layer, silos that moved further from the global model weigh more.

Ji et al. 2019, "Learning Private Neural Language Modeling with Attentive Aggregation", IJCNN. For
every parameter tensor l: s_k = ||w - w_k||, a = softmax over k of s, and w <- w - eps * sum_k a_k
(w - w_k).

The published method reads every silo's parameters. Here it runs under secure aggregation, in two
exchanges: silos send only their norms, one number per tensor; the coordinator tells each silo its
own weights a_k; silos send a_k times their update, masked. If a silo is lost in between, the
weights of the others are scaled up to one again, which is the softmax over those who are left.

Frobenius norms, eps 1 and no noise by default (methods.md, section 7); the authors' own norm of a
matrix is the spectral one.
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
from methods.common.training import difference, load, parameters, specs, train
from methods.common.weighted import first_model, send_model, update_disclosure
from methods.dp.coverage import TRAINED
from methods.tasks.base import Task

__all__ = ["CITATION", "TASKS", "Options", "attention", "build", "norms"]

CITATION = (
    "Ji et al. 2019, Learning Private Neural Language Modeling with Attentive Aggregation, IJCNN"
)
TASKS = ("sentence", "document", "distant", "ner")

#: Weights are told to each silo alone, so the sum's context cannot bind them.
_ALL_TO_ONE = "the coordinator lies and gives one silo all the weight"


@dataclass(frozen=True)
class Options:
    eps: float = 1.0  #: step size of the coordinator
    norm: str = "frobenius"  #: or spectral, as in the authors' code


_NORMS = Disclosure(
    name="norms",
    channel="sealed",
    shape="one number per parameter tensor: how far training moved it",
    reveals="how much each silo's training changed each layer, which tells roughly how many and how unusual its "
    "examples are",
    privacy="free after DP-SGD (it is computed from the trained model); otherwise not protected",
)
_PRIVACY = Privacy(RecordPrivacy({"norms": TRAINED, "update": TRAINED}), silo=True)


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


def attention(distances: np.ndarray) -> np.ndarray:
    """a: softmax down the silos of (silos, tensors) distances, the largest subtracted first."""
    s = distances.astype(np.float64)
    e = np.exp(s - s.max(axis=0))
    return e / e.sum(axis=0)


def build(task: Task, settings: Settings, options: Options) -> Method:
    o = options
    check_choice("norm", o.norm, ("frobenius", "spectral"))
    shapes = parameters(task.new_model(0))
    layers = len(shapes)

    def learn(silo: SiloView, heard: Heard) -> Answer:
        model = load(task.new_model(0), heard.common)
        notes = train(silo, model, heard.round) if task.size(silo.data) else {"examples": 0.0}
        update = difference(model, heard.common)
        return Answer(
            sealed={"norms": norms(update, o.norm)}, carry={"update": update}, notes=notes
        )

    def weigh(state: State, folded: Folded) -> State:
        silos = [s for s in folded.survivors if s in folded.sealed]
        a = (
            attention(np.stack([folded.sealed[s]["norms"] for s in silos]))
            if silos
            else np.zeros((0, layers))
        )
        return State(
            state.model, {f"attention/{s}": row.astype(np.float32) for s, row in zip(silos, a)}
        )

    def send_weights(state: State, round: int, cohort: tuple[int, ...]) -> Broadcast:
        nothing = np.zeros(layers, np.float32)
        return Broadcast(
            {}, {s: {"attention": state.memory.get(f"attention/{s}", nothing)} for s in cohort}
        )

    def send_update(silo: SiloView, heard: Heard) -> Answer:
        a = heard.private["attention"]
        return Answer(
            masked={
                f"update/{k}": a[l] * v for l, (k, v) in enumerate(silo.carry["update"].items())
            }
        )

    def fold(state: State, folded: Folded) -> State:
        rows = [
            state.memory[f"attention/{s}"]
            for s in folded.survivors
            if f"attention/{s}" in state.memory
        ]
        if not rows:
            return State(state.model)
        # one, unless a silo was lost in between
        given = np.stack(rows).astype(np.float64).sum(axis=0)
        model = {
            k: (v.astype(np.float64) + o.eps * folded.total[f"update/{k}"] / given[l]).astype(
                np.float32
            )
            for l, (k, v) in enumerate(state.model.items())
        }
        return State(model)

    first = Exchange(
        name="train",
        disclosures=(_NORMS,),
        broadcast=send_model,
        answer=learn,
        fold=weigh,
        sealed={"norms": ArraySpec((layers,), "float32")},
    )
    second = Exchange(
        name="attend",
        disclosures=(
            update_disclosure("all of a silo's examples, weighted by attention,", _ALL_TO_ONE),
        ),
        broadcast=send_weights,
        answer=send_update,
        fold=fold,
        masked=specs(shapes),
    )
    return Method("fedatt", CITATION, (first, second), first_model(task), privacy=_PRIVACY)
