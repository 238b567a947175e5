"""Discrete Gaussian noise may be charged as Gaussian: what that stands on, each piece by another
path than the code's.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, norm

from config.errors import UserError
from crypto.numbers.encoding import steps_of
from methods.dp.optimizer import grid_step
from privacy.accountant import solve_noisy_sum, total
from privacy.discrete import CUT, apart, table
from privacy.events import NearGaussianSum, NoisySum
from privacy.noise import _COARSE, _FINE, _STEP, WIDE, SecretStream
from privacy.sum_noise import choose


def _discrete(s: float, most: int) -> np.ndarray:
    k = np.arange(-most, most + 1)
    p = np.exp(-(k**2) / (2 * s**2))
    return p / p.sum()


@pytest.mark.parametrize("s", [16, 64, 1024])
def test_one_coordinate_is_as_near_as_is_said(s: int) -> None:
    """The ratio to a rounded Gaussian, by Gauss-Legendre, at every whole number within the cut."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    u, w = nodes / 2, weights / 2
    x = np.arange(-CUT * s, CUT * s + 1)[:, None] / s
    log = np.log((np.cosh(x * u / s) * np.exp(-(u**2) / (2 * s**2)) * w).sum(axis=1))
    x = x[:, 0]
    assert (np.abs(log - (x**2 - 1) / (24 * s**2)) <= (x**2 + 1) ** 2 / (200 * s**4) + 1e-15).all()
    # and the same from the distribution function, in one place
    rounded = norm.cdf((2 * s + 0.5) / s) - norm.cdf((2 * s - 0.5) / s)
    discrete = float(_discrete(s, CUT * s)[CUT * s + 2 * s])
    assert math.log(rounded / discrete) == pytest.approx(3 / (24 * s**2), rel=0.05)


@pytest.mark.parametrize("d", [1, 10, 1000, 10**6])
def test_a_chi_square_is_as_near_its_mean_as_is_said(d: int) -> None:
    t = 60.0
    assert chi2.logsf(d + 2 * math.sqrt(d * t) + 2 * t, d) <= -t
    assert chi2.logcdf(d - 2 * math.sqrt(d * t), d) <= -t or d <= 2 * math.sqrt(d * t)


def test_a_sum_of_discrete_gaussians_is_charged_no_less_than_it_costs() -> None:
    """Four silos' noise in one coordinate, convolved; its exact delta at every epsilon is below that
    of the Gaussian at an epsilon that is smaller by what is added.
    """
    s, honest, radius = 64, 4, 60
    one = _discrete(s, CUT * s)
    pmf = np.array([1.0])
    for _ in range(honest):
        pmf = np.convolve(pmf, one)
    sigma, near = s * math.sqrt(honest), apart(1, s * math.sqrt(honest))
    assert 1e-6 < near < 1e-3
    there, gone = np.pad(pmf, (radius, 0)), np.pad(pmf, (0, radius))
    mu = radius / sigma
    for epsilon in (0.1, 0.5, 1.0, 1.5):
        exact = np.maximum(there - math.exp(epsilon) * gone, 0).sum()
        e = epsilon - 2 * near
        gaussian = norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu)
        assert 0.99 * gaussian < exact <= gaussian + 1e-12


def test_two_of_them_make_one_of_the_wide() -> None:
    """The same shape on a small grid, and the same ratio of the second's deviation to the first's
    step: the exact distribution of the sum.
    """
    assert _FINE == 3 * _STEP and math.hypot(_COARSE * _STEP, _FINE) == WIDE
    step, coarse, fine = 8, 16, 24
    spread = np.zeros(2 * 12 * coarse * step + 1)
    spread[::step] = _discrete(coarse, 12 * coarse)
    made = np.convolve(spread, _discrete(fine, 12 * fine))
    wanted = _discrete(math.hypot(coarse * step, fine), len(made) // 2)
    middle = slice(len(made) // 2 - 700, len(made) // 2 + 701)
    assert np.abs(made[middle] / wanted[middle] - 1).max() < 1e-11
    # with a second of the step's own deviation they differ
    worse = np.convolve(spread, _discrete(step / 2, 12 * step))
    middle = slice(len(worse) // 2 - 20, len(worse) // 2 + 21)
    other = _discrete(math.hypot(coarse * step, step / 2), len(worse) // 2)
    assert np.abs(worse[middle] / other[middle] - 1).max() > 1e-3


def test_looked_up_draws_are_those_of_a_search() -> None:
    t, words = table(50), SecretStream(b"w" * 32)._words(200_000).copy()
    words[:200] = t.high[:200]  # the edges themselves
    place, equal = t.places(words)
    assert np.array_equal(place, np.searchsorted(t.high, words, side="left"))
    assert equal.tolist() == list(range(200))


@given(
    st.integers(1, 400),
    st.floats(0.3, 300.0),
    st.floats(1e-3, 100.0),
    st.integers(0, 2**31),
)
def test_a_record_moves_a_rounded_sum_by_no_more_than_the_noise_is_made_for(
    d: int, noise: float, clip: float, seed: int
) -> None:
    step = grid_step(noise, clip, d)
    rng = np.random.default_rng(seed)
    there = rng.normal(0, 10 * clip, d)
    other = rng.normal(0, 1, d)
    moved = there + other * clip / np.linalg.norm(other)
    reach = float(np.linalg.norm(np.rint(there / step) - np.rint(moved / step)))
    assert noise * reach <= WIDE * (1 + 1e-9)
    assert WIDE * step <= noise * clip * 1.005  # and hardly more noise than asked for


def test_more_noise_than_the_grid_holds_is_refused() -> None:
    with pytest.raises(UserError, match="on 1000000 numbers is more than its grid holds"):
        grid_step(3000.0, 1.0, 10**6)


def test_ten_noisy_sums_cost_less_by_their_privacy_loss() -> None:
    """Epsilon 7.98 by Renyi divergences, of the very same noise 7.42 or less."""
    z = solve_noisy_sum(8.0, 1e-5, 10)
    noise = choose(1.0, z, 4, steps_of(32, 10))
    event = noise.event(160_000, 10)
    assert isinstance(event, NearGaussianSum) and event.apart < 1e-6
    mine = total([event] * 10, 1e-5, "silo")
    assert mine.epsilon == pytest.approx(7.41, abs=0.01) and mine.rdp == pytest.approx(
        7.98, abs=0.01
    )
    # of a sum of which a ledger of before does not say how near it is, the larger figure
    before = total([NoisySum(event.noise, event.slack)] * 10, 1e-5, "silo")
    assert before.epsilon == before.rdp == mine.rdp
    # and where it is not near, the smaller of two bounds that both hold
    far = total([NearGaussianSum(z, 1e-25, 1.0)] * 10, 1e-5, "silo")
    assert far.epsilon == far.rdp
