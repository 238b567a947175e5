"""Peak memory of a tree of processes, pages that they share counted once (PSS)."""

from __future__ import annotations

import time

import psutil

__all__ = ["MemoryWatch"]


class MemoryWatch:
    """Sampled, and never for more than two percent of the time: reading PSS makes the kernel walk
    page tables.
    """

    def __init__(self) -> None:
        self.peak_mb = 0.0
        self._next = 0.0

    def sample(self) -> None:
        """This process and all that descend from it."""
        now = time.monotonic()
        if now < self._next:
            return
        here = psutil.Process()
        total = sum(map(_pss, [here, *here.children(recursive=True)])) / 2**20
        self.peak_mb = max(self.peak_mb, round(total, 1))
        done = time.monotonic()
        self._next = done + max(0.5, 50 * (done - now))


def _pss(process: psutil.Process) -> int:
    try:
        found = process.memory_full_info()
        # only Linux counts shared pages in parts; elsewhere what is this process's own is counted
        return int(getattr(found, "pss", found.uss))
    except psutil.Error:
        return 0  # the process has just ended
