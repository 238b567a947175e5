"""ATT: each silo weighs a bag's sentences by how well they fit the label's row of the classifier.

Lin et al. 2016. At test, where there is no label, every relation in turn is taken for it: attend
with its row, and read off its own probability. The row is trained through the attention as well, as
in OpenNRE (FedDS stops the gradient).
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
BAG_RULE = "att"


@dataclass(frozen=True)
class Options:
    """No knobs of its own."""


def build(task: DistantTask, settings: Settings, options: Options) -> Method:
    return build_bag_method("att", CITATION, task)
