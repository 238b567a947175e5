"""In which numbers an encoder computes: float32, or its matrix products in bfloat16.

bfloat16 has float32's range and eight bits of fraction. Torch's autocast takes it for the products
of an encoder, forward and backward; parameters, gradients as the optimizer sees them, everything
that stands on the encoder, losses and all sums over silos stay float32. Processors with instructions
for it gain; others lose by it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

__all__ = ["computing", "gain", "only_read", "set_precision"]

M = TypeVar("M", bound=nn.Module)
_ROWS, _WIDTH = (
    512,
    768,
)  #: of the products that are timed: a batch of sentences, an encoder's layer

#: encoders that use each weight once in a call
_ONCE = ("bert", "roberta", "distilbert", "electra", "xlm-roberta", "camembert")
_LARGE = 1 << 18  #: numbers of a weight that is worth making anew


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
    kept = _Weights() if torch.is_grad_enabled() and _weights_once(encoder) else nullcontext()
    with torch.autocast(device, dtype=torch.bfloat16), kept:
        yield


def only_read(model: M) -> M:
    """A network that is never trained, with the weights of its products in bfloat16 where it computes
    in that: they need not be made anew for each batch, and take half the memory. The same answers.
    """
    for encoder in model.modules():
        if getattr(encoder, "in_bfloat16", False) and _weights_once(encoder):
            for layer in encoder.modules():
                if type(layer) is nn.Linear and _is_large_parameter(layer.weight):
                    layer.weight.data = layer.weight.data.to(torch.bfloat16)
    return model


def _weights_once(encoder: Any) -> bool:
    """Whether each weight is in one product of a call. Of one that is in several, torch adds the
    gradients in bfloat16, and they would be added in float32.
    """
    return getattr(getattr(encoder, "config", None), "model_type", "") in _ONCE


class _Weights(TorchFunctionMode):
    """Weights in bfloat16 are not kept until `backward`, where they would be half a model: they are
    made anew from the parameters, with the same numbers.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not nn.functional.linear or kwargs or not _is_trained(args[1]):
            return func(*args, **(kwargs or {}))
        x, weight, *bias = args
        half = weight.to(torch.bfloat16)
        version, where = weight._version, half.data_ptr()  # the hooks must not hold `half` itself

        def pack(saved: torch.Tensor) -> torch.Tensor | tuple[torch.Size, tuple[int, ...]]:
            return (saved.shape, saved.stride()) if saved.data_ptr() == where else saved

        def unpack(kept: torch.Tensor | tuple[torch.Size, tuple[int, ...]]) -> torch.Tensor:
            if isinstance(kept, torch.Tensor):
                return kept
            if weight._version != version:
                raise RuntimeError("a weight was changed between forward and backward")
            return weight.detach().to(torch.bfloat16).as_strided(*kept)

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            return func(x, half, *bias)


def _is_trained(weight: torch.Tensor) -> bool:
    return weight.requires_grad and _is_large_parameter(weight)


def _is_large_parameter(weight: torch.Tensor) -> bool:
    return (
        isinstance(weight, nn.Parameter)
        and weight.dtype == torch.float32
        and weight.numel() >= _LARGE
    )


def gain(repeats: int = 5) -> float:
    """How many times faster this process's device multiplies in bfloat16, forward and backward: the
    best of a few tries each, taken in turns.
    """
    device = torch.get_default_device().type
    layer, x = nn.Linear(_WIDTH, _WIDTH), torch.zeros(_ROWS, _WIDTH)
    best = {True: float("inf"), False: float("inf")}
    for _ in range(1 + repeats):  # the first makes the kernels
        for half in best:
            began = time.perf_counter()
            with torch.autocast(device, dtype=torch.bfloat16, enabled=half):
                layer(x).sum().backward()
            if device != "cpu":
                layer.bias.detach().sum().item()  # waits until it has done all of that
            best[half] = min(best[half], time.perf_counter() - began)
    return best[False] / best[True]
