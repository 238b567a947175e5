"""Epsilon at delta of a list of events, by two accountants of `dp-accounting`, and the noise that
meets a target.

* **PLD** (privacy-loss distributions, connect-the-dots, a pessimistic grid): tight, and an upper
  bound. It is the figure that budgets are held to. A release with rounded Gaussian noise is the
  Gaussian mechanism, rounded. Discrete Gaussian noise, in DP-SGD and in noisy sums, is so close to a
  rounded Gaussian that every privacy loss changes by at most twice `privacy.discrete.apart`: that
  much is added.
* **RDP** (Renyi): looser, independent of the first. It stands beside it, and alone where a ledger of
  before has a noisy sum of which it does not say how far it is from a Gaussian. The discrete
  Gaussian has the Gaussian's Renyi divergence as a bound (Canonne, Kamath and Steinke 2020), and so
  has a sum of several (Kairouz, Liu and Steinke 2021).

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
from privacy.discrete import apart
from privacy.events import (
    DpSgd,
    Event,
    Free,
    Gaussian,
    NearGaussianSum,
    NoisySum,
    NonPrivate,
    RoundedGaussian,
    Unit,
)
from privacy.noise import WIDE

__all__ = [
    "INTERVAL",
    "Key",
    "Total",
    "merged",
    "moved",
    "multiplier",
    "solve_dpsgd",
    "solve_gaussian",
    "solve_noisy_sum",
    "total",
]

#: of the privacy-loss grid; a coarser one gives a larger epsilon, never a smaller one
INTERVAL = 2e-3
_FLOOR, _CEILING = 0.2, 1e4  #: noise multipliers that are searched
#: The part of delta set aside for cut tails and the like. DP-SGD's take less than 2e-22 a step from
#: it, times 1 + exp(epsilon), for networks of up to a thousand million parameters: that fits for every
#: epsilon up to 20, and beyond it nobody is promised much.
_SLACK_SHARE = 1e-3
_STEP_APART = apart(10**9, WIDE, 14)  #: of one step of DP-SGD, some 1e-9
#: Whole orders only: their Renyi divergence is a finite sum, where fractional ones are a series
#: that may not converge.
_ORDERS = tuple(float(a) for a in (*range(2, 64), 80, 96, 128, 192, 256, 512, 1024))

Key = tuple[tuple[Event, int], ...]
Noisy = DpSgd | RoundedGaussian | NoisySum


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
    usable = _usable(delta)
    by_rdp = _rdp_epsilon(key, usable, unit)
    # Cutting the tails moves the distribution by `slack`; an (e, d) guarantee becomes (e, d + (1 +
    # exp e) slack).
    if slack and (by_rdp > 700 or (1 + math.exp(by_rdp)) * slack > delta - usable):
        return Total(math.inf, math.inf, delta)
    if any(isinstance(e, NoisySum) and not isinstance(e, NearGaussianSum) for e, _ in key):
        return Total(by_rdp, by_rdp, delta)
    tight = _pld_epsilon(key, usable, unit)
    # of few coordinates, or on a coarse grid, a sum's noise is not near enough to a Gaussian
    sums = any(isinstance(e, NearGaussianSum) for e, _ in key)
    return Total(min(tight, by_rdp) if sums else tight, by_rdp, delta)


def _usable(delta: float) -> float:
    """What is left of delta when some of it is set aside."""
    return delta * (1 - _SLACK_SHARE)


def _rdp_epsilon(key: Key, delta: float, unit: Unit) -> float:
    curve = np.zeros(len(_ORDERS))
    for event, times in key:
        if isinstance(event, DpSgd | RoundedGaussian):
            curve += times * _dpsgd_rdp(event.noise, _rate(event))
        elif isinstance(event, NoisySum):
            curve += times * np.asarray(_ORDERS) / (2 * multiplier(event, unit) ** 2)
    # here and below: seconds, which a run without DP saves
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    return float(rdp.compute_epsilon(_ORDERS, curve, delta)[0])


def multiplier(event: Noisy, unit: Unit) -> float:
    """The noise's deviation, in units of what the adjacency can change."""
    if isinstance(event, NoisySum) and unit == "record":
        # A record changes its silo's clipped vector by two clips at most; its absence, a silo's by
        # one.
        return event.noise / 2
    return event.noise


def _rate(event: Noisy) -> float:
    """A release, or a sum, is made of everybody's records."""
    return event.rate if isinstance(event, DpSgd) else 1.0


def moved(key: Key) -> float:
    """What is added to the epsilon of Gaussians, because the noise of these events is discrete: every
    privacy loss may be larger by twice `apart`.
    """
    return sum(2 * times * _apart(event) for event, times in key)


def _apart(event: Event) -> float:
    """How far its noise is from that of which the privacy loss is computed."""
    if isinstance(event, NearGaussianSum):
        return event.apart
    return _STEP_APART if isinstance(event, DpSgd) else 0.0


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


def _pld_epsilon(key: Key, delta: float, unit: Unit = "record") -> float:
    composed = None
    for event, times in key:
        assert isinstance(event, Noisy)
        part = _dpsgd_pld(multiplier(event, unit), _rate(event)).self_compose(times)
        composed = part if composed is None else composed.compose(part)
    assert composed is not None
    return float(composed.get_epsilon_for_delta(delta)) + moved(key)


@lru_cache(maxsize=256)
def solve_dpsgd(epsilon: float, delta: float, rate: float, steps: int, beside: Key = ()) -> float:
    """The least noise multiplier (to half a percent, never below) with which `steps` steps stay
    within epsilon, together with the events `beside` (as `merged` gives them), which must stay
    below it by themselves.
    """
    usable = _usable(delta)

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
    """Likewise for `sums` noisy sums, protecting a silo, by Renyi divergences."""
    usable = _usable(delta)
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
