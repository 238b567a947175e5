"""Epsilon at delta of a list of events, by two accountants of `dp-accounting`, and the noise that
meets a target.

* **PLD** (privacy-loss distributions, connect-the-dots, a pessimistic grid): tight, and an upper
  bound. It is the figure that budgets are held to where every event is DP-SGD or a Gaussian
  release, in floating point or rounded: rounding what is already noisy costs nothing.
* **RDP** (Renyi): looser, independent of the first. It stands beside it, and alone where a sum has
  discrete Gaussian noise: the discrete Gaussian has the Gaussian's Renyi divergence as a bound
  (Canonne, Kamath and Steinke 2020), and so has a sum of several (Kairouz, Liu and Steinke 2021),
  but not the Gaussian's privacy-loss distribution.

Adjacency is zero-out: the neighbour has one record (or one silo) replaced by nothing, the number of
records being the same. For Poisson sampling the figures are those of add-or-remove. PRIVACY.md
derives every line.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from config.errors import UserError
from privacy.events import DpSgd, Event, Free, Gaussian, NoisySum, NonPrivate, RoundedGaussian, Unit

__all__ = [
    "INTERVAL",
    "Key",
    "Total",
    "merged",
    "solve_dpsgd",
    "solve_gaussian",
    "solve_noisy_sum",
    "total",
]

#: of the privacy-loss grid; a coarser one gives a larger epsilon, never a smaller one
INTERVAL = 2e-3
_FLOOR, _CEILING = 0.2, 1e4  #: noise multipliers that are searched
_SLACK_SHARE = 1e-3  #: the part of delta set aside for cut tails, where there are any
#: Whole orders only: their Renyi divergence is a finite sum, where fractional ones are a series
#: that may not converge.
_ORDERS = tuple(float(a) for a in (*range(2, 64), 80, 96, 128, 192, 256, 512, 1024))

Key = tuple[tuple[Event, int], ...]


@dataclass(frozen=True)
class Total:
    epsilon: float  #: what budgets are held to
    rdp: float  #: the same by the Renyi accountant
    delta: float


def merged(events: Iterable[Event]) -> Key:
    """Equal mechanisms added up: (mechanism, times), in an order that depends on nothing but the
    events.
    """
    times: Counter[Event] = Counter()
    for event in events:
        if isinstance(event, DpSgd):
            if event.steps:
                times[DpSgd(event.noise, event.rate, 1)] += event.steps
        elif isinstance(event, Gaussian):
            # DP-SGD that samples everybody is the Gaussian mechanism
            times[DpSgd(event.noise, 1.0, 1)] += 1
        elif isinstance(event, NonPrivate):
            times[event] = 1
        elif isinstance(event, NoisySum | RoundedGaussian):
            times[event] += 1
        elif not isinstance(event, Free):
            raise TypeError(f"{type(event).__name__} is not a privacy event")
    return tuple(sorted(times.items(), key=repr))


def total(events: Iterable[Event], delta: float, unit: Unit = "record") -> Total:
    """Composition of all events, for whoever protects a record or a whole silo."""
    return _total(merged(events), delta, unit)


@lru_cache(maxsize=512)
def _total(key: Key, delta: float, unit: Unit) -> Total:
    of_records = DpSgd | RoundedGaussian
    if any(
        isinstance(e, NonPrivate) or (unit == "silo" and isinstance(e, of_records)) for e, _ in key
    ):
        return Total(math.inf, math.inf, delta)
    if not key:
        return Total(0.0, 0.0, delta)
    slack = sum(times * e.slack for e, times in key if isinstance(e, NoisySum | RoundedGaussian))
    usable = _usable(key, delta)
    by_rdp = _rdp_epsilon(key, usable, unit)
    # Cutting the tails moves the distribution by `slack`; an (e, d) guarantee becomes (e, d + (1 +
    # exp e) slack).
    if slack and (by_rdp > 700 or (1 + math.exp(by_rdp)) * slack > delta - usable):
        return Total(math.inf, math.inf, delta)
    if any(isinstance(e, NoisySum) for e, _ in key):
        return Total(by_rdp, by_rdp, delta)
    return Total(_pld_epsilon(key, usable), by_rdp, delta)


def _usable(key: Key, delta: float) -> float:
    """What is left of delta where some of it is set aside for cut tails."""
    cut = any(isinstance(e, NoisySum | RoundedGaussian) for e, _ in key)
    return delta * (1 - _SLACK_SHARE) if cut else delta


def _rdp_epsilon(key: Key, delta: float, unit: Unit) -> float:
    curve = np.zeros(len(_ORDERS))
    for event, times in key:
        if isinstance(event, DpSgd | RoundedGaussian):
            curve += times * _dpsgd_rdp(event.noise, _rate(event))
        elif isinstance(event, NoisySum):
            # A record changes its silo's clipped vector by two clips at most; its absence, a silo's
            # by one.
            multiplier = event.noise if unit == "silo" else event.noise / 2
            curve += times * np.asarray(_ORDERS) / (2 * multiplier**2)
    # here and below: seconds, which a run without DP saves
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    return float(rdp.compute_epsilon(_ORDERS, curve, delta)[0])


def _rate(event: DpSgd | RoundedGaussian) -> float:
    """A release is made of everybody's records."""
    return event.rate if isinstance(event, DpSgd) else 1.0


