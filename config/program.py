"""How each of our programs begins and ends, whatever its command is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from config.errors import UserError

__all__ = ["as_program"]


@contextmanager
def as_program() -> Iterator[None]:
    """A user's mistake becomes one sentence on stderr and exit status 2.

    Nothing may have imported torch before: it reads these variables once.
    """
    # One thread per process: silos share the machine by slots, not by threads.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("MKL_NUM_THREADS", "1")
    # nothing is fetched from a hub unless the user names one
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        yield
    except UserError as e:
        Console(stderr=True).print(str(e), highlight=False, soft_wrap=True, markup=False)
        raise SystemExit(2) from None
