"""FedNER: silos that annotate different entity types teach each other all of them, through prompts
of a frozen BART.

Wang et al. 2023, "Federated Domain Adaptation for Named Entity Recognition via Distilling with
Heterogeneous Tag Sets", Findings of ACL. With theta the prompts, T^k the types that silo k
annotates and T\\k the others:

1. *Pseudo-complete annotation* (section 3.2). Each silo decodes its sentences with the received
   theta and adds what it finds of T\\k to its own annotation. In the first round theta is random,
   so gold alone is used.
2. *Instance weights* (section 3.3, algorithm 2). At theta, dropout off, g_i = d source_i / dq for
   every sentence, and G_k = mean_i d target_i / dq. The silos' G_k are summed; each silo subtracts
   its own and has g_tgt, the sum of the others'. Then w_i <- alpha w_i + (1 - alpha) cos(g_i,
   g_tgt), from one.
3. *Training* on mean_i (w_i source_i + target_i + end_i); the update is averaged over silos, each
   counting the same.

Where the paper leaves a choice: G_k is a mean (equation 7), not algorithm 2's sum, so that large
silos do not drown small ones; a zero gradient leaves w_i alone; `weights=safe` clips at zero and
rescales to mean one the weights of a silo's sentences that have such a gradient, because raw
weights all shrink towards the mean cosine and the source loss fades (docs/ner.md has what that
costs); it is the default, `weights=paper` the printed form. Only q, its projections and the label
weights travel; the language model never does.

With DP=record G_k is a mean of clipped gradients with noise, charged as a release of its own, and
it is that noisy G_k that the silo subtracts from the sum: then w_i depends on sentence i, on models
and on noisy releases, and on no other sentence. `safe` would break that by its mean, so
`weights=shifted` stands in for it: w_i moves towards 1 + cos, which is never negative and one where
the cosine says nothing. (As printed w_i fades towards cosines that noise has made small, and the
loss on a silo's own annotation with it.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from config.errors import UserError
from config.settings import Settings
from methods import options
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
from methods.common.previous import previous_model, remembered
from methods.common.pseudo import pseudo_complete
from methods.common.training import apply_update, difference, load, parameters, specs, train
from methods.dp.releases import noised
from methods.fedavg import update_disclosure

__all__ = [
    "ABLATIONS",
    "CITATION",
    "NETWORK",
    "TASKS",
    "Options",
    "build",
    "new_weights",
    "prompt_gradients",
]

CITATION = (
    "Wang et al. 2023, Federated Domain Adaptation for Named Entity Recognition via Distilling with Heterogeneous "
    "Tag Sets, Findings of ACL"
)
TASKS = ("ner",)
NETWORK = "pointer"
ABLATIONS = ("none", "no_weight", "no_distill")
WEIGHTS = ("safe", "shifted", "paper")
_CHUNK = 32  #: sentences whose gradients are computed in one backward pass


@dataclass(frozen=True)
class Options:
    #: no_weight: all w_i = 1; no_distill: nor any pseudo-annotation (w/o distill&weight)
    ablation: str = "none"
    #: safe: clipped at zero, mean one; shifted: 1 + cos; paper: cos; empty: safe, DP=record shifted
    weights: str = ""
    alpha: float = 0.9  #: momentum of the weights
    #: how target gradients travel: masked (only their sum is readable), or sealed as printed
    channel: str = "masked"


def _target_disclosure(channel: str) -> Disclosure:
    told = {
        "masked": "nothing of one silo alone; every silo learns the sum of the others' gradients, which with two silos "
        "is the other's own",
        "sealed": "how this silo's sentences would move the prompts towards the types it does not annotate; the "
        "coordinator reads it for each silo apart",
    }
    return Disclosure(
        name="target",
        channel="masked" if channel == "masked" else "sealed",
        shape="one number per entry of the prompt array q: a mean gradient",
        reveals=told[channel],
        privacy="not covered by DP-SGD: a release of its own, clipped by sentence and noised when a budget is set",
    )


def prompt_gradients(
    task: Any, model: nn.Module, data: Any, clip: float = float("inf")
) -> tuple[np.ndarray, np.ndarray]:
    """g_i of every sentence, (sentences, N_q * d), and G, (N_q, d): gradients with respect to q,
    dropout off.

    Every sentence of a chunk gets a copy of q of its own, so that one backward pass gives all their
    gradients. `clip` is the most that the norm of one sentence's part of G may be, before it is
    divided by their number.
    """
    model.eval()
    prompts: Any = model.prompts
    source = np.zeros((len(data.indices), prompts.q.weight.numel()), dtype=np.float32)
    total = np.zeros(tuple(prompts.q.weight.shape), dtype=np.float64)
    frozen = [p for p in model.parameters() if p.requires_grad]
    for p in frozen:
        p.requires_grad_(False)
    try:
        for chosen in task.chunks(data, _CHUNK):
            batch = task.batch(data, chosen)
            q = prompts.expanded(len(chosen))
            mine, others, _ = task.network.parts(model, batch, q)
            (g,) = torch.autograd.grad(mine.sum(), q, retain_graph=True)
            source[chosen] = g.flatten(1).nan_to_num(0.0, 0.0, 0.0).numpy()
            (g,) = torch.autograd.grad(others.sum(), q)
            if clip < float("inf"):
                norms = g.flatten(1).norm(dim=1)[:, None, None]
                g = torch.where(
                    norms.isfinite(), g * (clip / norms.clamp(min=1e-12)).clamp(max=1.0), 0.0
                )
            total += g.sum(dim=0).numpy()
    finally:
        for p in frozen:
            p.requires_grad_(True)
    return source, (total / max(1, len(data.indices))).astype(np.float32)


def new_weights(
    w: np.ndarray, source: np.ndarray, target: np.ndarray, alpha: float, mode: str
) -> np.ndarray:
    """Equation 12 for all sentences of a silo at once."""
    g, t = source.astype(np.float64), target.astype(np.float64).ravel()
    norms, length = np.linalg.norm(g, axis=1), float(np.linalg.norm(t))
    if not np.isfinite(length):  # weights that it made would stay: each stands on the one before
        return w.astype(np.float32)
    defined = (norms > 0) & (length > 0)
    cosine = np.divide(g @ t, norms * length, out=np.zeros(len(g)), where=defined)
    new = np.where(defined, alpha * w + (1 - alpha) * (cosine + (mode == "shifted")), w)
    if mode == "safe" and defined.any():
        # Only sentences that have a source loss: the others' weights do nothing, and would draw the
        # mean to themselves.
        kept = np.clip(new[defined], 0.0, None)
        new[defined] = kept / kept.mean() if kept.mean() > 0 else 1.0
    return new.astype(np.float32)


def _remembered(silo: SiloView, count: int, round: int) -> np.ndarray:
    """The silo's instance weights before this round; ones at first, or if its data have changed
    since.
    """
    kept = previous_model(silo.memory, round).get("instance_weights")
    return np.ones(count, np.float32) if kept is None or len(kept) != count else np.asarray(kept)


def build(task: Any, settings: Settings) -> Method:
    o: Options = options("fedner", task.name, settings.options)
    if not o.weights:
        o = replace(o, weights="shifted" if settings.dp == "record" else "safe")
    for key, known in (
        ("ablation", ABLATIONS),
        ("weights", WEIGHTS),
        ("channel", ("masked", "sealed")),
    ):
        if getattr(o, key) not in known:
            raise UserError(
                f'Option "{key}" must be one of {", ".join(known)}, not "{getattr(o, key)}".'
            )
    if not 0.0 <= o.alpha <= 1.0:
        raise UserError(f'Option "alpha" must be between 0 and 1, not {o.alpha}.')
    if task.network.name != "pointer":
        raise UserError("The method fedner trains prompts; it needs the pointer network.")
    if settings.dp == "record" and o.weights == "safe":
        raise UserError(
            'The method "fedner" does not run with DP=record and weights=safe: it scales by the mean of all weights, '
            "so that one sentence changes the loss of every other; use weights=shifted."
        )
    weighted, distilled = o.ablation == "none", o.ablation != "no_distill"
    shapes = parameters(task.new_model(0))
    q_shape = shapes["prompts.q.weight"].shape

    def init(seed: int) -> State:
        memory = {"target": np.zeros(q_shape, np.float32)} if weighted else {}
        return State(parameters(task.new_model(seed)), memory)

    def show_model(state: State, round: int, cohort: tuple[int, ...]) -> Broadcast:
        return Broadcast(state.model)

    def show_target(state: State, round: int, cohort: tuple[int, ...]) -> Broadcast:
        return Broadcast({"target": state.memory["target"]})

    def annotated(silo: SiloView, model: nn.Module, round: int) -> Any:
        return pseudo_complete(task, model, silo.data) if distilled and round > 0 else silo.data

    def measure(silo: SiloView, heard: Heard) -> Answer:
        """The silo's half of step 2: its gradients at the received model."""
        model = load(task.new_model(0), heard.common)
        data = annotated(silo, model, heard.round)
        if settings.dp == "record":
            source, own = prompt_gradients(task, model, data, settings.clip)
            # in the first round there is no pseudo-annotation, and G is zero whatever the data are
            if heard.round > 0:
                n = max(1, task.size(data))
                own = noised(
                    silo, heard.round, "target gradient", own * np.float64(n), settings.clip
                ) / np.float32(n)
        else:
            source, own = prompt_gradients(task, model, data)
        found = sum(map(len, data.pseudo)) if data.pseudo is not None else 0
        carry = {"model": heard.common, "data": data, "source": source, "own": own}
        sent = {"target": own}
        return Answer(
            masked=sent if o.channel == "masked" else {},
            sealed=sent if o.channel == "sealed" else {},
            carry=carry,
            notes={"pseudo_entities": float(found)},
        )

    def keep_target(state: State, folded: Folded) -> State:
        total = folded.total["target"] if o.channel == "masked" else _summed(folded)
        return State(state.model, {"target": total.astype(np.float32)})

    def answer(silo: SiloView, heard: Heard) -> Answer:
        """The silo's half of step 3."""
        start = silo.carry["model"] if weighted else heard.common
        model = load(task.new_model(0), start)
        data = silo.carry["data"] if weighted else annotated(silo, model, heard.round)
        n = task.size(data)
        notes: dict[str, float] = {"examples": float(n)}
        memory: Arrays | None = None
        if weighted and n:
            others = np.asarray(heard.common["target"], np.float32) - silo.carry["own"]
            w = new_weights(
                _remembered(silo, n, heard.round), silo.carry["source"], others, o.alpha, o.weights
            )
            data = replace(data, weights=w)
            memory = remembered(silo.memory, heard.round, {"instance_weights": w})
            notes |= {
                "weight_min": float(w.min()),
                "weight_mean": float(w.mean()),
                "weight_max": float(w.max()),
            }
        if n:
            notes |= train(silo, model, heard.round, data)
        update = {f"update/{k}": v for k, v in difference(model, start).items()}
        return Answer(masked=update, memory=memory, notes=notes)

    def average(state: State, folded: Folded) -> State:
        """The uniform mean: weighting by size made small platforms worse (appendix C)."""
        if not folded.survivors:
            return state
        return State(apply_update(state.model, folded.total, len(folded.survivors)), state.memory)

    declared = {"target": ArraySpec(tuple(q_shape), "float32", 64.0)}
    target = Exchange(
        name="target",
        disclosures=(_target_disclosure(o.channel),),
        broadcast=show_model,
        answer=measure,
        fold=keep_target,
        masked=declared if o.channel == "masked" else {},
        sealed=declared if o.channel == "sealed" else {},
    )
    training = Exchange(
        name="train",
        disclosures=(update_disclosure("all of a silo's sentences"),),
        broadcast=show_target if weighted else show_model,
        answer=answer,
        fold=average,
        masked=specs(shapes),
    )
    return Method("fedner", CITATION, (target, training) if weighted else (training,), init)


def _summed(folded: Folded) -> np.ndarray:
    return np.sum(
        [folded.sealed[k]["target"].astype(np.float64) for k in sorted(folded.sealed)], axis=0
    )
