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

from config.errors import UserError
from config.load import load
from methods.dp.dpsgd import padding_rows
from methods.dp.engine import OnePass
from methods.fedlcc import bilinear_cosine
from methods.tasks.load import load_task
from tests.methods.clipping import by_hand, clipped_sum, one_by_one, still
from tests.methods.small_private import WORDS, private_view


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
        "pcnn, head, sums",
        "fedlcc, head, linear",
        "fedlcc, head, linear, two windows",
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
    light |= {"options.classifier": "linear"} if "linear" in said else {}
    light |= {"options.encoder": "sums"} if "sums" in said else {}
    task: Any = load_task(load(None, words | light | short))
    data, rows = task.subset(np.arange(12)), np.array([0, 3, 4, 7, 9, 11])
    if short:
        rows = np.arange(12)
        assert 2 <= (data.lengths > task.window).sum() <= 10
    chunks = list(task.record_chunks(data, rows, 4))
    assert sorted(np.concatenate(chunks)) == rows.tolist() and max(map(len, chunks)) == 4
    model = still(task.new_model(1))
    slow = by_hand(task, model, data, rows, clip)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    losses = [partial(task.record_losses, model, task.batch(data, some)) for some in chunks]
    parts = [clipped_sum(model, each, clip, len(some)) for each, some in zip(losses, chunks)]
    fast = [torch.stack(same).sum(dim=0) for same in zip(*parts)]
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
    model = still(task.new_model(1))
    batch, _ = task.batch(task.subset(np.arange(3)), np.arange(3))
    none = torch.zeros(0, dtype=torch.long)
    gone = dict.fromkeys(("head", "tail", "pair_document", "pair_slot"), none)
    empty = (
        replace(batch, pair_rows=np.zeros(0, np.int64), **gone),
        torch.zeros(0, 1, dtype=torch.bool),
    )
    assert task.record_losses(model, empty).tolist() == [0.0, 0.0, 0.0]
    assert all(
        not g.any() for g in clipped_sum(model, partial(task.record_losses, model, empty), 1.0, 3)
    )
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
    clipped = clipped_sum(layer, lambda: (layer(a) * g).sum((1, 2)), 0.01, 2)
    norm = math.sqrt(sum(float((t.double() ** 2).sum()) for t in clipped))
    assert 0.019 < norm <= 0.02 * 1.001


def test_losses_of_another_number_than_the_records_are_an_error() -> None:
    layer = nn.Linear(3, 2)
    with pytest.raises(RuntimeError, match="for 4 records"):
        clipped_sum(layer, lambda: layer(torch.ones(4, 3)).sum().view(1), 1.0, 4)


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
    clipped = clipped_sum(layer, lambda: (layer(a) * g).sum((1, 2)), 1.0, 1)
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
        (total,) = clipped_sum(layer, lambda: (layer(a) * g).sum((1, 2)), clip, 1)  # noqa: B023
        assert 0.85 * clip < float(total.norm()) <= 1.001 * clip


@pytest.mark.parametrize("layer", [nn.Linear(2, 2), nn.LayerNorm(2)])
def test_parts_that_cancel_entirely_still_count_a_ten_thousandth(layer: nn.Module) -> None:
    """Rounding lets parts of any size through where their sum is nothing; so their size is bounded
    too: of two records, the first has parts of 1e8 that leave a sum of 3, and counts 1.5e-4 of it.
    """
    for name, p in layer.named_parameters():
        p.requires_grad_(name == "bias")
    g = torch.tensor([[[1e8, 3.0], [-1e8, 0.0]], [[0.5, 0.0], [0.0, 0.0]]])
    x = torch.tensor([1.0, -1.0]).expand(2, 2, 2)
    (bias,) = clipped_sum(layer, lambda: (layer(x) * g).sum((1, 2)), 1.0, 2)
    torch.testing.assert_close(bias, torch.tensor([0.5, 3 / 2e4]), rtol=1e-3, atol=0.0)


