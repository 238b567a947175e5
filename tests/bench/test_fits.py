"""What does not fit is said before anything starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.planning.fits import least_mb, too_large
from config.settings import Settings

GB = 1 << 30
THOUSAND = replace(Settings(), silos=1000)


def test_a_thousand_processes_and_twenty_hosts() -> None:
    assert least_mb(THOUSAND) == 15_000
    assert least_mb(replace(THOUSAND, silos_per_process=50)) == 20 * 15 + 2000
    assert least_mb(replace(THOUSAND, runner="inprocess")) == 0


@pytest.mark.parametrize(
    ("settings", "planned", "free", "says"),
    [
        (THOUSAND, 0.0, 16 * GB, ""),
        (THOUSAND, 0.0, 8 * GB, "1000 silos need about 14.6 GB, and 8.0 GB are free; SILOS_PER_PROCESS=10 would."),
        (THOUSAND, 17_000.0, 5 * GB, "SILOS_PER_PROCESS=20 would."),
        (THOUSAND, 30_000.0, 8 * GB, "fewer SILOS, fewer SLOTS or a smaller model"),
        (replace(Settings(), silos=4), 9_000.0, 8 * GB, "4 silos need about 8.8 GB"),
        (replace(Settings(), silos=4), 8_000.0, 8 * GB, ""),
        (replace(THOUSAND, launcher="ssh"), 0.0, GB, ""),
    ],
)  # fmt: skip
def test_what_is_said(settings: Settings, planned: float, free: int, says: str) -> None:
    said = too_large(settings, planned, free)
    assert says in said and bool(says) == bool(said)
    assert not said or said.startswith("It does not fit: ")
