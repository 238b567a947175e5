"""A silo's own model of the last round it trained in, kept on its disk: what MOON and FedLCC
contrast with.

A round can be asked for twice: a run that was cut short is resumed at its last finished round, and
the silo may already have trained in the one after it. So the record holds the round it was written
in, and what was the previous model then; asked again for that round, the silo answers as it did
before.
"""

from __future__ import annotations

import numpy as np

from methods.base import Arrays

__all__ = ["previous_model", "remembered"]

_LAST, _BEFORE, _ROUND = "last/", "before/", "round"


def _part(memory: Arrays, prefix: str) -> Arrays:
    return {k.removeprefix(prefix): v for k, v in memory.items() if k.startswith(prefix)}


def previous_model(memory: Arrays, round: int) -> Arrays:
    """The model of the last round before `round`; empty on first participation."""
    if _ROUND not in memory:
        return {}
    return _part(memory, _LAST if int(memory[_ROUND][0]) < round else _BEFORE)


def remembered(memory: Arrays, round: int, model: Arrays) -> Arrays:
    """What to keep after training in `round` gave `model`."""
    before = previous_model(memory, round)
    return {
        _ROUND: np.array([round], np.int64),
        **{_LAST + k: v for k, v in model.items()},
        **{_BEFORE + k: v for k, v in before.items()},
    }
