"""What some methods release under DP=record beside what they train: clipped, noised, and with a
budget of its own.

| method | released | how often | what one record can change |
|---|---|---|---|
| fedlc, fedrs | the silo's class counts, to its own loss | once | one count, by 1 |
| fedner | the mean gradient of the target loss | every round but the first | the sum, by CLIP |
| lazymil | the best value in each of M buckets | `scorings` times | one value, by 1 |

Each gets noise so that all of its releases together would cost a share of epsilon by themselves;
the noise of training is then solved so that everything together meets epsilon
(`methods.dp.dpsgd.plan`). With NOISE given, it is the noise of these releases too. PRIVACY.md
derives the last column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from config.errors import UserError
from config.settings import Settings
from methods.base import SiloView
from privacy.accountant import Key, merged, solve_gaussian
from privacy.events import Gaussian
from privacy.noise import SecretStream

__all__ = [
    "beside",
    "noised",
    "noisy_counts",
    "planned_releases",
    "planned_rounds",
    "release_noise",
]


def planned_rounds(settings: Settings) -> int:
    """How often a silo must expect to be asked: every round, or its share of them and two
    deviations more.
    """
    c, t = settings.fraction, settings.rounds
    return t if c >= 1 else min(t, math.ceil(c * t + 2 * math.sqrt(t * c * (1 - c))))


def _targets(settings: Settings) -> int:
    return (
        max(planned_rounds(settings) - 1, 0)
        if settings.options.get("ablation", "none") == "none"
        else 0
    )


def _scorings(settings: Settings) -> int:
    return int(settings.options.get("scorings", 1))


#: Method -> how many releases, and their share of epsilon.
_RELEASES: Mapping[str, tuple[Callable[[Settings], int], float]] = {
    "fedlc": (lambda s: 1, 0.1),
    "fedrs": (lambda s: 1, 0.1),
    "fedner": (_targets, 0.1),
    "lazymil": (_scorings, 0.1),
}


def release_noise(settings: Settings) -> float:
    """Standard deviation of the noise, in units of what one record can change."""
    if settings.noise:
        return settings.noise
    often, share = _RELEASES[settings.method]
    return solve_gaussian(share * settings.epsilon, settings.delta, max(often(settings), 1))


def planned_releases(settings: Settings) -> list[Gaussian]:
    """All releases of a run beside training."""
    if settings.method not in _RELEASES:
        return []
    return [Gaussian(release_noise(settings))] * _RELEASES[settings.method][0](settings)


def beside(settings: Settings) -> Key:
    """The same for the accountant, where training's noise is to be solved."""
    return () if settings.noise else merged(planned_releases(settings))


def noised(
    silo: SiloView, round: int, what: str, values: np.ndarray, sensitivity: float
) -> np.ndarray:
    """`values` with the method's noise on every number: charged first, float32."""
    event = Gaussian(release_noise(silo.settings))
    silo.spend(what, event)
    noise = SecretStream(silo.noise_key(round, what)).normal(values.size).reshape(values.shape)
    return (values + event.noise * sensitivity * noise.astype(np.float64)).astype(np.float32)


def noisy_counts(silo: SiloView, round: int, counts: np.ndarray) -> np.ndarray:
    """The silo's class counts as its loss may know them: noised once, and kept by the silo from
    then on.
    """
    if "counts" in silo.memory:
        kept = np.asarray(silo.memory["counts"])
        if kept.shape != counts.shape:
            raise UserError(
                "The silo's memory holds counts of other classes; move its memory.safetensors away."
            )
        return kept
    return noised(silo, round, "class counts", counts.astype(np.float64), 1.0)
