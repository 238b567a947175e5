"""The steps of one round's training: which optimizer, at which rate, with gradients of which norm.

All of it is said by the settings, so that silo, coordinator (FedED's distillation) and the warm
start of a simulation train alike. A run's steps are its rounds' steps in a row: WARMUP and SCHEDULE
are over the whole run, and a silo that has more steps in a round than another goes through the
round's part of the schedule in smaller ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from config.settings import Settings
from methods.base import Arrays
from models.device import here, there
from wire.stored import trim

__all__ = ["Steps", "optimizer_of", "rate_at", "rate_changes", "round_lr"]

_NOTHING: Arrays = {}
_MOMENTUM = 0.9
_LARGE = 10_000_000  #: parameters from which on gradients are spent one by one
_TRIM = 8  #: steps of a large model after which the machine gets back what is free
_SMALL = 1 << 16  #: below so many numbers, parameters take their steps together
#: fused: of small models on one core, Adam's plain form is half the time of a step, and SGD's takes
#: twice as long for the same bits. SGD with momentum stays plain: nobody compared its bits.
_MAKE: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": lambda p, **how: torch.optim.AdamW(p, fused=True, **how),
    "adam": lambda p, **how: torch.optim.Adam(p, fused=True, **how),
    "sgd": lambda p, **how: torch.optim.SGD(p, fused=True, **how),
    "momentum": lambda p, **how: torch.optim.SGD(p, momentum=_MOMENTUM, **how),
}


def round_lr(lr: float, decay: float, round: int) -> float:
    """lr_t = lr_0 (1 - decay)^t, as in the released code of FedLCC and FedDS."""
    return lr * (1.0 - decay) ** round


def rate_changes(s: Settings) -> bool:
    """Whether the rate is another one within a round: then its steps have to be counted first."""
    return s.warmup > 0 or s.schedule != "constant"


def rate_at(s: Settings, round: int, done: int, steps: int) -> float:
    """The learning rate of the step after `done` of this round's `steps`."""
    base = round_lr(s.lr, s.decay, round)
    share = (round + done / steps) / s.rounds  # of the run, before this step
    if s.warmup > 0 and share < s.warmup:
        after = share + 1 / (steps * s.rounds)  # so that the first step is one
        return base * min(1.0, after / s.warmup)
    left = (1.0 - share) / (1.0 - s.warmup)
    if s.schedule == "linear":
        return base * left
    if s.schedule == "cosine":
        return base * 0.5 * (1.0 - math.cos(math.pi * left))
    return base


def optimizer_of(
    s: Settings, parameters: Iterable[nn.Parameter], lr: float
) -> torch.optim.Optimizer:
    """A fresh one, as the settings say."""
    return _MAKE[s.optimizer](list(parameters), lr=lr, weight_decay=s.weight_decay)


