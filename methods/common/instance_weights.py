"""FedNER's instance weights: how well the gradient of a silo's sentence agrees with what the other
silos' sentences ask of the model.

Wang et al. 2023, section 3.3, algorithm 2. Gradients are with respect to the prompts of a pointer
network, and to the classifier of a tagger. `methods.fedner` says when each half runs, what travels
in between, and where the paper leaves a choice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import nn

from methods.tasks.ner import Data, NerTask
from models.device import there

__all__ = ["Source", "instance_gradients", "new_weights"]

_CHUNK = 32  #: sentences whose gradients are computed at once


@dataclass(frozen=True)
class Source:
    """g_i of every sentence, as sums of outer products: a tagger's g_i has a row for each tag and
    a column for each dimension, and is made of the few words that the silo annotated.
    """

    sentence: np.ndarray  #: (parts,): to whose g_i a product belongs
    left: np.ndarray  #: (parts, a)
    right: np.ndarray  #: (parts, b)
    norms: np.ndarray  #: (sentences,): the lengths of g_i

    def __len__(self) -> int:
        return len(self.norms)

    @classmethod
    def of_rows(cls, rows: np.ndarray) -> Source:
        """Every g_i as a row."""
        norms = np.linalg.norm(rows.astype(np.float64), axis=1)
        return cls(np.arange(len(rows)), np.ones((len(rows), 1)), rows, norms)

    def along(self, target: np.ndarray) -> np.ndarray:
        """<g_i, target> of every sentence."""
        t = target.astype(np.float64).reshape(self.left.shape[1], self.right.shape[1])
        each = ((self.left.astype(np.float64) @ t) * self.right).sum(axis=1)
        return np.bincount(self.sentence, each, minlength=len(self))


def instance_gradients(
    task: NerTask,
    model: nn.Module,
    data: Data,
    clipped: Callable[[np.ndarray], np.ndarray] | None = None,
) -> tuple[Source, np.ndarray]:
    """g_i of every sentence, and the sum of the sentences' target gradients in float64; dropout
    off. `clipped` bounds what each row, one sentence's target gradient, adds to the sum.
    """
    model.eval()
    shape = tuple(dict(model.named_parameters())[task.network.measured].shape)
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    norms = np.zeros(len(data.indices), dtype=np.float64)
    total = np.zeros(shape, dtype=np.float64)
    frozen = [p for p in model.parameters() if p.requires_grad]
    for p in frozen:
        p.requires_grad_(False)
    try:
        for chosen in task.chunks(data, _CHUNK):
            g = task.network.gradients(model, task.batch(data, chosen))
            parts.append((chosen[there(g.sentence)], there(g.left), there(g.right)))
            norms[chosen] = there(g.norms)
            if clipped is None:
                total += there(g.target.sum(dim=0))
            else:
                total += clipped(there(g.target.flatten(1))).sum(axis=0).reshape(shape)
    finally:
        for p in frozen:
            p.requires_grad_(True)
    if not parts:
        return Source.of_rows(np.zeros((0, total.size), np.float32)), total
    sentence, left, right = (np.concatenate(part) for part in zip(*parts))
    return Source(sentence, left, right, norms), total


def new_weights(
    w: np.ndarray, source: Source, target: np.ndarray, alpha: float, mode: str
) -> np.ndarray:
    """Equation 12 for all sentences of a silo at once. `mode` is fedner's option `weights`."""
    length = float(np.linalg.norm(target.astype(np.float64)))
    if not np.isfinite(length):  # weights that it made would stay: each stands on the one before
        return w.astype(np.float32)
    defined = (source.norms > 0) & (length > 0)
    norms = source.norms * length
    cosine = np.divide(source.along(target), norms, out=np.zeros(len(source)), where=defined)
    new = np.where(defined, alpha * w + (1 - alpha) * (cosine + (mode == "shifted")), w)
    if mode == "safe" and defined.any():
        # Only sentences that have a source loss: the others' weights do nothing, and would draw the
        # mean to themselves.
        kept = np.clip(new[defined], 0.0, None)
        new[defined] = kept / kept.mean() if kept.mean() > 0 else 1.0
    return new.astype(np.float32)
