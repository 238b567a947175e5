"""Where tensors are: the one seam between numpy arrays, which are the processor's, and the device on
which this process computes.

A process computes on one device. It is torch's default device there, so that whatever makes a tensor
makes it on that device; `here` takes an array to it and `there` brings one back. Networks are made
on the processor and then moved, so that one seed gives one first model on all machines. A simulation
sets the device in the processes that it forks and never in the one that it forks from: a process
that has used an accelerator cannot be forked.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import torch
from torch import nn

from config.errors import UserError
from config.settings import DEVICES

__all__ = [
    "cards",
    "check_device",
    "check_device_untouched",
    "computing_on",
    "device_words",
    "exact",
    "first_numbers",
    "here",
    "may_accelerate",
    "place",
    "rounded",
    "slots_of",
    "there",
    "use_device",
]

M = TypeVar("M", bound=nn.Module)
_CPU = torch.device("cpu")
_COUNT_BY_DRIVER = "PYTORCH_NVML_BASED_CUDA_CHECK"


class _Current(threading.local):
    """A thread's own, as torch's default device is."""

    device = _CPU


_current = _Current()


def use_device(said: str, index: int = 0) -> torch.device:
    """Compute on this device from now on. `said`: as DEVICE has it; `index`: of the silo, so that
    silos are spread over several cards.
    """
    if said not in DEVICES:  # as DEVICE it was looked at before; an option of a command was not
        raise UserError(f'DEVICE must be auto, cpu, cuda or mps, not "{said}".')
    kind = _found() if said == "auto" else said
    check_device(kind)
    # as coordinator.turns.Slots counts it
    number = index % torch.cuda.device_count() if kind == "cuda" else None
    return _use(torch.device(kind) if number is None else torch.device(kind, number))


def _use(device: torch.device) -> torch.device:
    _current.device = device
    # the processor is the default anyway, and saying so costs every call a little
    torch.set_default_device(None if device.type == "cpu" else device)
    return device


@contextmanager
def computing_on(said: str) -> Iterator[None]:
    """`use_device` for a while, in a process that is somebody else's: then as the caller had it."""
    before, default = _current.device, torch.get_default_device()
    try:
        use_device(said)
        yield
    finally:
        _current.device = before
        torch.set_default_device(None if default.type == "cpu" else default)


def check_device(said: str) -> None:
    """Refuses a device that is not there."""
    if said not in ("auto", "cpu", *_usable()):
        raise UserError(f"DEVICE={said}: torch finds none on this machine; use DEVICE=cpu or auto.")


def check_device_untouched(said: str) -> None:
    """The same in a process that others are forked from: cards are counted by their driver's
    library, which starts nothing on them.
    """
    before = os.environ.get(_COUNT_BY_DRIVER)
    os.environ[_COUNT_BY_DRIVER] = "1"
    try:
        check_device(said)
    finally:
        if before is None:
            del os.environ[_COUNT_BY_DRIVER]
        else:
            os.environ[_COUNT_BY_DRIVER] = before


def _usable() -> list[str]:
    kinds = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    return [kind for kind, there_is in kinds.items() if there_is]


def may_accelerate(said: str) -> bool:
    """Whether `use_device` could take an accelerator. Asked of how torch was built: who asks for
    devices has used one.
    """
    built = torch.backends.cuda.is_built() or torch.backends.mps.is_built()
    return built if said == "auto" else said != "cpu"


def _found() -> str:
    return (*_usable(), "cpu")[0]


def slots_of(said: int) -> int:
    """How many silos compute at once on this process's device: as told, else one per card or core."""
    if said:
        return said
    if _current.device.type == "cpu":
        return os.cpu_count() or 1
    return cards()


def cards() -> int:
    """Over how many cards silos of this machine are spread; 1: there is nothing to spread over."""
    return torch.cuda.device_count() if _current.device.type == "cuda" else 1


def device_words() -> str:
    """For people: which device this process computes on."""
    device = _current.device
    name = f" ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else ""
    return f"{device.type}{name}"


def _has_doubles() -> bool:
    return _current.device.type != "mps"


def exact(tensor: torch.Tensor) -> torch.Tensor:
    """In float64: on the device, or on the processor where the device has none."""
    return tensor.double() if _has_doubles() else _off(tensor).double()


def rounded(tensor: torch.Tensor) -> torch.Tensor:
    """What came of `exact` numbers, in float32 and on the device."""
    return _on(tensor.float())


def _on(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(_current.device)


def _off(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu()


def here(array: np.ndarray) -> torch.Tensor:
    """An array as a tensor on the device; on the processor they share their memory."""
    return _on(torch.from_numpy(array))


def there(tensor: torch.Tensor) -> np.ndarray:
    """A tensor as an array."""
    found: np.ndarray = _off(tensor).numpy()
    return found


@contextmanager
def first_numbers(seed: int) -> Iterator[None]:
    """Around the making of a network: its random numbers are the processor's, and follow from the
    seed on every machine.
    """
    with torch.random.fork_rng(devices=[]), _CPU:
        torch.manual_seed(seed)
        yield


def place(model: M) -> M:
    """A network that was made on the processor, on the device."""
    with torch.no_grad():
        for p in model.parameters():
            p.data = _on(p.data)
        for b in model.buffers():
            b.data = _on(b.data)
    return model
