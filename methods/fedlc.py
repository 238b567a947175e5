"""FedLC: a margin for every class in the silo's softmax, the larger the rarer the class is there.

Zhang et al. 2022, "Federated Learning with Label Distribution Skew via Logits Calibration", ICML.
Local training minimises the cross-entropy of z_c - tau n_c^(-1/4), with n_c the silo's number of
examples of class c. A class that the silo does not have is left out of its softmax (the limit of
the formula). The true class stays in the denominator, as in every public version. At test time
nothing is subtracted.

With DP=record every record's loss would depend on all records through n_c. So the silo takes noisy
counts, made once and charged to its budget, and no class is left out: a count below one is taken
for one (under noise a class that is there may look as if it were not, and without its own class a
record has no loss).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from config.settings import Settings
from methods.base import Arrays, Heard, Method, SiloView
from methods.common.weighted import COVERED_WITH_COUNTS, Aim, averaged
from methods.dp.releases import noisy_counts
from methods.tasks.sentence import Batch, Data, SentenceTask
from models.device import here
from models.sentence_encoder import SentenceEncoder

__all__ = ["CITATION", "NETWORK", "TASKS", "Options", "build", "margins"]

CITATION = "Zhang et al. 2022, Federated Learning with Label Distribution Skew via Logits Calibration, ICML"
TASKS = ("sentence",)
NETWORK = "fedcmc"


@dataclass(frozen=True)
class Options:
    tau: float = 0.5  #: size of the margins; unstated in the paper, public versions have 0.1 to 1
    weight_cap: int = 2000


def margins(counts: np.ndarray, tau: float) -> torch.Tensor:
    """tau n_c^(-1/4); infinite for a class without examples, which removes it."""
    n = np.maximum(counts, 1).astype(np.float64)
    return here(np.where(counts > 0, tau * n**-0.25, np.inf).astype(np.float32))


def build(task: SentenceTask, settings: Settings, options: Options) -> Method:
    def objective(silo: SiloView[SentenceTask, Data], heard: Heard) -> Aim:
        counts = task.class_counts(silo.data)
        memory: Arrays | None = None
        if silo.settings.dp == "record":
            noisy = noisy_counts(silo, heard.round, counts)
            counts, memory = np.maximum(noisy, 1.0), {"counts": noisy}
        m = margins(counts, options.tau)

        def loss(model: SentenceEncoder, batch: Batch) -> torch.Tensor:
            return F.cross_entropy(model(*batch.inputs) - m, batch.relation)

        def each(model: SentenceEncoder, batch: Batch) -> torch.Tensor:
            return F.cross_entropy(model(*batch.inputs) - m, batch.relation, reduction="none")

        return Aim(loss, each, memory=memory)

    return averaged(
        "fedlc",
        CITATION,
        task,
        objective=objective,
        privacy=COVERED_WITH_COUNTS,
        weight_cap=options.weight_cap,
    )
