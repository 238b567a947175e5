"""The attack on single releases: it finds noise in floating point, values between the steps and too
little noise; and nothing where the mechanism is what it says.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import methods.lazymil_private
from bench.audit import __main__ as program
from bench.audit.__main__ import _study
from bench.audit.distinguish import _proved, judge
from bench.audit.plays import key_of
from bench.audit.releases import _attack, _Game, attack_releases
from methods.base import SiloView
from methods.dp.optimizer import SecretOptimizer
from methods.dp.releases import Grid, record_privacy
from privacy.events import RoundedGaussian
from privacy.noise import SecretStream
from tests.privacy.float_noise import box_muller

SIZE, STEP, DEVIATION = 64, 2.0**-10, 4096


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the audit looks for noise of an earlier version's."""
    monkeypatch.setattr(SecretStream, "box_muller", box_muller, raising=False)


def _values(there: bool) -> np.ndarray:
    values = np.linspace(0.0, 0.9, SIZE)
    values[7] = 0.7 * there
    return values


def _game(release: Any) -> _Game:
    def side(there: bool) -> Any:
        return lambda play: release(SecretStream(key_of(play, there)), _values(there))

    return _Game(side(True), side(False), 0.0)


def _in_floats(stream: Any, values: np.ndarray) -> np.ndarray:
    """As releases were noised before: a float32 of the value and a float32 Gaussian."""
    noise = stream.box_muller(values.size).astype(np.float64)
    return (values + 30.76 * noise).astype(np.float32)


def _between_the_steps(stream: SecretStream, values: np.ndarray) -> np.ndarray:
    noise = stream.rounded_normal(values.size, DEVIATION)
    return (values + noise * STEP).astype(np.float64)


def _on_the_grid(stream: SecretStream, values: np.ndarray) -> np.ndarray:
    noise = stream.rounded_normal(values.size, DEVIATION)
    return ((np.rint(values / STEP).astype(np.int64) + noise) * STEP).astype(np.float32)


def _by(game: _Game, plays: int = 240, noise: float = 30.76) -> dict[str, Any]:
    found, numbers, moved = _attack(game, plays, 1e-5, noise)
    assert numbers == SIZE and moved > 0.6
    return {f.distinguisher: f for f in found}


def test_float_noise_is_found() -> None:
    """Its stated epsilon is 0.1. Three of four plays with the record are told, none without it."""
    found = _by(_game(_in_floats))
    assert found["support"].true_positives > 0.6 and found["support"].false_positives == 0.0
    assert found["support"].epsilon_at_least > 1.5
    assert found["likelihood ratio"].epsilon_at_least < 0.1


def test_values_between_the_steps_are_found() -> None:
    found = _by(_game(_between_the_steps))
    assert found["support"].epsilon_at_least > 1.5


def test_on_the_grid_nothing_is_found() -> None:
    assert all(f.epsilon_at_least < 0.1 for f in _by(_game(_on_the_grid)).values())


def test_too_little_noise_is_found_by_the_likelihood_ratio() -> None:
    """A record that moves 0.7, noise of a sixth of that on the same grid: epsilon far above 1."""

    def quiet(stream: SecretStream, values: np.ndarray) -> np.ndarray:
        noise = stream.rounded_normal(values.size, DEVIATION)
        return (np.rint(values / 2**-15).astype(np.int64) + noise) * 2.0**-15

    found = _by(_game(quiet))
    assert found["likelihood ratio"].epsilon_at_least > 2.0


def test_the_bound_by_hand_and_on_a_mechanism_whose_epsilon_is_known() -> None:
    low, high = 0.01 ** (1 / 100), 1 - 0.01 ** (1 / 100)  # 100 of 100, and none
    assert _proved(100, 0, 100, 0.0, 0.01) == pytest.approx(math.log(low / high))
    assert _proved(50, 50, 100, 1e-5, 0.01) == 0.0
    rng, epsilon = np.random.default_rng(3), 1.0
    yes = math.exp(epsilon) / (1 + math.exp(epsilon))
    bounds = [
        judge(
            "x",
            (rng.random(2000) < yes) * 1.0,
            (rng.random(2000) < 1 - yes) * 1.0,
            delta=0.0,
            of=3,
        ).epsilon_at_least
        for _ in range(100)
    ]
    assert max(bounds) <= epsilon and np.mean(bounds) > 0.7
    # each of four limits and three distinguishers may be wrong, and all share one percent
    found = judge("x", np.ones(200), np.zeros(200), delta=0.0, of=3)
    assert found.epsilon_at_least == _proved(100, 0, 100, 0.0, 0.01 / 12)


