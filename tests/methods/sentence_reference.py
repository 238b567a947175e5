"""What a server that reads every silo's parameters would have: the slow truth for whole rounds on
sentences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from methods.base import Arrays, SiloView, derived_seed
from methods.common.training import load, parameters, train
from study.prepare import Study

SILOS = [list(range(24)), list(range(24, 36)), list(range(36, 45))]
SIZES = [24, 12, 9]
#: Fixed point loses up to 1e-8 a number; a round of training on top of it a little more.
CLOSE = 2e-6


def trained(
    study: Study, k: int, start: Arrays, round: int, loss: Callable[[Any, Any], torch.Tensor] | None
) -> Arrays:
    """Silo k's own parameters after local training: what the papers' servers read."""
    task = study.task
    view = SiloView(k, task, task.subset(study.partition.indices[k]), study.settings, b"")
    model = load(task.new_model(0), start)
    train(view, model, round, loss=loss)
    return parameters(model)


def initial(study: Study) -> Arrays:
    return parameters(study.task.new_model(derived_seed(study.settings.seed, "init")))


def assert_same(got: Arrays, expected: Arrays, atol: float = CLOSE) -> None:
    assert sorted(got) == sorted(expected)
    for name in expected:
        np.testing.assert_allclose(got[name], expected[name], rtol=0, atol=atol, err_msg=name)
