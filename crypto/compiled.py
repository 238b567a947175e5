"""The optional C extensions, `_kernel` and `_keystream`: found here, and checked by the modules
that use them.

They are built when the package is installed and a compiler is at hand. SOTTOVOCE_KERNEL=off in the
environment, read on import, does without them. Everything they do is also done without them, with
the same result bit for bit.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

__all__ = ["extension"]


def extension(name: str, version: int) -> Any:
    """The extension, or None if it is turned off, was not built, or is left over from another
    version.
    """
    if os.environ.get("SOTTOVOCE_KERNEL", "").lower() == "off" or sys.byteorder != "little":
        return None
    try:
        module = importlib.import_module(f"crypto.{name}")
    except ImportError:
        return None
    return module if version == module.VERSION else None
