"""`make bench`: what security and processes cost, as ratios measured in one run on this machine.

The same study is run by the plain in-process loop and by real processes with secure sums,
alternating, so that a noisy neighbour hits both. Cost is CPU time of the whole tree from the first
fork to the last process's end; wall time is given beside it because processes use all cores and the
loop uses one.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from report.event_file import EventFile
from report.events import Computing, Enrolled, Listening

__all__ = ["main", "run_once"]


def run_once(out: Path, *words: str) -> dict[str, Any]:
    """One simulation in a process of its own; its summary, and when things happened."""
    command = [sys.executable, "-m", "cli.main", "simulate", f"OUT={out}", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
    run = out / "latest"
    summary: dict[str, Any] = json.loads((run / "summary.json").read_text("utf-8"))
    happened = EventFile(run / "events.jsonl").new()
    listening = next((e.time for e in happened if isinstance(e, Listening)), None)
    if listening is not None:  # in one process nobody listens
        computing = next(e.time for e in happened if isinstance(e, Computing))
        summary["first_step_seconds"] = computing - listening
        summary["enrol_seconds"] = next(e.seconds for e in happened if isinstance(e, Enrolled))
    return summary


def main(words: list[str]) -> None:
    console = Console()
    repeats = 3
    for word in list(words):
        if word.startswith("REPEATS="):
            repeats = int(word.partition("=")[2])
            words.remove(word)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        pairs = []
        for k in range(repeats):
            console.print(f"pair {k + 1} of {repeats}: in-process loop, then secure processes …")
            pairs.append(
                (
                    run_once(out, *words, "RUNNER=inprocess"),
                    run_once(out, *words, "RUNNER=processes"),
                )
            )
        for plain, secure in pairs:
            if plain["model_sha256"] != secure["model_sha256"]:
                sys.exit(
                    "The two runners gave different models; the ratio would compare different work."
                )
        hundred = run_once(out, "SILOS=100", "FRACTION=0.1", "ROUNDS=3")
    table = Table(
        "", "in-process loop", "secure processes", "ratio", title="the same model, made twice"
    )
    for label, key in (("CPU seconds", "cpu_seconds"), ("wall seconds", "wall_seconds")):
        a, b = (statistics.median(p[i][key] for p in pairs) for i in (0, 1))
        ratio = statistics.median(p[1][key] / p[0][key] for p in pairs)
        table.add_row(label, f"{a:.1f}", f"{b:.1f}", f"{ratio:.3f}")
    console.print(table)
    first = statistics.median(p[1]["first_step_seconds"] for p in pairs)
    console.print(
        f"{pairs[0][1]['silos']} silos: from listening to the first training step {first:.2f} s"
    )
    console.print(
        f"100 silos, C=0.1: all enrolled in {hundred['enrol_seconds']:.1f} s, "
        f"peak {hundred['peak_rss_mb']:.0f} MB (PSS of the whole tree)"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
