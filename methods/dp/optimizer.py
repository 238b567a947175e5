"""Opacus's optimizer and Poisson sampler, with randomness that nobody else can know.

Opacus draws noise and samples from torch's generators, in floating point, and its secure mode needs
`torchcsprng`, which is no longer made. So both come from an AES keystream here (`privacy.noise`),
under a key that never leaves the silo, and the noise is added in whole numbers: the clipped sum is
rounded to a grid, and a discrete Gaussian of some 2^22 steps is added. Two sums that differ by at
most C differ by at most C and the root of their number of coordinates in steps once they are
rounded, and the grid is chosen so that the noise is z times that.

Everything else is Opacus's: when noise is added, what a step is divided by, how a batch that is
computed in parts is put together (`signal_skip_step`), and the hook by which its accountant counts
steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from opacus.optimizers import DPOptimizerFastGradientClipping
from opacus.optimizers.optimizer import _check_processed_flag, _mark_as_processed
from opacus.utils.uniform_sampler import UniformWithReplacementSampler

from config.errors import UserError
from models.device import here, there
from privacy.noise import WIDE, SecretStream

__all__ = ["SecretOptimizer", "SecretPoisson", "grid_step"]


def grid_step(noise: float, clip: float, coordinates: int) -> float:
    """h with which the noise, `WIDE` steps, is `noise` times the most that one record can change the
    rounded sum: the clip, and one step in every coordinate.
    """
    left = WIDE - noise * math.sqrt(coordinates)
    if left < WIDE / 2:
        raise UserError(
            f"DP=record: noise of {noise:.4g} clips on {coordinates} numbers is more than its grid "
            "holds; lower NOISE, raise EPSILON, or train fewer parameters (TRAIN)."
        )
    return noise * clip / left


class SecretOptimizer(DPOptimizerFastGradientClipping):
    """`still`: rows that are never trained, by their table; they get neither gradient nor noise."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        stream: SecretStream,
        still: Mapping[torch.Tensor, int],
        **more: Any,
    ) -> None:
        super().__init__(optimizer, loss_reduction="mean", **more)
        self._stream, self._still = stream, still

    def accumulate(self) -> None:
        """A step without records, or a parameter that no record's loss depends on, adds nothing."""
        for p in self.params:
            if p.grad is None:
                continue
            if p.summed_grad is None:
                p.summed_grad = p.grad
            else:
                p.summed_grad.add_(p.grad)

    def add_noise(self) -> None:
        own = self.params
        sizes = [p.numel() for p in own]
        total = np.zeros(sum(sizes))
        for p, part in zip(own, np.split(total, np.cumsum(sizes)[:-1])):
            if p.summed_grad is not None:
                _check_processed_flag(p.summed_grad)
                part[:] = there(p.summed_grad.flatten())
                _mark_as_processed(p.summed_grad)
        step = grid_step(self.noise_multiplier, self.max_grad_norm, len(total))
        whole = np.rint(total / step) + self._stream.wide_normal(len(total))
        noisy = here((whole * step).astype(np.float32))
        for p, part in zip(own, noisy.split(sizes)):
            p.grad = part.view_as(p)
            if p in self._still:
                p.grad[self._still[p]] = 0.0

    def close(self) -> None:
        """Leave the parameters as they were found."""
        for p in self.params:
            p.grad = None
            del p.summed_grad


class SecretPoisson(UniformWithReplacementSampler):
    """Who is in a step is as secret as the noise. A step without anybody is a step."""

    def __init__(self, *, count: int, rate: float, steps: int, stream: SecretStream) -> None:
        # Opacus refuses to sample from nobody; a silo whose records are all elsewhere still adds noise
        super().__init__(num_samples=max(count, 1), sample_rate=rate, steps=steps)
        self.num_samples, self._stream = count, stream

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.steps):
            yield np.flatnonzero(self._stream.uniform(self.num_samples) < self.sample_rate)
