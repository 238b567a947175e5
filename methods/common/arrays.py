"""Named arrays: their hash, and how they come to disk (safetensors, written beside and renamed, so
that a file is whole or not there).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from methods.base import Arrays

__all__ = ["model_sha256", "save_arrays"]

#: numpy's types by their names in the safetensors format
_DTYPES = {
    "<f8": "F64",
    "<f4": "F32",
    "<f2": "F16",
    "<i8": "I64",
    "<i4": "I32",
    "<i2": "I16",
    "|i1": "I8",
    "<u8": "U64",
    "<u4": "U32",
    "<u2": "U16",
    "|u1": "U8",
    "|b1": "BOOL",
}


def save_arrays(
    path: Path, arrays: Arrays, metadata: Mapping[str, str] | None = None, public: bool = False
) -> None:
    """On the disk, not only on its way there, when this returns. A full disk is an OSError like any
    other. Only the owner can read the file; `public`: whoever the umask lets.
    """
    beside = path.with_suffix(".new")
    beside.unlink(missing_ok=True)
    beside.touch()
    if not public:
        beside.chmod(0o600)
    with beside.open("wb") as f:
        f.write(_header(arrays, metadata or {}))
        for name in _in_order(arrays):
            f.write(_bytes(arrays[name]))
        f.flush()
        os.fsync(f.fileno())
    beside.replace(path)


def _in_order(arrays: Arrays) -> list[str]:
    """By size of a number, then by name, as the format's own writer has them: all lie aligned."""
    return sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))


def _header(arrays: Arrays, metadata: Mapping[str, str]) -> bytes:
    """Of the safetensors format, whose own writer would hold all arrays a second time."""
    table: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name in _in_order(arrays):
        a = arrays[name]
        end = at + a.nbytes
        table[name] = {
            "dtype": _DTYPES[a.dtype.newbyteorder("<").str],
            "shape": list(a.shape),
            "data_offsets": [at, end],
        }
        at = end
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _bytes(array: np.ndarray) -> memoryview:
    """Without a copy, unless it lies in pieces or in the other order of bytes."""
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return plain.reshape(-1).view(np.uint8).data


def model_sha256(model: Arrays) -> str:
    """Over names, shapes and values, in order of name: the same model has the same hash in any
    runner.
    """
    h = hashlib.sha256()
    for name in sorted(model):
        a = np.ascontiguousarray(model[name])
        h.update(f"{name}:{a.dtype.str}:{a.shape};".encode())
        h.update(a.reshape(-1).view(np.uint8).data)
    return h.hexdigest()
