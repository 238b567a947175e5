"""FedNER's instance weights: how well the gradient of a silo's sentence agrees with what the other
silos' sentences ask of the prompts.

Wang et al. 2023, section 3.3, algorithm 2. `methods.fedner` says when each half runs, what travels
in between, and where the paper leaves a choice.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from methods.tasks.ner import Data, NerTask
from methods.tasks.ner_networks import PointerNetwork
from models.device import there
from models.pointer import PointerNer

__all__ = ["new_weights", "prompt_gradients"]

_CHUNK = 32  #: sentences whose gradients are computed in one backward pass


def prompt_gradients(
    task: NerTask,
    model: PointerNer,
    data: Data,
    clipped: Callable[[np.ndarray], np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """g_i of every sentence, (sentences, N_q * d), and the sum of their target gradients, (N_q, d)
    in float64: gradients with respect to q, dropout off.

    Every sentence of a chunk gets a copy of q of its own, so that one backward pass gives all their
    gradients. `clipped` bounds what each row, one sentence's target gradient, adds to the sum.
    """
    model.eval()
    network, prompts = task.network, model.prompts
    assert isinstance(network, PointerNetwork)  # `methods.fedner.build` refuses every other
    source = np.zeros((len(data.indices), prompts.q.weight.numel()), dtype=np.float32)
    total = np.zeros(tuple(prompts.q.weight.shape), dtype=np.float64)
    frozen = [p for p in model.parameters() if p.requires_grad]
    for p in frozen:
        p.requires_grad_(False)
    try:
        for chosen in task.chunks(data, _CHUNK):
            batch = task.batch(data, chosen)
            q = prompts.expanded(len(chosen))
            mine, others, _ = network.parts(model, batch, q)
            (g,) = torch.autograd.grad(mine.sum(), q, retain_graph=True)
            source[chosen] = there(g.flatten(1).nan_to_num(0.0, 0.0, 0.0))
            (g,) = torch.autograd.grad(others.sum(), q)
            if clipped is None:
                total += there(g.sum(dim=0))
            else:
                total += clipped(there(g.flatten(1))).sum(axis=0).reshape(total.shape)
    finally:
        for p in frozen:
            p.requires_grad_(True)
    return source, total


def new_weights(
    w: np.ndarray, source: np.ndarray, target: np.ndarray, alpha: float, mode: str
) -> np.ndarray:
    """Equation 12 for all sentences of a silo at once. `mode` is fedner's option `weights`."""
    g, t = source.astype(np.float64), target.astype(np.float64).ravel()
    norms, length = np.linalg.norm(g, axis=1), float(np.linalg.norm(t))
    if not np.isfinite(length):  # weights that it made would stay: each stands on the one before
        return w.astype(np.float32)
    defined = (norms > 0) & (length > 0)
    cosine = np.divide(g @ t, norms * length, out=np.zeros(len(g)), where=defined)
    new = np.where(defined, alpha * w + (1 - alpha) * (cosine + (mode == "shifted")), w)
    if mode == "safe" and defined.any():
        # Only sentences that have a source loss: the others' weights do nothing, and would draw the
        # mean to themselves.
        kept = np.clip(new[defined], 0.0, None)
        new[defined] = kept / kept.mean() if kept.mean() > 0 else 1.0
    return new.astype(np.float32)
