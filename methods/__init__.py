"""The methods, by name. A method's module is imported when it is asked for, not before: torch takes
a second.

A method module offers `Options` (a frozen dataclass of its own knobs), `CITATION`, `TASKS` (the
tasks it is for, the first being its own) and `build(task, settings, options) -> Method`. It may
offer

* `NETWORK`: which of its task's networks it trains, where the task has several, and
  `RECORD_NETWORK`: which under DP=record, where that is another;
* `PUBLIC`: True if it reads a labelled public set, which is then cut off the training data;
* `BAG_RULE`: how a bag of sentences is scored (`models.bags.RULES`);
* `FULL_SIZE`: the settings with which its paper trains a full-size encoder, where the user says
  nothing else;
* `adjust(settings) -> Settings`: what it needs otherwise than the user said;
* `REFERENCE`: for runs that are no federation, the sentence that every report of them carries;
* `inner_of(options, task) -> str`: the method that it runs, which is then handed to `build` too.

Everything else that is true of a method alone is in the `Method` that it builds. Methods from
outside of this package keep the same contract (`methods.outside`; docs/methods.md, "The file").
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from config.errors import UserError, nearest
from config.settings import Settings

if TYPE_CHECKING:
    from methods.base import Disclosure, Exchange, Method
    from methods.tasks.base import Task

__all__ = [
    "METHODS",
    "Description",
    "MethodFile",
    "adjusted",
    "bag_rule_of",
    "build",
    "check_options",
    "default_corpus",
    "describe",
    "find",
    "names",
    "network_of",
    "options",
    "paper_settings",
    "task_knobs",
    "tasks_of",
    "uses_public",
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
class MethodFile:
    """A method's module, wherever it is from."""

    name: str
    module: ModuleType
    digest: str = ""  #: SHA-256 of its file, where that is not of this package


@dataclass(frozen=True)
class Description:
    name: str
    summary: str  #: the first paragraph of the module's docstring
    citation: str
    tasks: tuple[str, ...]
    options: Mapping[str, Any]  #: knob -> default
    reference: str = ""  #: the sentence that reports of runs that are no federation must carry
    digest: str = ""  #: of the file of a method from outside


def names() -> tuple[str, ...]:
    """The package's own, then those of installed packages."""
    from methods.outside import installed

    return (*METHODS, *sorted(set(installed()) - set(METHODS)))


def find(method: str) -> MethodFile:
    """By a name of ours, by an entry point's name, or by the path of a file."""
    if method.endswith(".py"):
        return _from_file(Path(method))
    if method in METHODS:
        return MethodFile(method, importlib.import_module(METHODS[method]))
    from methods.outside import installed, load_installed

    offered = installed()
    if method in offered:
        return MethodFile(method, *load_installed(offered[method]))
    near = nearest(method, names())
    if "Did you mean" not in near:
        near += " A method of your own is named by its file: METHOD=path/to/mine.py."
    raise UserError(f'Unknown method "{method}".{near}')


def _from_file(path: Path) -> MethodFile:
    from methods.outside import load_file

    if path.stem in METHODS:
        raise UserError(
            f'"{path}" has the name of a method of this package, "{path.stem}"; rename the file.'
        )
    return MethodFile(path.stem, *load_file(path.resolve()))


def tasks_of(method: str) -> tuple[str, ...]:
    return tuple(find(method).module.TASKS)


def default_corpus(method: str) -> str:
    """The built-in corpus a method runs on when none is named."""
    return _CORPUS[tasks_of(method)[0]]


def describe(method: str) -> Description:
    f = find(method)
    paragraph = (f.module.__doc__ or "").strip().split("\n\n")[0]
    return Description(
        name=f.name,
        summary=" ".join(paragraph.split()),
        citation=f.module.CITATION,
        tasks=tuple(f.module.TASKS),
        options=_defaults(f.module.Options),
        reference=getattr(f.module, "REFERENCE", ""),
        digest=f.digest,
    )


def adjusted(settings: Settings) -> Settings:
    """The settings as the method needs them: references without a federation override silos, runner
    and masking.
    """
    adjust = getattr(find(settings.method).module, "adjust", None)
    return settings if adjust is None else adjust(settings)


def network_of(method: str, default: str, record: bool = False) -> str:
    """Which of its task's networks a method trains. `record`: under DP=record, where a method may
    have another.
    """
    module = find(method).module
    own = getattr(module, "NETWORK", default)
    return str(getattr(module, "RECORD_NETWORK", own) if record else own)


def bag_rule_of(method: str, given: Mapping[str, Any]) -> str:
    """How a method scores a bag of sentences (`models.bags.RULES`); a reference as what it runs."""
    module = find(method).module
    if hasattr(module, "inner_of"):
        return bag_rule_of(module.inner_of(options(method, "distant", given), "distant"), {})
    return str(getattr(module, "BAG_RULE", "one"))


