"""The sum of clipped gradients, record by record, on Opacus's hooks: what DP-SGD adds its noise to.

Two ways to the same sum. Both leave it in `p.grad`, where Opacus's optimizer for fast gradient
clipping looks for it (`methods.dp.optimizer`).

* `OnePass`, for networks in which the first axis of every layer is the record (all of ours, as a
  rule). It is Opacus's ghost clipping with three differences. The norms are the hardened ones
  (`methods.dp.norms`). There is one backward pass instead of two, without gradients of parameters:
  the clipped sum follows by one product per layer from what the norms were made of (book-keeping,
  Bu et al. 2023). And a record whose gradient is not finite counts nothing, because to refuse then,
  or to send what it made of the sum, would tell that it is there. Vectors (biases, layer norms) are
  written out by record with Opacus's gradient samplers, and so is everything that is used twice.
* `OneByOne`, for all others (whole bags, prompts that all texts share): Opacus's module that adds
  no hooks, and a backward pass per record. Nothing is assumed of the network or of the loss, and
  memory is that of one record.

A parameter that is used in another way than by calling its layer gets no gradient from the first:
what is released is clipped in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from opacus.grad_sample import (
    GradSampleHooks,
    GradSampleModuleFastGradientClipping,
    GradSampleModuleNoOp,
)
from opacus.grad_sample.grad_sample_module import create_or_accumulate_grad_sample
from torch import nn
from torch.autograd.graph import get_gradient_edge

from config.errors import UserError
from methods.dp import norms

__all__ = ["OneByOne", "OnePass"]

_MOST = 1 << 28  #: numbers of gradients that are written out at once: a gigabyte


def _factors(lengths: torch.Tensor, clip: float) -> torch.Tensor:
    """What each record's gradient is multiplied by, so that its norm is at most `clip`; 0 where it
    has none.
    """
    return torch.where(
        lengths.isfinite(), (clip / lengths.clamp(min=1e-12)).clamp(max=1.0), torch.zeros(())
    )


def _only(good: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Zeros in place of the records that are not good: nothing times infinity is not nothing."""
    return torch.where(good.view(-1, *[1] * (x.dim() - 1)), x, torch.zeros((), dtype=x.dtype))


def _trained(layer: nn.Module) -> list[Any]:
    """Any: Opacus hangs its books on parameters and layers as attributes."""
    return [p for p in layer.parameters(recurse=False) if p.requires_grad]


