"""What some methods release under DP=record beside what they train: clipped, noised, and with a
budget of its own.

| method | released | how often | what one record can change |
|---|---|---|---|
| fedlc, fedrs | the silo's class counts, to its own loss | once | one count, by 1 |
| fedner | the mean gradient of the target loss | every round but the first | the sum, by CLIP |
| lazymil | the best value in each of M buckets | `scorings` times | one value, by 1 |

Each method declares its release (`methods.base.Release`). With NOISE given, it is the noise of
these releases too. PRIVACY.md derives the last column.
"""

from __future__ import annotations

import math

import numpy as np

from config.errors import UserError
from config.settings import Settings
from methods.base import Privacy, RecordPrivacy, Release, SiloView
from privacy.accountant import Key, merged, solve_gaussian
from privacy.events import Gaussian
from privacy.noise import SecretStream

__all__ = [
    "beside",
    "noised",
    "noisy_counts",
    "planned_releases",
    "planned_rounds",
    "record_privacy",
    "release_noise",
]


def planned_rounds(settings: Settings) -> int:
    """How often a silo must expect to be asked: every round, or its share of them and two
    deviations more.
    """
    c, t = settings.fraction, settings.rounds
    return t if c >= 1 else min(t, math.ceil(c * t + 2 * math.sqrt(t * c * (1 - c))))


def record_privacy(privacy: Privacy | None) -> RecordPrivacy:
    """The method's declaration for DP=record; `methods.dp.coverage` has refused those without."""
    if privacy is None or privacy.record is None:
        raise ValueError("a method without a declaration of privacy was asked for DP=record")
    return privacy.record


def release_noise(settings: Settings, release: Release) -> float:
    """Standard deviation of the noise, in units of what one record can change."""
    if settings.noise:
        return settings.noise
    share = release.share * settings.epsilon
    return solve_gaussian(share, settings.delta, max(release.often, 1))


def planned_releases(settings: Settings, declared: RecordPrivacy) -> list[Gaussian]:
    """All releases of a run beside training."""
    if declared.release is None:
        return []
    return [Gaussian(release_noise(settings, declared.release))] * declared.release.often


def beside(settings: Settings, declared: RecordPrivacy) -> Key:
    """The same for the accountant, where training's noise is to be solved."""
    return () if settings.noise else merged(planned_releases(settings, declared))


def noised(silo: SiloView, round: int, values: np.ndarray, sensitivity: float) -> np.ndarray:
    """`values` as the method releases them, with noise on every number: charged first, float32."""
    release = record_privacy(silo.privacy).release
    if release is None:
        raise ValueError("a method that declared no release was asked for one")
    event = Gaussian(release_noise(silo.settings, release))
    silo.spend(release.what, event)
    noise = SecretStream(silo.noise_key(round, release.what)).normal(values.size)
    shaped = noise.reshape(values.shape).astype(np.float64)
    return (values + event.noise * sensitivity * shaped).astype(np.float32)


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
    return noised(silo, round, counts.astype(np.float64), 1.0)
