"""Clipping record by record: one pass over a batch against one pass per record, and numbers that
would slip through.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pytest
import torch
from opacus.grad_sample import GradSampleModule
from torch import nn

from config.load import load
from methods.dp.clipping import Bookkeeper, _squares, one_by_one
from methods.dp.dpsgd import padding_rows
from methods.fedlcc import bilinear_cosine
from methods.tasks.load import load_task
from tests.methods.small_private import WORDS, private_view


def _by_hand(
    task: Any, model: nn.Module, data: Any, rows: np.ndarray, clip: float
) -> list[torch.Tensor]:
    """One backward pass per record, each gradient clipped by hand."""
    own = [p for p in model.parameters() if p.requires_grad]
    total = [torch.zeros_like(p) for p in own]
    for row in rows:
        loss = task.record_losses(model, task.batch(data, np.array([row]))).sum()
        grads = torch.autograd.grad(loss, own, allow_unused=True)
        norm = math.sqrt(sum(float((g**2).sum()) for g in grads if g is not None))
        for t, g in zip(total, grads):
            if g is not None:
                t += g * min(1.0, clip / norm)
    return total


def _still(model: nn.Module) -> nn.Module:
    """In training mode, as DP-SGD has it, but with nothing random in it."""
    for m in model.modules():
        if isinstance(m, nn.Dropout):
            m.p = 0.0
        if hasattr(m, "dropout_prob"):
            setattr(m, "dropout_prob", 0.0)  # noqa: B010 (torch types a module's attributes as tensors)
    return model.train()


@pytest.mark.parametrize("clip", [0.05, 1e6])
@pytest.mark.parametrize(
    "network",
    ["pcnn", "feded", "fedcmc", "tagger", "fedlcc"]
    + [
        "pcnn, top",
        "feded, bias",
        "feded, lora",
        "feded, head",
        "tagger, bias",
        "tagger, top",
        "fedner, bias",
        "fedlcc, bias",
        "fedlcc, bias, two windows",
    ],
)
def test_clipping_is_by_record(network: str, clip: float) -> None:
    """One pass over a batch gives the same sum as one pass per record: repeated words, padding and
    biases included.
    """
    words = {
        "pcnn": {"method": "fedavg", "corpus": WORDS["corpus"]},
        "feded": {"method": "feded", "corpus": "sentence:sentences=90,dev=40,test=40"},
        "fedcmc": {"method": "fedcmc", "corpus": "sentence:sentences=90,dev=40,test=40"},
        "tagger": {"method": "tagger", "corpus": "ner:sentences=30,dev=12,test=12"},
        "fedner": {"method": "fedner", "corpus": "ner:sentences=30,dev=12,test=12"},
        "fedlcc": {"method": "fedlcc", "corpus": "document:documents=12,dev=10,test=10"},
    }[network.partition(",")[0]]
    few = {"bias": "bias", "lora": "lora:4", "top": "top:1", "head": "head"}
    said = network.split(", ")
    light = {"train": few[said[1]]} if len(said) > 1 else {}
    short = {"options.window": "96"} if "windows" in network else {}
    task: Any = load_task(load(None, words | light | short))
    data, rows = task.subset(np.arange(12)), np.array([0, 3, 4, 7, 9, 11])
    if short:
        rows = np.arange(12)
        assert 2 <= (data.lengths > task.window).sum() <= 10
    chunks = list(task.record_chunks(data, rows, 4))
    assert sorted(np.concatenate(chunks)) == rows.tolist() and max(map(len, chunks)) == 4
    model = _still(task.new_model(1))
    slow = _by_hand(task, model, data, rows, clip)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    keeper = Bookkeeper(model)
    losses = [partial(task.record_losses, model, task.batch(data, some)) for some in chunks]
    parts = [keeper.clipped_sum(each, clip) for each in losses]
    fast = [torch.stack(same).sum(dim=0) for same in zip(*parts)]
    keeper.close()
    assert trained == {name for name, p in model.named_parameters() if p.requires_grad}
    assert all(p.grad is None for p in model.parameters())
    assert math.sqrt(sum(float((g**2).sum()) for g in fast)) <= len(rows) * clip * (1 + 1e-5)
    # rounding: a key's bias has a gradient of nothing else
    largest = max(1.0, *(float(b.abs().max()) for b in slow))
    for a, b in zip(fast, slow):
        torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-6 * largest)


@lru_cache
def _documents() -> Any:
    words = {
        "method": "fedlcc",
        "corpus": "document:documents=12,dev=10,test=10",
        "train": "bias",
    }
    return load_task(load(None, words))


def test_documents_without_pairs_count_nothing() -> None:
    task = _documents()
    model = _still(task.new_model(1))
    batch, _ = task.batch(task.subset(np.arange(3)), np.arange(3))
    none = torch.zeros(0, dtype=torch.long)
    gone = dict.fromkeys(("head", "tail", "pair_document", "pair_slot"), none)
    empty = (
        replace(batch, pair_rows=np.zeros(0, np.int64), **gone),
        torch.zeros(0, 1, dtype=torch.bool),
    )
    assert task.record_losses(model, empty).tolist() == [0.0, 0.0, 0.0]
    keeper = Bookkeeper(model)
    assert all(
        not g.any() for g in keeper.clipped_sum(partial(task.record_losses, model, empty), 1.0)
    )
    keeper.close()
    assert len(bilinear_cosine(torch.zeros(0, 64), torch.zeros(0, 64), 16)) == 0


def test_what_stands_at_padding_is_nothing() -> None:
    """A number there that overflowed made nothing of every document that a long one had padded."""
    task = _documents()
    batch, _ = task.batch(task.subset(np.arange(4)), np.arange(4))
    hidden, _ = task.new_model(1).encode(batch)
    assert (
        (~batch.real).any()
        and not hidden[~batch.real].any()
        and hidden[batch.real].abs().sum(dim=1).min() > 0
    )


def test_a_document_of_many_pairs_is_read_by_itself() -> None:
    """Each place for a pair is one for every document beside it: memory would be that of the
    largest times eight.
    """
    task = _documents()
    data = task.subset(np.arange(12))
    assert sorted(map(len, task.record_chunks(data, np.arange(12), 64))) == [4, 8]
    at = data.split.pieces.pair_at.copy()
    at[6:] += 100  # document 5 has a hundred more
    pieces = replace(data.split.pieces, pair_at=at)
    chunks = list(
        task.record_chunks(
            replace(data, split=replace(data.split, pieces=pieces)), np.arange(12), 64
        )
    )
    assert sorted(np.concatenate(chunks)) == list(range(12)) and [5] in [c.tolist() for c in chunks]


@pytest.mark.parametrize(
    ("positions", "inside", "outside"), [(512, 3072, 768), (614, 768, 3072), (1, 3072, 768)]
)
def test_squares_that_vanish_do_not_pass_the_clip(
    positions: int, inside: int, outside: int
) -> None:
    """What comes back is so small that its square is nothing in float32, and the input so large
    that it matters.
    """
    layer = nn.Linear(inside, outside)
    a, g = torch.full((2, positions, inside), 3e17), torch.full((2, positions, outside), 2.6e-23)
    keeper = Bookkeeper(layer)
    clipped = keeper.clipped_sum(lambda: (layer(a) * g).sum((1, 2)), 0.01)
    keeper.close()
    norm = math.sqrt(sum(float((t.double() ** 2).sum()) for t in clipped))
    assert 0.019 < norm <= 0.02 * 1.001


def test_losses_of_another_number_than_the_records_are_an_error() -> None:
    layer = nn.Linear(3, 2)
    keeper = Bookkeeper(layer)
    with pytest.raises(RuntimeError, match="for 4 records"):
        keeper.clipped_sum(lambda: layer(torch.ones(4, 3)).sum().view(1), 1.0, 4)
    keeper.close()


@pytest.mark.parametrize("scale", [1e3, 1e7])
def test_parts_that_cancel_do_not_pass_the_clip(scale: float) -> None:
    """The norm is small beside its parts: computed in float32 it was nothing, and 4512 clips went
    through.
    """
    torch.manual_seed(0)
    layer = nn.Linear(180, 230)
    a = torch.randn(1, 1, 180).repeat(1, 4, 1) + torch.randn(1, 4, 180) * 1e-4
    g = torch.randn(1, 4, 230) * scale
    g[:, 1], g[:, 3] = -g[:, 0], -g[:, 2]
    keeper = Bookkeeper(layer)
    clipped = keeper.clipped_sum(lambda: (layer(a) * g).sum((1, 2)), 1.0)
    keeper.close()
    assert torch.cat([x.flatten() for x in clipped]).norm() <= 1.01


def test_parts_that_nearly_cancel_are_clipped_to_the_clip() -> None:
    """A norm of a four-thousandth of its parts' is far below what float32 knows of the products (28
    % too much).
    """
    for seed in range(20):
        torch.manual_seed(seed)
        a = torch.randn(1, 1, 180).repeat(1, 4, 1) + torch.randn(1, 4, 180) * 5e-4
        g = torch.randn(1, 4, 230)
        g[:, 1], g[:, 3] = -g[:, 0], -g[:, 2]
        layer = nn.Linear(180, 230, bias=False)
        clip = float((g[0].double().T @ a[0].double()).norm()) / 10
        keeper = Bookkeeper(layer)
        (total,) = keeper.clipped_sum(lambda: (layer(a) * g).sum((1, 2)), clip)  # noqa: B023
        keeper.close()
        assert 0.85 * clip < float(total.norm()) <= 1.001 * clip


def test_parts_that_cancel_entirely_still_count_a_ten_thousandth() -> None:
    """Rounding lets parts of any size through where their sum is nothing; so their size is bounded
    too.
    """
    g = torch.tensor([[[1e8, 0.0], [-1e8, 0.0]], [[3e-3, 0.0], [0.0, 0.0]]])
    for layer in (nn.Linear(2, 2), nn.LayerNorm(2)):
        x = torch.ones(2, 2, 2)
        squares = _squares(layer, x, g, frozenset({"bias"}))
        assert squares[0] == pytest.approx(2e4**2, rel=1e-4) and squares[1] == pytest.approx(
            9e-6, rel=1e-4
        )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_a_record_without_a_finite_gradient_counts_nothing(value: float) -> None:
    """To refuse because of it, or to send what it made of the sum, would tell that it is there."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    x = torch.randn(5, 3)
    x[2] = value
    keeper = Bookkeeper(model)
    some = keeper.clipped_sum(lambda: (model(x) ** 2).sum(dim=1) * 1e10, 1.0)
    rest = keeper.clipped_sum(lambda: (model(x[[0, 1, 3, 4]]) ** 2).sum(dim=1) * 1e10, 1.0)
    keeper.close()
    own = list(model.parameters())
    slow = one_by_one(
        own, [x[i : i + 1] for i in range(5)], lambda r: (model(r) ** 2).sum() * 1e10, 1.0
    )
    assert all(torch.isfinite(t).all() for t in (*some, *slow))
    extra = torch.cat([(a - b).flatten() for a, b in zip(some, rest)]).norm()
    assert extra <= (1.01 if value == 1e30 else 1e-5)


