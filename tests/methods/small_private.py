"""A silo that trains with DP=record on a small corpus of distant supervision."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import lru_cache
from typing import Any

from config.load import load
from methods.base import SiloView
from methods.tasks.distant import DistantTask
from methods.tasks.distant_bags import Rows
from study.prepare import Study, prepare

WORDS = {
    "corpus": "distant:sentences=600",
    "silos": "4",
    "rounds": "3",
    "epochs": "1",
    "batch": "32",
}
PRIVATE = {
    "method": "fedavg",
    "dp": "record",
    "noise": "1.0",
    "runner": "inprocess",
    "train": "all",
}


@lru_cache(maxsize=1)
def private_study() -> Study:
    return prepare(load(None, WORDS | PRIVATE))


def private_view(**changes: Any) -> SiloView[DistantTask, Rows]:
    """Silo 0 under other settings. Its task is its own: a test may change the knobs."""
    study = private_study()
    task = copy(study.task)
    assert isinstance(task, DistantTask)
    data = task.subset(study.partition.indices[0])
    settings = replace(study.settings, **changes)
    return SiloView(0, task, data, settings, b"", privacy=study.method.privacy)
