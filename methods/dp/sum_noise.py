"""DP=silo's noise for one sum of a study: the same at every silo and at the coordinator, from what
all agreed to.
"""

from __future__ import annotations

from functools import lru_cache

from config.settings import Settings
from methods.base import Exchange, Method
from methods.dp.releases import planned_rounds
from privacy.accountant import solve_noisy_sum
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
) -> SumNoise:
    return choose(clip, noise or solve_noisy_sum(epsilon, delta, sums), honest, steps)


def sum_noise_of(settings: Settings, method: Method, honest: int, steps: int) -> SumNoise:
    """`honest`: silos that every opened sum has, whose noise nobody else knows; `steps`: of the
    sum's encoding.
    """
    s = settings
    sums = planned_rounds(s) * sum(1 for e in method.exchanges if e.masked)
    return _sum_noise(
        s.clip,
        s.noise,
        epsilon=s.epsilon,
        delta=s.delta,
        sums=sums,
        honest=honest,
        steps=steps,
    )


def ranges_of(noise: SumNoise, exchange: Exchange, steps: int) -> tuple[float, ...]:
    """The clip range of every masked array: the grid's, and the declared one for what is not
    noised.
    """
    return tuple(
        spec.cap if spec.public_count else noise.range(steps) for spec in exchange.masked.values()
    )
