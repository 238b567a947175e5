"""Arrays that wait on the disk and not in memory: in a file without a name, which is gone when
nobody holds it any more, also after a crash.

A silo that waits for its turn holds a model it was sent, and an answer it may have to send again.
Both are as large as the model, and neither is needed before its turn. An array is mapped when it is
looked up and unmapped when it is let go, so that only what is at work counts.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import prod
from pathlib import Path

import numpy as np

__all__ = ["Lazily", "Stored", "give_back", "keep_freed", "stored", "trim"]

_PIECE = 1 << 20
_SMALL = 1 << 20  #: bytes that are kept in memory all the same
_ALIGN = 64
_ENOUGH = 1 << 24
#: of glibc's mallopt: what is freed at the heap's end, and from which size on a block is mapped alone
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _LARGEST = -1, -3, 1 << 30


class Lazily(Mapping[str, np.ndarray]):
    """Arrays by name, each made when it is looked up."""

    def __init__(self, names: Iterable[str], get: Callable[[str], np.ndarray]) -> None:
        self._names, self._get = dict.fromkeys(names), get

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        return self._get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Stored:
    """So many bytes in a file without a name."""

    def __init__(self, size: int, folder: Path) -> None:
        self.nbytes = size
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (closed with this object)
        os.ftruncate(self._file.fileno(), size)

    @staticmethod
    def pays(size: int, folder: Path | None) -> bool:
        return folder is not None and size > _SMALL

    def __len__(self) -> int:
        return self.nbytes

    def write(self, at: int, data: memoryview | bytes) -> None:
        view = memoryview(data).cast("B")
        while len(view):
            done = os.pwrite(self._file.fileno(), view, at)
            at, view = at + done, view[done:]

    def pieces(self, size: int = _PIECE) -> Iterator[bytes]:
        for at in range(0, self.nbytes, size):
            yield os.pread(self._file.fileno(), size, at)

    def array(self, at: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """Mapped; who writes into it writes into memory of its own."""
        count = prod(shape)
        if not count:
            return np.empty(shape, dtype)
        begin = at - at % mmap.ALLOCATIONGRANULARITY
        length = at - begin + count * dtype.itemsize
        mapped = mmap.mmap(self._file.fileno(), length, access=mmap.ACCESS_COPY, offset=begin)
        return np.frombuffer(mapped, dtype, count, at - begin).reshape(shape)


def stored(arrays: Mapping[str, np.ndarray], folder: Path | None) -> Mapping[str, np.ndarray]:
    """The same arrays from a file in `folder`; themselves where they are small."""
    size = sum(-(-a.nbytes // _ALIGN) * _ALIGN for a in arrays.values())
    if folder is None or not Stored.pays(size, folder):
        return arrays
    file, at = Stored(size, folder), 0
    plan: dict[str, tuple[int, np.dtype, tuple[int, ...]]] = {}
    for name, a in arrays.items():
        file.write(at, np.ascontiguousarray(a).reshape(-1).view(np.uint8).data)
        plan[name] = (at, a.dtype, a.shape)
        at += -(-a.nbytes // _ALIGN) * _ALIGN
    return Lazily(plan, lambda name: file.array(*plan[name]))


def keep_freed() -> None:
    """What this process frees it uses again, until `give_back`. Else the C library returns every
    large tensor to the machine, and the next step gets it back page by page: a fifth of the time of
    an encoder's step. For processes that train: others hold large arrays for moments, and free
    memory would be theirs alone. Where there is no such call, nothing happens.
    """
    tune = getattr(ctypes.CDLL(None), "mallopt", None)
    if tune is not None:
        tune(_MMAP_THRESHOLD, _LARGEST)
        tune(_TRIM_THRESHOLD, _LARGEST)


def give_back(size: int = _ENOUGH) -> None:
    """Memory that is free in this process, to the machine; `size`: about how much it may be, for less
    is not worth the time. Where the C library keeps none, or has no such call, nothing happens.
    """
    if size < _ENOUGH:
        return
    gc.collect()
    trim()


def trim() -> None:
    """Free memory to the machine, also what lies between blocks that are used. What nobody cleared
    up stays.
    """
    call = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if call is not None:
        call(0)
