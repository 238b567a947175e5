"""Sottovoce from Python: the same programs as the `sottovoce` command, the same settings and the
same errors.

    run = sottovoce.simulate(method="fedavg", corpus="sentence", silos=5, rounds=3)
    run.rounds.plot(x="round", y="dev")
    sottovoce.load(run).extract("<e1:drug>aspirin</e1> prevents <e2:disease>stroke</e2> .")

Settings have the names of `config.settings.Settings`; `sottovoce simulate --help` explains each. A
mistake is an `Error` with the sentence that the command line would print.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config.errors import UserError as Error
from sottovoce._command import read_json, words
from sottovoce._model import Model
from sottovoce._run import Plan, Run, simulated

if TYPE_CHECKING:
    from methods.base import (
        Answer,
        Arrays,
        ArraySpec,
        Broadcast,
        Disclosure,
        Exchange,
        Folded,
        Heard,
        Method,
        Privacy,
        RecordPrivacy,
        Release,
        SiloView,
        State,
    )
    from methods.tasks.base import Evaluation, Task

    __version__: str

__all__ = [
    "Answer",
    "ArraySpec",
    "Arrays",
    "Broadcast",
    "Disclosure",
    "Error",
    "Evaluation",
    "Exchange",
    "Folded",
    "Heard",
    "Method",
    "Model",
    "Plan",
    "Privacy",
    "RecordPrivacy",
    "Release",
    "Run",
    "SiloView",
    "State",
    "Task",
    "__version__",
    "compare",
    "load",
    "load_run",
    "plan",
    "simulate",
]

#: What a method is written with, and where it stands. Loaded when it is asked for: the task's
#: module needs torch.
_CONTRACT = dict.fromkeys(
    (
        "Answer",
        "ArraySpec",
        "Arrays",
        "Broadcast",
        "Disclosure",
        "Exchange",
        "Folded",
        "Heard",
        "Method",
        "Privacy",
        "RecordPrivacy",
        "Release",
        "SiloView",
        "State",
    ),
    "methods.base",
) | dict.fromkeys(("Evaluation", "Task"), "methods.tasks.base")

Place = str | os.PathLike[str]


def simulate(
    method: Place = "lazymil",
    silos: int | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Run:
    """Run a whole federation on this machine: real processes, real secure sums, and a report.

    `options` are the method's own (`--set` on the command line); `config` names a TOML file with
    settings. The lines that the command line prints are printed here, unless `quiet`. An interrupt
    ends all processes, and `load_run("runs/latest").resume()` goes on.
    """
    return simulated(words({"method": method, "silos": silos, **settings}, options), quiet)


def plan(
    method: Place = "lazymil",
    silos: int | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Plan:
    """What such a run would cost: bytes, memory, epsilon, time. Settings as for `simulate`, and
    `bandwidth` in bytes per second.
    """
    given = {"method": method, "silos": silos, **settings}
    return Plan(read_json(["plan", *words(given, options), "--json"]))


def compare(
    runs: Sequence[Run | Place],
    output: Place = "compare.html",
    *,
    target: float = 0.0,
    bandwidth: float = 1e6,
) -> Path:
    """Finished runs beside each other on one page; those of one method are its seeds. `target`: a
    dev metric, for the rounds and bytes until it is reached.
    """
    from bench.compare import compare_runs

    return compare_runs([_folder(r) for r in runs], Path(output), target, bandwidth)


def load(path: Run | Place) -> Model:
    """The model of a run (or of a run's folder, or of the model/ in one), to `extract` and
    `evaluate` with.
    """
    return Model(_folder(path))


def load_run(path: Place = "runs/latest") -> Run:
    """The run in this folder, finished or not."""
    return Run(path)


def _folder(run: Run | Place) -> Path:
    return run.path if isinstance(run, Run) else Path(run)


def __getattr__(name: str) -> Any:
    if name in _CONTRACT:
        return getattr(importlib.import_module(_CONTRACT[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("sottovoce")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
