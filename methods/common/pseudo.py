"""The pseudo-complete annotation: what a silo annotated, and what the global model finds of the
types it did not.

Wang et al. 2023, section 3.2, equations 4 and 5. Shared by fedner and by the adversarial baselines
that it is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import nn

from methods.tasks.ner import Data, NerTask
from models.pointer_targets import Span

__all__ = ["WANG_2023", "pseudo_complete", "transferred"]

#: How FedNER's paper trains, its baselines too, on BART-large; which optimizer it leaves open.
WANG_2023 = {
    "optimizer": "adamw",
    "lr": 3e-5,
    "batch": 8,
    "epochs": 1,
    "rounds": 25,
    "warmup": 0.0,
    "schedule": "constant",
    "clip_norm": 0.0,
}


def transferred(predicted: Sequence[Span], gold: Sequence[Span], known: np.ndarray) -> list[Span]:
    """Of what the global model predicts: entities of types outside the tag set that overlap neither
    a gold span (the annotator is right) nor a prediction kept before (the first the model wrote
    stays).
    """
    kept: list[Span] = []
    for start, end, kind in predicted:
        if known[kind]:
            continue
        if all(end <= a or b <= start for a, b, _ in (*gold, *kept)):
            kept.append((start, end, kind))
    return kept


def pseudo_complete(task: NerTask, model: nn.Module, data: Data) -> Data:
    """`data` with the model's predictions for the types that are not annotated. Where all types
    are, nothing is decoded.
    """
    if not len(data.indices) or data.known[data.indices].all():
        return data
    predicted = task.predict(model, data)
    pseudo = tuple(
        transferred(p, data.gold(i), data.known_types(i)) for i, p in enumerate(predicted)
    )
    return replace(data, pseudo=pseudo)
