"""What it gains to train a part of an encoder: an epoch of `TRAIN=top:1` with its frozen layers cached
beside an epoch of `TRAIN=all`, in turns on one core, and how much of the model `TRAIN=lora:8`
uploads. Part of `make bench`.

    .venv/bin/python -m bench.speed.parts [ENCODER=folder] [EPOCHS=3]

Without a folder the encoder has the shape of a MiniLM and random weights: what is measured is the
work. The first epoch of `top:1` computes what the frozen layers make of each sentence and is shown
apart; it is paid once in a study.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.speed.large import MINILM, make_encoder
from config.load import load
from methods.common.steps import Steps
from study.prepare import Study, prepare

__all__ = ["main", "uploaded"]

_SENTENCES, _WANTED, _WANTED_SHARE = 400, 4.0, 0.02


def _study(encoder: str, train: str) -> Study:
    # in float32: `auto` is decided by a timing
    words = {"method": "fedavg", "corpus": "sentence", "encoder": encoder, "train": train}
    return prepare(load(None, {**words, "precision": "float32"}))


def uploaded(encoder: str, train: str) -> int:
    """Numbers that a silo sends in a round."""
    exchanges = _study(encoder, train).method.exchanges
    return sum(prod(n or 0 for n in spec.shape) for e in exchanges for spec in e.masked.values())


def _epochs(study: Study, sentences: int) -> Callable[[], float]:
    """Each call trains one more epoch, and gives its CPU seconds."""
    task: Any = study.task
    model = task.new_model(0).train()
    data = task.subset(np.arange(min(sentences, task.train_size())))
    rng, s = np.random.default_rng(0), study.settings

    def epoch() -> float:
        began = time.process_time()
        steps = Steps(s, model, 0, -(-task.size(data) // s.batch), spend=True)
        for batch in task.batches(data, s.batch, rng):
            steps.clear()
            task.loss(model, batch).backward()
            steps.step()
        steps.end()
        return time.process_time() - began

    return epoch


def measure(encoder: str, folder: Path, epochs: int) -> dict[str, float]:
    cut = _study(encoder, "top:1")
    cut.task.keep_features_in(folder)
    whole, top = _epochs(_study(encoder, "all"), _SENTENCES), _epochs(cut, _SENTENCES)
    whole()  # makes kernels
    first = top()
    pairs = [(whole(), top()) for _ in range(epochs)]
    cut.task.forget_features()
    return {
        "ratio": statistics.median(a / b for a, b in pairs),
        "whole": statistics.median(a for a, _ in pairs),
        "first": first,
    }


def main(words: list[str]) -> None:
    torch.set_num_threads(1)
    given = dict(w.partition("=")[::2] for w in words)
    with tempfile.TemporaryDirectory() as folder:
        encoder = given.get("ENCODER", "")
        if not encoder:
            encoder = f"{folder}/encoder"
            make_encoder(Path(encoder), MINILM)
        found = measure(encoder, Path(folder) / "features", int(given.get("EPOCHS", "3")))
        share = uploaded(encoder, "lora:8") / uploaded(encoder, "all")
    print(
        f"an epoch of TRAIN=top:1 with cached layers: {found['ratio']:.1f} times as many sentences a second "
        f"as TRAIN=all (wanted: {_WANTED:.0f}; {found['whole']:.1f} CPU s for {_SENTENCES} sentences); the "
        f"first epoch, which computes them, {found['whole'] / found['first']:.1f} times"
    )
    print(
        f"TRAIN=lora:8 uploads {100 * share:.1f} % of the model (wanted: {100 * _WANTED_SHARE:.0f} %)"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
