"""FedLCC's contrast where only the head is trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from config.errors import UserError
from config.part import HEAD
from methods import fedlcc
from methods.base import Heard
from methods.common.previous import remembered
from methods.common.training import load
from tests.methods.small import gradient_of
from tests.methods.small_document import tiny_study, tiny_task
from tests.methods.test_fedlcc import SILOS, initial, other, view


@pytest.mark.parametrize(
    "options", [{}, {"contrast": "bilinear", "classifier": "linear"}], ids=["context", "linear"]
)
def test_a_contrast_that_nothing_can_change_is_refused(options: dict[str, Any]) -> None:
    """With TRAIN=head the context is the frozen encoder's."""
    knobs = {k: options.pop(k) for k in ("classifier",) if k in options}
    task = tiny_task(part=HEAD, **knobs)
    with pytest.raises(UserError, match="has no gradient with TRAIN=head"):
        tiny_study("fedlcc", SILOS, task, train="head", options=options)
    for more in ({"mu": 0.0}, {"contrast": "bilinear"} if not knobs else {"mu": 0.0}):
        tiny_study("fedlcc", SILOS, task, train="head", options=options | more)


def test_the_contrast_of_a_trained_head_has_a_gradient() -> None:
    task = tiny_task(part=HEAD)
    study = tiny_study("fedlcc", SILOS, task, train="head", options={"contrast": "bilinear"})
    silo = view(study, 0, remembered({}, 0, other(study)))
    aim = fedlcc._objective(
        silo, Heard(1, (0,), initial(study)), fedlcc.Options(contrast="bilinear")
    )
    assert aim.loss is not None
    network = load(task.new_model(0), other(study, 0.3)).eval()
    batch = task.batch(silo.data, np.arange(2))
    (aim.loss(network, batch) - task.loss(network, batch)).backward()
    assert gradient_of(network.subject.weight).abs().max() > 1e-6
