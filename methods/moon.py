"""MOON: a local model's representations stay near the global model's and away from its own earlier
ones.

Li, He and Song 2021, "Model-Contrastive Federated Learning", CVPR. For every example, with x its
representation by the model in training, g by the global model received and p by the silo's own
model of the last round it trained in,

    L_con = -log( e^{cos(x,g)/tau} / (e^{cos(x,g)/tau} + e^{cos(x,p)/tau}) ),      L = L_sup + mu mean L_con.

g and p are computed in eval mode and without gradients. On a silo's first participation there is no
p and the term is left out (with p = g it would be the constant log 2 anyway). The previous model is
kept on the silo's disk and never sent. The original's projection head is the task's option
`projection` (256 there); 0 contrasts h itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from config.settings import Settings
from methods.base import Heard, Method, SiloView
from methods.common.previous import previous_model
from methods.common.training import load
from methods.common.weighted import COVERED, Aim, averaged
from methods.tasks.sentence import Batch, Data, SentenceTask
from models.sentence_encoder import SentenceEncoder

__all__ = ["CITATION", "NETWORK", "TASKS", "Options", "build", "contrast", "contrasts"]

CITATION = "Li et al. 2021, Model-Contrastive Federated Learning, CVPR"
TASKS = ("sentence",)
NETWORK = "fedcmc"


@dataclass(frozen=True)
class Options:
    mu: float = 1.0  #: weight of the contrast
    tau: float = 0.5  #: its temperature
    weight_cap: int = 2000


Similarity = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def contrast(
    x: torch.Tensor,
    g: torch.Tensor,
    p: torch.Tensor,
    tau: float,
    similarity: Similarity = F.cosine_similarity,
) -> torch.Tensor:
    """Mean over the rows of L_con."""
    return contrasts(x, g, p, tau, similarity).mean()


def contrasts(
    x: torch.Tensor,
    g: torch.Tensor,
    p: torch.Tensor,
    tau: float,
    similarity: Similarity = F.cosine_similarity,
) -> torch.Tensor:
    """L_con of every row: each depends on its own record and on models, so that DP-SGD can clip it
    by record.
    """
    scores = torch.stack([similarity(x, g), similarity(x, p)], dim=-1) / tau
    return -F.log_softmax(scores, dim=-1)[:, 0]


def build(task: SentenceTask, settings: Settings, options: Options) -> Method:
    def objective(silo: SiloView[SentenceTask, Data], heard: Heard) -> Aim:
        before = previous_model(silo.memory, heard.round)
        if not before:
            return Aim()
        received = load(task.new_model(0), heard.common).eval()
        previous = load(task.new_model(0), before).eval()

        def seen(
            model: SentenceEncoder, batch: Batch
        ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            with torch.no_grad():
                g, p = task.features(received, batch), task.features(previous, batch)
            return task.features(model, batch), g, p

        def loss(model: SentenceEncoder, batch: Batch) -> torch.Tensor:
            x, g, p = seen(model, batch)
            return F.cross_entropy(model.classify(x), batch.relation) + options.mu * contrast(
                x, g, p, options.tau
            )

        def each(model: SentenceEncoder, batch: Batch) -> torch.Tensor:
            x, g, p = seen(model, batch)
            known = F.cross_entropy(model.classify(x), batch.relation, reduction="none")
            return known + options.mu * contrasts(x, g, p, options.tau)

        return Aim(loss, each)

    return averaged(
        "moon",
        CITATION,
        task,
        objective=objective,
        privacy=COVERED,
        weight_cap=options.weight_cap,
        remember=True,
    )
