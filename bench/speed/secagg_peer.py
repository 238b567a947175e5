"""The same sums with Flower's SecAgg+, in an environment of its own: `python -m bench.speed.secagg
--peer flower`.

The peer is run as its authors wrote it: its server workflow (`SecAggPlusWorkflow`) talks to its
client half (`secaggplus_mod`) through a grid that hands messages over within one process, so that
neither sockets nor processes nor training count. What is measured is CPU time, by stage, and the
bytes of the masked upload. The environment is made once, in a cache folder, by pip;
secagg_inside.py, which imports nothing of ours, is then run there.

A sum of this kind takes n * n * d steps, hours at the sizes that interest us. So:

- From SAMPLED_FROM silos on, two silos mask a vector of full size and the others one of a single
  number (with all else that they have to do), and are counted at the price of the two; secret
  sharing, which takes seconds per silo, is done for the first and the last silo and counted for the
  others at the same price. The server's part is done in full.
- What is beyond MOST steps, or beyond LARGEST parameters (memory), is continued linearly in d from
  two smaller vectors over the same silos, in the stages that touch vectors. Larger vectors cost
  more per parameter and not less (at 10 silos, 1e5 and 1e6 parameters foretell 1e7 a quarter too
  low), so this flatters the peer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.speed import secagg_inside
from bench.speed.peers import PeerFailed, environment, run_there

__all__ = ["Peer", "PeerFailed"]

MOST = 1e10
LARGEST = 10_000_000
_BASES = (10_000_000, 1_000_000, 200_000)
_GROW = ("clients: mask", "server")  #: stages that touch vectors
_PATIENCE = 2.0  #: CPU seconds from which on a sum is not repeated


class Peer:
    """Measures sums of the peer, each size once: the same one stands beside several of ours."""

    def __init__(self, cache: Path, repeat: int) -> None:
        self._cache, self._repeat = cache, repeat
        self._known: dict[tuple[int, int, int], dict[str, Any]] = {}

    def measure(self, n: int, d: int, dropped: int) -> dict[str, Any]:
        """CPU seconds of one SecAgg+ sum by stage, its upload in bytes, and its version; `scaled`
        if not run whole.
        """
        if n * n * d <= MOST and d <= LARGEST:
            return self._run(n, d, dropped)
        large = next(base for base in _BASES if n * n * base <= MOST)
        low, high = (self._run(n, base, dropped) for base in (large // 10, large))
        seconds = {}
        for stage, spent in high["seconds"].items():
            slope = (
                (spent - low["seconds"][stage]) / (large - large // 10) if stage in _GROW else 0.0
            )
            seconds[stage] = spent + max(slope, 0.0) * (d - large)
        upload = high["upload"] + 8 * (d - large)  # 64-bit integers, whatever their range
        return high | {
            "seconds": seconds,
            "total": sum(seconds.values()),
            "upload": upload,
            "scaled": True,
        }

    def _run(self, n: int, d: int, dropped: int) -> dict[str, Any]:
        key = (n, d, dropped)
        if key not in self._known:
            runs: list[dict[str, Any]] = []
            while len(runs) < self._repeat and (not runs or runs[-1]["total"] < _PATIENCE):
                runs.append(_measure(n, d, dropped, self._cache))
            self._known[key] = sorted(runs, key=lambda run: run["total"])[(len(runs) - 1) // 2]
        return self._known[key]


def _measure(n: int, d: int, dropped: int, cache: Path) -> dict[str, Any]:
    python = environment(cache, "flwr")
    command = [
        str(python),
        secagg_inside.__file__,
        "--n",
        str(n),
        "--d",
        str(d),
        "--dropped",
        str(dropped),
    ]
    return json.loads(run_there(command, "flwr did not finish").splitlines()[-1])
