"""Named arrays on disk: safetensors, written beside and renamed, so that a file is whole or not
there.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from methods.base import Arrays

__all__ = ["save_arrays"]


def save_arrays(path: Path, arrays: Arrays, metadata: Mapping[str, str] | None = None) -> None:
    """On the disk, not only on its way there, when this returns. A full disk is an OSError like any
    other.
    """
    beside = path.with_suffix(".new")
    try:
        save_file(
            {k: np.ascontiguousarray(v) for k, v in arrays.items()},
            beside,
            metadata=dict(metadata or {}),
        )
    except SafetensorError as e:
        number = errno.ENOSPC if "No space" in str(e) else errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from None
    with beside.open("rb") as f:
        os.fsync(f.fileno())
    beside.replace(path)