def paper_settings(method: str, task: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a method's paper sets with a full-size encoder; a reference as what it runs."""
    module = find(method).module
    if hasattr(module, "inner_of"):
        return paper_settings(module.inner_of(options(method, task, given), task), task, {})
    return dict(getattr(module, "FULL_SIZE", {}))


def uses_public(method: str, given: Mapping[str, Any]) -> bool:
    """Whether a method reads a public set of labelled sentences; a reference as what it runs."""
    module = find(method).module
    if hasattr(module, "inner_of"):
        return uses_public(module.inner_of(options(method, "sentence", given), "sentence"), {})
    return bool(getattr(module, "PUBLIC", False))


def _defaults(knobs: type) -> dict[str, Any]:
    assert is_dataclass(knobs)
    return {f.name: getattr(knobs(), f.name) for f in fields(knobs)}


def _known(method: str, task: str) -> tuple[dict[str, Any], dict[str, Any]]:
    own = _defaults(find(method).module.Options)
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
            name = find(method).name
            if key in Settings.__dataclass_fields__:
                raise UserError(f'"{key}" is a setting and no option: say {key.upper()}={value}.')
            raise UserError(f'The method "{name}" has no option "{key}".{nearest(key, known)}')
        _typed(key, value, known[key])


def options(method: str, task: str, given: Mapping[str, Any]) -> Any:
    """The method's `Options` with what was given of them."""
    check_options(method, task, given)
    own, _ = _known(method, task)
    return find(method).module.Options(
        **{k: _typed(k, v, own[k]) for k, v in given.items() if k in own}
    )


def task_knobs(task: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the given options that are the task's own."""
    shared = _defaults(importlib.import_module(_KNOBS[task]).Knobs)
    return {k: _typed(k, v, shared[k]) for k, v in given.items() if k in shared}


def build(method: str, task: Task, settings: Settings) -> Method:
    """The method of that name for this task, its options and its privacy checked."""
    from methods.base import Method
    from methods.common.public_start import with_public_start
    from methods.dp.coverage import check
    from methods.outside import blamed

    f = find(method)
    if task.name not in f.module.TASKS:
        raise UserError(
            f'The method "{f.name}" is for {" and ".join(f.module.TASKS)}, not for {task.name}.'
        )
    own = options(method, task.name, settings.options)
    handed = {}
    if hasattr(f.module, "inner_of"):
        handed["inner"] = _inner(f, own, task, settings)
    try:
        built = f.module.build(task, settings, own, **handed)
    except Exception as error:
        raise blamed(method, "build", error) from None
    if not isinstance(built, Method):
        raise UserError(
            f'The method "{f.name}": its build returned {type(built).__name__}, not a Method.'
        )
    for e in built.exchanges:  # else nothing would hold a silo's weight below one
        if e.weight_cap != 1.0 and not any(spec.public_count for spec in e.masked.values()):
            raise UserError(
                f'The method "{f.name}": its exchange "{e.name}" has a weight_cap and declares no '
                "masked array as public_count."
            )
    if settings.keep_optimizer:
        built = _with_kept_optimizers(built)
    if f.digest:  # two files may give themselves one name; what was agreed on is this one
        built = replace(built, name=f.name, digest=f.digest)
    if "inner" in handed and handed["inner"].digest:  # what a reference runs is agreed on too
        both = f"{f.digest}/{handed['inner'].digest}"
        built = replace(built, digest=hashlib.sha256(both.encode()).hexdigest())
    built = check(built, task, settings)
    return with_public_start(built, task, settings.silos) if settings.public else built


#: KEEP_OPTIMIZER: how a coordinator that lies could make a sum one silo's own.
_STILLED = (
    "the coordinator lies and shows the others models of its own making in rounds without this silo, "
    "so that what their optimizers keep leaves them still"
)


def _with_kept_optimizers(method: Method) -> Method:
    """What silos keep between rounds decides how far they move, and no sum's context binds it: the
    disclosures of what training moved say so.
    """

    def said(d: Disclosure, exchange: Exchange) -> Disclosure:
        counts = {k.split("/")[0] for k, spec in exchange.masked.items() if spec.public_count}
        if d.channel != "masked" or d.unless or d.name in counts:
            return d
        reveals = d.reveals.removeprefix("nothing of one silo alone; ")
        return replace(d, unless=_STILLED, reveals=reveals)

    exchanges = tuple(
        replace(e, disclosures=tuple(said(d, e) for d in e.disclosures)) for e in method.exchanges
    )
    return replace(method, exchanges=exchanges)


def _inner(f: MethodFile, own: Any, task: Task, settings: Settings) -> Method:
    """The method that the reference `f` was told to run, with the options that are its own.

    A reference has no use for a budget, and says so itself; what it runs is built without one.
    """
    of = f.module.inner_of(own, task.name)
    candidates = [n for n in names() if not hasattr(find(n).module, "REFERENCE")]
    if of not in candidates and not of.endswith(".py"):
        raise UserError(
            f'Option "of" of the method "{f.name}" must be a method, not "{of}".{nearest(of, candidates)}'
        )
    mine = set(_defaults(f.module.Options))
    given = {k: v for k, v in settings.options.items() if k not in mine}
    return build(of, task, replace(settings, options=given, dp="off", public="", public_epochs=0))
