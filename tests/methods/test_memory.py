"""What a silo remembers must not decide alone what it sends: the attack `memory-difference`.

A coordinator shows one model twice. In the first round it leaves the victim out; in the second all
take part. If silos sent what changed since the first time, everybody but the victim would send
nothing, and the sum would be the victim's.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from config.errors import UserError
from methods.base import Arrays, Heard, SiloView
from tests.methods.small_sentence import tiny_study

SILOS = [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9, 10]]
VICTIM = 2


def _sum_of_second_showing(method: str, options: dict[str, object]) -> tuple[Arrays, Arrays]:
    """The sum over all silos, and the victim's own part of it."""
    study = tiny_study(method, SILOS, options=options)
    state = study.method.init(0)
    views = [
        SiloView(k, study.task, study.task.subset(ix), study.settings, b"")
        for k, ix in enumerate(study.partition.indices)
    ]
    for cohort in ((0, 1), (0, 1, 2)):
        total: dict[str, np.ndarray] = {}
        own: Arrays = {}
        for k in cohort:
            for exchange in study.method.exchanges:
                said = exchange.broadcast(state, 0, cohort)
                heard = Heard(0, cohort, said.common, said.private.get(k, {}))
                answer = exchange.answer(views[k], heard)
                views[k] = replace(views[k], carry={**views[k].carry, **answer.carry})
                if answer.memory is not None:
                    views[k] = replace(views[k], memory=answer.memory)
                own = answer.masked
            for name, array in own.items():
                total[name] = total.get(name, 0) + array.astype(np.float64)
    return total, own


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("scaffold", {}),
        ("moon", {}),
        ("fedprox", {}),
        ("fedavg", {}),
    ],
)
def test_memory_difference_does_not_make_the_sum_one_silos_own(
    method: str, options: dict[str, object]
) -> None:
    total, own = _sum_of_second_showing(method, options)
    assert any(np.abs(a).max() > 1e-4 for a in own.values())
    for name, array in own.items():
        if name == "weight" or np.abs(array).max() < 1e-6:
            continue
        rest = total[name] - array  # what the others put in
        assert np.abs(rest).max() > 0.02 * np.abs(array).max(), name


def test_variates_from_the_drift_need_sgd() -> None:
    """Under Adam the second showing would cancel what the first left, whatever is sent."""
    with pytest.raises(UserError, match="drift only with OPTIMIZER=sgd"):
        tiny_study("scaffold", SILOS, options={"variate": "drift"})
