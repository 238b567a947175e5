"""What some methods release under DP=record beside what they train: clipped, noised, and with a
budget of its own.

Each method declares in its file what it releases and how often (`methods.base.Release`). PRIVACY.md
has the list, and derives how much one record can change. Values are put on a grid and noised in
whole numbers (`Grid`). With NOISE given, it is the noise of these releases too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from config.errors import UserError
from config.settings import Settings
from methods.base import Privacy, RecordPrivacy, Release, SiloView
from privacy.accountant import Key, merged, solve_gaussian
from privacy.discrete import slack_of
from privacy.events import RoundedGaussian
from privacy.noise import SecretStream

__all__ = [
    "Grid",
    "beside",
    "noised",
    "noisy_counts",
    "planned_releases",
    "planned_rounds",
    "record_privacy",
    "release_grid",
    "release_noise",
]

_DEVIATION = 4096  #: of the noise, in steps of the grid


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


def planned_releases(settings: Settings, declared: RecordPrivacy) -> list[RoundedGaussian]:
    """All releases of a run beside training."""
    if declared.release is None:
        return []
    event = RoundedGaussian(release_noise(settings, declared.release), 0.0)
    return [event] * declared.release.often


def beside(settings: Settings, declared: RecordPrivacy) -> Key:
    """The same for the accountant, where training's noise is to be solved."""
    return () if settings.noise else merged(planned_releases(settings, declared))


@dataclass(frozen=True)
class Grid:
    """Whole numbers in place of a release's values: noise in floating point would leave the value
    readable in its low bits (Mironov 2012).
    """

    step: float  #: what one whole number stands for
    reach: int  #: the most that one record can change the release, in steps (L2)
    noise: float  #: the deviation that is charged, in units of what one record can change

    @classmethod
    def of(cls, settings: Settings, release: Release, sensitivity: float) -> Grid:
        """So fine that the noise has a deviation of 4096 steps, or a little more."""
        noise = release_noise(settings, release)
        reach = math.floor(_DEVIATION / noise)
        if reach < 1:
            raise UserError(
                f"The {release.what} cannot be released with noise of {noise:.4g} times what one "
                "record changes; raise EPSILON, or lower NOISE."
            )
        return cls(sensitivity / reach, reach, noise)

    def whole(self, values: np.ndarray) -> np.ndarray:
        """Values of which one record can change one, by the sensitivity, between whole numbers."""
        return np.rint(np.asarray(values, np.float64) / self.step).astype(np.int64)

    def clipped(self, rows: np.ndarray) -> np.ndarray:
        """One record's vector a row, in whole numbers, none longer than `reach`: rounding may not
        carry it beyond, so where it does the row is made a little shorter and rounded again. A row
        with something that is no number counts nothing.
        """
        x = np.asarray(rows, np.float64) / self.step
        x[~np.isfinite(x).all(axis=1)] = 0.0
        lengths = np.linalg.norm(x, axis=1)
        x *= np.minimum(1.0, self.reach / np.maximum(lengths, 1e-300))[:, None]
        whole = np.rint(x)
        while (longer := (whole**2).sum(axis=1) > self.reach**2).any():
            lengths = np.sqrt((whole[longer] ** 2).sum(axis=1))
            x[longer] *= (self.reach / lengths * (1 - 1e-6))[:, None]
            whole[longer] = np.rint(x[longer])
        return whole.astype(np.int64)


def release_grid(silo: SiloView, sensitivity: float) -> Grid:
    """The grid of what the silo's method releases."""
    return Grid.of(silo.settings, _release(silo), sensitivity)


def noised(silo: SiloView, round: int, whole: np.ndarray, grid: Grid) -> np.ndarray:
    """What the method releases, with noise on every number: charged first; in values again,
    float32, each a multiple of the grid's step.
    """
    release = _release(silo)
    slack = slack_of(whole.size, _DEVIATION)
    silo.spend(release.what, RoundedGaussian(grid.noise, slack))
    stream = SecretStream(silo.noise_key(round, release.what))
    noisy = whole + stream.rounded_normal(whole.size, _DEVIATION).reshape(whole.shape)
    return (noisy * grid.step).astype(np.float32)


def _release(silo: SiloView) -> Release:
    release = record_privacy(silo.privacy).release
    if release is None:
        raise ValueError("a method that declared no release was asked for one")
    return release


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
    grid = release_grid(silo, 1.0)
    return noised(silo, round, grid.whole(counts), grid)
