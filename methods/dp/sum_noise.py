"""DP=silo's noise for one sum of a study: the same at every silo and at the coordinator, from what
all agreed to.
"""

from __future__ import annotations

from functools import lru_cache

from config.settings import Settings
from methods.base import Exchange, Method
from methods.dp.releases import planned_rounds
from privacy.accountant import solve_ring
from privacy.sum_noise import PUBLIC, Ring, choose

__all__ = ["ranges_of", "ring_of"]


@lru_cache(maxsize=64)
def _ring(
    clip: float, noise: float, epsilon: float, delta: float, sums: int, honest: int, steps: int
) -> Ring:
    return choose(clip, noise or solve_ring(epsilon, delta, sums), honest, steps)


def ring_of(settings: Settings, method: Method, honest: int, steps: int) -> Ring:
    """`honest`: silos that every opened sum has, whose noise nobody else knows; `steps`: of the
    sum's encoding.
    """
    s = settings
    sums = planned_rounds(s) * sum(1 for e in method.exchanges if e.masked)
    return _ring(s.clip, s.noise, s.epsilon, s.delta, sums, honest, steps)


def ranges_of(ring: Ring, exchange: Exchange, steps: int) -> tuple[float, ...]:
    """The clip range of every masked array: the grid's, and the declared one for what is not
    noised.
    """
    return tuple(
        spec.cap if name == PUBLIC else ring.range(steps) for name, spec in exchange.masked.items()
    )
