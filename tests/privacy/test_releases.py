"""What a method releases under DP=record is noised in whole numbers: exact, charged, and nothing in
its low bits.
"""

from __future__ import annotations

from dataclasses import replace

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import UserError
from config.settings import Settings
from methods.base import Privacy, RecordPrivacy, Release, SiloView
from methods.dp.releases import Grid, noised, release_grid
from privacy.accountant import total
from privacy.discrete import CUT, rounded_table
from privacy.events import Event, Gaussian, RoundedGaussian
from privacy.noise import SecretStream
from tests.methods.small_distant import twelve
from tests.privacy.float_noise import box_muller, could_be_noise_alone

PRIVATE = Settings(dp="record", epsilon=1.0)
RELEASE = Release("bucket values", often=1)


def _view(key: bytes, spent: list[Event] | None = None) -> SiloView:
    task = twelve()
    return SiloView(
        0,
        task,
        task.subset(np.arange(4)),
        PRIVATE,
        b"",
        spend=lambda what, event: None if spent is None else spent.append(event),
        privacy=Privacy(RecordPrivacy({}, release=RELEASE)),
        secret_bytes=lambda round, purpose: key,
    )


def _told_apart(release: object, runs: int) -> tuple[int, int]:
    """How often the attack says that the bag is there: where it is not, and where it is."""
    rng = np.random.default_rng(5)
    said = [0, 0]
    for _ in range(runs):
        key = rng.bytes(32)
        for there in (0, 1):
            values = np.zeros(4096)
            values[7] = 0.7 * there
            out, scale = release(key, values)  # type: ignore[operator]
            said[there] += not could_be_noise_alone(out[7], out[7 + 2048], scale)
    return said[0], said[1]


def _in_floats(key: bytes, values: np.ndarray) -> tuple[np.ndarray, float]:
    """As it was before: the attack must succeed here, or it is no attack."""
    scale = 41.3
    noise = box_muller(SecretStream(key), values.size).astype(np.float64)
    return (values + scale * noise).astype(np.float32), scale


def _on_the_grid(key: bytes, values: np.ndarray) -> tuple[np.ndarray, float]:
    view = _view(key)
    grid = release_grid(view, 1.0)
    return noised(view, 3, grid.whole(values), grid), grid.noise


def test_float_noise_attack_tells_a_bag_from_none_in_floats_and_not_on_the_grid() -> None:
    never, mostly = _told_apart(_in_floats, 200)
    assert never == 0 and mostly > 140
    absent, present = _told_apart(_on_the_grid, 200)
    assert abs(absent - present) <= 4  # the same key: only the value differs


@given(
    st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6), st.binary(min_size=32, max_size=32)
)
def test_a_release_is_a_function_of_value_plus_noise_and_of_nothing_else(
    a: int, b: int, key: bytes
) -> None:
    """The same noise under two values gives outputs that differ by the values' difference, in whole
    steps.
    """
    view = _view(key)
    grid = release_grid(view, 1.0)
    one, other = (np.rint(noised(view, 0, np.array([x, 0]), grid) / grid.step) for x in (a, b))
    assert one[0] - other[0] == a - b and one[1] == other[1]


@pytest.mark.parametrize("deviation", [1024, 4096])
def test_the_rounded_gaussian_is_exact(deviation: int) -> None:
    """Against mpmath with 300 bits, at places in the middle and in the tails."""
    table = rounded_table(deviation)
    half, most = mpmath.mpf(1) / 2, CUT * deviation
    with mpmath.workprec(300):
        low, high = (mpmath.ncdf(x * (most + half) / deviation) for x in (-1, 1))
        for k in (-most, 1 - most, -3 * deviation - 7, -1, 0, 1, deviation, most - 1):
            wanted = (mpmath.ncdf((k + half) / deviation) - low) / (high - low)
            got = mpmath.mpf(table.cumulative[k + most]) / 2**128
            assert abs(got - wanted) < mpmath.mpf(2) ** -126


def test_its_draws_have_its_moments() -> None:
    drawn = SecretStream(bytes(32)).rounded_normal(200_000, 4096) / 4096
    assert abs(drawn.mean()) < 0.01 and abs(drawn.std() - 1) < 0.01
    assert abs((drawn**4).mean() - 3) < 0.1


@given(st.floats(0.05, 500.0), st.floats(0.01, 10.0))
def test_the_noise_is_never_less_than_what_is_charged(noise: float, sensitivity: float) -> None:
    grid = Grid.of(replace(PRIVATE, noise=noise), RELEASE, sensitivity)
    assert 4096 * grid.step >= noise * sensitivity * (1 - 1e-12)
    assert grid.reach * grid.step == pytest.approx(sensitivity)
    rows = np.random.default_rng(0).normal(0, sensitivity, (20, 50)).astype(np.float32)
    rows[3], rows[4, 0] = np.inf, np.nan
    whole = grid.clipped(rows)
    assert ((whole.astype(object) ** 2).sum(axis=1) <= grid.reach**2).all()
    assert not whole[3].any() and not whole[4].any()


def test_a_release_is_charged_as_a_gaussian_and_its_cut_tails_to_delta() -> None:
    spent: list[Event] = []
    view = _view(bytes(32), spent)
    grid = release_grid(view, 1.0)
    noised(view, 0, np.zeros(4096, np.int64), grid)
    (event,) = spent
    assert isinstance(event, RoundedGaussian) and event.noise == grid.noise
    assert 0 < event.slack < 1e-17
    plain = total([Gaussian(grid.noise)], 1e-5).epsilon
    assert total([event], 1e-5).epsilon == pytest.approx(plain, rel=1e-6) and plain <= 0.1
    assert total([RoundedGaussian(grid.noise, 1e-6)], 1e-5).epsilon == float("inf")


def test_a_budget_too_small_for_the_grid_is_refused_in_a_sentence() -> None:
    with pytest.raises(UserError, match="bucket values cannot be released .* raise EPSILON"):
        Grid.of(replace(PRIVATE, noise=5000.0), RELEASE, 1.0)
