"""NYT10-sized distant supervision on this machine: `python -m bench.distant_speed`, part of `make bench`.

Two questions, each answered within one run. How many sentences a second does a silo score and train, beside a
plain PyTorch loop that does nothing but run the same network over the same batches? And how much memory does a whole
federation of 100 silos over 467k sentences take, shared pages counted once?
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from bench.prepare import Study, prepare
from config.load import load
from methods.base import Heard, SiloView
from methods.lazymil import score, train_on_winners
from methods.local import parameters, round_lr
from methods.tasks.distant import DistantTask

__all__ = ["main"]


def _view(study: Study, index: int) -> SiloView:
    data = study.task.subset(study.partition.indices[index])
    return SiloView(index, study.task, data, study.settings, b"bench")


def _plain_scoring(task: Any, model: torch.nn.Module, batches: list[Any]) -> float:
    began = time.process_time()
    model.eval()
    with torch.inference_mode():
        for batch in batches:
            F.softmax(model(*batch.inputs), dim=1)
    return time.process_time() - began


def _plain_training(task: Any, model: torch.nn.Module, batches: list[Any], lr: float) -> float:
    began = time.process_time()
    model.train()
    optimizer = task.optimizer(model, lr)
    for batch in batches:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(*batch.inputs), batch.relation).backward()
        optimizer.step()
    return time.process_time() - began


def _rates(study: Study, silos: int) -> dict[str, float]:
    """Median over a few silos; both sides see the same sentences in the same batches, one after the other."""
    task, settings = study.task, study.settings
    assert isinstance(task, DistantTask)
    model = task.new_model(0)
    start = parameters(model)
    ratios: dict[str, list[float]] = {"scored": [], "trained": []}
    speeds: dict[str, list[float]] = {"scored": [], "trained": []}
    for index in range(silos):
        silo = _view(study, index)
        n = task.size(silo.data)
        by_length = np.argsort(silo.data.sentences.lengths[silo.data.indices], kind="stable")
        rows = [task.batch(silo.data, by_length[b : b + 512]) for b in range(0, n, 512)]
        plain = _plain_scoring(task, model, rows)
        began = time.process_time()
        scored = score(silo, Heard(0, (index,), start))
        ours = time.process_time() - began
        ratios["scored"].append(plain / ours)
        speeds["scored"].append(n / ours)

        won = np.arange(len(scored.sealed["values"]), dtype=np.uint32)
        silo = SiloView(index, task, silo.data, settings, b"bench", carry=scored.carry)
        began = time.process_time()
        train_on_winners(silo, Heard(0, (index,), {}, {"winners": won}))
        ours = time.process_time() - began
        chosen = task.subset(silo.data.indices[np.sort(scored.carry["best"])])
        rng = silo.rng(0, "order")
        batches = [b for _ in range(settings.epochs) for b in task.batches(chosen, settings.batch, rng)]
        plain = _plain_training(task, task.new_model(0), batches, round_lr(settings.lr, settings.decay, 0))
        ratios["trained"].append(plain / ours)
        speeds["trained"].append(settings.epochs * len(won) / ours)
    out = {f"{k}_per_second": statistics.median(v) for k, v in speeds.items()}
    return out | {f"{k}_ratio": statistics.median(v) for k, v in ratios.items()}


def main() -> None:
    torch.set_num_threads(1)
    study = prepare(load(None, {"corpus": "nyt10-sized", "silos": "100", "fraction": "0.1", "rounds": "1"}))
    rates = _rates(study, silos=8)
    print("NYT10-sized (467k sentences, 100 silos), one core, Lazy MIL beside a plain loop over the same ready batches")
    for what in ("scored", "trained"):
        speed, ratio = rates[f"{what}_per_second"], rates[f"{what}_ratio"]
        print(f"  {what}: {speed:.0f} sentences/s, {ratio:.2f} of the plain loop's speed")
    with tempfile.TemporaryDirectory() as out:
        words = ["CORPUS=nyt10-sized", "SILOS=100", "FRACTION=0.1", "ROUNDS=2", f"OUT={out}"]
        done = subprocess.run([sys.executable, "-m", "bench.cli", "simulate", *words], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        s = json.loads((Path(out) / "latest" / "summary.json").read_text("utf-8"))
    print(f"  two rounds, real processes: {s['wall_seconds']:.0f} s, peak {s['peak_rss_mb']:.0f} MB for the whole tree")


if __name__ == "__main__":
    main()
