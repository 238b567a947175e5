"""`memory-difference` in SCAFFOLD's update: a model shown twice, first without the victim.

Silos that step along g - c_i + c with a c_i that they kept stand still the second time (where
training is by SGD, and c is said to be zero), and the victim moves by its whole gradient. Found by
an attacker with fresh eyes in November 2026. Now c_i is the gradient at the received model.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from config.load import load
from methods.base import Heard, SiloView
from study.prepare import prepare

torch.set_num_threads(1)
pytestmark = pytest.mark.slow
VICTIM, ALL = 4, tuple(range(10))


def _others_in_second_showing(bias: float, **settings: str) -> dict[str, float]:
    """By array: what the others put into the sum, as a share of the victim's part."""
    given = {"method": "scaffold", "silos": "10", "partition": "pair", "corpus": "distant"}
    study = prepare(load(None, {**given, "runner": "inprocess", **settings}))
    exchange, state = study.method.exchanges[0], study.method.init(0)
    common = dict(exchange.broadcast(state, 0, ALL).common)  # with c = 0
    if bias:
        for name in ("convolution.weight", "convolution.bias", "out.weight", "out.bias"):
            common[f"x/{name}"] = np.zeros_like(common[f"x/{name}"])
        common["x/out.bias"][0] = bias
    views = [
        SiloView(k, study.task, study.task.subset(ix), study.settings, b"")
        for k, ix in enumerate(study.partition.indices)
    ]
    for k in set(ALL) - {VICTIM}:
        kept = exchange.answer(views[k], Heard(0, ALL, common)).memory
        views[k] = replace(views[k], memory=kept or {})
    said = [exchange.answer(v, Heard(1, ALL, common)).masked for v in views]
    shares = {}
    for name in (n for n in said[0] if n.startswith("update/")):
        own = np.clip(said[VICTIM][name], -8, 8).astype(np.float64)  # the declared range
        rest = sum(a[name].astype(np.float64) for k, a in enumerate(said) if k != VICTIM)
        shares[name] = float(np.linalg.norm(rest) / max(float(np.linalg.norm(own)), 1e-12))
    return shares


def test_one_step_over_all_records() -> None:
    """A silo with fewer records than BATCH takes one step an epoch."""
    shares = _others_in_second_showing(0, batch="2000", epochs="1", **{"options.dropout": "0.0"})
    assert shares["update/out.weight"] > 0.1, shares


def test_a_model_that_is_sure_and_wrong_under_the_tasks_own_settings() -> None:
    """Where the model is saturated the gradient does not depend on the step: over an epoch of any
    batches, with dropout, everybody else's steps add up to nothing. What is left in the bias is how
    many sentences of each relation the victim has.
    """
    shares = _others_in_second_showing(30.0)
    assert shares["update/out.bias"] > 0.1, shares
