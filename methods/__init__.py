"""The methods, by name. A method's module is imported when it is asked for, not before: torch takes
a second.

A method module offers `Options` (a frozen dataclass of its own knobs), `CITATION`, `TASKS` (the
tasks it is for, the first being its own) and `build(task, settings) -> Method`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from config.errors import UserError, nearest

if TYPE_CHECKING:
    from config.settings import Settings
    from methods.base import Method
    from methods.tasks.base import Task

__all__ = [
    "METHODS",
    "Description",
    "adjusted",
    "bag_rule_of",
    "build",
    "build_inner",
    "check_options",
    "default_corpus",
    "describe",
    "module",
    "names",
    "options",
    "task_knobs",
    "tasks_of",
]

METHODS: Mapping[str, str] = {
    "lazymil": "methods.lazymil",
    "fedavg": "methods.fedavg",
    "one": "methods.one",
    "ave": "methods.ave",
    "att": "methods.att",
    "att_ra": "methods.att_ra",
    "centralised": "methods.centralised",
    "local": "methods.local",
    "feded": "methods.feded",
    "fedcmc": "methods.fedcmc",
    "fedprox": "methods.fedprox",
    "scaffold": "methods.scaffold",
    "fedatt": "methods.fedatt",
    "moon": "methods.moon",
    "fedrs": "methods.fedrs",
    "fedlc": "methods.fedlc",
    "public_only": "methods.public_only",
    "fedlcc": "methods.fedlcc",
    "fedner": "methods.fedner",
    "fadv_ganin": "methods.fadv_ganin",
    "fadv_peng": "methods.fadv_peng",
    "fadv_hong": "methods.fadv_hong",
    "tagger": "methods.tagger",
}

#: The built-in corpus of each task, and where the task's own knobs (`Knobs`) stand.
_CORPUS = {"distant": "distant", "sentence": "sentence", "document": "document", "ner": "ner"}
_KNOBS = {t: f"methods.tasks.{t}" for t in _CORPUS}


@dataclass(frozen=True)
class Description:
    name: str
    summary: str  #: first line of the module's docstring
    citation: str
    tasks: tuple[str, ...]
    options: Mapping[str, Any]  #: knob -> default
    #: for runs that are no federation: the sentence that every report of them must carry
    reference: str = ""


def names() -> tuple[str, ...]:
    return tuple(METHODS)


def module(name: str) -> ModuleType:
    if name not in METHODS:
        raise UserError(f'Unknown method "{name}".{nearest(name, METHODS)}')
    return importlib.import_module(METHODS[name])


def tasks_of(name: str) -> tuple[str, ...]:
    return tuple(module(name).TASKS)


def default_corpus(name: str) -> str:
    """The built-in corpus a method runs on when none is named."""
    for task in tasks_of(name):
        if task in _CORPUS:
            return _CORPUS[task]
    raise UserError(f'The method "{name}" has no built-in corpus; name one.')


def describe(name: str) -> Description:
    m = module(name)
    summary = (m.__doc__ or "").strip().splitlines()[0]
    return Description(
        name, summary, m.CITATION, tuple(m.TASKS), _defaults(m.Options), getattr(m, "REFERENCE", "")
    )


def adjusted(settings: Settings) -> Settings:
    """The settings as the method needs them: references without a federation override silos, runner
    and masking.
    """
    adjust = getattr(module(settings.method), "adjust", None)
    return settings if adjust is None else adjust(settings)


def bag_rule_of(name: str, given: Mapping[str, Any]) -> str:
    """How a method scores a bag of sentences (`models.bags.RULES`)."""
    m = module(name)
    return m.bag_rule(given) if hasattr(m, "bag_rule") else getattr(m, "BAG_RULE", "one")


def build_inner(name: str, of: str, task: Task, settings: Settings) -> Method:
    """The method that the reference `name` was told to run."""
    candidates = [
        n for n, path in METHODS.items() if not hasattr(importlib.import_module(path), "REFERENCE")
    ]
    if of not in candidates:
        raise UserError(
            f'Option "of" of the method "{name}" must be a method, not "{of}".{nearest(of, candidates)}'
        )
    own = {k: v for k, v in settings.options.items() if k != "of"}
    return build(of, task, replace(settings, options=own))


def _defaults(knobs: type) -> dict[str, Any]:
    assert is_dataclass(knobs)
    return {f.name: getattr(knobs(), f.name) for f in fields(knobs)}


def _known(method: str, task: str) -> tuple[dict[str, Any], dict[str, Any]]:
    own = _defaults(module(method).Options)
    shared = _defaults(importlib.import_module(_KNOBS[task]).Knobs) if task in _KNOBS else {}
    return own, shared


def _typed(key: str, value: Any, default: Any) -> Any:
    """`value` as the type of the default; whole numbers pass for fractions, nothing else passes for
    anything.
    """
    wanted = type(default)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not wanted:
        kinds = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
        raise UserError(
            f'Option "{key}" must be {kinds.get(wanted, wanted.__name__)}, not {value!r}.'
        )
    return value


def check_options(method: str, task: str, given: Mapping[str, Any]) -> None:
    """Refuse options that neither the method nor its task knows, or of the wrong type."""
    own, shared = _known(method, task)
    for key, value in given.items():
        known = own | shared
        if key not in known:
            raise UserError(f'The method "{method}" has no option "{key}".{nearest(key, known)}')
        _typed(key, value, known[key])


def options(method: str, task: str, given: Mapping[str, Any]) -> Any:
    """The method's `Options` with what was given of them."""
    check_options(method, task, given)
    own, _ = _known(method, task)
    return module(method).Options(**{k: _typed(k, v, own[k]) for k, v in given.items() if k in own})


def task_knobs(task: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the given options that are the task's own."""
    shared = _defaults(importlib.import_module(_KNOBS[task]).Knobs)
    return {k: _typed(k, v, shared[k]) for k, v in given.items() if k in shared}


def build(name: str, task: Task, settings: Settings) -> Method:
    """The method of that name for this task, its options checked."""
    m = module(name)
    if task.name not in m.TASKS:
        raise UserError(f'The method "{name}" is for {" and ".join(m.TASKS)}, not for {task.name}.')
    check_options(name, task.name, settings.options)
    from methods.dp.coverage import check, check_reference

    check_reference(name, settings)
    return check(m.build(task, settings), task, settings)
