"""Adversarial baseline of FedNER: discriminators on every encoder layer, a reversed gradient,
nothing else.

Ganin et al. 2016, "Domain-Adversarial Training of Neural Networks", JMLR, as Wang et al. 2023
(appendix A) put it on the pointer model: L = L_ner + lambda L_domain.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from config.settings import Settings
from methods.base import Method
from methods.common.adversarial import Step, build_adversarial, domain_loss
from methods.common.pseudo import WANG_2023
from methods.tasks.ner import NerTask

__all__ = ["CITATION", "FULL_SIZE", "NETWORK", "TASKS", "Options", "build"]

CITATION = "Ganin et al. 2016, Domain-Adversarial Training of Neural Networks, JMLR (as in Wang et al. 2023)"
TASKS = ("ner",)
NETWORK = "pointer"
FULL_SIZE = WANG_2023


@dataclass(frozen=True)
class Options:
    adversary: float = 0.1  #: lambda, weight of the domain loss; no paper gives it
    distill: bool = True  #: train on pseudo-complete annotation


def build(task: NerTask, settings: Settings, options: Options) -> Method:
    def extra(step: Step) -> torch.Tensor:
        return options.adversary * domain_loss(step)

    return build_adversarial("fadv_ganin", CITATION, task, distill=options.distill, extra=extra)
