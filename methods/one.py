"""ONE: each silo believes, of every bag it has, the one sentence most probable for the label.

Zeng et al. 2015. In each training step the sentence of highest p(label | s) stands for its bag. At
test a pair's score for a relation is that of its best sentence. Unlike Lazy MIL, a bag is what one
silo holds of it, and the choice is made anew in every step.
"""

from __future__ import annotations

from dataclasses import dataclass

from config.settings import Settings
from methods.base import Method
from methods.common.bags import build_bag_method
from methods.tasks.distant import DistantTask

__all__ = ["BAG_RULE", "CITATION", "TASKS", "Options", "build"]

CITATION = (
    "Zeng et al. 2015, Distant Supervision for Relation Extraction via Piecewise Convolutional Neural "
    "Networks, EMNLP"
)
TASKS = ("distant",)
BAG_RULE = "one"


@dataclass(frozen=True)
class Options:
    """No knobs of its own."""


def build(task: DistantTask, settings: Settings, options: Options) -> Method:
    return build_bag_method("one", CITATION, task)
