"""Adversarial baseline of FedNER: a squared domain loss, and predictions on unlabelled types made
certain.

Hong et al. 2021, "Federated Adversarial Debiasing for Fair and Transferable Representations", KDD,
as Wang et al. 2023 (appendix A) put it on the pointer model: the adversarial loss is squared, for
fairness among the platforms, and the entropy of the prediction is minimised on the tokens of the
entities that the global model predicts for types outside the tag set.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from config.settings import Settings
from methods.base import Method
from methods.common.adversarial import Step, build_adversarial, domain_loss
from methods.common.pseudo import WANG_2023
from methods.fadv_peng import entropy
from methods.tasks.ner import NerTask
from models.pointer_targets import Origin

__all__ = ["CITATION", "FULL_SIZE", "NETWORK", "TASKS", "Options", "build"]

CITATION = (
    "Hong et al. 2021, Federated Adversarial Debiasing for Fair and Transferable Representations, KDD "
    "(as in Wang et al. 2023)"
)
TASKS = ("ner",)
NETWORK = "pointer"
FULL_SIZE = WANG_2023


@dataclass(frozen=True)
class Options:
    adversary: float = 0.1  #: weight of the squared domain loss
    certainty: float = 0.1  #: weight of the entropy
    distill: bool = True  #: train on pseudo-complete annotation


def build(task: NerTask, settings: Settings, options: Options) -> Method:
    def extra(step: Step) -> torch.Tensor:
        pseudo = step.batch.origins == Origin.TARGET
        uncertain = (entropy(step.logits) * pseudo).sum(dim=1).mean()
        return options.adversary * domain_loss(step) ** 2 + options.certainty * uncertain

    return build_adversarial("fadv_hong", CITATION, task, distill=options.distill, extra=extra)
