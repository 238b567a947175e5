"""Centralised (a reference, not a federation): one place holds every silo's sentences and trains
the same method.

What a federation is measured against. The method named by the option `of` runs unchanged with a
single silo that has all the data; for Lazy MIL that means that every bag is whole and the best of
all its sentences is believed. Nothing is masked, since there is nobody to hide from, and the run
says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from config.settings import Settings
from corpora.partition import sample_of
from methods.base import Method
from methods.dp.coverage import refuse_reference
from methods.tasks.base import Task

__all__ = [
    "CITATION",
    "IN_ONE_PLACE",
    "REFERENCE",
    "TASKS",
    "Options",
    "adjust",
    "build",
    "inner_of",
]

CITATION = "a reference of this project: the method named by `of` on pooled data"
TASKS = ("distant", "sentence", "document", "ner")
REFERENCE = "A reference, not a federation: all sentences were pooled in one place."
IN_ONE_PLACE = "it is a reference, not a federation: its models stand in one place for comparison, without noise"


@dataclass(frozen=True)
class Options:
    #: the method that is run on the pooled data; empty: lazymil on bags, fedavg elsewhere
    of: str = ""


def inner_of(options: Options, task: str) -> str:
    """The method that this reference runs."""
    return options.of or ("lazymil" if task == "distant" else "fedavg")


def adjust(settings: Settings) -> Settings:
    """One silo with everything, in one process, unmasked; what the user said of silos and partition
    is moot, but for a sample: it is the same one.
    """
    partition = f"iid{sample_of(settings.partition)[1]}"
    return replace(
        settings, silos=1, fraction=1.0, partition=partition, secagg=False, runner="inprocess"
    )


def build(task: Task, settings: Settings, options: Options, inner: Method) -> Method:
    refuse_reference("centralised", settings, IN_ONE_PLACE)
    return Method("centralised", CITATION, inner.exchanges, inner.init)
