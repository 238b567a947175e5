"""FedAvg, then ONE: the first two fifths of the rounds train on all sentences, the rest as ONE does.

A control for Lazy MIL, whose rounds begin with the same warm start here. Without it, what the warm
start gives would be taken for what the choice among silos gives.
"""

from __future__ import annotations

from dataclasses import dataclass

from config.errors import UserError
from config.settings import Settings
from methods.base import Heard, Method, SiloView
from methods.common.bags import bag_by_bag
from methods.common.weighted import Aim, averaged, plain
from methods.lazymil import Options as LazyOptions
from methods.tasks.distant import DistantTask
from methods.tasks.distant_bags import Rows

__all__ = ["BAG_RULE", "CITATION", "TASKS", "Options", "build"]

CITATION = "a control of this project: FedAvg, then ONE (Zeng et al. 2015)"
TASKS = ("distant",)
BAG_RULE = "one"


@dataclass(frozen=True)
class Options:
    warmup: float = LazyOptions.warmup  #: share of the rounds, from the start, as in Lazy MIL


def build(task: DistantTask, settings: Settings, options: Options) -> Method:
    if not 0.0 <= options.warmup <= 1.0:
        raise UserError(
            f'Option "warmup" is a share of the rounds, from 0 to 1, not {options.warmup:g}.'
        )
    warm_rounds = int(options.warmup * settings.rounds)

    def objective(silo: SiloView[DistantTask, Rows], heard: Heard) -> Aim:
        return plain(silo, heard) if heard.round < warm_rounds else bag_by_bag(silo, heard)

    of = "a silo's sentences, and later on its bags"
    return averaged("fedavg_then_one", CITATION, task, objective=objective, privacy=None, of=of)
