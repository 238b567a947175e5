"""FedRS: classes that a silo does not have are scaled down in its softmax, so that it does not
unlearn them.

Li and Zhan 2021, "FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID
Data", KDD. During local training the score w_c . h of class c is multiplied by 1 if the class
occurs at the silo and by alpha if it does not; the bias stays outside the scaling; at test time
nothing is scaled.

The authors' code instead scales by alpha + (1 - alpha) n_c / max n and applies that again in every
batch, so that it drifts to 1. This is the paper's form, computed once
(docs/methods.md, "FedRS").

With DP=record every record's loss would depend on all records through the classes that occur. So
the silo takes noisy counts, made once and charged to its budget, and a class occurs if its noisy
count is above one half.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from config.settings import Settings
from methods.base import Arrays, Heard, Method, SiloView
from methods.common.weighted import COVERED_WITH_COUNTS, Aim, averaged
from methods.dp.releases import noisy_counts
from methods.tasks.sentence import Batch, Data, SentenceTask
from models.device import here
from models.sentence_encoder import SentenceEncoder

__all__ = ["CITATION", "NETWORK", "TASKS", "Options", "build", "restricted_logits", "restriction"]

CITATION = "Li and Zhan 2021, FedRS: Restricted Softmax for Label Distribution Non-IID Data, KDD"
TASKS = ("sentence",)
NETWORK = "fedcmc"


@dataclass(frozen=True)
class Options:
    alpha: float = 0.5  #: how much of a missing class's score is left; search {0.1, 0.5, 0.9}
    weight_cap: int = 2000


def restriction(counts: np.ndarray, alpha: float) -> torch.Tensor:
    """s_c: 1 for classes that occur, alpha for the others."""
    return here(np.where(counts > 0, 1.0, alpha).astype(np.float32))


def restricted_logits(classifier: nn.Linear, h: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """s_c (w_c . h) + b_c."""
    z = F.linear(h, classifier.weight) * s
    return z if classifier.bias is None else z + classifier.bias


def build(task: SentenceTask, settings: Settings, options: Options) -> Method:
    def objective(silo: SiloView[SentenceTask, Data], heard: Heard) -> Aim:
        counts = task.class_counts(silo.data)
        memory: Arrays | None = None
        if silo.settings.dp == "record":
            noisy = noisy_counts(silo, heard.round, counts)
            counts, memory = noisy - 0.5, {"counts": noisy}
        s = restriction(counts, options.alpha)

        def loss(model: SentenceEncoder, batch: Batch) -> torch.Tensor:
            h = model.dropout(task.features(model, batch))
            return F.cross_entropy(restricted_logits(model.classifier, h, s), batch.relation)

        def each(model: SentenceEncoder, batch: Batch) -> torch.Tensor:
            h = model.dropout(task.features(model, batch))
            return F.cross_entropy(model.classifier(h) * s, batch.relation, reduction="none")

        # With a bias the classifier is used otherwise than by calling it, and gradients are had
        # record by record.
        return Aim(loss, each if task.style.bias is False else None, memory=memory)

    return averaged(
        "fedrs",
        CITATION,
        task,
        objective=objective,
        privacy=COVERED_WITH_COUNTS,
        weight_cap=options.weight_cap,
    )
