"""Features standardised by fixed, public statistics, below a head that is trained with noise."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["Standard"]

_LEAST = 1e-3  #: added to a deviation: a number that never changes stays small


class Standard(nn.Module):
    """(h - mean) / deviation, number by number. For a head on a frozen encoder: clipped gradients
    then point where sentences differ, and not where all are alike.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(width), requires_grad=False)
        self.scale = nn.Parameter(torch.ones(width), requires_grad=False)

    def set(self, features: torch.Tensor) -> None:
        """By the statistics of these features, (texts, width)."""
        with torch.no_grad():
            self.mean.copy_(features.mean(dim=0))
            self.scale.copy_(1 / (features.std(dim=0) + _LEAST))

    def take(self, features: torch.Tensor, reader: nn.Linear) -> None:
        """The same, once something has learnt to read them: it is changed so that every answer stays
        what it was. Without a bias there, only deviations are taken.
        """
        with torch.no_grad():
            weight = reader.weight * self.scale
            if reader.bias is not None:
                reader.bias.sub_(weight @ self.mean)
            self.set(features)
            if reader.bias is None:
                self.mean.zero_()
            else:
                reader.bias.add_(weight @ self.mean)
            reader.weight.copy_(weight / self.scale)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return (h - self.mean) * self.scale
