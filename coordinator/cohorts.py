"""Who takes part in a round.

Where a round has silos enough to outnumber all that may be corrupt, it does not matter who they are,
and the run's seed says it. Smaller rounds are drawn from the silos' nonces, which nobody chose after
seeing another's; every silo draws too, and refuses all other cohorts (crypto.sum.silo_limits). A
simulation has its seed in place of the nonces, so that both runners, and a run that is gone on with,
draw alike.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from contextlib import suppress

import numpy as np

from config.settings import Settings
from coordinator.exchange import Carrier, RoundFailed
from crypto.sum.graph import draw_cohort
from crypto.sum.params import cohort_floor, policy_for
from methods.base import derived_seed, silo_name
from study.agreement import cohort_source

__all__ = ["cohort_of", "draws", "least_in_a_session", "least_in_a_sum", "select"]


def draws(settings: Settings) -> bool:
    """Whether a round has so few silos that who they are is drawn from the silos' nonces."""
    return policy_for(settings.fraction, settings.silos).corrupt_among == "cohort"


def least_in_a_sum(settings: Settings) -> int:
    """Silos below which no sum is asked for: every silo would refuse it."""
    return max(3, cohort_floor(settings.cohort_size, policy_for(settings.fraction, settings.silos)))


def least_in_a_session(settings: Settings) -> int:
    """Silos below which no keys are agreed on: every silo would refuse to."""
    least = max(3 if settings.secagg else 1, settings.minimum)
    if not settings.secagg or not draws(settings):
        return least
    share = 1 - policy_for(settings.fraction, settings.silos).dropout
    return max(least, math.ceil(share * settings.silos))


def cohort_of(settings: Settings, round: int, carrier: Carrier) -> tuple[int, ...]:
    """A round's silos. Where they are drawn: all of them, also those who are gone, because nobody
    may stand in for them. If that leaves too few, a new session draws among those who are here.
    """
    if not draws(settings):
        return select(settings, round, carrier.present())
    least = least_in_a_sum(settings) if settings.secagg else 1
    cohort = select(settings, round, carrier.session(), carrier.source)
    if len(set(cohort).intersection(carrier.present())) < least:
        with suppress(RoundFailed):  # the exchange says what is missing
            carrier.renew(round)
        cohort = select(settings, round, carrier.session(), carrier.source)
    return cohort


def select(
    settings: Settings, round: int, present: Collection[int], source: bytes = b""
) -> tuple[int, ...]:
    """m = max(floor(C K), 1) silos, in the order of one permutation per round, passing over those
    that are gone. Where every silo checks the draw, it is from `source`: the session's nonces, or
    what a simulation has in their place.
    """
    m = settings.cohort_size
    if draws(settings):
        names = {silo_name(i): i for i in present}
        chosen = draw_cohort(source or cohort_source(settings), names, round, m)
        return tuple(sorted(names[name] for name in chosen))
    rng = np.random.default_rng(derived_seed(settings.seed, "cohort", round))
    order = [int(i) for i in rng.permutation(settings.silos) if int(i) in present]
    return tuple(sorted(order[:m]))
