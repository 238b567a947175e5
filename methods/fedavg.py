"""FedAvg: every silo trains on all of its examples, and the models are averaged by size.

McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data",
AISTATS. In this package it is the baseline that does nothing about its task's difficulty: on
distant supervision it believes every distant label, on skewed data it ignores the skew.

It is the plain case of the frame in `methods.common.weighted`, which has the arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

from config.settings import Settings
from methods.base import Method
from methods.common.weighted import COVERED, averaged, plain
from methods.tasks.base import Task

__all__ = ["CITATION", "TASKS", "Options", "build"]

CITATION = "McMahan et al. 2017, Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS"
TASKS = ("distant", "sentence", "document", "ner")


@dataclass(frozen=True)
class Options:
    #: Silos larger than this weigh as if they had this many examples. Public, and fixed before the
    #: run.
    weight_cap: int = 2000


def build(task: Task, settings: Settings, options: Options) -> Method:
    return averaged(
        "fedavg",
        CITATION,
        task,
        objective=plain,
        privacy=COVERED,
        weight_cap=options.weight_cap,
    )
