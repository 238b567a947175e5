"""One silo's share of the noise of a secure sum: its vector clipped, rounded to a grid, and noised
in whole numbers.

`DP=silo`. After Kairouz, Liu and Steinke 2021, "The Distributed Discrete Gaussian Mechanism for
Federated Learning with Secure Aggregation", ICML. Every silo adds discrete Gaussian noise of
`deviation` grid steps. At least `honest` silos whose noise the adversary does not know are in every
sum that is opened, so that the sum has noise of at least `noise` times `clip`; with all silos there
it has more. The grid follows from that: noise * clip / sqrt(honest) is `deviation` steps.

What is added is whole numbers in the ring of the secure sum, before masking: `float32` carries
numbers of grid steps below 2^22 exactly enough for the encoding, whose own step is the grid, to
round them back to themselves.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from config.errors import UserError
from privacy.discrete import CUT, UNLIKELY, apart, slack_of
from privacy.events import NearGaussianSum
from privacy.noise import SecretStream

__all__ = ["SumNoise", "choose"]

#: grid steps of a silo's noise, the finest that fits first
_DEVIATIONS = (16384, 4096, 1024, 256, 64)
_MOST = 1 << 22


@dataclass(frozen=True)
class SumNoise:
    clip: float  #: the most that one silo's vector may weigh (L2)
    noise: float  #: what is promised of the sum, in clips
    honest: int  #: silos whose noise is counted on
    deviation: int  #: of one silo's noise, in grid steps

    @property
    def grid(self) -> float:
        return self.noise * self.clip / (math.sqrt(self.honest) * self.deviation)

    @property
    def radius(self) -> int:
        """The most that one silo's vector may weigh, in grid steps."""
        return math.floor(self.clip / self.grid)

    def range(self, steps: int) -> float:
        """The clip range of an encoding with that many steps whose own step is the grid."""
        return steps * self.grid

    def event(self, coordinates: int, parties: int) -> NearGaussianSum:
        """`slack`: every party's cut tails, and once more those of the sum, beyond which nobody has
        said how near to a Gaussian it is.
        """
        slack = (parties + 1) * slack_of(coordinates, self.deviation) + UNLIKELY
        near = apart(coordinates, self.deviation * math.sqrt(self.honest))
        return NearGaussianSum(self.noise, slack, near)

    def clipped(self, vector: np.ndarray) -> np.ndarray:
        """The vector in whole grid steps, its norm at most `radius`: rounding may not carry it
        beyond, so where it does the vector is made a little shorter and rounded again.
        """
        x = vector.astype(np.float64) / self.grid
        x *= min(1.0, self.radius / max(float(np.linalg.norm(x)), 1e-300))
        whole = np.rint(x)
        while (length := float(np.sqrt((whole**2).sum()))) > self.radius:
            x *= (self.radius / length) * (1 - 1e-6)
            whole = np.rint(x)
        return whole.astype(np.int64)

    def noised(
        self,
        arrays: Mapping[str, np.ndarray],
        stream: SecretStream,
        public: Collection[str] = (),
    ) -> dict[str, np.ndarray]:
        """All arrays of one sum, clipped together and noised. The `public` ones are counts that
        must be one at every silo, and get no noise.
        """
        private = {k: v for k, v in arrays.items() if k not in public}
        if not all((arrays[k] == 1.0).all() for k in public if k in arrays):
            raise ValueError("a weight that is not one would tell a silo's size, without noise")
        whole = self.clipped(np.concatenate([np.ravel(v) for v in private.values()]))
        whole += stream.discrete_normal(len(whole), self.deviation)
        values = (whole * self.grid).astype(np.float32)
        cuts = np.cumsum([v.size for v in private.values()])[:-1]
        parts = dict(zip(private, np.split(values, cuts)))
        return {k: v if k in public else parts[k].reshape(v.shape) for k, v in arrays.items()}


def choose(clip: float, noise: float, honest: int, steps: int) -> SumNoise:
    """The finest grid whose values, noise included, have room in an encoding with that many
    steps.
    """
    for deviation in _DEVIATIONS:
        made = SumNoise(clip, noise, honest, deviation)
        if made.radius >= 16 and made.radius + CUT * deviation < min(steps, _MOST):
            return made
    raise UserError(
        f"DP=silo: noise of {noise:.4g} clips and a vector do not both fit the secure sum's numbers; use BITS=32, or "
        "another EPSILON."
    )