@lru_cache(maxsize=64)
def _dpsgd_rdp(noise: float, rate: float) -> np.ndarray:
    from dp_accounting import dp_event
    from dp_accounting.privacy_accountant import NeighboringRelation
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    accountant = rdp.RdpAccountant(_ORDERS, NeighboringRelation.REPLACE_SPECIAL)
    accountant.compose(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise)))
    return np.asarray(accountant._rdp, np.float64)


@lru_cache(maxsize=32)
def _dpsgd_pld(noise: float, rate: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    return pld.from_gaussian_mechanism(
        noise, sampling_prob=rate, value_discretization_interval=INTERVAL, use_connect_dots=True
    )


def _pld_epsilon(key: Key, delta: float) -> float:
    composed = None
    for event, times in key:
        assert isinstance(event, DpSgd | RoundedGaussian)
        part = _dpsgd_pld(event.noise, _rate(event)).self_compose(times)
        composed = part if composed is None else composed.compose(part)
    assert composed is not None
    return float(composed.get_epsilon_for_delta(delta))


@lru_cache(maxsize=256)
def solve_dpsgd(epsilon: float, delta: float, rate: float, steps: int, beside: Key = ()) -> float:
    """The least noise multiplier (to half a percent, never below) with which `steps` steps stay
    within epsilon, together with the events `beside` (as `merged` gives them), which must stay
    below it by themselves.
    """
    usable = _usable(beside, delta)

    def renyi(z: float) -> float:
        return _rdp_epsilon(((DpSgd(z, rate, 1), steps), *beside), usable, "record")

    def tight(z: float) -> float:
        return _pld_epsilon(((DpSgd(z, rate, 1), steps), *beside), usable)

    # enough, since the Renyi figure is the larger one; the rest is paid in noise
    high = _least(renyi, epsilon)
    low = high
    while tight(low) <= epsilon and low > _FLOOR:
        low, high = 0.9 * low, low
    return _rounded(_between(tight, epsilon, low, high))


@lru_cache(maxsize=256)
def solve_gaussian(epsilon: float, delta: float, releases: int) -> float:
    """Likewise for that many Gaussian releases and nothing else."""
    return solve_dpsgd(epsilon, delta, 1.0, releases)


@lru_cache(maxsize=256)
def solve_noisy_sum(epsilon: float, delta: float, sums: int) -> float:
    """Likewise for `sums` noisy sums, protecting a silo."""
    usable = delta * (1 - _SLACK_SHARE)
    return _rounded(
        _least(lambda z: _rdp_epsilon(((NoisySum(z, 0.0), sums),), usable, "silo"), epsilon)
    )


def _least(spent: Callable[[float], float], epsilon: float) -> float:
    low, high = _FLOOR, 1.0
    while spent(high) > epsilon:
        low, high = high, 2 * high
        if high > _CEILING:
            raise UserError(
                f"EPSILON={epsilon:g} cannot be met with noise below {_CEILING:g} clips; raise it."
            )
    return _between(spent, epsilon, low, high)


def _between(spent: Callable[[float], float], epsilon: float, low: float, high: float) -> float:
    """Bisection on the logarithm; `high` always meets epsilon."""
    while high / low > 1.005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if spent(middle) <= epsilon else (middle, high)
    return high


def _rounded(noise: float) -> float:
    """Four digits, upwards, so that a plan can be told and repeated."""
    digits = 3 - math.floor(math.log10(noise))
    return math.ceil(noise * 10**digits) / 10**digits
