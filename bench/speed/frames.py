"""`make bench PEER=pfl` or `PEER=flower`: the same FedAvg by another framework, as a ratio of CPU
time measured in one run.

Ours is the whole thing: real processes, encrypted connections, secure sums, checkpoints, a run
folder. The peer (bench/speed/frames_inside.py) simulates in one process and masks nothing. Both
train the same network on the same data for the same epochs and score the same splits as often. pfl
is measured twice: with its own Dataset, and with our batches of sentences alike in length.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from bench.speed import frames_inside
from bench.speed.peers import PeerFailed, environment, run_there
from bench.speed.runners import run_once

__all__ = ["main"]

_PACKAGES = {"pfl": "pfl", "flower": "flwr"}
_DATA = {"pfl": ("own", "ours"), "flower": ("ours",)}
_WORDS = {"own": "with its own Dataset", "ours": "with our batches"}
_WORK = ("METHOD=fedavg", "SILOS=10", "ROUNDS=5", "DECAY=0")


def _peer(peer: str, data: str, words: list[str]) -> dict[str, Any]:
    root = Path(__file__).resolve().parents[2]
    python = environment(Path.home() / ".cache" / "sottovoce", _PACKAGES[peer])
    ours = str(Path(torch.__file__).resolve().parents[1])
    command = [str(python), frames_inside.__file__, peer, data, str(root), ours, *words]
    said: dict[str, Any] = json.loads(run_there(command, f"{peer} did not finish").splitlines()[-1])
    return said


def main(words: list[str]) -> None:
    console = Console()
    given = dict(w.partition("=")[::2] for w in words)
    peer, repeats = given.pop("PEER", ""), int(given.pop("REPEATS", "3"))
    if not peer:
        return
    if peer not in _PACKAGES:
        sys.exit(f'PEER must be {" or ".join(_PACKAGES)}, not "{peer}".')
    work = [*_WORK, *(f"{k}={v}" for k, v in given.items())]
    ratios: dict[str, list[float]] = {data: [] for data in _DATA[peer]}
    with tempfile.TemporaryDirectory() as folder:
        for k in range(repeats):
            console.print(f"{k + 1} of {repeats}: {peer}, then secure processes …")
            try:
                theirs = {data: _peer(peer, data, work) for data in ratios}
            except PeerFailed as e:
                sys.exit(str(e))
            ours = run_once(Path(folder), *work)
            for data, said in theirs.items():
                ratios[data].append(ours["cpu_seconds"] / said["cpu"])
                console.print(
                    f"  {peer} ({_WORDS[data]}): {said['cpu']:.1f} CPU s, test {said['after']:.3f}; "
                    f"ours: {ours['cpu_seconds']:.1f} CPU s, test {ours['value']:.3f}",
                    highlight=False,
                    soft_wrap=True,
                )
    for data, found in ratios.items():
        console.print(
            f"[bold]our CPU time is {statistics.median(found):.2f} of {peer}'s ({_WORDS[data]})[/bold], "
            f"{min(found):.2f} to {max(found):.2f}",
            highlight=False,
            soft_wrap=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
