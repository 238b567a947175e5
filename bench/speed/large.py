"""A round of an encoder of BERT-base's size: against a plain loop over the same batches, and how
much memory all processes take. Part of `make bench`; `SILOS=10 ROUNDS=3 BITS=16` may be given.

The encoder has BERT-base's shape and random weights, and the tokenizer of the built-in one: what is
measured is the work, and not what is learnt. The plain loop trains each silo's model on the same
batches with the same optimizer, as many at once as there are cores, and does nothing else.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.speed.runners import run_once
from config.parent import forks

__all__ = ["MINILM", "main", "make_encoder"]

_WANTED_GB = {4: 7, 10: 10}  #: by the number of silos
_WORK = {"METHOD": "fedavg", "CORPUS": "sentence", "SILOS": "4", "ROUNDS": "3", "BITS": "16"}


BERT_BASE: Mapping[str, int] = {}  #: as `transformers` has it by default
#: of a MiniLM with six layers
MINILM: Mapping[str, int] = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}


def make_encoder(folder: Path, shape: Mapping[str, int] = BERT_BASE) -> int:
    """Returns how many parameters it has."""
    import torch
    from transformers import BertConfig, BertModel

    from models.backbone import load_checkpoint

    load_checkpoint("", "bert").tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    model = BertModel(BertConfig(**dict[str, Any](shape)))
    model.save_pretrained(folder)
    return sum(p.numel() for p in model.parameters())


def plain(words: list[str]) -> dict[str, float]:
    """Every silo's training of one round, each in a forked process, as many at once as cores."""
    from config.load import load
    from methods.base import SiloView
    from methods.common.training import parameters, trained
    from study.machine import one_thread
    from study.prepare import prepare, warm
    from wire.stored import keep_freed

    one_thread()
    study = prepare(load(None, dict(w.lower().split("=", 1) for w in words)))
    warm(study)
    start = parameters(study.task.new_model(0))
    began, waiting, running = time.monotonic(), list(range(study.settings.silos)), 0
    while waiting or running:
        if waiting and running < (os.cpu_count() or 1):
            i = waiting.pop(0)
            running += 1
            if os.fork() == 0:
                keep_freed()  # as every silo does
                data = study.task.subset(study.partition.indices[i])
                trained(SiloView(i, study.task, data, study.settings, b""), start, 0)
                os._exit(0)
        else:
            if os.wait()[1]:
                sys.exit("a process of the plain loop failed")
            running -= 1
    spent = os.times()
    return {
        "seconds": time.monotonic() - began,
        "cpu": spent.children_user + spent.children_system,
    }


def main(words: list[str]) -> None:
    if words[:1] == ["plain"]:
        print(json.dumps(plain(words[1:])))
        return
    if not forks():
        sys.exit("The plain loop forks its processes; measure it where fork is safe (Linux).")
    console = Console()
    given = {k: v for k, _, v in (w.partition("=") for w in words) if k in (*_WORK, "BATCH")}
    with tempfile.TemporaryDirectory() as folder:
        encoder = Path(folder) / "encoder"
        count = make_encoder(encoder)
        work = [f"{k}={v}" for k, v in {**_WORK, **given, "ENCODER": str(encoder)}.items()]
        console.print(f"an encoder of {count / 1e6:.0f} M parameters, {' '.join(work[:-1])} …")
        before, run, after = _alone(work), run_once(Path(folder) / "runs", *work), _alone(work)
        rounds = [
            json.loads(line)
            for line in (Path(folder) / "runs/latest/rounds.jsonl").read_text().splitlines()
        ]
        _say(console, run, rounds, [before, after])
        shutil.rmtree(Path(folder) / "runs")


def _alone(work: list[str]) -> dict[str, float]:
    import subprocess

    command = [sys.executable, "-m", "bench.speed.large", "plain", *work]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the plain loop failed:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _say(
    console: Console,
    run: dict[str, Any],
    rounds: list[dict[str, Any]],
    alone: list[dict[str, float]],
) -> None:
    seconds = sum(r["seconds"] for r in rounds) / len(rounds)
    loop = sum(a["seconds"] for a in alone) / len(alone)
    sums = sum(
        r["phases"].get("telling", 0.0) + r["phases"].get("unmasking", 0.0) for r in rounds
    ) / len(rounds)
    scored = sum(r["phases"].get("evaluating", 0.0) for r in rounds) / len(rounds)
    outside = 1 - sum(r["seconds"] for r in rounds) / run["wall_seconds"]
    console.print(
        f"[bold]a round takes {seconds / loop:.2f} times the plain loop[/bold] ({seconds:.1f} s and "
        f"{loop:.1f} s; [bold]{seconds / (loop + sums):.2f} times loop, broadcast and unmasking[/bold], "
        f"wanted: 1.15); scoring beside it {scored:.1f} s",
        highlight=False,
        soft_wrap=True,
    )
    console.print(
        f"[bold]{run['peak_rss_mb'] * 2**20 / 1e9:.2f} GB at most[/bold] in all processes (wanted: "
        f"{_WANTED_GB.get(run['silos'], 10)}); {100 * outside:.0f} % of {run['wall_seconds']:.0f} s lie "
        f"outside of rounds (wanted: 15); {run['cpu_seconds']:.0f} CPU s",
        highlight=False,
        soft_wrap=True,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
