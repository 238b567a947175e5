"""Published values, an independent computation, and the rules of composition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from privacy.accountant import merged, solve_dpsgd, solve_gaussian, solve_noisy_sum, total
from privacy.events import (
    DpSgd,
    Event,
    Free,
    Gaussian,
    NoisySum,
    NonPrivate,
    UnknownEvent,
    from_record,
    to_record,
)

EVENTS: list[Event] = [
    DpSgd(1.5, 0.04, 7),
    Gaussian(2.5),
    NoisySum(2.0, 1e-20),
    Free("public"),
    NonPrivate(),
]


def test_opacus_vectors() -> None:
    """opacus/tests/accountants_test.py: 1.5 clips of noise, rate 0.04, 90 epochs, delta 1e-5."""
    # their orders are finer
    assert total([DpSgd(1.5, 0.04, 2250)], 1e-5).rdp == pytest.approx(7.32911117143, rel=2e-3)
    assert total([DpSgd(1.5, 0.04, 2250)], 1e-5).rdp >= 7.32911117143
    assert total([DpSgd(1.5, 0.04, 2249)], 1e-5).epsilon == pytest.approx(
        6.777395712150674, rel=2e-3
    )


def test_dp_accounting_vectors() -> None:
    """pld_privacy_accountant_test.py (three Gaussians, three sampled ones) and
    rdp_privacy_accountant_test.py.
    """
    assert total([DpSgd(math.sqrt(3), 1.0, 3)], 0.126936).epsilon == pytest.approx(1.0, abs=2e-3)
    assert total([DpSgd(0.5, 0.2, 1), DpSgd(0.5, 0.2, 2)], 0.15594).epsilon == pytest.approx(
        1.0, abs=2e-3
    )
    assert total([NoisySum(4.530877117, 0.0)], 1e-6, "silo").rdp == pytest.approx(1.0, rel=2e-3)


def gaussian_epsilon(noise: float, delta: float) -> float:
    """Balle and Wang 2018, equation 6: the Gaussian mechanism, exactly."""

    def excess(e: float) -> float:
        a, b = 1 / (2 * noise), e * noise
        return float(norm.cdf(a - b) - math.exp(e) * norm.cdf(-a - b)) - delta

    return float(brentq(excess, 0, 200))


@pytest.mark.parametrize(("noise", "times"), [(1.0, 1), (5.0, 30), (3.0, 4)])
def test_without_sampling_it_is_the_gaussian_mechanism(noise: float, times: int) -> None:
    assert total([DpSgd(noise, 1.0, times)], 1e-5).epsilon == pytest.approx(
        gaussian_epsilon(noise / math.sqrt(times), 1e-5), rel=2e-3
    )


def by_hand(events: list[DpSgd], delta: float) -> float:
    """Our own composition: losses of both directions on a grid, summed by Fourier transform (no
    library of others).
    """
    step, half = 5e-4, 1 << 17
    grid = (np.arange(2 * half) - half) * step
    answers = []
    for remove in (True, False):
        spectrum = np.ones(half + 1, dtype=complex)
        for e in events:
            x = np.linspace(-14 * e.noise, 14 * e.noise + 1, 400_001)
            loss = np.log1p(e.rate * np.expm1((2 * x - 1) / (2 * e.noise**2)))
            above = e.rate * norm.cdf(x, 1, e.noise) + (1 - e.rate) * norm.cdf(x, 0, e.noise)
            mass = np.diff(above if remove else norm.cdf(x, 0, e.noise))
            place = np.rint((loss[:-1] + loss[1:]) / 2 * (1 if remove else -1) / step).astype(int)
            one = np.zeros(2 * half)
            np.add.at(one, place % (2 * half), mass)
            spectrum *= np.fft.rfft(one) ** e.steps
        pmf = np.fft.fftshift(np.fft.irfft(spectrum))

        def excess(epsilon: float, pmf: np.ndarray = pmf) -> float:
            over = grid > epsilon
            return float((pmf[over] * -np.expm1(epsilon - grid[over])).sum()) - delta

        answers.append(float(brentq(excess, 0, 50)))
    return max(answers)


def test_composed_ledger_equals_an_independent_computation() -> None:
    ledger = [DpSgd(1.1, 0.02, 300), DpSgd(0.9, 0.05, 40), DpSgd(2.0, 1.0, 2)]
    mine = total([*ledger, Free("post-processing")], 1e-5)
    assert mine.epsilon == pytest.approx(by_hand(ledger, 1e-5), rel=0.01)
    assert mine.epsilon < mine.rdp < 1.3 * mine.epsilon


def test_order_and_grouping_do_not_matter() -> None:
    a, b = DpSgd(1.0, 0.1, 10), DpSgd(2.0, 0.2, 5)
    assert total([a, b, a], 1e-5) == total([DpSgd(1.0, 0.1, 20), b], 1e-5) == total([b, a, a], 1e-5)


def test_one_release_without_noise_makes_the_total_infinite() -> None:
    assert total([], 1e-5).epsilon == 0.0
    assert math.isinf(total([DpSgd(10.0, 0.01, 1), NonPrivate()], 1e-5).epsilon)
    assert math.isinf(total([NonPrivate()], 0.5, "silo").epsilon)


def test_a_silo_is_not_protected_by_dp_sgd_and_a_record_half_as_well_by_a_noisy_sum() -> None:
    assert math.isinf(total([DpSgd(10.0, 0.01, 1)], 1e-5, "silo").epsilon)
    noisy = [NoisySum(4.0, 0.0)] * 3
    assert total(noisy, 1e-5, "record") == total([NoisySum(2.0, 0.0)] * 3, 1e-5, "silo")


def test_noisy_sums_are_charged_as_zcdp() -> None:
    """rho = k / (2 z^2); above the exact Gaussian, below the textbook conversion (Bun and Steinke
    2016).
    """
    k, z, delta = 20, 5.0, 1e-5
    rho = k / (2 * z**2)
    mine = total([NoisySum(z, 1e-25)] * k, delta, "silo").epsilon
    assert (
        gaussian_epsilon(z / math.sqrt(k), delta)
        < mine
        < rho + 2 * math.sqrt(rho * math.log(1 / delta))
    )


def test_tails_cut_too_near_are_not_covered() -> None:
    assert math.isfinite(total([NoisySum(2.0, 1e-20)], 1e-5, "silo").epsilon)
    assert math.isinf(total([NoisySum(2.0, 1e-7)], 1e-5, "silo").epsilon)


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_solved_noise_is_enough_and_hardly_more(epsilon: float) -> None:
    z = solve_dpsgd(epsilon, 1e-5, 0.1, 100)
    assert 0.98 * epsilon < total([DpSgd(z, 0.1, 100)], 1e-5).epsilon <= epsilon
    z = solve_noisy_sum(epsilon, 1e-5, 20)
    assert 0.98 * epsilon < total([NoisySum(z, 1e-25)] * 20, 1e-5, "silo").epsilon <= epsilon


def test_gaussian_releases_are_charged_and_leave_less_for_training() -> None:
    z = solve_gaussian(0.8, 1e-5, 3)
    assert total([Gaussian(z)] * 3, 1e-5).epsilon == pytest.approx(
        gaussian_epsilon(z / math.sqrt(3), 1e-5), rel=2e-3
    )
    beside = merged([Gaussian(z)] * 3)
    w = solve_dpsgd(4.0, 1e-5, 0.1, 100, beside)
    assert w > solve_dpsgd(4.0, 1e-5, 0.1, 100)
    assert 0.98 * 4.0 < total([DpSgd(w, 0.1, 100), *[Gaussian(z)] * 3], 1e-5).epsilon <= 4.0


@pytest.mark.parametrize("event", EVENTS)
def test_events_survive_their_record(event: Event) -> None:
    assert from_record(to_record(event)) == event
    assert event.words


@pytest.mark.parametrize(
    "record",
    [
        None,
        {},
        {"kind": "exponential", "noise": 1.0},
        {"kind": "dp-sgd", "noise": 1.0, "rate": 0.1},
        {"kind": "dp-sgd", "noise": 1.0, "rate": 0.1, "steps": 1, "more": 1},
        {"kind": "dp-sgd", "noise": 1.0, "rate": 0.1, "steps": True},
        {"kind": "dp-sgd", "noise": 0.0, "rate": 0.1, "steps": 1},
        {"kind": "dp-sgd", "noise": math.inf, "rate": 0.1, "steps": 1},
        {"kind": "dp-sgd", "noise": 1.0, "rate": 1.5, "steps": 1},
        {"kind": "ring-noise", "noise": "1", "slack": 0.0},
        {"kind": "gaussian", "noise": 0.0},
        {"kind": "gaussian", "noise": 1.0, "rate": 0.5},
        {"kind": "free", "why": ""},
    ],
)
def test_unknown_events_are_refused(record: object) -> None:
    with pytest.raises(UnknownEvent):
        from_record(record)
