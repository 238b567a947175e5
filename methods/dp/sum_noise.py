"""DP=silo's noise for one sum of a study: the same at every silo and at the coordinator, from what
all agreed to.
"""

from __future__ import annotations

from functools import lru_cache

from config.settings import Settings
from methods.base import Exchange, Method
from methods.dp.releases import planned_rounds
from privacy.accountant import solve_gaussian, solve_noisy_sum, total
from privacy.sum_noise import SumNoise, choose

__all__ = ["ranges_of", "sum_noise_of"]


@lru_cache(maxsize=64)
def _sum_noise(
    clip: float,
    noise: float,
    *,
    epsilon: float,
    delta: float,
    sums: int,
    honest: int,
    steps: int,
    coordinates: int,
    parties: int,
) -> SumNoise:
    if noise:
        return choose(clip, noise, honest, steps)
    enough = choose(clip, solve_noisy_sum(epsilon, delta, sums), honest, steps)
    # Less noise is enough where the sum's is so near to a Gaussian that its privacy loss is known. How
    # near it is depends on the grid, and the grid on the noise: so it is tried, and then checked.
    left = epsilon - 2 * sums * enough.event(coordinates, parties).apart
    if left <= 0:
        return enough
    less = choose(clip, solve_gaussian(left, delta, sums), honest, steps)
    fits = total([less.event(coordinates, parties)] * sums, delta, "silo").epsilon <= epsilon
    return less if fits and less.noise < enough.noise else enough


def sum_noise_of(settings: Settings, method: Method, honest: int, steps: int) -> SumNoise:
    """`honest`: silos that every opened sum has, whose noise nobody else knows; `steps`: of the
    sum's encoding.
    """
    s = settings
    masked = [e.masked.values() for e in method.exchanges if e.masked]
    return _sum_noise(
        s.clip,
        s.noise,
        epsilon=s.epsilon,
        delta=s.delta,
        sums=planned_rounds(s) * len(masked),
        honest=honest,
        steps=steps,
        coordinates=max((sum(a.size for a in arrays) for arrays in masked), default=0),
        parties=s.silos,
    )


def ranges_of(noise: SumNoise, exchange: Exchange, steps: int) -> tuple[float, ...]:
    """The clip range of every masked array: the grid's, and the declared one for what is not
    noised.
    """
    return tuple(
        spec.cap if spec.public_count else noise.range(steps) for spec in exchange.masked.values()
    )
