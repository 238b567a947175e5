"""From sentence vectors to a bag: the four ways the Lazy MIL paper compares (its section 4.3).

| rule   | the bag is                                            | source |
|--------|-------------------------------------------------------|--------|
| one    | its sentence most probable for the label              | Zeng et al. 2015 |
| ave    | the mean of its sentences                             | Lin et al. 2016, AVE |
| att    | a mean weighted by how well each sentence fits a relation's classifier row | Lin et al. 2016, ATT |
| att_ra | one such mean for every relation                      | Ye and Ling 2019, without inter-bag attention |

A batch of bags is a list of sentence vectors with `bag`, each sentence's bag number, ascending.
Nothing is padded, and labels are indexed by bag; OpenNRE's ONE indexes them by sentence, and so
chooses with wrong labels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

__all__ = ["RULES", "bag_logits", "bag_scores"]

RULES = ("one", "ave", "att", "att_ra")


def _softmax_within(scores: torch.Tensor, bag: torch.Tensor, bags: int) -> torch.Tensor:
    """Softmax over the sentences of each bag, for every column of (sentences, columns)."""
    index = bag.unsqueeze(1).expand_as(scores)
    top = torch.full((bags, scores.shape[1]), -torch.inf, dtype=scores.dtype)
    top = top.scatter_reduce(0, index, scores.detach(), "amax")
    weight = torch.exp(scores - top[bag])
    total = torch.zeros(bags, scores.shape[1], dtype=scores.dtype).index_add(0, bag, weight)
    return weight / total[bag]


def _sum_within(values: torch.Tensor, bag: torch.Tensor, bags: int) -> torch.Tensor:
    return torch.zeros(bags, *values.shape[1:], dtype=values.dtype).index_add(0, bag, values)


def _relation_bags(
    out: nn.Linear, vectors: torch.Tensor, bag: torch.Tensor, bags: int
) -> torch.Tensor:
    """For every relation, the bag attended to with that relation's row: (bags, relations,
    features).
    """
    weight = _softmax_within(vectors @ out.weight.T, bag, bags)
    return _sum_within(weight.unsqueeze(-1) * vectors.unsqueeze(1), bag, bags)


def _per_relation(out: nn.Linear, per_relation: torch.Tensor) -> torch.Tensor:
    """logit_k = w_k . b_k + bias_k."""
    return torch.einsum("bkd,kd->bk", per_relation, out.weight) + out.bias


def bag_logits(
    rule: str,
    out: nn.Linear,
    dropout: nn.Module,
    vectors: torch.Tensor,
    bag: torch.Tensor,
    labels: torch.Tensor,
) -> torch.Tensor:
    """Logits of each bag in training, where its label is known: (bags, relations)."""
    bags = len(labels)
    if rule == "one":
        with torch.no_grad():
            fits = F.softmax(out(vectors), dim=-1)[torch.arange(len(bag)), labels[bag]]
            best = torch.full((bags,), -torch.inf).scatter_reduce(0, bag, fits, "amax")
            place = torch.arange(len(bag)).masked_fill(fits < best[bag], len(bag))
            # ties: the first
            chosen = torch.full((bags,), len(bag)).scatter_reduce(0, bag, place, "amin")
        return out(dropout(vectors[chosen]))
    if rule == "ave":
        size = torch.bincount(bag, minlength=bags).unsqueeze(1)
        return out(dropout(_sum_within(vectors, bag, bags) / size))
    if rule == "att":
        fit = (vectors * out.weight[labels[bag]]).sum(dim=1, keepdim=True)
        return out(dropout(_sum_within(_softmax_within(fit, bag, bags) * vectors, bag, bags)))
    if rule == "att_ra":
        return _per_relation(out, dropout(_relation_bags(out, vectors, bag, bags)))
    raise ValueError(f"unknown bag rule {rule!r}")


def bag_scores(
    rule: str, out: nn.Linear, vectors: torch.Tensor, bag: torch.Tensor, bags: int
) -> torch.Tensor:
    """Probability of each relation for each bag at test, where no label is known: (bags,
    relations).
    """
    if rule == "one":
        index = bag.unsqueeze(1).expand(-1, out.out_features)
        p = F.softmax(out(vectors), dim=-1)
        return torch.zeros(bags, out.out_features).scatter_reduce(0, index, p, "amax")
    if rule == "ave":
        size = torch.bincount(bag, minlength=bags).unsqueeze(1)
        return F.softmax(out(_sum_within(vectors, bag, bags) / size), dim=-1)
    attended = _relation_bags(out, vectors, bag, bags)
    if rule == "att":  # attend as if r were the label, and ask how probable r then is
        return F.softmax(out(attended), dim=-1).diagonal(dim1=1, dim2=2)
    if rule == "att_ra":
        return F.softmax(_per_relation(out, attended), dim=-1)
    raise ValueError(f"unknown bag rule {rule!r}")
