"""Norms of records' gradients that are never written out, in the form that Opacus registers.

A norm sampler of Opacus takes a layer, what went into it and what came back to its output, and
gives the norm of every record's gradient (ghost norms; Bu et al. 2023, "Differentially Private
Optimization on Large Model at Small Cost", ICML). Opacus's own have the same formulas. These are
hardened, because the bound must hold for any model that a silo is sent, also one made to break it:

* Where parts of a gradient cancel, its norm is small and its parts are not, and rounding them would
  let more through than the clip. Such norms are taken again in float64, and a ten-thousandth of the
  sum of the parts' norms counts as norm.
* Squares of numbers below 1e-19 vanish in float32: beside large inputs they are taken in float64.
* What comes back to padding counts nothing: its row is never trained, and how much padding a record
  has depends on other records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import nn

from models.device import exact, rounded

__all__ = [
    "embedding_norms",
    "embedding_sum",
    "layer_norm_gradients",
    "linear_norms",
    "linear_sum",
    "parts",
    "real",
    "slack",
]

#: norm of a layer's input beyond which a factor too small for float32's squares can make a gradient
_LARGE = 1e6
#: of the sum of the norms of a gradient's parts: far above float32's error in adding them
_ROUNDING = 1e-4

Found = dict[torch.Tensor, torch.Tensor]  #: by parameter


def linear_norms(
    layer: nn.Linear, activations: Sequence[torch.Tensor], backprops: torch.Tensor
) -> Found:
    """One norm for weight and bias together: it is put on the weight."""
    a, g = _rows(activations[0]), _rows(backprops)
    back = g.norm(dim=2)
    if a.shape[1] == 1:
        inside = (a**2).sum(dim=(1, 2))
        squares = inside * (g**2).sum(dim=(1, 2))
        large = ~(inside <= _LARGE**2)
        if large.any():
            first, second = ((exact(x[large]) ** 2).sum(dim=(1, 2)) for x in (a, g))
            squares = squares.masked_scatter(large, rounded(first * second))
    else:
        front = a.norm(dim=2)
        norms = front * back
        if a.shape[1] * (a.shape[2] + g.shape[2]) <= a.shape[2] * g.shape[2]:

            def both(a: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
                return (_products(a) * _products(g)).sum(dim=(1, 2))

            terms = a.shape[2] + g.shape[2]
            large = ~(front.amax(dim=1) <= _LARGE)
            squares = _sure(
                both(a, g), norms, terms, lambda at: both(exact(a[at]), exact(g[at])), large
            )
        else:
            squares = (torch.bmm(g.transpose(1, 2), a) ** 2).sum(dim=(1, 2)) + slack(norms.sum(1))
    found: Found = {layer.weight: squares}
    if layer.bias is not None and layer.bias.requires_grad:
        squares += (g.sum(dim=1) ** 2).sum(dim=1) + slack(back.sum(dim=1))
        found[layer.bias] = torch.zeros_like(squares)
    return {p: s.sqrt() for p, s in found.items()}


def embedding_norms(
    layer: nn.Embedding, activations: Sequence[torch.Tensor], backprops: torch.Tensor
) -> Found:
    """Words that are the same share a row, so that their parts are added before they are squared."""
    ids, g = activations[0].flatten(1), real(layer, activations[0], backprops).flatten(1, -2)
    same = ids.unsqueeze(2) == ids.unsqueeze(1)

    def alike(same: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return (_products(g) * same).sum(dim=(1, 2))

    squares = _sure(
        alike(same, g), g.norm(dim=2), g.shape[2], lambda at: alike(exact(same[at]), exact(g[at]))
    )
    return {layer.weight: squares.sqrt()}


def linear_sum(layer: nn.Linear, a: torch.Tensor, g: torch.Tensor) -> Found:
    """The gradients of a whole batch, from what came back to each record and was scaled: one
    product for all records.
    """
    a, g = a.flatten(0, -2), g.flatten(0, -2)
    found: Found = {layer.weight: g.T @ a}
    if layer.bias is not None and layer.bias.requires_grad:
        found[layer.bias] = g.sum(dim=0)
    return found


def embedding_sum(layer: nn.Embedding, ids: torch.Tensor, g: torch.Tensor) -> Found:
    g = real(layer, ids, g)
    rows = torch.zeros_like(layer.weight).index_add_(0, ids.flatten(), g.flatten(0, -2))
    return {layer.weight: rows}


def layer_norm_gradients(
    layer: nn.LayerNorm, activations: Sequence[torch.Tensor], backprops: torch.Tensor
) -> Found:
    """Written out, (records, ...): a gradient sampler. Opacus's own fails where there is no bias."""
    whitened = F.layer_norm(activations[0], layer.normalized_shape, None, None, layer.eps)
    both = ((layer.weight, backprops * whitened), (layer.bias, backprops))
    axes = tuple(range(1, backprops.dim() - len(layer.normalized_shape)))
    return {
        p: rows.sum(dim=axes) if axes else rows
        for p, rows in both
        if p is not None and p.requires_grad
    }


def real(layer: nn.Module, ids: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """What came back to a layer's output, without what came back to padding."""
    if not isinstance(layer, nn.Embedding) or layer.padding_idx is None:
        return g
    return g * (ids != layer.padding_idx).unsqueeze(-1)


def parts(layer: nn.Module, p: torch.Tensor, a: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """(records,): at least the sum of the norms of what each position adds to the gradient of `p`."""
    if isinstance(layer, nn.LayerNorm):
        wide = layer.weight.numel()
        back = g.reshape(len(g), -1, wide).norm(dim=2)
        # a whitened row has the norm of its length's root, and so no larger number
        return back.sum(dim=1) * (wide**0.5 if p is layer.weight else 1.0)
    back = _rows(g).norm(dim=2)
    if isinstance(layer, nn.Linear) and p is layer.weight:
        back = back * _rows(a).norm(dim=2)
    return back.sum(dim=1)


def slack(sums: torch.Tensor) -> torch.Tensor:
    """What rounding may hide, squared, of a gradient whose parts' norms have these sums."""
    return (_ROUNDING * sums) ** 2


def _rows(x: torch.Tensor) -> torch.Tensor:
    """(records, positions, features)"""
    return x.unsqueeze(1) if x.dim() == 2 else x.flatten(1, -2)


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
        squares = squares.masked_scatter(doubted, rounded(again(doubted)))
    return squares.clamp(min=0) + slack(norms.sum(dim=1))
