"""An attack on noise in floating point: which float32 numbers could be noise and nothing else?

Box and Muller make two Gaussians from one radius and one angle. Here the angle is one of some 2^24
float32 numbers. Of two outputs that are made of one pair, an adversary asks whether any angle and
radius give exactly both. Where nothing was added the answer is always yes. Where a value was added
to one of them, mostly no (Mironov 2012, "On Significance of the Least Significant Bits").
"""

from __future__ import annotations

import math

import numpy as np
import torch

from privacy.noise import SecretStream

__all__ = ["box_muller", "could_be_noise_alone"]


def box_muller(stream: SecretStream, n: int) -> np.ndarray:
    """Gaussians in float32 as this program made them before: a radius from 53 random bits, an angle
    from 32. The i-th and the one half of the way further on share both.
    """
    half = (n + 1) // 2
    words = stream._words(half) >> np.uint64(11)
    turns = np.frombuffer(stream._words((half + 1) // 2).tobytes(), "<u4")[:half]
    radius = torch.from_numpy(words.astype(np.float64)).add_(0.5).mul_(2.0**-53).log_().mul_(-2.0)
    length = radius.sqrt_().float()
    angle = torch.from_numpy(turns.astype(np.float32)).mul_(2.0 * math.pi / 2**32)
    return torch.cat([angle.cos() * length, angle.sin() * length])[:n].numpy()


def could_be_noise_alone(first: np.float32, second: np.float32, scale: float) -> bool:
    """`first` and `second`: of one pair of `box_muller`, each times `scale` in float64 and
    back to float32.
    """
    firsts, seconds = _gaussians(first, scale), _gaussians(second, scale)
    if not firsts or not seconds:
        return False
    angles = _angles_near(math.atan2(float(seconds[0]), float(firsts[0])) % (2 * math.pi))
    for cosine, sine in zip(angles.cos().numpy(), angles.sin().numpy()):
        # the larger of the two says more of the radius
        if abs(cosine) > abs(sine):
            pair, known, others = (cosine, sine), firsts, seconds
        else:
            pair, known, others = (sine, cosine), seconds, firsts
        for number in known:
            for length in _near(np.float32(np.float64(number) / np.float64(pair[0])), 3):
                if length * pair[0] == number and length * pair[1] in others:
                    return True
    return False


def _near(x: np.float32, ulps: int) -> list[np.float32]:
    found, up, down = [x], x, x
    for _ in range(ulps):
        up = np.nextafter(up, np.float32(np.inf))
        down = np.nextafter(down, np.float32(-np.inf))
        found += [up, down]
    return found


def _gaussians(output: np.float32, scale: float) -> list[np.float32]:
    """The float32 numbers that give this output."""
    guess = np.float32(np.float64(output) / scale)
    return [n for n in _near(guess, 2) if np.float32(scale * np.float64(n)) == output]


def _angles_near(angle: float) -> torch.Tensor:
    turns = angle / (2 * math.pi) * 2**32
    step = max(1.0, 2.0 ** (math.floor(math.log2(max(turns, 1.0))) - 23))
    near = np.round(turns / step) * step + np.arange(-4, 5) * step
    return torch.from_numpy(np.unique(near[near >= 0].astype(np.float32))).mul_(
        2.0 * math.pi / 2**32
    )