class OnePass(GradSampleModuleFastGradientClipping):
    """`to_standard_module` takes the hooks off again."""

    #: Tables of this class alone: for everybody else in the process, Opacus's stay as they are.
    NORM_SAMPLERS: ClassVar[dict[type[nn.Module], Callable[..., Any]]] = {
        nn.Linear: norms.linear_norms,
        nn.Embedding: norms.embedding_norms,
    }
    GRAD_SAMPLERS: ClassVar[dict[type[nn.Module], Callable[..., Any]]] = {
        nn.Linear: GradSampleHooks.GRAD_SAMPLERS[nn.Linear],
        nn.Embedding: GradSampleHooks.GRAD_SAMPLERS[nn.Embedding],
        nn.LayerNorm: norms.layer_norm_gradients,
    }
    _SUMS: ClassVar[dict[type[nn.Module], Callable[..., Any]]] = {
        nn.Linear: norms.linear_sum,
        nn.Embedding: norms.embedding_sum,
    }

    def __init__(self, model: nn.Module, clip: float) -> None:
        self._edges: list[tuple[Any, Any]] = []
        self._book: list[tuple[nn.Module, torch.Tensor, torch.Tensor]] = []
        self._parts: dict[Any, torch.Tensor] = {}
        self._records = 0
        # not strict: buffers of position numbers are no harm, and what keeps statistics of a batch
        # is refused below
        super().__init__(model, loss_reduction="sum", strict=False, max_grad_norm=clip)
        odd = [m for m in self.iterate_submodules(model) if type(m) not in self.GRAD_SAMPLERS]
        if odd:
            self.to_standard_module()
            raise UserError(
                f"DP=record cannot clip in one pass what a layer of the kind {type(odd[0]).__name__} "
                "learns: nobody has said how its records' gradients are measured."
            )

    def add_hooks(self, **_: Any) -> None:
        """Forward ones only. What comes back to each layer's output is asked of autograd by name,
        so that no gradient of a parameter is computed on the way.
        """
        handles = [
            m.register_forward_hook(self.capture_activations_hook)
            for m in self.iterate_submodules(self._module)
        ]
        self._module.autograd_grad_sample_hooks = self.autograd_grad_sample_hooks = handles
        self.enable_hooks()

    def capture_activations_hook(
        self, module: nn.Module, forward_input: Any, output: torch.Tensor
    ) -> None:
        if not (module.training and self.hooks_enabled and torch.is_grad_enabled()):
            return
        # not the parent's, which refuses a parameter that is used twice
        GradSampleHooks.capture_activations_hook(self, module, forward_input, output)
        self._edges.append((module, get_gradient_edge(output)))

    def capture_backprops_hook(
        self,
        module: Any,
        _forward_input: Any,
        forward_output: Any,
        loss_reduction: str = "sum",
        batch_first: bool = True,
    ) -> None:
        """Norms of one layer's gradients, and what the clipped sum will be made of."""
        a, g = module.activations.pop()[0], forward_output[0]
        if self._records == 1:  # a document in two windows is two rows of one record
            a, g = a.unsqueeze(0), g.unsqueeze(0)
        if len(a) != self._records or len(g) != self._records:
            raise RuntimeError(f"a {type(module).__name__} whose first axis is not the record")
        own = _trained(module)
        if any(p.dim() > 1 for p in own) and all(p._forward_counter == 1 for p in own):
            for p, lengths in self.NORM_SAMPLERS[type(module)](module, [a], g).items():
                p._norm_sample = lengths
            self._book.append((module, a, g))
            return
        for p in own:
            if self._records * p.numel() > _MOST:
                raise UserError(
                    f"DP=record: a {type(module).__name__} of {p.numel()} numbers is used twice, and "
                    f"its gradients are written out for each of {self._records} records; lower "
                    f"PHYSICAL to {max(1, _MOST // p.numel())} or less."
                )
        g = norms.real(module, a, g)
        for p, written in self.GRAD_SAMPLERS[type(module)](module, [a], g).items():
            create_or_accumulate_grad_sample(
                param=p, grad_sample=written, max_batch_len=self._records
            )
            part = norms.parts(module, p, a, g)
            self._parts[p] = self._parts[p] + part if p in self._parts else part

    def get_clipping_coef(self) -> torch.Tensor:
        return _factors(self.get_norm_sample(), self.max_grad_norm)

    def clipped_backward(self, losses: Callable[[], torch.Tensor], records: int) -> None:
        """`losses` computes one loss per record. Sets `p.grad` of every trained parameter to the
        sum of the clipped gradients, or to None where no loss depends on it.
        """
        self._reset()
        for p in self.trainable_parameters:
            p.grad = None
        each = losses()
        if each.shape != (records,):
            raise RuntimeError(f"losses of shape {tuple(each.shape)} for {records} records")
        self._records = records
        nothing = torch.zeros(records)
        for p in self.trainable_parameters:
            p._norm_sample = nothing
        edges = [edge for _, edge in self._edges]
        found = torch.autograd.grad(each.sum(), edges, allow_unused=True) if edges else ()
        # from the last call to the first, as each layer's inputs are taken off its list
        for (module, _), g in zip(reversed(self._edges), reversed(found)):
            if g is None:
                module.activations.pop()
            else:
                self.capture_backprops_hook(module, None, (g,))
        for p, sums in self._parts.items():
            square = p._current_grad_sample.flatten(1).square().sum(dim=1)
            p._norm_sample = (square + norms.slack(sums)).sqrt()
        factors = self.get_clipping_coef()
        self._sum(factors, factors > 0)
        self._reset()

    def _sum(self, factors: torch.Tensor, good: torch.Tensor) -> None:
        clean = bool(good.all())
        for layer, a, g in self._book:
            g = g * factors.view(-1, *[1] * (g.dim() - 1))
            if not clean:
                a, g = _only(good, a), _only(good, g)
            for p, value in self._SUMS[type(layer)](layer, a, g).items():
                p.grad = value
        for p in self._parts:
            written = p._current_grad_sample.flatten(1)
            p.grad = (factors @ (written if clean else _only(good, written))).view_as(p)

    def cleanup(self) -> None:
        super().cleanup()
        for module in self._module.modules():
            if hasattr(module, "activations"):
                del module.activations

    def _reset(self) -> None:
        for module, _ in self._edges:
            module.activations.clear()
        for p in self._parts:
            del p._current_grad_sample
        for p in self.trainable_parameters:
            p._forward_counter = 0
        self._edges.clear()
        self._book.clear()
        self._parts.clear()


class OneByOne(GradSampleModuleNoOp):
    """Any network and any loss."""

    def __init__(self, model: nn.Module, clip: float) -> None:
        super().__init__(model, loss_reduction="sum")
        self.max_grad_norm = clip

    def clipped_backward(self, losses: Iterable[Callable[[], torch.Tensor]]) -> None:
        """The same, from one loss per record, each of that record alone."""
        own = [p for p in self._module.parameters() if p.requires_grad]
        total = [torch.zeros_like(p) for p in own]
        for loss in losses:
            found = torch.autograd.grad(loss(), own, allow_unused=True)
            some = [(t, g) for t, g in zip(total, found) if g is not None]
            if not some:
                continue
            length = torch.stack(torch._foreach_norm([g for _, g in some])).norm()
            factor = float(_factors(length, self.max_grad_norm))
            if factor:
                torch._foreach_add_([t for t, _ in some], [g for _, g in some], alpha=factor)
        for p, value in zip(own, total):
            p.grad = value
