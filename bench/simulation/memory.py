"""Peak memory of a tree of processes, pages that they share counted once (PSS)."""

from __future__ import annotations

import time
from pathlib import Path

__all__ = ["MemoryWatch"]


class MemoryWatch:
    """Sampled, and never for more than two percent of the time: reading PSS makes the kernel walk
    page tables.
    """

    def __init__(self) -> None:
        self.peak_mb = 0.0
        self._next = 0.0

    def sample(self, pids: list[int]) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        total = sum(_pss_kb(pid) for pid in pids) / 1024
        self.peak_mb = max(self.peak_mb, round(total, 1))
        done = time.monotonic()
        self._next = done + max(0.5, 50 * (done - now))


def _pss_kb(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except (OSError, ValueError):
        pass  # the process has just ended
    return 0
