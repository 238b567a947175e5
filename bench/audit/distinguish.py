"""Which of two neighbouring inputs made this output? Distinguishers of one noisy release, and the
epsilon that their hits prove.

* **Likelihood ratio** of the stated mechanism: for Gaussian noise around two known centres, the
  projection on their difference.
* **Support**: is the output reachable at all under one of the two? Noise in whole numbers can only
  move a centre by whole steps. Noise in floating point comes from pairs of Box and Muller's, whose
  angle is one of some 2^24 numbers: few pairs of outputs can be a given centre and noise (Mironov
  2012, "On Significance of the Least Significant Bits").
* **Low bits**: how often each pattern of the lowest bits was seen under either input.

A threshold is chosen on one half of the plays. On the other half, Clopper-Pearson limits of true and
false positives give a lower limit of epsilon at delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import beta

__all__ = [
    "CONFIDENCE",
    "Found",
    "could_be_noise",
    "judge",
    "low_bits",
    "off_the_steps",
    "unreachable_pairs",
]

CONFIDENCE = 0.99  #: that no bound of one release is above its true epsilon
_PATTERNS = 32
_LIMITS = 4  #: of true and of false positives, a lower and an upper one: each may be wrong


@dataclass(frozen=True)
class Found:
    distinguisher: str
    true_positives: float  #: of the plays with the record, how many it says have it
    false_positives: float
    plays: int  #: that were judged, under each of the two
    epsilon_at_least: float


def _limits(hits: int, n: int, error: float) -> tuple[float, float]:
    low = float(beta.ppf(error, hits, n - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - error, hits + 1, n - hits)) if hits < n else 1.0
    return low, high


def _proved(true: int, false: int, n: int, delta: float, error: float) -> float:
    """P[E] <= e^eps P'[E] + delta, for the event that it says yes and for the event that it says
    no.
    """
    (t_low, t_high), (f_low, f_high) = _limits(true, n, error), _limits(false, n, error)
    best = 0.0
    for more, less in ((t_low, f_high), (1 - f_high, 1 - t_low), (f_low, t_high)):
        if more > delta and less > 0:
            best = max(best, math.log((more - delta) / less))
    return best


def judge(name: str, present: np.ndarray, absent: np.ndarray, *, delta: float, of: int) -> Found:
    """Scores of plays with and without the record; higher says "with". `of`: how many
    distinguishers share the confidence.
    """
    half, error = len(present) // 2, (1 - CONFIDENCE) / (_LIMITS * of)
    chosen = np.unique(np.concatenate([present[:half], absent[:half]]))
    if len(chosen) > 400:
        chosen = np.quantile(chosen, np.linspace(0, 1, 400))
    trials = [
        (
            _proved(
                int((present[:half] >= t).sum()),
                int((absent[:half] >= t).sum()),
                half,
                delta,
                error,
            ),
            t,
        )
        for t in chosen
    ]
    # where none proves anything, it never says "with"
    threshold = max([*trials, (0.0, math.inf)])[1]
    n = min(len(present), len(absent)) - half
    true = int((present[half : half + n] >= threshold).sum())
    false = int((absent[half : half + n] >= threshold).sum())
    return Found(name, true / n, false / n, n, _proved(true, false, n, delta, error))


def off_the_steps(values: np.ndarray) -> np.ndarray:
    """Numbers in steps of the noise, less a centre: whether any of a row's is between whole ones."""
    return np.asarray((np.abs(values - np.rint(values)) > 1e-2).any(axis=-1))


