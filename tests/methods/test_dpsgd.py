"""DP-SGD: the noise really added, what a record can move, and a run whose budgets end it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.planning.plan import make_plan
from bench.simulation.inprocess import run_inprocess
from config.load import load
from methods.common.training import difference, parameters, train
from methods.dp.dpsgd import Records, padding_rows, plan, rate_of, train_private
from methods.dp.optimizer import SecretPoisson
from methods.dp.releases import record_privacy
from privacy.accountant import total
from privacy.events import DpSgd, Event
from privacy.noise import WIDE, SecretStream
from study.prepare import prepare
from tests.conftest import lines, summary
from tests.methods.small_private import PRIVATE, WORDS, private_study, private_view


def _always(key: bytes) -> Callable[[int, str], bytes]:
    return lambda round, purpose: key


def test_dropout_is_the_silos_own_secret_and_padding_is_zero_whatever_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeds: list[int] = []
    real = torch.manual_seed

    def seeded(seed: int) -> torch.Generator:
        seeds.append(seed)
        return real(seed)

    monkeypatch.setattr(torch, "manual_seed", seeded)
    view = private_view(noise=1.0)
    for key in (b"a" * 32, b"b" * 32):
        model = view.task.new_model(0)
        with torch.no_grad():
            for table, row in padding_rows(model).items():
                table[row] = 7.0
        seeds.clear()
        train(replace(view, secret_bytes=_always(key)), model, 0)
        assert seeds[-1] == int.from_bytes(key[:8], "little")
        assert all(not table[row].any() for table, row in padding_rows(model).items())


@pytest.mark.parametrize("physical", [1, 7, 64])
def test_a_batch_in_parts_is_the_same_batch(physical: int) -> None:
    view = private_view(physical=physical, noise=1e-6, lr=0.1)
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
    view = private_view(noise=1e-9, clip=0.3, lr=1.0, decay=0.0, batch=10**6, weight_decay=0.0)
    view.task.knobs = replace(view.task.knobs, dropout=0.0)
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
    """With fifty clips of noise the update is noise: its deviation is lr z C sqrt(steps) / (q N)."""
    view = private_view(noise=50.0, clip=0.5, lr=1e-3, decay=0.0)
    model = view.task.new_model(0)
    start, n = parameters(model), view.task.size(view.data)
    spent: list[Event] = []
    paying = replace(view, spend=lambda what, event: spent.append(event))
    train(paying, model, 0)
    assert spent == [plan(view.settings, n, record_privacy(view.privacy))]
    e = spent[0]
    assert isinstance(e, DpSgd)
    # the padding vector stays where it was
    assert not difference(model, start)["word.weight"][0].any()
    moved = np.concatenate(
        [v.ravel() for k, v in difference(model, start).items() if "word" not in k]
    )
    expected = 1e-3 * 50.0 * 0.5 * math.sqrt(e.steps) / (e.rate * n)
    assert moved.std() == pytest.approx(expected, rel=0.02)
    assert abs(moved.mean()) < 5 * expected / math.sqrt(len(moved))


def test_the_event_is_charged_before_the_first_step() -> None:
    view = private_view()
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
            each=view.task.record_losses,
        )
    assert all(np.array_equal(before[k], v) for k, v in parameters(model).items())


def test_steps_that_were_not_charged_for_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sampler that leaves a step out, or puts one in: Opacus counts what was really taken."""
    view = private_view()
    for other in (-1, 1):

        def some(self: SecretPoisson, other: int = other) -> Iterator[np.ndarray]:
            for _ in range(self.steps + other):
                yield np.arange(self.num_samples)

        monkeypatch.setattr(SecretPoisson, "__iter__", some)
        with pytest.raises(RuntimeError, match="charged .*, and took"):
            train(view, view.task.new_model(0), 0)


def test_a_simulation_repeats_its_noise_and_a_silo_of_its_own_never_does() -> None:
    view = private_view()
    assert view.noise_key(0, "a") == view.noise_key(0, "a") != view.noise_key(1, "a")
    keys = iter([b"1" * 32, b"2" * 32])
    secret = replace(view, secret_bytes=lambda round, purpose: next(keys))
    assert secret.noise_key(0, "a") != secret.noise_key(0, "a")


def test_the_stream_is_uniform_and_gaussian() -> None:
    n = 400_000
    u, z = SecretStream(b"k" * 32).uniform(n), SecretStream(b"k" * 32).wide_normal(n + 1) / WIDE
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
    sizes = [len(ix) for ix in private_study().partition.indices]
    declared = record_privacy(private_study().method.privacy)
    rounds = {n: plan(private_study().settings, n, declared) for n in sizes}
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
