"""ATT_RA: each silo forms one bag vector for every relation, in training as at test.

Ye and Ling 2019, their intra-bag attention: logit_k = w_k . b_k + bias_k, where b_k attends with
relation k's row. Their attention between bags is not part of this baseline, as in the Lazy MIL
paper.
"""

from __future__ import annotations

from dataclasses import dataclass

from config.settings import Settings
from methods.base import Method
from methods.common.bags import build_bag_method
from methods.tasks.distant import DistantTask

__all__ = ["BAG_RULE", "CITATION", "TASKS", "Options", "build"]

CITATION = "Ye and Ling 2019, Distant Supervision Relation Extraction with Intra-Bag and Inter-Bag Attentions, NAACL"
TASKS = ("distant",)
BAG_RULE = "att_ra"


@dataclass(frozen=True)
class Options:
    """No knobs of its own."""


def build(task: DistantTask, settings: Settings, options: Options) -> Method:
    return build_bag_method("att_ra", CITATION, task)
