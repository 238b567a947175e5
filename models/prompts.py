"""Prompts for a frozen language model: one array q, and three projections of it into the keys and values of
every attention.

Wang et al. 2023, appendix B, after LightNER (Chen et al. 2022): [Phi_K; Phi_V] = W2 tanh(W1 q), one
pair (W1, W2) for each family of attentions (encoder self, decoder self, cross), W2 giving all
layers of its family at once. q is shared by all of them, so that its gradient speaks for the whole
model: instance weights are made from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

__all__ = ["FAMILIES", "KeyValues", "Prompts", "Projected", "Sizes"]

FAMILIES = ("encoder", "decoder", "cross")
KeyValues = tuple[torch.Tensor, torch.Tensor]  #: each (rows, heads, length, head dim)
Sizes = dict[str, tuple[int, int, int]]  #: per family (layers, heads, dimensions of a head)


@dataclass(frozen=True)
class Projected:
    """Phi_K and Phi_V of every layer, split into heads; one row for all sentences, or one row
    each.
    """

    encoder: tuple[KeyValues, ...]
    decoder: tuple[KeyValues, ...]
    cross: tuple[KeyValues, ...]


class Prompts(nn.Module):
    def __init__(self, length: int, width: int, hidden: int, sizes: Sizes) -> None:
        super().__init__()
        # a table, so that DP-SGD sees by which record it was read
        self.q = nn.Embedding(length, width)
        self.sizes = dict(sizes)
        for family in FAMILIES:
            layers, heads, dim = sizes[family]
            project = nn.Sequential(
                nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, layers * 2 * heads * dim)
            )
            setattr(self, family, project)

    def expanded(self, rows: int) -> torch.Tensor:
        """A copy of q per sentence, (rows, length, width), to be differentiated by: one backward
        pass over a chunk of sentences then gives the gradient of every single one.
        """
        return self.q.weight.detach().expand(rows, -1, -1).clone().requires_grad_()

    def forward(self, q: torch.Tensor | None = None, rows: int = 1) -> Projected:
        """From `q` (rows, length, width), or from the one that is trained, read once for all
        sentences or by each.
        """
        q = self.q(torch.arange(self.q.num_embeddings).expand(rows, -1)) if q is None else q
        found = {}
        for family in FAMILIES:
            layers, heads, dim = self.sizes[family]
            rows, length, _ = q.shape
            both = getattr(self, family)(q).view(rows, length, layers, 2, heads, dim)
            # layers, key or value, rows, heads, length, head dim
            both = both.permute(2, 3, 0, 4, 1, 5)
            found[family] = tuple((layer[0], layer[1]) for layer in both)
        return Projected(**found)
