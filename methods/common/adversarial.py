"""The frame of the adversarial NER baselines: the pointer model beside discriminators that guess a
sentence's domain.

Wang et al. 2023, appendix A: on the hidden states of every encoder layer stands a K-way
discriminator, one linear layer (a K x d matrix), K the number of platforms. It learns to tell the
domain; the prompts, through a reversed gradient (Ganin et al. 2016), learn to make that hard.
Discriminators are trained and averaged with the prompts, so they travel.

The appendix does not say whether the baselines see pseudo-complete annotation. Hong's minimises the
entropy on predicted tokens, so predictions are there, and without them no baseline could beat the
ablation without distillation as all three do; they are used here, and `distill=off` takes them
away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from config.errors import UserError
from methods.base import (
    Answer,
    Arrays,
    Broadcast,
    Exchange,
    Folded,
    Heard,
    Method,
    Privacy,
    RecordPrivacy,
    SiloView,
    State,
)
from methods.common.pseudo import pseudo_complete
from methods.common.training import apply_update, load, parameters, specs, train
from methods.common.weighted import update_disclosure, updates
from methods.dp.coverage import TRAINED
from methods.tasks.ner import Data, NerTask
from methods.tasks.ner_networks import Batch
from models.device import first_numbers, place
from models.pointer import PointerNer, family_of, losses_of, split_losses
from models.prompted import Source

__all__ = ["Adversary", "Step", "build_adversarial", "domain_loss", "reverse"]


class _Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return -grad


def reverse(x: torch.Tensor) -> torch.Tensor:
    """x itself; its gradient with the sign turned."""
    out: torch.Tensor = _Reverse.apply(x)
    return out


class Adversary(nn.Module):
    """The discriminators, and whatever else a baseline adds."""

    def __init__(self, layers: int, domains: int, width: int) -> None:
        super().__init__()
        self.discriminators = nn.ParameterList([torch.zeros(domains, width) for _ in range(layers)])


class _Pair(nn.Module):
    def __init__(self, ner: PointerNer, adversary: Adversary) -> None:
        super().__init__()
        self.ner, self.adversary = ner, adversary


@dataclass(frozen=True)
class Step:
    """What one training step has computed, for a baseline to add its own losses to."""

    batch: Batch
    states: torch.Tensor  #: the decoder's last layer, (rows, steps, width)
    source: Source  #: the encoded sentences
    logits: torch.Tensor
    domain: int  #: of this silo
    ner: PointerNer
    adversary: Adversary


def domain_loss(step: Step) -> torch.Tensor:
    """Cross-entropy of the true domain, mean over real pieces and encoder layers, gradient
    reversed.
    """
    real = step.batch.inputs.real
    wanted = torch.full((int(real.sum()),), step.domain)
    each = [
        F.cross_entropy(reverse(hidden[real]) @ weights.T, wanted)
        for hidden, weights in zip(step.source.layers, step.adversary.discriminators)
    ]
    return torch.stack(each).mean()


def build_adversarial(
    name: str,
    citation: str,
    task: NerTask,
    *,
    distill: bool,
    extra: Callable[[Step], torch.Tensor],
    adversary: Callable[[int, int, int], Adversary] = Adversary,
) -> Method:
    """FedAvg's uniform mean of prompts and adversary, trained on the NER loss plus `extra`."""
    if task.network.name != "pointer":
        raise UserError(f"The method {name} trains prompts; it needs the pointer network.")
    config = task.checkpoint.backbone.config

    def new_pair(seed: int) -> _Pair:
        with first_numbers(seed):
            layers, *_ = family_of(task.checkpoint.name, config).sizes(config)["encoder"]
            beside = adversary(layers, task.platforms, int(config.d_model))
        ner = task.new_model(seed)
        assert isinstance(ner, PointerNer)  # any other network is refused above
        return _Pair(ner, place(beside))

    shapes = parameters(new_pair(0))

    def split(values: Arrays) -> State:
        """The model is what the task knows; the adversary is the method's own."""
        model = {k.removeprefix("ner."): v for k, v in values.items() if k.startswith("ner.")}
        return State(model, {k: v for k, v in values.items() if not k.startswith("ner.")})

    def joined(state: State) -> dict[str, np.ndarray]:
        both = {**{f"ner.{k}": v for k, v in state.model.items()}, **state.memory}
        return {k: both[k] for k in shapes}

    def init(seed: int) -> State:
        return split(parameters(new_pair(seed)))

    def broadcast(state: State, round: int, cohort: tuple[int, ...]) -> Broadcast:
        return Broadcast(joined(state))

    def answer(silo: SiloView[NerTask, Data], heard: Heard) -> Answer:
        pair = load(new_pair(0), heard.common)
        data, n = silo.data, task.size(silo.data)
        notes = {"examples": float(n)}
        if n:
            domain = int(data.platform[data.indices[0]])
            if distill and heard.round > 0:
                data = pseudo_complete(task, pair.ner, data)

            def loss(model: _Pair, batch: Batch) -> torch.Tensor:
                states, source = model.ner.states(batch.inputs, batch.tokens)
                logits = model.ner.score(batch.inputs, states, source)
                source_loss, target_loss, end_loss = split_losses(
                    losses_of(logits, batch.tokens), batch.origins
                )
                step = Step(
                    batch=batch,
                    states=states,
                    source=source,
                    logits=logits,
                    domain=domain,
                    ner=model.ner,
                    adversary=model.adversary,
                )
                return (source_loss + target_loss + end_loss).mean() + extra(step)

            notes |= train(silo, pair, heard.round, data, loss=loss)
        return Answer(masked=updates(pair, heard.common), notes=notes)

    def fold(state: State, folded: Folded) -> State:
        if not folded.survivors:
            return state
        return split(apply_update(joined(state), folded.total, len(folded.survivors)))

    exchange = Exchange(
        name="train",
        disclosures=(
            update_disclosure("all of a silo's sentences, domain discriminators included,"),
        ),
        broadcast=broadcast,
        answer=answer,
        fold=fold,
        masked=specs(shapes),
    )
    privacy = Privacy(RecordPrivacy({"update": TRAINED}), silo=True)
    return Method(name, citation, (exchange,), init, privacy=privacy)
