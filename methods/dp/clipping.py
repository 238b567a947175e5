"""The sum of clipped gradients, record by record: what DP-SGD adds its noise to.

Two ways to the same sum.

* `Bookkeeper`, for networks in which the first axis of every layer is the record (all of ours, as a
  rule): one forward and one backward pass over the batch, without gradients of parameters. What
  went into each layer and what came back to its output is kept; norms of the records' gradients
  follow from these without writing the gradients out (Bu et al. 2023, "Differentially Private
  Optimization on Large Model at Small Cost", ICML: ghost norms, book-keeping), and then the clipped
  sum, by one product per layer. Opacus, whose per-record gradients of a vocabulary of V words are
  an array of records times V times d, took over five times a plain step; the tests hold this to the
  same numbers.
* `one_by_one`, for all others (whole bags, prompts that all texts share): a backward pass per
  record. Nothing is assumed of the network or of the loss, and memory is that of one record.

A parameter that is used in another way than by calling its layer gets no gradient from the first:
what is released is clipped in any case.

The bound must hold for any model that a silo is sent, also one made to break it. A record whose
gradient is not finite counts nothing. Where parts of a gradient cancel, its norm is small and its
parts are not, and rounding them would let more through than the clip: such sums are taken again in
float64, and a ten-thousandth of the sum of the parts' norms counts as norm. Squares of numbers
below 1e-19 vanish in float32: beside large inputs they are taken in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

__all__ = ["Bookkeeper", "one_by_one"]

_LAYERS = (nn.Linear, nn.Embedding, nn.LayerNorm)
#: norm of a layer's input beyond which a factor too small for float32's squares can make a gradient
_LARGE = 1e6
#: of the sum of the norms of a gradient's parts: far above float32's error in adding them
_ROUNDING = 1e-4


def _factors(squares: torch.Tensor, clip: float) -> torch.Tensor:
    """What each record's gradient is multiplied by, so that its norm is at most `clip`; 0 where it
    has none.
    """
    factors = (clip / squares.sqrt().clamp(min=1e-12)).clamp(max=1.0)
    return torch.where(torch.isfinite(squares), factors, 0.0)


def _only(good: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Zeros in place of the records that are not good: nothing times infinity is not nothing."""
    return torch.where(good.view(-1, *[1] * (x.dim() - 1)), x, torch.zeros((), dtype=x.dtype))


class Bookkeeper:
    """Hooks on a network's layers. `close` takes them off and gives the parameters their gradients
    back.
    """

    def __init__(self, model: nn.Module) -> None:
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._calls: list[tuple[nn.Module, torch.Tensor, list[torch.Tensor]]] = []
        layers = [
            m for m in model.modules() if any(p.requires_grad for p in m.parameters(recurse=False))
        ]
        odd = [type(m).__name__ for m in layers if not isinstance(m, _LAYERS)]
        if odd:
            raise TypeError(f"no norms of records' gradients are known for {odd[0]}")
        self._trained = {p: i for i, p in enumerate(self._parameters)}
        self._handles = [m.register_forward_hook(self._seen) for m in layers]
        for p in self._parameters:  # the backward pass need not compute what is computed here
            p.requires_grad_(False)

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        for p in self._parameters:
            p.requires_grad_(True)
        self._calls.clear()

    def _seen(
        self, layer: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor
    ) -> torch.Tensor:
        if not torch.is_grad_enabled():
            return output
        if not output.requires_grad:
            output.requires_grad_()
        back: list[torch.Tensor] = []
        output.register_hook(back.append)
        self._calls.append((layer, inputs[0].detach(), back))
        return output

    def clipped_sum(
        self, losses: Callable[[], torch.Tensor], clip: float, records: int | None = None
    ) -> list[torch.Tensor]:
        """`losses` computes one loss per record. Returns, per trained parameter, the sum of the
        clipped gradients.

        `records`: how many there are; another number of losses is an error of the method's.
        """
        self._calls.clear()
        each = losses()
        if records is not None and each.shape != (records,):
            raise RuntimeError(f"losses of shape {tuple(each.shape)} for {records} records")
        each.sum().backward()
        calls = [(layer, x, back[0]) for layer, x, back in self._calls if back]
        self._calls.clear()
        # whatever a layer was given is this record's: a document in two windows is two rows
        if len(each) == 1:
            calls = [(layer, x.unsqueeze(0), g.unsqueeze(0)) for layer, x, g in calls]
        if len({id(layer) for layer, _, _ in calls}) != len(calls):
            raise RuntimeError(
                "a layer was used twice; the norm of its gradient is not that of two"
            )
        squares = torch.zeros(len(each))
        for layer, x, g in calls:
            if len(x) != len(each):
                raise RuntimeError(f"a {type(layer).__name__} whose first axis is not the record")
            squares += _squares(layer, x, g, self._names(layer))
        factors, good = _factors(squares, clip), torch.isfinite(squares)
        if not good.all():
            calls = [(layer, _only(good, x), _only(good, g)) for layer, x, g in calls]
        total = [torch.zeros_like(p) for p in self._parameters]
        for layer, x, g in calls:
            scaled = g * factors.view(-1, *[1] * (g.dim() - 1))
            for name, value in _sums(layer, x, scaled, self._names(layer)).items():
                total[self._trained[getattr(layer, name)]] = value
        return total

    def _names(self, layer: nn.Module) -> frozenset[str]:
        """Which of the layer's parameters are trained: no other's gradient counts, in the norm or
        in the sum.
        """
        return frozenset(n for n, p in layer.named_parameters(recurse=False) if p in self._trained)


