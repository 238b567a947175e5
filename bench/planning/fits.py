"""Whether a simulation's processes fit into this machine's memory, before any is started."""

from __future__ import annotations

from config.settings import Settings

__all__ = ["PROCESS_MB", "SEAT_MB", "least_mb", "too_large"]

#: What an idle silo takes: as a process forked from the warmed one, and as one of a process's many
#: (bench.simulation.hosts). Measured with a thousand of them, keys with everybody included.
PROCESS_MB, SEAT_MB = 15.0, 2.0


def least_mb(settings: Settings) -> float:
    """Of all silos, before one of them computes."""
    if settings.runner != "processes":
        return 0.0
    processes = -(-settings.silos // settings.silos_per_process)
    shared = settings.silos_per_process > 1
    return processes * PROCESS_MB + settings.silos * SEAT_MB * shared


def too_large(settings: Settings, planned_mb: float, free_bytes: int) -> str:
    """The sentence for a simulation that does not fit into so much free memory; empty: it fits.
    `planned_mb`: as calibrated, 0 where nothing was.
    """
    need, free = max(planned_mb, least_mb(settings)), free_bytes / 2**20
    if need <= free or settings.launcher != "local":
        return ""
    what = (
        f"{settings.silos} silos need about {need / 1024:.1f} GB, and {free / 1024:.1f} GB are free"
    )
    silos = settings.silos
    for each in (10, 20, 50, 100):
        shared = -(-silos // each) * PROCESS_MB + silos * SEAT_MB
        saved = least_mb(settings) - shared
        if settings.silos_per_process < each < silos and need - saved <= free:
            return f"It does not fit: {what}; SILOS_PER_PROCESS={each} would."
    return f"It does not fit: {what}; take fewer SILOS, fewer SLOTS or a smaller model."
