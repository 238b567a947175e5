"""A thousand silos: FRACTION=0.01, three rounds, fifty silos in a process. Part of `make bench`.

The same study in one process, without connections, keys or masks, is the yardstick of CPU time. Both
must give the same model.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from bench.speed.runners import run_once

__all__ = ["main"]

_WORK = {"METHOD": "fedavg", "SILOS": "1000", "FRACTION": "0.01", "ROUNDS": "3"}


def main(words: list[str]) -> None:
    console = Console()
    given = {k: v for k, _, v in (w.partition("=") for w in words) if k == "SILOS_PER_PROCESS"}
    work = [f"{k}={v}" for k, v in _WORK.items()]
    each = given.get("SILOS_PER_PROCESS", "50")
    console.print(f"{' '.join(work)} SILOS_PER_PROCESS={each} …")
    with tempfile.TemporaryDirectory() as folder:
        plain = run_once(Path(folder), *work, "RUNNER=inprocess")
        began = time.monotonic()
        crowd = run_once(Path(folder), *work, f"SILOS_PER_PROCESS={each}")
        took = time.monotonic() - began
    if plain["model_sha256"] != crowd["model_sha256"]:
        sys.exit("the two runners gave different models")
    console.print(
        f"[bold]a thousand silos: {took:.0f} s[/bold] from the command to the report, "
        f"{crowd['enrol_seconds']:.0f} s of it to enrol; {crowd['peak_rss_mb'] / 1000:.1f} GB at most; "
        f"CPU time {crowd['cpu_seconds'] / plain['cpu_seconds']:.1f} times that of one process "
        f"({crowd['cpu_seconds']:.0f} s and {plain['cpu_seconds']:.0f} s)",
        highlight=False,
        soft_wrap=True,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
