"""Whether a silo's part of a sum is one behind which others can hide, in the words of a method.

What a coordinator tells each silo alone (`Broadcast.private`) is not in the sum's context. It could
give one silo everything and the others nothing. An exchange in which it could declares
`contributors`, and its answers say `contributes` (crypto/sum/contribution.py has the rest).

A share of a silo's bags is not enough by itself: a quarter that the model already knows moves
nothing, and the sum would be the vector of a silo that was given others. So a bag counts by how far
the model is from certain of it (`weights`), and all silos of a sum hear one **level**. Nobody trains
on more than the level, and whoever contributes trains on a share of it. The level is broadcast to
all, and so in the sum's context.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from config.errors import UserError
from config.settings import Settings
from crypto.sum.params import least_contributors, policy_for
from methods.base import Disclosure

__all__ = [
    "FROM_RELEASED",
    "STEPS",
    "check_floor",
    "contribution_disclosure",
    "contributors_of",
    "enough",
    "level_of",
    "quantise",
    "weights",
    "with_ties",
    "within",
]

STEPS = 65535  #: of a bag's value, a probability
#: Why the word is free under DP=record.
FROM_RELEASED = "computed from noisy values that were released, and from what the coordinator said"


def enough(part: float, whole: float, floor: float) -> bool:
    """Whether this part of what a silo has reaches the floor, a share of it; nothing never does."""
    return part > 0 and part >= floor * whole


def contributors_of(settings: Settings, alive: int) -> int:
    """How many silos must contribute to a sum over so many; among fewer than three nobody is hidden."""
    policy = policy_for(settings.fraction, settings.silos)
    return least_contributors(alive, policy, settings.silos) if alive >= 3 else 0


def quantise(probability: np.ndarray) -> np.ndarray:
    """Probabilities as uint16, nearest step of 1/65535."""
    return np.rint(np.clip(probability, 0.0, 1.0).astype(np.float64) * STEPS).astype(np.uint16)


def weights(values: np.ndarray) -> np.ndarray:
    """What training on each bag counts: the steps that its value lacks to certainty, and one."""
    return np.asarray(STEPS + 1 - values.astype(np.int64))


def within(given: np.ndarray, level: int) -> np.ndarray:
    """Positions of the bags that fit the level: the surest first, because those are the likeliest to
    be true. Of bags that weigh the same, the first.
    """
    order = np.argsort(given, kind="stable")
    return np.sort(order[np.cumsum(given[order]) <= level])


def with_ties(given: np.ndarray, level: int) -> np.ndarray:
    """Positions of the bags that fit the level, with all that weigh as much as the last of them.

    The coordinator has a silo's bags in the order of their names, which hangs on secrets that are
    drawn anew in each run. So it does not choose among bags that weigh the same: it names them all,
    and the silo keeps those that fit, the first in its own order (`within`).
    """
    fits = within(given, level)
    return np.flatnonzero(given <= given[fits].max()) if len(fits) else fits


def level_of(
    given: Mapping[int, np.ndarray], bags: Mapping[int, int], needed: int, floor: float
) -> int:
    """The highest level at which `needed` silos contribute; where none is, that of the silo that has
    most. `given`: silo -> the weights of the bags it won; `bags`: how many it has in all.

    In most rounds all silos win about as much, and nobody has to leave a bag out.
    """
    sums = {s: np.cumsum(np.sort(w)) for s, w in given.items() if len(w)}
    masses = sorted((int(c[-1]) for c in sums.values()), reverse=True)
    if not masses:
        return 0
    reached = [int(m / floor) for m in masses if floor > 0 and m < floor * masses[0]]
    for level in (masses[0], *reached):
        fits = {s: int(np.searchsorted(c, level, "right")) for s, c in sums.items()}
        contribute = sum(
            enough(n, bags[s], floor) and enough(int(sums[s][n - 1]), level, floor)
            for s, n in fits.items()
            if n
        )
        if contribute >= needed:
            return level
    return masses[0]


def check_floor(method: str, floor: float) -> None:
    if not 0.0 <= floor <= 1.0:
        raise UserError(
            f'Option "floor" of {method} is a share of a silo\'s bags, from 0 to 1, not {floor:g}.'
        )


def contribution_disclosure(of: str) -> Disclosure:
    """`of`: what the silo must have trained on."""
    return Disclosure(
        name="contributes",
        channel="signed",
        shape=f"one yes or no: whether the silo trained on {of}",
        reveals="whether it did; a sum is opened only if so many silos did that at least two of them are "
        "honest",
        privacy="nothing beyond what the coordinator knows: it was told the values, and chose the winners",
    )
