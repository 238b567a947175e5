"""In which numbers an encoder computes: float32, or its matrix products in bfloat16.

bfloat16 has float32's range and eight bits of fraction. Torch's autocast takes it for the products
of an encoder, forward and backward; parameters, gradients as the optimizer sees them, everything
that stands on the encoder, losses and all sums over silos stay float32. Processors with instructions
for it gain; others lose by it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

__all__ = ["computing", "gain", "set_precision"]

_ROWS, _WIDTH = (
    512,
    768,
)  #: of the products that are timed: a batch of sentences, an encoder's layer


def set_precision(encoder: Any, precision: str) -> None:
    """Of the encoder and of all copies that are made of it from now on."""
    encoder.in_bfloat16 = precision == "bfloat16"


@contextmanager
def computing(encoder: Any) -> Iterator[None]:
    """Around every call of an encoder; its results are then turned into float32 again."""
    if not getattr(encoder, "in_bfloat16", False):
        yield
        return
    device = next(encoder.parameters()).device.type
    with torch.autocast(device, dtype=torch.bfloat16):
        yield


def gain(repeats: int = 5) -> float:
    """How many times faster this processor multiplies in bfloat16, forward and backward: the best
    of a few tries each, taken in turns.
    """
    layer, x = nn.Linear(_WIDTH, _WIDTH), torch.zeros(_ROWS, _WIDTH)
    best = {True: float("inf"), False: float("inf")}
    for _ in range(1 + repeats):  # the first makes the kernels
        for half in best:
            began = time.perf_counter()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
                layer(x).sum().backward()
            best[half] = min(best[half], time.perf_counter() - began)
    return best[False] / best[True]
