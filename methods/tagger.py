"""Tagger (what a user would try first): a BERT token classifier with the union tag set, averaged as
FedAvg does.

No paper's method: the whole encoder is trained and travels, and an entity of a type that a silo
does not annotate is O to it, so that silos teach each other to overlook what they know.
"""

from __future__ import annotations

from dataclasses import dataclass

from config.settings import Settings
from methods.base import Method
from methods.common.weighted import COVERED, averaged, plain
from methods.tasks.ner import NerTask

__all__ = ["CITATION", "NETWORK", "TASKS", "Options", "build"]

CITATION = "a baseline of this project: token classification, averaged as in McMahan et al. 2017"
TASKS = ("ner",)
NETWORK = "tagger"


@dataclass(frozen=True)
class Options:
    weight_cap: int = 2000


def build(task: NerTask, settings: Settings, options: Options) -> Method:
    return averaged(
        "tagger",
        CITATION,
        task,
        objective=plain,
        privacy=COVERED,
        weight_cap=options.weight_cap,
    )
