"""Figures as people read them: bytes, seconds, counts."""

from __future__ import annotations

import math
import time

__all__ = ["clock", "duration", "exact", "human_bytes", "score", "short"]


def human_bytes(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if abs(n) < 1000 or unit == "GB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return ""


def exact(value: float, unit: str) -> str:
    """A figure in a table: nothing is rounded that the reader could miss."""
    if unit in ("bytes", "count"):
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
    if unit == "seconds":
        return f"{value:.3f}"
    if unit == "epsilon":  # rounded up, never in our favour
        return f"{math.ceil(round(value * 1e4, 6)) / 1e4:.4f}"
    return f"{value:.4f}"


def short(value: float, unit: str) -> str:
    """A figure in a sentence."""
    if unit == "bytes":
        return human_bytes(value)
    return duration(value) if unit == "seconds" else exact(value, unit)


def score(value: float | None) -> str:
    """A round's metric in a table; a round may not have been scored."""
    return "–" if value is None else exact(value, "score")


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def clock(at: float) -> str:
    """A moment on this machine's clock."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
