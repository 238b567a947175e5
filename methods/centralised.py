"""Centralised (a reference, not a federation): one place holds every silo's sentences and trains
the same method.

What a federation is measured against. The method named by the option `of` runs unchanged with a
single silo that has all the data; for Lazy MIL that means that every bag is whole and the best of
all its sentences is believed. Nothing is masked, since there is nobody to hide from, and the run
says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from config.settings import Settings
from methods.base import Method

__all__ = ["CITATION", "REFERENCE", "TASKS", "Options", "adjust", "bag_rule", "build"]

CITATION = "a reference of this project: the method named by `of` on pooled data"
TASKS = ("distant", "sentence", "document", "ner")
REFERENCE = "A reference, not a federation: all sentences were pooled in one place."


@dataclass(frozen=True)
class Options:
    #: the method that is run on the pooled data; empty: lazymil on bags, fedavg elsewhere
    of: str = ""


def _of(options: Mapping[str, Any], task: str = "distant") -> str:
    return str(options.get("of") or ("lazymil" if task == "distant" else "fedavg"))


def adjust(settings: Settings) -> Settings:
    """One silo with everything, in one process, unmasked; what the user said of silos and partition
    is moot.
    """
    return replace(
        settings, silos=1, fraction=1.0, partition="iid", secagg=False, runner="inprocess"
    )


def bag_rule(options: Mapping[str, Any]) -> str:
    from methods import bag_rule_of

    return bag_rule_of(_of(options), {})


def build(task: Any, settings: Settings) -> Method:
    from methods import build_inner

    inner = build_inner("centralised", _of(settings.options, task.name), task, settings)
    return Method("centralised", CITATION, inner.exchanges, inner.init)