@pytest.mark.parametrize("records, size", [(64, 1e3), (512, 1e5)])
def test_one_record_moves_the_others_sum_by_next_to_nothing(records: int, size: float) -> None:
    """The other records' parts are large and cancel, so that their sum is rounded in other places
    where one record is left out of it: together that is a clip, and hardly more.
    """
    torch.manual_seed(records)
    half = torch.randn(records, 20, 16) * size
    half[records // 2] = 0.0
    x = torch.cat([half + torch.randn(records, 20, 16), -half], 1)
    layer, ways = nn.Linear(16, 8, bias=False).train(), torch.randn(8)

    def summed(weights: torch.Tensor) -> torch.Tensor:
        total = clipped_sum(layer, lambda: (layer(x) @ ways).sum(1) * weights, 1.0, records)
        return total[0].double()

    all_of_them, without = torch.ones(records), torch.ones(records)
    without[records // 2] = 0.0
    assert (summed(all_of_them) - summed(without)).norm().item() == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_a_record_without_a_finite_gradient_counts_nothing(value: float) -> None:
    """To refuse because of it, or to send what it made of the sum, would tell that it is there."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    x = torch.randn(5, 3)
    x[2] = value
    some = clipped_sum(model, lambda: (model(x) ** 2).sum(dim=1) * 1e10, 1.0, 5)
    rest = clipped_sum(model, lambda: (model(x[[0, 1, 3, 4]]) ** 2).sum(dim=1) * 1e10, 1.0, 4)
    each = [partial(lambda r: (model(r) ** 2).sum() * 1e10, x[i : i + 1]) for i in range(5)]
    slow = one_by_one(model, each, 1.0)
    assert all(torch.isfinite(t).all() for t in (*some, *slow))
    extra = torch.cat([(a - b).flatten() for a, b in zip(some, rest)]).norm()
    assert extra <= (1.01 if value == 1e30 else 1e-5)


def test_opacus_clips_alike() -> None:
    """Its gradients by record, written out, clipped and summed: the same numbers (without the
    padding row).
    """
    view = private_view()
    task, model, rows = view.task, still(view.task.new_model(1)), np.arange(9)
    fast = clipped_sum(
        model, lambda: task.record_losses(model, task.batch(view.data, rows)), 0.1, 9
    )
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


def test_what_cannot_be_told_apart_is_refused() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.free = nn.Parameter(torch.ones(2))

    for odd in (Odd(), nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))):
        with pytest.raises(UserError, match="DP=record cannot clip in one pass"):
            OnePass(odd, 1.0)
        assert not any(m._forward_hooks for m in odd.modules())
    layer = nn.Linear(2, 2)
    with pytest.raises(RuntimeError, match="not the record"):
        clipped_sum(layer, lambda: layer(torch.ones(6, 2)).view(3, 4).sum(dim=1), 1.0, 3)


class _Tied(nn.Module):
    """Words in and out by one table (with padding), one layer used twice, an adapter of low rank
    beside a frozen layer, a layer norm without a bias.
    """

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 6, padding_idx=0)
        self.twice = nn.Linear(6, 6)
        self.frozen = nn.Linear(6, 6)
        self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, 6, bias=False)
        self.norm = nn.LayerNorm(6, bias=False)
        self.out = nn.Linear(6, 7)
        self.out.weight = self.words.weight
        self.frozen.requires_grad_(False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.twice(self.words(ids)))
        hidden = self.twice(hidden.mean(dim=1, keepdim=True) + hidden)
        hidden = self.frozen(hidden) + self.up(self.down(hidden))
        return self.out(self.norm(hidden).mean(dim=1))


@pytest.mark.parametrize("clip", [0.05, 1e6])
def test_what_is_used_twice_is_written_out(clip: float) -> None:
    """Tied tables, layers that are called twice, and adapters: the same as record by record."""
    torch.manual_seed(0)
    model = _Tied().train()
    ids = torch.randint(0, 7, (5, 4))  # 0 is padding
    gold = torch.tensor([1, 2, 3, 1, 5])

    def losses(rows: slice) -> torch.Tensor:
        return nn.functional.cross_entropy(model(ids[rows]), gold[rows], reduction="none")

    fast = clipped_sum(model, lambda: losses(slice(None)), clip, 5)
    single = [partial(lambda i: losses(slice(i, i + 1)).sum(), i) for i in range(5)]
    slow = one_by_one(model, single, clip)
    assert sum(bool(g.any()) for g in slow) == len(slow) == 7
    for a, b in zip(fast, slow):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_what_is_used_twice_and_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("methods.dp.engine._MOST", 100)
    model = _Tied().train()
    with pytest.raises(UserError, match="lower PHYSICAL to 2 or less"):
        clipped_sum(model, lambda: model(torch.ones(3, 4, dtype=torch.long)).sum(dim=1), 1.0, 3)


def test_the_hooks_are_gone_when_training_is_over() -> None:
    model = _Tied().train()
    clipped_sum(model, lambda: model(torch.ones(3, 4, dtype=torch.long)).sum(dim=1), 1.0, 3)
    left = ("grad_sample", "_forward_counter", "_current_grad_sample", "_norm_sample")
    assert not any(hasattr(p, name) for p in model.parameters() for name in left)
    assert not any(m._forward_hooks or hasattr(m, "activations") for m in model.modules())