def test_opacus_clips_alike() -> None:
    """Its gradients by record, written out, clipped and summed: the same numbers (without the
    padding row).
    """
    view = private_view()
    task, model, rows = view.task, _still(view.task.new_model(1)), np.arange(9)
    keeper = Bookkeeper(model)
    fast = keeper.clipped_sum(lambda: task.record_losses(model, task.batch(view.data, rows)), 0.1)
    keeper.close()
    wrapped = GradSampleModule(model, batch_first=True, loss_reduction="sum")
    task.record_losses(model, task.batch(view.data, rows)).sum().backward()
    own, padding = list(model.parameters()), padding_rows(model)
    samples = [p.grad_sample.clone() for p in own]  # type: ignore[attr-defined]
    wrapped.to_standard_module()
    for p, g in zip(own, samples):
        if p in padding:
            g[:, padding[p]] = 0.0
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in samples]).norm(dim=0)
    factor = (0.1 / norms).clamp(max=1.0)
    for a, g in zip(fast, samples):
        torch.testing.assert_close(a, torch.tensordot(factor, g, dims=1), rtol=2e-3, atol=2e-6)


def test_what_the_bookkeeper_cannot_tell_apart_it_refuses() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.free = nn.Parameter(torch.ones(2))

    with pytest.raises(TypeError, match="Odd"):
        Bookkeeper(Odd())
    twice = nn.Linear(2, 2)
    keeper = Bookkeeper(twice)
    with pytest.raises(RuntimeError, match="used twice"):
        keeper.clipped_sum(lambda: twice(twice(torch.ones(3, 2))).sum(dim=1), 1.0)
    with pytest.raises(RuntimeError, match="not the record"):
        keeper.clipped_sum(lambda: twice(torch.ones(6, 2)).view(3, 4).sum(dim=1), 1.0)
