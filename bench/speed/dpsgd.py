"""What DP-SGD adds to a training step: `python -m bench.speed.dpsgd`, part of `make bench`.

The same network, records and expected batch size, stepped plainly and privately by the code that
silos run, and by Opacus as its documentation uses it: ghost clipping (two backward passes) and,
where few parameters are trained, hooks that write every record's gradient out. The ways take turns;
CPU seconds per step, one thread, medians. All private ways have Poisson samples, in the same parts of
at most PHYSICAL records; plain training has its own batches of that many.

`--beside FOLDER` measures the code of an earlier commit too, in turns with this one:

    mkdir /tmp/old && git archive b7da51e | tar -x -C /tmp/old
    python -m bench.speed.dpsgd --beside /tmp/old

Goals: a private step of at most 1.10 times that of the engine before Opacus (commit b7da51e), and
at least 1.5 times as fast as stock ghost clipping on the PCNN.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from config.settings import RECORD_DEFAULTS, TASK_DEFAULTS

__all__ = ["Stepper", "main", "measure"]

_HERE = Path(__file__).resolve().parents[2]
Case = tuple[str, str, int, str]  #: method, corpus, batch, what is trained


def _cases() -> list[tuple[str, Case]]:
    """Few parameters, as DP=record had by default when this was first measured, and all of them."""
    found = []
    for what, method, task, few in (
        ("PCNN", "fedavg", "distant", "top:1"),
        ("sentence encoder", "feded", "sentence", "bias"),
    ):
        large = RECORD_DEFAULTS[task]["batch"]
        for batch, part in ((large, few), (large, "all"), (TASK_DEFAULTS[task]["batch"], "all")):
            found.append((f"{what}, TRAIN={part}, batches of {batch}", (method, task, batch, part)))
    return found


class Stepper:
    """A process that steps as asked, with the code of one tree."""

    def __init__(self, tree: Path) -> None:
        environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
        script = str(_HERE / "bench" / "speed" / "dpsgd_step.py")
        self._process = subprocess.Popen(
            [sys.executable, "-P", script],
            cwd=tree,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seconds(self, case: Case, way: str, round: int) -> float:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(
            json.dumps({"case": case, "way": way, "round": round}),
            file=self._process.stdin,
            flush=True,
        )
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process that steps ended with {self._process.wait()}")
        return float(json.loads(answer))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def measure(
    case: Case, repeats: int, here: Stepper, before: Stepper | None = None
) -> dict[str, Any]:
    """Medians of CPU seconds per step, by way; and of ratios between steps that were taken one
    after the other.
    """
    ways = [("plain", here), ("private", here), ("ghost", here)]
    if case[3] != "all":
        ways.append(("hooks", here))
    if before is not None:
        ways.insert(1, ("before", before))
    asked = {"before": "private"}
    rows: list[dict[str, float]] = []
    for k in range(-1, repeats):  # the first loads torch's optimizers
        order = ways if k % 2 else ways[::-1]
        row = {n: by.seconds(case, asked.get(n, n), max(k, 0)) for n, by in order}
        if k >= 0:
            rows.append(row)
    seconds = {n: statistics.median(r[n] for r in rows) for n, _ in ways}
    ratios = {n: statistics.median(r["private"] / r[n] for r in rows) for n, _ in ways}
    return {"seconds": seconds, "private_over": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--beside", type=Path, help="a folder with the code of an earlier commit")
    parser.add_argument("--repeats", type=int, default=7)
    asked = parser.parse_args()
    here = Stepper(_HERE)
    before = Stepper(asked.beside.resolve()) if asked.beside else None
    print(f"A step of one silo, CPU milliseconds on one core, median of {asked.repeats}")
    for what, case in _cases():
        found = measure(case, asked.repeats, here, before)
        took = ", ".join(f"{n} {1e3 * t:.1f}" for n, t in found["seconds"].items())
        over = ", ".join(
            f"{r:.2f} x {n}" for n, r in found["private_over"].items() if n != "private"
        )
        print(f"  {what}: {took}; private is {over}", flush=True)
    for stepper in filter(None, (here, before)):
        stepper.close()


if __name__ == "__main__":
    main()
