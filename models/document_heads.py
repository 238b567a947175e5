"""From a pair's logits to a loss and to predictions: three heads.

* `softmax2`: two logits, none and positive; cross-entropy, argmax. For one relation (CDR, CHR,
  GDA): the same as a sigmoid at 0.5 on their difference.
* `bce`: one sigmoid per relation (the paper's equations 10 and 11); relations with a logit above 0.
* `atl`: ATLOP's adaptive threshold. The first logit is the threshold TH; relations above it are
  predicted.

Losses are sums over relations and means over all pairs of a batch: a document with more pairs
weighs more.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

__all__ = ["HEADS", "loss", "losses", "margins", "outputs", "predict", "scores"]

HEADS = ("softmax2", "bce", "atl")
_NEVER = -1e30


def outputs(head: str, relations: int) -> int:
    """How many logits a pair has."""
    return {"softmax2": 2, "bce": relations, "atl": relations + 1}[head]


def loss(head: str, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """`labels`: (pairs, relations), 0 or 1. No pairs: 0, still joined to the network."""
    return losses(head, logits, labels).mean() if len(logits) else logits.sum() * 0.0


def losses(head: str, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The same for every pair by itself, (pairs,)."""
    if head == "softmax2":
        return F.cross_entropy(logits, labels[:, 0].long(), reduction="none")
    if head == "bce":
        return F.binary_cross_entropy_with_logits(logits, labels.float(), reduction="none").sum(
            dim=1
        )
    positive = labels.bool()
    threshold, rest = logits[:, :1], logits[:, 1:]
    # Among the relations that hold and TH, those that hold; among those that do not and TH, TH.
    above = F.log_softmax(
        torch.cat([threshold, rest.masked_fill(~positive, _NEVER)], dim=1), dim=1
    )[:, 1:]
    below = F.log_softmax(torch.cat([threshold, rest.masked_fill(positive, _NEVER)], dim=1), dim=1)[
        :, 0
    ]
    return -(above * positive).sum(dim=1) - below


def predict(head: str, logits: torch.Tensor, most: int = 0) -> torch.Tensor:
    """(pairs, relations) boolean. `most`: at most that many relations of a pair, the likeliest; 0:
    any number.
    """
    margin = margins(head, logits)
    chosen = margin > 0
    if most and most < margin.shape[1]:
        kept = margin.topk(most, dim=1).indices
        chosen &= torch.zeros_like(chosen).scatter(1, kept, True)
    return chosen


def margins(head: str, logits: torch.Tensor) -> torch.Tensor:
    """(pairs, relations): by how much the relation is above what it must be above."""
    return logits if head == "bce" else logits[:, 1:] - logits[:, :1]


def scores(head: str, logits: torch.Tensor) -> torch.Tensor:
    """(pairs, relations): a probability that the relation holds; with `atl`, against the threshold
    alone.
    """
    if head == "softmax2":
        return logits.softmax(dim=1)[:, 1:]
    return torch.sigmoid(margins(head, logits))
