"""DP-SGD: clipping record by record, the noise really added, who refuses, and a run whose budgets end it."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch
from opacus.grad_sample import GradSampleModule

from bench.inprocess import run_inprocess
from bench.plan import make_plan
from bench.prepare import Study, prepare
from config.errors import UserError
from config.load import load
from methods import METHODS
from methods.base import SiloView
from methods.dpsgd import clipped_sum, padding_rows, plan, rate_of, train_private
from methods.local import difference, parameters, train
from methods.private import RECORD, REFUSED
from privacy.accountant import total
from privacy.events import DpSgd, Event
from privacy.noise import SecretStream
from tests.conftest import lines, summary

WORDS = {"corpus": "distant:sentences=600", "silos": "4", "rounds": "3", "epochs": "1", "batch": "32"}
PRIVATE = {"method": "fedavg", "dp": "record", "noise": "1.0", "runner": "inprocess"}


@lru_cache(maxsize=1)
def _study() -> Study:
    return prepare(load(None, WORDS | PRIVATE))


def _view(**changes: object) -> SiloView:
    study = _study()
    data = study.task.subset(study.partition.indices[0])
    return SiloView(0, study.task, data, replace(study.settings, **changes), b"")  # type: ignore[arg-type]


@pytest.mark.parametrize("clip", [0.05, 1e6])
def test_clipping_is_by_record(clip: float) -> None:
    """The same sum by one backward pass per record, each gradient clipped by hand."""
    view = _view()
    task, model = view.task, view.task.new_model(1).eval()
    rows = np.arange(9)
    own, slow = list(model.parameters()), [torch.zeros_like(p) for p in model.parameters()]
    for row in rows:
        grads = torch.autograd.grad(task.record_losses(model, task.batch(view.data, rows[row : row + 1])).sum(), own)
        norm = math.sqrt(sum(float((g**2).sum()) for g in grads))
        for s, g in zip(slow, grads):
            s += g * min(1.0, clip / norm)
    model.train()
    model.dropout.p = 0.0
    wrapped = GradSampleModule(model, batch_first=True, loss_reduction="sum")
    task.record_losses(model, task.batch(view.data, rows)).sum().backward()
    fast = clipped_sum(own, clip, padding_rows(model))
    wrapped.to_standard_module()
    assert math.sqrt(sum(float((g**2).sum()) for g in fast)) <= len(rows) * clip * (1 + 1e-5)
    for a, b in zip(fast, slow):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-6)


def test_the_noise_that_is_promised_is_the_noise_that_is_added() -> None:
    """With a thousand clips of noise the update is noise: its deviation is lr z C sqrt(steps) / (q N)."""
    view = _view(noise=1000.0, clip=0.5, lr=1e-3, decay=0.0)
    model = view.task.new_model(0)
    start, n, spent = parameters(model), view.task.size(view.data), []
    paying = replace(view, spend=lambda what, event: spent.append(event))
    train(paying, model, 0)
    assert spent == [plan(view.settings, n)]
    e = spent[0]
    assert not difference(model, start)["word.weight"][0].any()  # the padding vector stays where it was
    moved = np.concatenate([v.ravel() for k, v in difference(model, start).items() if "word" not in k])
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
        train_private(replace(view, spend=refuse), model, 0, view.data, 0.1)
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
        assert min(1.0, 32 / records) <= rate_of(records, 32) + 1e-12 <= 1.011 * min(1.0, 32 / records) + 1e-12


@pytest.mark.parametrize("method", sorted(REFUSED))
def test_methods_that_are_not_covered_refuse_with_a_reason(method: str) -> None:
    from methods.private import _check_record

    with pytest.raises(UserError, match="does not run with DP=record: "):
        _check_record(replace(_study().method, name=method), _study().task)
    assert method in METHODS and method not in RECORD


def test_budgets_end_a_run_in_good_order(tmp_path: Path) -> None:
    """Noise for which the second round fits and the third does not: two rounds, a summary, and the figure below."""
    sizes = [len(ix) for ix in _study().partition.indices]
    rounds = {n: plan(_study().settings, n) for n in sizes}
    two = max(total([DpSgd(e.noise, e.rate, 2 * e.steps)], 1e-5).epsilon for e in rounds.values())
    study = prepare(load(None, WORDS | PRIVATE | {"epsilon": str(two * 1.001)}))
    assert run_inprocess(tmp_path, study) == 0
    assert len(lines(tmp_path / "rounds.jsonl")) == 2
    s = summary(tmp_path)
    assert s["epsilon"] == pytest.approx(two) and s["epsilon"] <= s["epsilon_budget"]
    said = [e for e in lines(tmp_path / "events.jsonl") if e["event"] == "refused-by-silo"]
    assert {e["silo"] for e in said} == set(s["epsilon_by_silo"]) and said[0]["attack"] == "budget-spent"
    # Planned before the run: three rounds would cost more than the budget, and two exactly what they did.
    assert any("above EPSILON=" in w for w in make_plan(study, measured=False)["warnings"])
    short = replace(study, settings=replace(study.settings, rounds=2))
    planned = make_plan(short, measured=False)
    assert planned["epsilon"] == pytest.approx(s["epsilon"]) and planned["warnings"] == []
