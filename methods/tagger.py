"""Tagger (what a user would try first): a BERT token classifier with the union tag set, averaged as
FedAvg does.

No paper's method: the whole encoder is trained and travels, and an entity of a type that a silo
does not annotate is O to it, so that silos teach each other to overlook what they know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from config.settings import Settings
from methods import options
from methods.base import Heard, Method, SiloView
from methods.common.weighted import Aim, build_weighted

__all__ = ["CITATION", "NETWORK", "TASKS", "Options", "build"]

CITATION = "a baseline of this project: token classification, averaged as in McMahan et al. 2017"
TASKS = ("ner",)
NETWORK = "tagger"


@dataclass(frozen=True)
class Options:
    weight_cap: int = 2000


def build(task: Any, settings: Settings) -> Method:
    o: Options = options("tagger", task.name, settings.options)

    def objective(silo: SiloView, heard: Heard) -> Aim:
        return Aim()

    return build_weighted("tagger", CITATION, task, o.weight_cap, objective)
