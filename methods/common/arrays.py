"""Named arrays: their hash, and how they come to disk (safetensors, written beside and renamed, so
that a file is whole or not there).
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from methods.base import Arrays

__all__ = ["model_sha256", "save_arrays"]


def save_arrays(
    path: Path, arrays: Arrays, metadata: Mapping[str, str] | None = None, public: bool = False
) -> None:
    """On the disk, not only on its way there, when this returns. A full disk is an OSError like any
    other. Only the owner can read the file; `public`: whoever the umask lets.
    """
    beside = path.with_suffix(".new")
    beside.unlink(missing_ok=True)
    beside.touch()
    mode = beside.stat().st_mode & 0o777  # what any new file gets here
    try:
        save_file(
            {k: np.ascontiguousarray(v) for k, v in arrays.items()},
            beside,
            metadata=dict(metadata or {}),
        )
    except SafetensorError as e:
        known = {"No space": errno.ENOSPC, "Too many open files": errno.EMFILE}
        number = next((n for words, n in known.items() if words in str(e)), errno.EIO)
        raise OSError(number, os.strerror(number), str(path)) from None
    beside.chmod(mode if public else 0o600)
    with beside.open("rb") as f:
        os.fsync(f.fileno())
    beside.replace(path)


def model_sha256(model: Arrays) -> str:
    """Over names, shapes and values, in order of name: the same model has the same hash in any
    runner.
    """
    h = hashlib.sha256()
    for name in sorted(model):
        a = np.ascontiguousarray(model[name])
        h.update(f"{name}:{a.dtype.str}:{a.shape};".encode())
        h.update(a.tobytes())
    return h.hexdigest()
