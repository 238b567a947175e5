"""NYT10-sized distant supervision on this machine: `python -m bench.speed.distant`, part of `make
bench`.

Two questions, each answered within one run. How many sentences a second does a silo score and
train, beside a plain PyTorch loop that does nothing but run the same network over the same batches?
And how much memory does a whole federation of 100 silos over 467k sentences take, shared pages
counted once?
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from config.load import load
from config.settings import Settings
from methods.base import Heard, SiloView
from methods.common.contribution import weights
from methods.common.steps import optimizer_of
from methods.common.training import parameters
from methods.lazymil import Options, Silo, naming_of, score, train_on_winners
from methods.tasks.distant import DistantTask
from study.prepare import Study, prepare

__all__ = ["main"]


def _view(study: Study, task: DistantTask, index: int) -> Silo:
    data = task.subset(study.partition.indices[index])
    return SiloView(index, task, data, study.settings, b"bench")


def _score_plainly(model: torch.nn.Module, batches: list[Any]) -> None:
    model.eval()
    with torch.inference_mode():
        for batch in batches:
            F.softmax(model(*batch.inputs), dim=1)


def _train_plainly(model: torch.nn.Module, batches: list[Any], settings: Settings) -> None:
    model.train()
    optimizer = optimizer_of(settings, model.parameters(), settings.lr)
    for batch in batches:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(*batch.inputs), batch.relation).backward()
        optimizer.step()


def _both(ours: Callable[[], Any], plain: Callable[[], Any]) -> tuple[float, float]:
    """CPU seconds of each, the best of three taken in turns: neighbours on the machine slow down
    either side.
    """
    best = [float("inf"), float("inf")]
    for _ in range(3):
        for i, work in enumerate((ours, plain)):
            began = time.process_time()
            work()
            best[i] = min(best[i], time.process_time() - began)
    return best[0], best[1]


def _rates(study: Study, silos: int) -> dict[str, float]:
    """Median over a few silos; both sides see the same sentences in the same batches. The plain
    side gets its batches ready made and its model on loan; ours includes looking words up,
    choosing, naming bags and taking the difference.
    """
    task, settings = study.task, study.settings
    assert isinstance(task, DistantTask)
    model = task.new_model(0)
    start = parameters(model)
    naming = naming_of(settings, Options())
    ratios: dict[str, list[float]] = {"scored": [], "trained": []}
    speeds: dict[str, list[float]] = {"scored": [], "trained": []}
    for index in range(silos):
        silo = _view(study, task, index)
        n = task.size(silo.data)
        by_length = np.argsort(silo.data.sentences.lengths[silo.data.indices], kind="stable")
        rows = [task.batch(silo.data, by_length[b : b + 512]) for b in range(0, n, 512)]
        scored = score(silo, Heard(0, (index,), start), naming)
        ours, plain = _both(
            partial(score, silo, Heard(0, (index,), start), naming),
            partial(_score_plainly, model, rows),
        )
        ratios["scored"].append(plain / ours)
        speeds["scored"].append(n / ours)

        won = np.arange(len(scored.sealed["values"]), dtype=np.uint32)
        level = {"level": np.array([weights(scored.sealed["values"]).sum()])}
        silo = SiloView(index, task, silo.data, settings, b"bench", carry=scored.carry)
        chosen = task.subset(silo.data.indices[np.sort(scored.carry["best"])])
        rng = silo.rng(0, "order")
        batches = [
            b for _ in range(settings.epochs) for b in task.batches(chosen, settings.batch, rng)
        ]
        ours, plain = _both(
            partial(train_on_winners, silo, Heard(0, (index,), level, {"winners": won})),
            partial(_train_plainly, task.new_model(0), batches, settings),
        )
        ratios["trained"].append(plain / ours)
        speeds["trained"].append(settings.epochs * len(won) / ours)
    out = {f"{k}_per_second": statistics.median(v) for k, v in speeds.items()}
    return out | {f"{k}_ratio": statistics.median(v) for k, v in ratios.items()}


def main() -> None:
    torch.set_num_threads(1)
    study = prepare(
        load(None, {"corpus": "nyt10-sized", "silos": "100", "fraction": "0.1", "rounds": "1"})
    )
    rates = _rates(study, silos=5)
    print(
        "NYT10-sized (467k sentences, 100 silos), one core, Lazy MIL beside a plain loop over the same ready batches"
    )
    for what in ("scored", "trained"):
        speed, ratio = rates[f"{what}_per_second"], rates[f"{what}_ratio"]
        print(f"  {what}: {speed:.0f} sentences/s, {ratio:.2f} of the plain loop's speed")
    with tempfile.TemporaryDirectory() as out:
        words = ["CORPUS=nyt10-sized", "SILOS=100", "FRACTION=0.1", "ROUNDS=2", f"OUT={out}"]
        done = subprocess.run(
            [sys.executable, "-m", "cli.main", "simulate", *words], capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        s = json.loads((Path(out) / "latest" / "summary.json").read_text("utf-8"))
    print(
        f"  two rounds, real processes: {s['wall_seconds']:.0f} s, peak {s['peak_rss_mb']:.0f} MB for the whole tree"
    )


if __name__ == "__main__":
    main()
