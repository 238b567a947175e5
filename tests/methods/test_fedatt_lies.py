"""FedAtt against a coordinator that lies to all alike: `silent-others` without a private word.

It broadcasts the honest model times 2.6 (the same to all, in h), and a level just below the norm of
the silo that moved furthest. All silos have the same number of sentences. Where a silo could weigh
e^8 times as much as another, all others together were 1 % of the sum. Found by an attacker with
fresh eyes in November 2026.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from config.load import load
from methods.base import Heard, SiloView
from study.prepare import prepare

torch.set_num_threads(1)
pytestmark = pytest.mark.slow


def test_no_model_and_no_level_make_the_sum_one_silos_own() -> None:
    given = {"method": "fedatt", "silos": "10", "partition": "pair", "corpus": "distant"}
    study = prepare(load(None, {**given, "runner": "inprocess"}))
    exchange, first = study.method.exchanges[0], study.method.init(0)
    lie = {f"w/{k}": (2.6 * v).astype(np.float32) for k, v in first.model.items()}
    at = list(first.model).index("out.weight")
    everybody = tuple(range(10))

    def answers(level: float) -> list[dict[str, np.ndarray]]:
        levels = np.full(len(first.model), level, np.float32)
        heard = Heard(0, everybody, {**lie, "level": levels})
        return [
            dict(
                exchange.answer(
                    SiloView(k, study.task, study.task.subset(ix), study.settings, b""),
                    heard,
                ).masked
            )
            for k, ix in enumerate(study.partition.indices)
        ]

    said = answers(19.9)
    cap = exchange.masked["update/out.weight"].cap
    total = sum(np.clip(a["update/out.weight"], -cap, cap).astype(np.float64) for a in said)
    victim = max(range(10), key=lambda k: said[k]["attention"][at])
    own = said[victim]["update/out.weight"].astype(np.float64)
    off = float(np.linalg.norm(total - own) / np.linalg.norm(own))
    assert off > 0.3, f"all others together are {off:.1%} of the sum: it is silo {victim}'s own"
