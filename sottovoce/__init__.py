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
    from config.settings import Settings
    from methods.base import (
        Answer,
        Arrays,
        ArraySpec,
        Broadcast,
        Contradiction,
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
        Unit,
    )
    from methods.common.previous import previous_model, remembered
    from methods.common.steps import Steps
    from methods.common.training import load as load_parameters
    from methods.common.training import parameters, specs, train
    from methods.common.weighted import (
        COVERED,
        Aim,
        averaged,
        first_model,
        plain,
        send_model,
        shared_weight,
        uniform_mean,
        update_disclosure,
        updates,
        weight_disclosure,
        weight_spec,
        weighted_mean,
        weighted_update,
    )
    from methods.dp.coverage import COUNT, RELEASED, TRAINED
    from methods.dp.releases import noised, release_grid
    from methods.tasks.base import Evaluation, Task

    __version__: str

__all__ = [
    "Aim",
    "Answer",
    "ArraySpec",
    "Arrays",
    "Broadcast",
    "COUNT",
    "COVERED",
    "Contradiction",
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
    "RELEASED",
    "RecordPrivacy",
    "Release",
    "Run",
    "Settings",
    "SiloView",
    "State",
    "Steps",
    "TRAINED",
    "Task",
    "Unit",
    "__version__",
    "averaged",
    "compare",
    "first_model",
    "load",
    "load_parameters",
    "load_run",
    "noised",
    "parameters",
    "plain",
    "plan",
    "previous_model",
    "release_grid",
    "remembered",
    "send_model",
    "shared_weight",
    "simulate",
    "specs",
    "train",
    "uniform_mean",
    "update_disclosure",
    "updates",
    "weight_disclosure",
    "weight_spec",
    "weighted_mean",
    "weighted_update",
]

#: What a method is written with, by the module that has it. Loaded when it is asked for: most of it
#: needs torch. docs/methods.md explains each.
_CONTRACT = {
    name: module
    for module, names in {
        "config.settings": "Settings",
        "methods.base": "Answer ArraySpec Arrays Broadcast Contradiction Disclosure Exchange Folded Heard Method "
        "Privacy RecordPrivacy Release SiloView State Unit",
        "methods.common.previous": "previous_model remembered",
        "methods.common.steps": "Steps",
        "methods.common.training": "load_parameters parameters specs train",
        "methods.common.weighted": "Aim COVERED averaged first_model plain send_model shared_weight "
        "uniform_mean update_disclosure updates weight_disclosure weight_spec weighted_mean "
        "weighted_update",
        "methods.dp.coverage": "COUNT RELEASED TRAINED",
        "methods.dp.releases": "noised release_grid",
        "methods.tasks.base": "Evaluation Task",
    }.items()
    for name in names.split()
}
#: Where a name of the contract is taken already by the front door itself.
_THERE = {"load_parameters": "load"}

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


def load(path: Run | Place, *, device: str = "auto") -> Model:
    """The model of a run (or of a run's folder, or of the model/ in one), to `extract` and
    `evaluate` with. `device`: cpu, cuda or mps; auto: an accelerator if torch finds one.
    """
    return Model(_folder(path), device)


def load_run(path: Place = "runs/latest") -> Run:
    """The run in this folder, finished or not."""
    return Run(path)


def _folder(run: Run | Place) -> Path:
    return run.path if isinstance(run, Run) else Path(run)


def __getattr__(name: str) -> Any:
    if name in _CONTRACT:
        return getattr(importlib.import_module(_CONTRACT[name]), _THERE.get(name, name))
    if name == "__version__":
        from importlib.metadata import version

        return version("sottovoce")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