class Steps:
    """An optimizer for one round of `steps` steps.

    `spend`: of a large model no gradient is kept. Each parameter takes its step when its gradient is
    there, within `backward`, so that the gradients of a model never are in memory together. Nothing
    else may read or change them. A bound on their common norm does: with one, gradients wait until
    all are there, each in half its memory where bfloat16 holds it exactly, which it does behind
    products in bfloat16. Then each is cut and spent while it is in the processor's cache.
    """

    def __init__(
        self,
        settings: Settings,
        model: nn.Module,
        round: int,
        steps: int,
        kept: Arrays = _NOTHING,
        *,
        spend: bool = False,
    ) -> None:
        """`kept`: what `state` gave after an earlier round; nothing: a fresh optimizer."""
        self._settings, self._round, self._steps, self._done = settings, round, steps, 0
        self._named = {k: p for k, p in model.named_parameters() if p.requires_grad}
        lr = rate_at(settings, round, 0, max(steps, 1))
        large = sum(p.numel() for p in self._named.values()) >= _LARGE
        self.spends = spend and large  #: within `backward`
        self._waits: dict[torch.Tensor, torch.Tensor] = {}  # gradients, for the norm of them all
        self._norms: dict[torch.Tensor, torch.Tensor] = {}
        together = list(self._named.values())
        self._optimizers = [optimizer_of(settings, g, lr) for g in self._groups(together)]
        self._of = {p: o for o in self._optimizers for p in o.param_groups[0]["params"]}
        self._room: dict[torch.Tensor, torch.Tensor] = {}  # for gradients that wait in bfloat16
        if self.spends:
            self._moments_first()
            if settings.clip_norm:
                self._room = {
                    p: torch.empty_like(p, dtype=torch.bfloat16) for p in _products(model)
                }
        for name, value in kept.items():
            parameter, _, what = name.rpartition("/")
            p = self._named[parameter]
            self._of[p].state[p][what] = here(np.array(value))
        taken = self._wait if settings.clip_norm else self._spend
        self._hooks = (
            [p.register_post_accumulate_grad_hook(taken) for p in together] if self.spends else []
        )

    def _groups(self, together: list[nn.Parameter]) -> list[list[nn.Parameter]]:
        """Parameters that take their steps together."""
        if not self.spends:
            return [together]
        if not self._settings.clip_norm:
            return [[p] for p in together]
        small = [p for p in together if p.numel() < _SMALL]
        return [[p] for p in together if p.numel() >= _SMALL] + ([small] if small else [])

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The one of all parameters; there is none where gradients are spent."""
        (one,) = self._optimizers
        return one

    def clear(self) -> None:
        """Before `backward`."""
        if self.spends:
            self._waits.clear()
            self._set_rate()
        else:
            for p in self._named.values():
                p.grad = None

    def step(self) -> None:
        """Along the gradients that the parameters have."""
        if not self.spends:
            self.ready()
            self.optimizer.step()
        else:
            if self._waits:
                self._spend_those_that_wait()
            if self._done % _TRIM == 0:
                trim()  # holes that fit nothing; the rest comes back page by page

    def end(self) -> None:
        """The model's gradients are its own again."""
        for hook in self._hooks:
            hook.remove()

    def _moments_first(self) -> None:
        """Adam's moments beside the parameters, before there is anything else: made by its first step,
        they would lie among that step's activations and gradients.
        """
        for p, optimizer in self._of.items():
            if isinstance(optimizer, torch.optim.Adam):  # AdamW is one
                optimizer.state[p] = {
                    "step": torch.zeros((), dtype=torch.float32, device=p.device),
                    "exp_avg": torch.zeros_like(p, memory_format=torch.preserve_format),
                    "exp_avg_sq": torch.zeros_like(p, memory_format=torch.preserve_format),
                }

    def _spend(self, p: torch.Tensor) -> None:
        self._of[p].step()
        p.grad = None

    def _wait(self, p: torch.Tensor) -> None:
        assert p.grad is not None
        self._norms[p] = torch.linalg.vector_norm(p.grad)
        self._waits[p] = p.grad
        if p in self._room and _is_bfloat16(p.grad):
            self._waits[p] = self._room[p].copy_(p.grad)
        p.grad = None

    def _spend_those_that_wait(self) -> None:
        """As `clip_grad_norm_` and one step of all would, to the bit."""
        together = [self._norms[p] for p in self._named.values() if p in self._waits]
        norm = torch.linalg.vector_norm(torch.stack(together))
        cut = torch.clamp(self._settings.clip_norm / (norm + 1e-6), max=1.0)
        for optimizer in self._optimizers:
            group = [p for p in optimizer.param_groups[0]["params"] if p in self._waits]
            for p in group:
                p.grad = self._waits.pop(p).to(p.dtype).mul_(cut)
            optimizer.step()
            for p in group:
                p.grad = None

    def ready(self) -> None:
        """What a step needs before torch's own: for whoever has the optimizer step itself
        (Opacus's wraps it).
        """
        if self._settings.clip_norm:
            nn.utils.clip_grad_norm_(self._named.values(), self._settings.clip_norm)
        self._set_rate()

    def _set_rate(self) -> None:
        rate = rate_at(self._settings, self._round, self._done, self._steps)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
        self._done += 1

    def state(self) -> dict[str, np.ndarray]:
        """What the optimizer would need to go on, by parameter: "layer.weight/exp_avg"."""
        own: Any = {p: optimizer.state.get(p, {}) for p, optimizer in self._of.items()}
        if self.spends:  # moments of parameters that never had a gradient are none
            own = {p: found if found.get("step", 1) else {} for p, found in own.items()}
        return {
            f"{name}/{what}": there(value).copy()
            for name, p in self._named.items()
            for what, value in own[p].items()
            if isinstance(value, torch.Tensor)
        }


def _products(model: nn.Module) -> Iterator[torch.Tensor]:
    """The weights whose gradients are made by products in bfloat16, and so are such numbers."""
    for encoder in model.modules():
        if getattr(encoder, "in_bfloat16", False):
            for layer in encoder.modules():
                if isinstance(layer, nn.Linear) and layer.weight.requires_grad:
                    yield layer.weight


def _is_bfloat16(gradient: torch.Tensor) -> bool:
    """Whether all its numbers are of bfloat16, which is the upper half of float32. Also where a
    product is one of several that a parameter is in, or its gradient is a sum: then it is not.
    """
    if gradient.device.type != "cpu" or gradient.dtype != torch.float32:
        return False
    bits = np.bitwise_or.reduce(there(gradient).view(np.uint32), axis=None)
    return not bits & 0xFFFF