def _rows(x: torch.Tensor) -> torch.Tensor:
    """(records, positions, features)"""
    return x.unsqueeze(1) if x.dim() == 2 else x.flatten(1, -2)


def _real(layer: nn.Embedding, ids: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """Without what came back to padding: its row is never trained, and how much there is hangs on
    other records.
    """
    return g if layer.padding_idx is None else g * (ids != layer.padding_idx).unsqueeze(-1)


def _squares(
    layer: nn.Module, x: torch.Tensor, g: torch.Tensor, trained: frozenset[str]
) -> torch.Tensor:
    """(records,): the squared norm of each record's gradient of this layer's trained parameters,
    rounding included.
    """
    if isinstance(layer, nn.Embedding):
        ids, g = x.flatten(1), _real(layer, x, g).flatten(1, -2)
        same = ids.unsqueeze(2) == ids.unsqueeze(1)
        norms = g.norm(dim=2)

        def alike(rows: slice | torch.Tensor, g: torch.Tensor) -> torch.Tensor:
            return (_products(g) * same[rows]).sum(dim=(1, 2))

        return _sure(alike(slice(None), g), norms, g.shape[2], lambda at: alike(at, g[at].double()))
    if isinstance(layer, nn.LayerNorm):
        parts = _normed_parts(layer, x, g, trained)
        squares = torch.zeros(len(x))
        for part in parts.values():
            rows = _rows(part)
            squares = squares + (rows.sum(dim=1) ** 2).sum(dim=1) + _slack(rows.norm(dim=2))
        return squares
    assert isinstance(layer, nn.Linear)
    a, g = _rows(x), _rows(g)
    back = g.norm(dim=2)
    if "weight" not in trained:
        squares = torch.zeros(len(x))
    elif a.shape[1] == 1:
        inside = (a**2).sum(dim=(1, 2))
        squares = inside * (g**2).sum(dim=(1, 2))
        large = ~(inside <= _LARGE**2)
        if large.any():
            again = (a[large].double() ** 2).sum(dim=(1, 2)) * (g[large].double() ** 2).sum(
                dim=(1, 2)
            )
            squares = squares.masked_scatter(large, again.float())
    else:
        front = a.norm(dim=2)
        norms = front * back
        if a.shape[1] * (a.shape[2] + g.shape[2]) <= a.shape[2] * g.shape[2]:

            def both(a: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
                return (_products(a) * _products(g)).sum(dim=(1, 2))

            terms = a.shape[2] + g.shape[2]
            large = ~(front.amax(dim=1) <= _LARGE)
            squares = _sure(
                both(a, g), norms, terms, lambda at: both(a[at].double(), g[at].double()), large
            )
        else:
            squares = (torch.bmm(g.transpose(1, 2), a) ** 2).sum(dim=(1, 2)) + _slack(norms)
    if "bias" in trained:
        squares = squares + (g.sum(dim=1) ** 2).sum(dim=1) + _slack(back)
    return squares


def _products(x: torch.Tensor) -> torch.Tensor:
    """Every position's inner product with every other, (records, positions, positions)."""
    return torch.bmm(x, x.transpose(1, 2))


def _sure(
    squares: torch.Tensor,
    norms: torch.Tensor,
    terms: int,
    again: Callable[[torch.Tensor], torch.Tensor],
    large: torch.Tensor | None = None,
) -> torch.Tensor:
    """`squares`, sums of products of which float32 knows the third digit at least: of the records
    in which they may be rounding, and of the `large`, `again` in float64. `norms`: of the parts,
    which may cancel; `terms`: length of a product.
    """
    doubted = ~(squares >= 300 * 2.0**-24 * (terms + 64) * norms.sum(dim=1) ** 2)
    if large is not None:
        doubted = doubted | large
    if doubted.any():
        squares = squares.masked_scatter(doubted, again(doubted).float())
    return squares.clamp(min=0) + _slack(norms)


def _slack(norms: torch.Tensor) -> torch.Tensor:
    """What rounding may hide of a gradient whose parts have these norms, (records, parts)."""
    return (_ROUNDING * norms.sum(dim=1)) ** 2


def _normed_parts(
    layer: nn.LayerNorm, x: torch.Tensor, g: torch.Tensor, trained: frozenset[str]
) -> dict[str, torch.Tensor]:
    """What every position adds to the gradients of scale and bias."""
    if len(layer.normalized_shape) != 1:
        raise TypeError(
            "no norms of records' gradients are known for a LayerNorm over several axes"
        )
    whitened = F.layer_norm(x, layer.normalized_shape, None, None, layer.eps)
    return {k: v for k, v in (("weight", g * whitened), ("bias", g)) if k in trained}


def _sums(
    layer: nn.Module, x: torch.Tensor, g: torch.Tensor, trained: frozenset[str]
) -> dict[str, torch.Tensor]:
    """The gradients of a layer's trained parameters, from what came back to its output."""
    if isinstance(layer, nn.Embedding):
        g = _real(layer, x, g)
        rows = torch.zeros_like(layer.weight).index_add_(0, x.flatten(), g.flatten(0, -2))
        return {"weight": rows}
    if isinstance(layer, nn.LayerNorm):
        return {
            k: v.flatten(0, -2).sum(dim=0) for k, v in _normed_parts(layer, x, g, trained).items()
        }
    assert isinstance(layer, nn.Linear)
    a, g = x.flatten(0, -2), g.flatten(0, -2)
    found = {"weight": g.T @ a} if "weight" in trained else {}
    return {**found, "bias": g.sum(dim=0)} if "bias" in trained else found


def one_by_one(
    parameters: Sequence[nn.Parameter],
    batches: Iterable[Any],
    loss: Callable[[Any], torch.Tensor],
    clip: float,
) -> list[torch.Tensor]:
    """The same for any network: `batches` are of one record each, `loss` the loss of such a
    batch.
    """
    total = [torch.zeros_like(p) for p in parameters]
    for record in batches:
        found = torch.autograd.grad(loss(record), parameters, allow_unused=True)
        some = [(t, g) for t, g in zip(total, found) if g is not None]
        if not some:
            continue
        squares = torch.stack(torch._foreach_norm([g for _, g in some])).square().sum()
        factor = float(_factors(squares, clip))
        if not factor:
            continue
        torch._foreach_add_([t for t, _ in some], [g for _, g in some], alpha=factor)
    return total
