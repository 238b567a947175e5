"""How each of our programs begins and ends, whatever its command is."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from config.errors import BUSY, Busy, UserError
from config.parent import end_with_parent

__all__ = ["PARENT", "as_program", "end_with"]

#: Set by a program of ours that starts another: the number of the process to end with.
PARENT = "SOTTOVOCE_PARENT"


@contextmanager
def as_program() -> Iterator[None]:
    """A user's mistake becomes one sentence on stderr and exit status 2, or `BUSY`.

    Nothing may have imported torch before: it reads these variables once.
    """
    # One thread per process: silos share the machine by slots, not by threads.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("MKL_NUM_THREADS", "1")
    # asked whether there is a card, torch must not wake it: what is forked afterwards could not use it
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    # nothing is fetched from a hub unless the user names one
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if parent := os.environ.pop(PARENT, ""):
        end_with(int(parent))
    try:
        yield
    except UserError as e:
        Console(stderr=True).print(str(e), highlight=False, soft_wrap=True, markup=False)
        raise SystemExit(BUSY if isinstance(e, Busy) else 2) from None
    except PermissionError as e:
        text = f"{e.filename} cannot be read or written by this user ({e.strerror})."
        Console(stderr=True).print(text, highlight=False, soft_wrap=True, markup=False)
        raise SystemExit(2) from None


def end_with(parent: int) -> None:
    """Killed or not, a program that serves leaves no study behind that nobody follows."""
    if not end_with_parent(parent, signal.SIGTERM):
        raise SystemExit(1)
