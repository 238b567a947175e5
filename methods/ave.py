"""AVE: each silo takes the mean of a bag's sentence vectors for the bag.

Lin et al. 2016, the naive variant of their attention; the Lazy MIL paper prints it as AVG.
"""

from __future__ import annotations

from dataclasses import dataclass

from config.settings import Settings
from methods.base import Method
from methods.common.bags import build_bag_method
from methods.tasks.distant import DistantTask

__all__ = ["BAG_RULE", "CITATION", "TASKS", "Options", "build"]

CITATION = (
    "Lin et al. 2016, Neural Relation Extraction with Selective Attention over Instances, ACL"
)
TASKS = ("distant",)
BAG_RULE = "ave"


@dataclass(frozen=True)
class Options:
    """No knobs of its own."""


def build(task: DistantTask, settings: Settings, options: Options) -> Method:
    return build_bag_method("ave", CITATION, task)
