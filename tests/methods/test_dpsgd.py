"""DP-SGD: clipping record by record, the noise really added, who refuses, and a run whose budgets
end it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from opacus.grad_sample import GradSampleModule
from torch import nn

from bench.planning.plan import make_plan
from bench.simulation.inprocess import run_inprocess
from config.load import load
from methods.base import SiloView
from methods.common.training import difference, parameters, train
from methods.dp.clipping import Bookkeeper, _squares, one_by_one
from methods.dp.dpsgd import Records, padding_rows, plan, rate_of, train_private
from methods.dp.releases import record_privacy
from methods.fedlcc import bilinear_cosine
from methods.tasks.load import load_task
from privacy.accountant import total
from privacy.events import DpSgd, Event
from privacy.noise import SecretStream
from study.prepare import Study, prepare
from tests.conftest import lines, summary

WORDS = {
    "corpus": "distant:sentences=600",
    "silos": "4",
    "rounds": "3",
    "epochs": "1",
    "batch": "32",
}
PRIVATE = {
    "method": "fedavg",
    "dp": "record",
    "noise": "1.0",
    "runner": "inprocess",
    "options.tune": "full",
}


@lru_cache(maxsize=1)
def _study() -> Study:
    return prepare(load(None, WORDS | PRIVATE))


def _view(**changes: object) -> SiloView:
    study = _study()
    data = study.task.subset(study.partition.indices[0])
    settings = replace(study.settings, **changes)  # type: ignore[arg-type]
    return SiloView(0, study.task, data, settings, b"", privacy=study.method.privacy)


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
            m.dropout_prob = 0.0
    return model.train()


@pytest.mark.parametrize("clip", [0.05, 1e6])
@pytest.mark.parametrize(
    "network",
    ["pcnn", "feded", "fedcmc", "tagger", "fedlcc"]
    + [
        "pcnn, light",
        "feded, light",
        "tagger, light",
        "fedner, light",
        "fedlcc, light",
        "fedlcc, light, two windows",
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
    light = {"options.tune": "light"} if "light" in network else {}
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
        "options.tune": "light",
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


def test_dropout_is_the_silos_own_secret_and_padding_is_zero_whatever_was_sent(
    monkeypatch: Any,
) -> None:
    seeds: list[int] = []
    real = torch.manual_seed
    monkeypatch.setattr(torch, "manual_seed", lambda s: (seeds.append(s), real(s))[1])
    view = _view(noise=1.0)
    for key in (b"a" * 32, b"b" * 32):
        model = view.task.new_model(0)
        with torch.no_grad():
            for table, row in padding_rows(model).items():
                table[row] = 7.0
        seeds.clear()
        train(replace(view, secret_bytes=lambda round, purpose, key=key: key), model, 0)
        assert seeds[-1] == int.from_bytes(key[:8], "little")
        assert all(not table[row].any() for table, row in padding_rows(model).items())


def test_opacus_clips_alike() -> None:
    """Its gradients by record, written out, clipped and summed: the same numbers (without the
    padding row).
    """
    view = _view()
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


@pytest.mark.parametrize("physical", [1, 7, 64])
def test_a_batch_in_parts_is_the_same_batch(physical: int) -> None:
    view = _view(physical=physical, noise=1e-6, lr=0.1)
    view.task.knobs = replace(view.task.knobs, dropout=0.0)
    model = view.task.new_model(0)
    train(view, model, 0)
    whole = view.task.new_model(0)
    train(replace(view, settings=replace(view.settings, physical=10_000)), whole, 0)
    for k, v in parameters(whole).items():
        assert np.allclose(parameters(model)[k], v, atol=1e-6)


def test_one_record_moves_a_step_by_a_clip_at_most() -> None:
    """Neighbours: the same silo without one record. All records sampled, no noise to speak of, one
    plain step.
    """
    view = _view(noise=1e-9, clip=0.3, lr=1.0, decay=0.0, batch=10**6)
    view.task.knobs = replace(view.task.knobs, dropout=0.0, weight_decay=0.0)
    records = Records(view.task.size(view.data), lambda chosen: view.task.batch(view.data, chosen))
    without = replace(records, count=records.count - 1, nominal=records.count)
    moved = []
    for r in (records, without):
        model = view.task.new_model(0)
        start = parameters(model)
        train(view, model, 0, each=view.task.record_losses, records=r)
        moved.append(np.concatenate([v.ravel() for v in difference(model, start).values()]))
    apart = float(np.linalg.norm(moved[0] - moved[1])) * records.count
    assert 0.01 < apart <= 0.3 * (1 + 1e-3)


def test_the_noise_that_is_promised_is_the_noise_that_is_added() -> None:
    """With a thousand clips of noise the update is noise: its deviation is lr z C sqrt(steps) / (q
    N).
    """
    view = _view(noise=1000.0, clip=0.5, lr=1e-3, decay=0.0)
    model = view.task.new_model(0)
    start, n, spent = parameters(model), view.task.size(view.data), []
    paying = replace(view, spend=lambda what, event: spent.append(event))
    train(paying, model, 0)
    assert spent == [plan(view.settings, n, record_privacy(view.privacy))]
    e = spent[0]
    # the padding vector stays where it was
    assert not difference(model, start)["word.weight"][0].any()
    moved = np.concatenate(
        [v.ravel() for k, v in difference(model, start).items() if "word" not in k]
    )
    expected = 1e-3 * 1000.0 * 0.5 * math.sqrt(e.steps) / (e.rate * n)
    assert moved.std() == pytest.approx(expected, rel=0.02)
    assert abs(moved.mean()) < 5 * expected / math.sqrt(len(moved))


def test_the_event_is_charged_before_the_first_step() -> None:
    view = _view()
    model = view.task.new_model(0)
    before = parameters(model)

    def refuse(what: str, event: Event) -> None:
        raise RuntimeError(what)

    with pytest.raises(RuntimeError, match="training"):
        train_private(
            replace(view, spend=refuse),
            model,
            0,
            data=view.data,
            lr=0.1,
            each=view.task.record_losses,
        )
    assert all(np.array_equal(before[k], v) for k, v in parameters(model).items())


def test_a_simulation_repeats_its_noise_and_a_silo_of_its_own_never_does() -> None:
    view = _view()
    assert view.noise_key(0, "a") == view.noise_key(0, "a") != view.noise_key(1, "a")
    keys = iter([b"1" * 32, b"2" * 32])
    secret = replace(view, secret_bytes=lambda round, purpose: next(keys))
    assert secret.noise_key(0, "a") != secret.noise_key(0, "a")


def test_the_stream_is_uniform_and_gaussian() -> None:
    n = 400_000
    u, z = SecretStream(b"k" * 32).uniform(n), SecretStream(b"k" * 32).normal(n + 1)
    assert 0 < u.min() < u.max() < 1
    assert abs(u.mean() - 0.5) < 5 / math.sqrt(12 * n)
    assert len(z) == n + 1 and abs(z.mean()) < 5 / math.sqrt(n)
    assert z.std() == pytest.approx(1.0, abs=0.006)
    assert (z**4).mean() == pytest.approx(3.0, abs=0.08)


def test_rates_are_never_below_what_is_sampled() -> None:
    for records in range(1, 3000, 7):
        assert (
            min(1.0, 32 / records)
            <= rate_of(records, 32) + 1e-12
            <= 1.011 * min(1.0, 32 / records) + 1e-12
        )


def test_budgets_end_a_run_in_good_order(tmp_path: Path) -> None:
    """Noise for which the second round fits and the third does not: two rounds, a summary, and the
    figure below.
    """
    sizes = [len(ix) for ix in _study().partition.indices]
    declared = record_privacy(_study().method.privacy)
    rounds = {n: plan(_study().settings, n, declared) for n in sizes}
    two = max(total([DpSgd(e.noise, e.rate, 2 * e.steps)], 1e-5).epsilon for e in rounds.values())
    study = prepare(load(None, WORDS | PRIVATE | {"epsilon": str(two * 1.001)}))
    assert run_inprocess(tmp_path, study) == 0
    assert len(lines(tmp_path / "rounds.jsonl")) == 2
    s = summary(tmp_path)
    assert s["epsilon"] == pytest.approx(two) and s["epsilon"] <= s["epsilon_budget"]
    said = [e for e in lines(tmp_path / "events.jsonl") if e["event"] == "refused-by-silo"]
    assert {e["silo"] for e in said} == set(s["epsilon_by_silo"]) and said[0][
        "attack"
    ] == "budget-spent"
    # Planned before the run: three rounds would cost more than the budget, and two exactly what
    # they did.
    assert any("above EPSILON=" in w for w in make_plan(study, measured=False)["warnings"])
    short = replace(study, settings=replace(study.settings, rounds=2))
    planned = make_plan(short, measured=False)
    assert planned["epsilon"] == pytest.approx(s["epsilon"]) and planned["warnings"] == []
