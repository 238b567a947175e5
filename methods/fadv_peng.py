"""Adversarial baseline of FedNER: discriminators, and decoder states split into the domain's part
and the task's.

Peng et al. 2019, "Federated Adversarial Domain Adaptation", arXiv 1911.02054 (ICLR 2020), as Wang
et al. 2023 (appendix A) use it: beside the discriminators a disentanglement loss on the decoder's
last layer. The appendix says no more; after the original, a linear map S takes the domain-specific
part S u out of a state u. That part must tell the domain and must not tell the answer (its entropy
over answers is raised); the rest, u - S u, must tell the answer. Both add up to u, so the
original's reconstruction loss is zero by construction, and inference needs no S.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from config.settings import Settings
from methods.base import Method
from methods.common.adversarial import Adversary, Step, build_adversarial, domain_loss
from methods.common.pseudo import WANG_2023
from methods.tasks.ner import NerTask
from models.pointer import losses_of

__all__ = ["CITATION", "FULL_SIZE", "NETWORK", "TASKS", "Options", "build"]

CITATION = "Peng et al. 2019, Federated Adversarial Domain Adaptation, arXiv:1911.02054 (as in Wang et al. 2023)"
TASKS = ("ner",)
NETWORK = "pointer"
FULL_SIZE = WANG_2023


@dataclass(frozen=True)
class Options:
    adversary: float = 0.1  #: weight of the domain loss
    disentangle: float = 0.1  #: weight of the disentanglement loss
    distill: bool = True  #: train on pseudo-complete annotation


class _Disentangler(Adversary):
    def __init__(self, layers: int, domains: int, width: int) -> None:
        super().__init__(layers, domains, width)
        self.specific = nn.Linear(width, width, bias=False)
        self.domain = nn.Linear(width, domains, bias=False)


def disentanglement(step: Step) -> torch.Tensor:
    """Over the tokens that are trained on: domain from S u, no answer from S u, the answer from u -
    S u.
    """
    told = step.batch.origins > 0
    beside = step.adversary
    assert isinstance(beside, _Disentangler)
    specific = beside.specific(step.states)
    wanted = torch.full((int(told.sum()),), step.domain)
    domain = F.cross_entropy(beside.domain(specific[told]), wanted)
    scores = step.ner.score(step.batch.inputs, specific, step.source)[told]
    rest = step.ner.score(step.batch.inputs, step.states - specific, step.source)
    return domain - entropy(scores).mean() + losses_of(rest, step.batch.tokens)[told].mean()


def entropy(scores: torch.Tensor) -> torch.Tensor:
    """Of the answers' distribution, over the last axis; answers that cannot be chosen have no part
    in it.
    """
    log = F.log_softmax(scores, dim=-1)
    return -(log.exp() * log.masked_fill(scores == float("-inf"), 0.0)).sum(dim=-1)


def build(task: NerTask, settings: Settings, options: Options) -> Method:
    def extra(step: Step) -> torch.Tensor:
        return options.adversary * domain_loss(step) + options.disentangle * disentanglement(step)

    return build_adversarial(
        "fadv_peng", CITATION, task, distill=options.distill, extra=extra, adversary=_Disentangler
    )