def low_bits(present: np.ndarray, absent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores from the patterns of the low bits, as often as each was seen in the first half under
    either input. float32: trailing zeros of the number as it is stored; whole numbers: the last four
    bits.
    """

    def patterns(x: np.ndarray) -> np.ndarray:
        if x.dtype.kind == "i":
            return np.asarray(x % 16)
        words = x.astype(np.float32).view(np.uint32).astype(np.int64) | (1 << 31)
        return np.asarray(np.log2(words & -words).astype(np.int64))

    p, q = patterns(present), patterns(absent)
    half, score = len(p) // 2, []
    for side in (p, q):
        score.append(np.zeros(len(side)))
    for column in range(p.shape[1]):
        seen = [np.bincount(s[:half, column], minlength=_PATTERNS) + 1.0 for s in (p, q)]
        ratio = np.log(seen[0] / seen[0].sum()) - np.log(seen[1] / seen[1].sum())
        score[0] += ratio[p[:, column]]
        score[1] += ratio[q[:, column]]
    return score[0], score[1]


# Box and Muller's pairs in float32, as `privacy.noise.SecretStream.normal` makes them


def could_be_noise(
    pair: tuple[np.float32, np.float32],
    centres: tuple[float, float],
    scale: float,
    tolerance: float = 0.0,
) -> bool:
    """Whether some pair of float32 Gaussians, times `scale` and added to the centres, gives these two
    outputs: exactly, or within a tolerance of each.
    """
    firsts, seconds = (_gaussians(x, c, scale, tolerance) for x, c in zip(pair, centres))
    if not len(firsts) or not len(seconds):
        return False
    middle = [float(g[len(g) // 2]) for g in (firsts, seconds)]
    angles = _angles_near(math.atan2(middle[1], middle[0]) % (2 * math.pi))
    for cosine, sine in zip(angles.cos().numpy(), angles.sin().numpy()):
        # the larger of the two says more of the radius
        if abs(cosine) > abs(sine):
            of, known, others = (cosine, sine), firsts, seconds
        else:
            of, known, others = (sine, cosine), seconds, firsts
        for number in known:
            for length in _near(np.float32(np.float64(number) / np.float64(of[0])), 3):
                other = length * of[1]
                within = others.min() <= other <= others.max() if tolerance else other in others
                if within and length * of[0] == number:
                    return True
    return False


def unreachable_pairs(
    x: np.ndarray, centre: np.ndarray, scale: float, tolerance: np.ndarray | float
) -> int:
    """Of all pairs of one draw, how many cannot be the centre and noise, whatever was rounded away: no
    angle that a float32 can have points at them. A single one of many may be by chance of the
    tolerance; under the wrong centre there are more.
    """
    half = len(x) // 2
    noise = (x - centre) / scale
    wide = np.broadcast_to(np.asarray(tolerance) / abs(scale), x.shape) + 1.2e-7 * np.abs(noise)
    # of an odd number the last of the second half was not handed out
    upper = (len(x) + 1) // 2
    a, b, da, db = noise[:half], noise[upper:], wide[:half], wide[upper:]
    radius = np.hypot(a, b)
    angle = np.arctan2(b, a) % (2 * math.pi)
    turns = angle / (2 * math.pi) * 2.0**32
    # a box of da by db, seen from the middle
    reach = (np.abs(b) * da + np.abs(a) * db) / radius**2 / (2 * math.pi) * 2.0**32
    step = 2.0 ** np.maximum(np.floor(np.log2(np.maximum(turns, 1.0))) - 23, 0)
    return int((np.abs(turns - np.round(turns / step) * step) > reach).sum())


def _near(x: np.float32, ulps: int) -> list[np.float32]:
    found, up, down = [x], x, x
    for _ in range(ulps):
        up = np.nextafter(up, np.float32(np.inf))
        down = np.nextafter(down, np.float32(-np.inf))
        found += [up, down]
    return found


def _gaussians(output: np.float32, centre: float, scale: float, tolerance: float) -> np.ndarray:
    """The float32 numbers that give this output; with a tolerance, some of them, its ends among
    them.
    """
    if tolerance:
        ends = [(float(output) - centre + t) / scale for t in (-tolerance, 0.0, tolerance)]
        return np.unique(np.array(ends, np.float32))
    guess = np.float32((np.float64(output) - centre) / scale)
    fits = [n for n in _near(guess, 8) if np.float32(centre + scale * np.float64(n)) == output]
    return np.array(sorted(fits), np.float32)


def _angles_near(angle: float) -> torch.Tensor:
    turns = angle / (2 * math.pi) * 2**32
    step = max(1.0, 2.0 ** (math.floor(math.log2(max(turns, 1.0))) - 23))
    near = np.round(turns / step) * step + np.arange(-4, 5) * step
    return torch.from_numpy(np.unique(near[near >= 0].astype(np.float32))).mul_(
        2.0 * math.pi / 2**32
    )
