"""Named arrays as one flat buffer, sent in 1 MiB pieces that are slices of it, and read back as
views.

The buffer is made once for any number of receivers; the receiver allocates it once and fills it.
dtypes are a short list of plain numbers: nothing that could carry code or text of unknown encoding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from wire.messages import FRAME_BYTES, BadMessage, Oversize
from wire.stored import Lazily, Stored

__all__ = ["Bundle", "Inbox", "broadcast_digest", "laid_out", "pack", "packed_like", "pieces"]

_DTYPES = {
    d: np.dtype(d) for d in ("<f4", "<f8", "<f2", "<i8", "<i4", "<u8", "<u4", "<u2", "|u1", "|i1")
}
_ALIGN = 64
MAX_ARRAYS = 4096


def _padded(n: int) -> int:
    return -(-n // _ALIGN) * _ALIGN


@dataclass(frozen=True)
class Bundle:
    layout: list[list]  #: [name, dtype, shape] of each array, as it travels in a header
    buffer: np.ndarray | Stored  #: uint8, or a file

    @property
    def digest(self) -> bytes:
        """Hash of names, types, shapes and values: what the silos' masks are bound to."""
        h = hashlib.sha256(repr(self.layout).encode())
        for piece in pieces(self.buffer):
            h.update(piece)
        return h.digest()


def laid_out(arrays: Mapping[str, np.ndarray]) -> tuple[list[list], int]:
    """[name, dtype, shape] of each array as it would travel, and the bytes of all of them in one
    buffer.
    """
    layout: list[list] = []
    at = 0
    for name, a in arrays.items():
        dtype = a.dtype.newbyteorder("<")
        if dtype.str not in _DTYPES:
            raise TypeError(f"array {name!r} has type {a.dtype}, which does not travel")
        layout.append([name, dtype.str, list(a.shape)])
        at += _padded(a.nbytes)
    return layout, at


def packed_like(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays of these names, types and shapes, all zero, in one buffer as they would travel: to pack
    them copies nothing.
    """
    layout, size = laid_out(arrays)
    buffer, at, made = np.zeros(size, np.uint8), 0, {}
    for name, dtype, shape in layout:
        nbytes = prod(shape) * _DTYPES[dtype].itemsize
        made[name] = buffer[at : at + nbytes].view(_DTYPES[dtype]).reshape(shape)
        at += _padded(nbytes)
    return made


def pack(arrays: Mapping[str, np.ndarray]) -> Bundle:
    arrays = {name: np.asarray(a) for name, a in arrays.items()}
    layout, size = laid_out(arrays)
    if (buffer := _packed_already(arrays, size)) is None:
        made = packed_like(arrays)
        for name, a in arrays.items():
            made[name][...] = a
        buffer = _packed_already(made, size)
        assert buffer is not None
    return Bundle(layout, buffer)


def _packed_already(arrays: Mapping[str, np.ndarray], size: int) -> np.ndarray | None:
    """The buffer that holds exactly these arrays as they travel, if there is one."""
    whole = next((a.base for a in arrays.values() if a.base is not None), None)
    if not arrays or not size:
        return np.zeros(0, np.uint8)
    if not isinstance(whole, np.ndarray) or whole.dtype != np.uint8 or whole.shape != (size,):
        return None
    at = whole.ctypes.data
    for a in arrays.values():
        if a.base is not whole or not a.flags.c_contiguous or a.nbytes and a.ctypes.data != at:
            return None
        at += _padded(a.nbytes)
    return whole


def broadcast_digest(said: Mapping[int, tuple[int, bytes]]) -> bytes:
    """Hash of all that was broadcast for a sum: exchange -> (round, digest of its bundle).

    A silo's answer may stand on what it was told in earlier exchanges of the round, so its masks
    are bound to them all.
    """
    h = hashlib.sha256()
    for exchange, (round, digest) in sorted(said.items()):
        h.update(exchange.to_bytes(8, "big") + round.to_bytes(8, "big") + digest)
    return h.digest()


def pieces(buffer: np.ndarray | Stored) -> Iterator[memoryview | bytes]:
    if isinstance(buffer, Stored):
        yield from buffer.pieces(FRAME_BYTES)
        return
    view = buffer.data
    for start in range(0, len(view), FRAME_BYTES):
        yield view[start : start + FRAME_BYTES]


class Inbox:
    """Receives one bundle. Everything about its size is known, and refused if too large, before it
    allocates. With a `folder`, a large one is written to a file there, and its arrays are mapped when
    they are looked up.
    """

    def __init__(self, layout: list, limit: int, folder: Path | None = None) -> None:
        self._plan: list[tuple[str, np.dtype, tuple[int, ...], int]] = []
        at = 0
        if len(layout) > MAX_ARRAYS:
            raise BadMessage("too many arrays")
        for entry in layout:
            if not (isinstance(entry, list) and len(entry) == 3):
                raise BadMessage("an array without name, type and shape")
            name, dtype, shape = entry
            if (
                not isinstance(name, str)
                or not isinstance(dtype, str)  # a list, say, could not even be looked up
                or dtype not in _DTYPES
                or not isinstance(shape, list)
                or len(shape) > 8
            ):
                raise BadMessage("an array of an unknown type")
            if not all(type(n) is int and n >= 0 for n in shape):
                raise BadMessage("an array of impossible shape")
            if any(n > limit for n in shape):
                raise Oversize(f"more than {limit} bytes announced")
            size = prod(shape) * _DTYPES[dtype].itemsize
            self._plan.append((name, _DTYPES[dtype], tuple(shape), at))
            at += _padded(size)
            if at > limit:
                raise Oversize(f"more than {limit} bytes announced")
        if len({name for name, *_ in self._plan}) != len(self._plan):
            raise BadMessage("two arrays of one name")
        self._layout = layout
        self._buffer: np.ndarray | Stored
        if folder is not None and Stored.pays(at, folder):
            self._buffer = Stored(at, folder)
        else:
            self._buffer = np.empty(at, np.uint8)
        self._filled = 0
        self._next = 0

    @classmethod
    def of(cls, bundle: Bundle) -> Inbox:
        """One that has already received this bundle."""
        inbox = cls(bundle.layout, len(bundle.buffer), folder=None)
        inbox._buffer, inbox._filled = bundle.buffer, len(bundle.buffer)
        return inbox

    @property
    def complete(self) -> bool:
        return self._filled == len(self._buffer)

    def add(self, index: int, payload: memoryview | bytes) -> None:
        if len(payload) > FRAME_BYTES:
            raise Oversize(f"a piece of {len(payload)} bytes, more than {FRAME_BYTES}")
        want = min(FRAME_BYTES, len(self._buffer) - self._filled)
        if index != self._next or want == 0 or len(payload) != want:
            raise BadMessage("a piece out of order or of the wrong size")
        if isinstance(self._buffer, Stored):
            self._buffer.write(self._filled, payload)
        else:
            self._buffer[self._filled : self._filled + want] = np.frombuffer(payload, np.uint8)
        self._filled += want
        self._next += 1

    def bundle(self) -> Bundle:
        return Bundle(self._layout, self._buffer)

    def arrays(self) -> Mapping[str, np.ndarray]:
        buffer = self._buffer
        if isinstance(buffer, Stored):
            plan = {name: (at, dtype, shape) for name, dtype, shape, at in self._plan}
            return Lazily(plan, lambda name: buffer.array(*plan[name]))
        return {
            name: buffer[at : at + prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
            for name, dtype, shape, at in self._plan
        }