# with seed 2 the record's value is next to nothing on the grid, and nobody could find it
LAZYMIL = {"METHOD": "lazymil", "DP": "record", "EPSILON": "1", "SEED": "1"}


def _float_noised(silo: SiloView, round: int, whole: np.ndarray, grid: Grid) -> np.ndarray:
    """`methods.dp.releases.noised` as it was before, with the same charge."""
    release = record_privacy(silo.privacy).release
    assert release is not None
    silo.spend(release.what, RoundedGaussian(grid.noise, 0.0))
    stream: Any = SecretStream(silo.noise_key(round, release.what))
    values, scale = whole * grid.step, grid.noise * grid.step * grid.reach
    return (values + scale * stream.box_muller(whole.size).astype(np.float64)).astype(np.float32)


@pytest.mark.slow  # a run of a small study, and 400 plays through the real gate
def test_a_float_noised_release_of_a_real_method_ends_the_audit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = _study(LAZYMIL)
    (fine,) = attack_releases(study, 100, only="bucket values")
    assert fine.moved == pytest.approx(1.0, abs=0.01)
    assert not fine.broken and fine.epsilon_at_most == pytest.approx(0.1, rel=0.02)
    assert fine.arrays == ("sealed values",) and fine.numbers == 4096
    monkeypatch.setattr(methods.lazymil_private, "noised", _float_noised)
    (found,) = attack_releases(study, 200, only="bucket values")
    assert found.broken
    support = next(f for f in found.found if f.distinguisher == "support")
    assert support.true_positives > 0.6 and support.false_positives == 0.0
    # and the program says so, in all of its outputs, and ends with another status than 0
    monkeypatch.setattr(program, "attack_releases", lambda study, plays: [found])
    monkeypatch.setattr(program, "attack_membership", lambda study, shadows: [])
    monkeypatch.setattr(program, "attack_update", lambda study: ([], "not tried"))
    with pytest.raises(SystemExit) as ended:
        program.main([*(f"{k}={v}" for k, v in LAZYMIL.items()), f"AUDITS={tmp_path}"])
    assert ended.value.code == 1
    assert "The promise is broken: bucket values." in capsys.readouterr().err
    folder = next(tmp_path.iterdir())
    report = (folder / "runs" / "latest" / "report.md").read_text("utf-8")
    assert "An audit broke the promise of this run: bucket values" in report
    (kept,) = json.loads((folder / "audit.json").read_text())["releases"]
    assert kept["broken"] and kept["epsilon_at_least"] > kept["epsilon_at_most"]
    assert "BROKEN: bucket values" in (folder / "audit.md").read_text()


def _float_step(self: Any) -> None:
    """`SecretOptimizer.add_noise` as it was before: one draw in floating point."""
    sizes = [p.numel() for p in self.params]
    noise = torch.from_numpy(self._stream.box_muller(sum(sizes)))
    noise.mul_(self.noise_multiplier * self.max_grad_norm)
    for p, part in zip(self.params, noise.split(sizes)):
        p.grad = part.view_as(p) + (0.0 if p.summed_grad is None else p.summed_grad)
        if p in self._still:
            p.grad[self._still[p]] = 0.0


@pytest.mark.slow  # a run of a small study, and two times 120 plays of one training step
def test_one_step_of_dp_sgd_whose_noise_is_a_single_draw_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What leaves is in the sum's steps, and still: over all pairs of a step's noise, the record is
    told nearly every time. Noise in whole numbers tells nothing.
    """
    words = {"METHOD": "fedavg", "DP": "record", "EPSILON": "0.04", "EPOCHS": "1", "ROUNDS": "1"}
    words |= {"TRAIN": "top:1"}  # of fewer pairs, fewer are out of reach
    study = _study(words)
    (fine,) = attack_releases(study, 60)
    assert fine.release == "training" and not fine.broken
    monkeypatch.setattr(SecretOptimizer, "add_noise", _float_step)
    (found,) = attack_releases(study, 60)
    support = next(f for f in found.found if f.distinguisher == "support")
    assert found.broken and support.true_positives > 0.8 > 0.1 > support.false_positives
