"""Opacus's own accountant on the same events, at the end of every run.

Budgets are held to privacy-loss distributions of `dp-accounting` (`privacy.accountant`). Opacus
composes privacy-loss random variables by other code (PRV; Gopi, Lee and Wutschitz 2021, "Numerical
Composition of Differential Privacy", NeurIPS) and states its error: the true epsilon lies between
two figures. Ours is an upper bound on a grid, so it may lie above the truth by a grid step. Opacus
composes Gaussians: what discrete noise may add (`privacy.accountant.moved`) is added to its upper
figure as it is to ours. Where the two do not fit together, one of them is wrong, and no figure of
the run can be used.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from config.errors import UserError
from privacy.accountant import INTERVAL, Key, merged, moved, multiplier, total
from privacy.events import DpSgd, Event, NearGaussianSum, RoundedGaussian, Unit

__all__ = ["Disagreement", "Opinion", "compared", "second_opinion"]

_ERROR = 0.01  #: that Opacus may make in epsilon; and a thousandth of delta
#: Above it, Opacus's grid would take gigabytes.
_MOST = 200.0
_Composed = DpSgd | RoundedGaussian | NearGaussianSum


class Disagreement(UserError):
    """Two accountants have different figures for the same events."""


@dataclass(frozen=True)
class Opinion:
    """Epsilon at delta by Opacus: between `least` and `most`, of which `epsilon` is the middle where
    noise is Gaussian.
    """

    least: float
    epsilon: float
    most: float


def second_opinion(events: Iterable[Event], delta: float, unit: Unit = "record") -> Opinion | None:
    """None: the events are not all Gaussian mechanisms, which is all that Opacus composes."""
    key = merged(events)
    if not key or not all(isinstance(e, _Composed) for e, _ in key):
        return None
    return _opinion(key, delta, unit)


@lru_cache(maxsize=64)
def _opinion(key: Key, delta: float, unit: Unit) -> Opinion:
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    for event, times in key:
        assert isinstance(event, _Composed)
        rate = event.rate if isinstance(event, DpSgd) else 1.0
        accountant.history.append((multiplier(event, unit), rate, times))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about log(0) where everybody is sampled
        losses = accountant._get_dprv(eps_error=_ERROR, delta_error=delta / 1000)
        least, middle, most = losses.compute_epsilon(delta, delta / 1000, _ERROR)
    return Opinion(max(float(least), 0.0), max(float(middle), 0.0), float(most) + moved(key))


def compared(events: Iterable[Event], delta: float, unit: Unit = "record") -> Opinion | None:
    """Opacus's figure, once ours fits it; None where there is none. Disagreement where it does not
    fit.
    """
    events = tuple(events)
    ours = total(events, delta, unit).epsilon
    if not math.isfinite(ours) or ours > _MOST:
        return None
    theirs = second_opinion(events, delta, unit)
    if theirs is not None and not theirs.least <= ours <= theirs.most + INTERVAL:
        raise Disagreement(
            f"Two accountants disagree: epsilon is {ours:.6g} by dp-accounting, and between "
            f"{theirs.least:.6g} and {theirs.most:.6g} by Opacus. One of them is wrong; use no figure "
            "of this run, and report it with the privacy ledger."
        )
    return theirs
