"""The gradient of a PCNN's cross-entropy, written out: what autograd would leave in the parameters, to
the bit, without its graph.

A training step on short sentences is half products of matrices, and half the many small operations
between them. Autograd's books, and the layers' own, are a seventh of all. The pieces are those of
`models.pcnn`, where autograd uses them too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol

import torch
from torch import nn
from typing_extensions import TypeIs

from models.pcnn import PAD, PCNN, back_to_maxima, layout, maxima, out_of_windows, windows

__all__ = ["Labelled", "written_gradient"]

_OPS = torch.ops.aten
_MEAN, _NO_LABEL = 1, -100  #: as torch's cross-entropy has them


class Labelled(Protocol):
    @property
    def inputs(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]: ...
    @property
    def relation(self) -> torch.Tensor: ...


def written_gradient(model: nn.Module) -> Callable[[Labelled], torch.Tensor] | None:
    """For this network with dropout on: what computes the mean loss of a batch, and leaves the
    parameters' gradients in their `grad` without adding to what was there. None for a network whose
    output comes from anything but a PCNN's own layers, all of them trained.
    """
    return functools.partial(_gradient, model) if _plain(model) else None


def _plain(model: nn.Module) -> TypeIs[PCNN]:
    if type(model) is not PCNN or model.standard is not None or not 0 < model.dropout.p < 1:
        return False
    layers = [m for m in model.modules() if m is not model]
    if any(m._forward_hooks or m._forward_pre_hooks for m in (model, *layers)):
        return False
    # not on an accelerator, where dropout draws other numbers
    return {type(m) for m in layers} == {nn.Embedding, nn.Linear, nn.Dropout} and all(
        p.requires_grad and p.device.type == "cpu" for p in model.parameters()
    )


@torch.no_grad()
def _gradient(model: PCNN, batch: Labelled) -> torch.Tensor:
    words, lengths, head_at, tail_at = batch.inputs
    head_from, tail_from, row = layout(words.shape[1], lengths, head_at, tail_at)
    row, kernel, out = row.flatten(), model.convolution.weight, model.out.weight
    entries = (words, head_from, tail_from)
    tables = (model.word, model.head_position, model.tail_position)
    parts = [_OPS.embedding(t.weight, at) for t, at in zip(tables, entries)]
    window = windows(*parts).flatten(0, 1)
    features = torch.addmm(model.convolution.bias, window, kernel.t())
    top = maxima(features, row, 3 * len(words))
    vectors = top[:-1].view(len(words), -1)
    kept = 1 - model.dropout.p
    mask = torch.empty_like(vectors).bernoulli_(kept).div_(kept)
    dropped = vectors * mask
    scores = torch.addmm(model.out.bias, dropped, out.t()).log_softmax(1)
    loss: torch.Tensor
    loss, weight = _OPS.nll_loss_forward(scores, batch.relation, None, _MEAN, _NO_LABEL)

    of_loss = torch.ones_like(loss)
    g = _OPS.nll_loss_backward(of_loss, scores, batch.relation, None, _MEAN, _NO_LABEL, weight)
    g = _OPS._log_softmax_backward_data(g, scores, 1, scores.dtype)
    model.out.weight.grad, model.out.bias.grad = g.t().mm(dropped), g.sum(0)
    g = back_to_maxima(g.mm(out).mul_(mask), features, row, top)
    model.convolution.weight.grad, model.convolution.bias.grad = g.t().mm(window), g.sum(0)
    g = g.mm(kernel).view(*words.shape, -1)
    widths = [t.embedding_dim for t in tables]
    for table, at, part in zip(tables, entries, out_of_windows(g, widths)):
        table.weight.grad = _OPS.embedding_dense_backward(
            part, at, table.num_embeddings, PAD, False
        )
    return loss
