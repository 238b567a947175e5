"""What pooling and classifier add to the document encoder: `python -m bench.speed.document`, part
of `make bench`.

The same batches of documents go through the whole model, forward and backward, and through nothing
but its encoder in a plain loop, alternating; CPU seconds of this process, one thread.
ENCODER=folder takes another checkpoint than the small built-in one, CORPUS=folder other documents.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from config.load import load
from methods.tasks.document import DocumentTask
from methods.tasks.load import load_task

__all__ = ["main", "measure"]


def _seconds(
    work: Callable[[Any], torch.Tensor], model: torch.nn.Module, batches: list[Any]
) -> float:
    began = time.process_time()
    for batch in batches:
        model.zero_grad(set_to_none=True)
        work(batch).backward()
    return time.process_time() - began


def measure(task: DocumentTask, documents: int, size: int, repeats: int) -> dict[str, float]:
    """CPU seconds per document: the whole model, its encoder alone, and the median over repeats of
    their ratio.
    """
    model = task.new_model(0).train()
    data = task.subset(np.arange(min(documents, task.train_size())))
    batches = list(task.batches(data, size, np.random.default_rng(0)))

    def encoder(batch: Any) -> torch.Tensor:
        hidden, _ = model.encode(batch[0])
        return hidden.mean()

    def whole(batch: Any) -> torch.Tensor:
        return task.loss(model, batch)

    _seconds(whole, model, batches[:3])
    pairs = []
    for _ in range(repeats):
        plain = _seconds(encoder, model, batches)
        pairs.append((_seconds(whole, model, batches), plain))
    n = task.size(data)
    return {
        "whole": statistics.median(w for w, _ in pairs) / n,
        "encoder": statistics.median(e for _, e in pairs) / n,
        "ratio": statistics.median(w / e for w, e in pairs),
    }


def main(words: list[str]) -> None:
    torch.set_num_threads(1)
    given = dict(w.partition("=")[::2] for w in words)
    chosen = {k.lower(): given[k] for k in ("ENCODER", "CORPUS") if given.get(k)}
    # make bench is given settings for the other benches as well: only what is about documents is
    # taken here.
    if chosen.get("corpus", "document").partition(":")[0] in (
        "distant",
        "sentence",
        "ner",
        "nyt10-sized",
    ):
        del chosen["corpus"]
    settings = load(None, {"method": "fedlcc", **chosen})
    task = load_task(settings)
    assert isinstance(task, DocumentTask)
    figures = measure(task, documents=int(given.get("DOCUMENTS", "60")), size=3, repeats=5)
    print(f"Documents ({task.corpus_name}, {task.checkpoint.name}), forward and backward, one core")
    print(
        f"  encoder alone {1e3 * figures['encoder']:.1f} ms, whole model {1e3 * figures['whole']:.1f} ms a document"
    )
    print(f"  pooling and classifier add {100 * (figures['ratio'] - 1):.1f} % (median of five)")


if __name__ == "__main__":
    main(sys.argv[1:])
