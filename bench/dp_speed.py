"""What DP-SGD adds to a training step: `python -m bench.dp_speed`, part of `make bench`.

The same network, records and expected batch size, stepped plainly and privately by the code that silos run, in turn;
CPU seconds of this process per step, one thread. Goals: 2.5 times a plain step for the PCNN, 3 for the sentence
encoder. Both sides build their own batches; DP-SGD draws its by Poisson sampling, so they vary in size and are not
sorted by length. CORPUS and BATCH are the task's defaults.
"""

from __future__ import annotations

import resource
import statistics
import time
from dataclasses import replace

import torch

from bench.prepare import prepare
from config.load import load
from methods.base import SiloView
from methods.local import train

__all__ = ["main", "measure"]


def _per_step(view: SiloView, round: int) -> float:
    model = view.task.new_model(0)
    began = time.process_time()
    notes = train(view, model, round)
    return (time.process_time() - began) / notes["steps"]


def measure(method: str, corpus: str, repeats: int) -> dict[str, float]:
    """CPU seconds per plain step, and the median over repeats of the private step's ratio to it."""
    study = prepare(load(None, {"method": method, "corpus": corpus}))
    plain = SiloView(0, study.task, study.task.subset(study.partition.indices[0]), study.settings, b"bench")
    private = replace(plain, settings=replace(study.settings, dp="record", noise=1.0))
    for view in (plain, private):
        _per_step(view, 0)  # the first one loads torch's optimizers
    pairs = []
    for k in range(repeats):
        before = _per_step(plain, k)
        pairs.append((before, _per_step(private, k)))
    return {
        "plain": statistics.median(a for a, _ in pairs),
        "private": statistics.median(b for _, b in pairs),
        "ratio": statistics.median(b / a for a, b in pairs),
    }


def main() -> None:
    torch.set_num_threads(1)
    print("DP-SGD beside a plain step of the same silo, one core, median of seven")
    for what, method, corpus in (("PCNN", "fedavg", "distant"), ("sentence encoder", "feded", "sentence")):
        f = measure(method, corpus, 7)
        print(f"  {what}: {1e3 * f['plain']:.1f} ms plain, {1e3 * f['private']:.1f} ms private, ratio {f['ratio']:.2f}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  peak of this process {peak:.0f} MB; gradients of at most PHYSICAL=64 records are in memory at once")


if __name__ == "__main__":
    main()
