"""FedProx: FedAvg with a spring that pulls every local model back to the global one.

Li et al. 2020, "Federated Optimization in Heterogeneous Networks", MLSys. The local loss gains mu/2
||w - w_t||^2, over all trainable parameters, w_t being the model received this round.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from config.settings import Settings
from methods.base import Arrays, Heard, Method, SiloView
from methods.common.weighted import COVERED, Aim, averaged
from methods.tasks.base import Task
from models.device import here

__all__ = ["CITATION", "TASKS", "Options", "build", "proximal"]

CITATION = "Li et al. 2020, Federated Optimization in Heterogeneous Networks, MLSys"
TASKS = ("sentence", "distant", "document", "ner")


@dataclass(frozen=True)
class Options:
    mu: float = 0.01  #: stiffness of the spring; the paper searches {0.001, 0.01, 0.1, 1}
    weight_cap: int = 2000  #: silos larger than this weigh as if they had this many examples


def proximal(model: nn.Module, received: Arrays, mu: float) -> torch.Tensor:
    """mu/2 times the squared distance from the received parameters."""
    own = dict(model.named_parameters())
    apart = [((own[k] - here(v)) ** 2).sum() for k, v in received.items()]
    return 0.5 * mu * torch.stack(apart).sum()


def build(task: Task, settings: Settings, options: Options) -> Method:

    def objective(silo: SiloView, heard: Heard) -> Aim:
        # No record is in the spring: under DP-SGD its gradient is added after the noise.
        start = dict(heard.common)  # looked up once, and not in every step
        return Aim(drift=lambda model: proximal(model, start, options.mu))

    return averaged(
        "fedprox",
        CITATION,
        task,
        objective=objective,
        privacy=COVERED,
        weight_cap=options.weight_cap,
    )
