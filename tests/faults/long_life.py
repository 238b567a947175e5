"""Programs that serve, over many studies: descriptors, threads and memory of each after every study.
None may grow: what a study needs belongs to the study's own process, and goes with it.

`python -m tests.faults.long_life --studies 10`
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from study.prepare import warm
from tests.faults.consortium import NAMES, World, hasty
from tests.faults.world import tiny

__all__ = ["Held", "main", "over_studies"]

_LIMIT = 240.0  #: seconds for one study
_SETTLED = 2  #: studies after which everything is loaded that ever will be
_MOST_GROWTH = 8.0  #: megabytes that Python's own bookkeeping may take in all


@dataclass(frozen=True)
class Held:
    """What a process holds while it waits for the next study."""

    descriptors: int
    threads: int
    megabytes: float


def _held(pid: int) -> Held:
    """The least of some looks: a question may be on its way in any one of them."""
    process, seen = psutil.Process(pid), []
    until = time.monotonic() + 60
    while process.children() and time.monotonic() < until:  # documents are being written
        time.sleep(0.1)
    for _ in range(20):
        memory = process.memory_info().rss / 1e6
        seen.append((process.num_fds(), process.num_threads(), memory))
        time.sleep(0.05)
    descriptors, threads, megabytes = zip(*seen)
    return Held(min(descriptors), min(threads), min(megabytes))


def over_studies(folder: Path, studies: int, forked: bool = True) -> dict[str, list[Held]]:
    """Party -> what its serving program held after each study."""
    hasty(forked)
    world = World(folder, slots=1, private=False)
    held: dict[str, list[Held]] = {who: [] for who in ("hub", *NAMES)}
    try:
        for who in held:
            world.start(who)
        for seed in range(studies):
            study, _ = world.propose(seed + 1)
            until = time.monotonic() + _LIMIT
            while world.board[study].outcome != "finished":
                if time.monotonic() > until:
                    raise SystemExit(f"study {seed + 1} hangs; see {folder}")
                time.sleep(0.05)
            for who, seen in held.items():
                seen.append(_held(world.pids[who]))
    finally:
        world.close()
    return held


def grown(held: dict[str, list[Held]]) -> list[str]:
    """Who holds more after the last study than once everything was loaded."""
    wrong = []
    for who, seen in held.items():
        before, after = seen[_SETTLED - 1], seen[-1]
        if after.descriptors > before.descriptors or after.threads > before.threads:
            wrong.append(f"{who}: {before} after {_SETTLED} studies, {after} after {len(seen)}")
        if after.megabytes > before.megabytes + _MOST_GROWTH:
            wrong.append(f"{who}: {after.megabytes - before.megabytes:.1f} MB more")
    return wrong


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="long_life", description=__doc__)
    parser.add_argument("--studies", type=int, default=10)
    parser.add_argument("--real", action="store_true", help="studies' processes are started anew")
    o = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warm(tiny())
    folder = Path(tempfile.mkdtemp(prefix="long-life-")) / "consortium"
    held = over_studies(folder, o.studies, forked=not o.real)
    for who, seen in held.items():
        for name in ("descriptors", "threads", "megabytes"):
            print(f"{who} {name}: {[round(getattr(h, name), 1) for h in seen]}")
    for line in (wrong := grown(held)):
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
