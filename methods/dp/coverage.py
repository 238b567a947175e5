"""Which methods may run under differential privacy, what of theirs costs nothing then, and why the
others refuse.

`DP=record` trains with DP-SGD (`methods.dp.dpsgd`): the trained model is private, and whatever is
computed from it and from public things is free. A method is listed in `RECORD` with every
disclosure it makes and the reason why it is free once training (and, where the method has one, its
other noisy release) is charged; one that is not listed, or discloses something that is not, cannot
run with a budget: the silo's ledger sees a non-private release. `REFUSED` says why.

`DP=silo` puts noise into the secure sum (`silo.noise`), so it is for methods that send nothing but
masked sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from config.errors import UserError
from config.settings import Settings

if TYPE_CHECKING:
    from methods.base import Method
    from methods.tasks.base import Task

__all__ = [
    "BAG_METHODS",
    "RECORD",
    "REFUSED",
    "check",
    "check_reference",
    "records_in",
    "unit_of",
    "why_free",
]

_TRAINED = "computed from the model that DP-SGD trained, which is charged as training"
_COUNT = "the number of records, which this guarantee does not protect"
_RELEASED = "noised, and charged as a release of its own"
_IN_SUM = "a part of the noisy sum, which is charged as a whole"
_ONE = "one for every silo, whatever its data"

_UPDATE = {"update": _TRAINED}
_WEIGHTED = {"update": _TRAINED, "weight": _COUNT}

#: Method -> disclosure -> why it is free after DP-SGD. Every disclosure of a method must be here.
RECORD: Mapping[str, Mapping[str, str]] = {
    "lazymil": {"values": _RELEASED, "update": _TRAINED},
    "fedavg": _WEIGHTED,
    "one": _UPDATE,
    "ave": _UPDATE,
    "att": _UPDATE,
    "att_ra": _UPDATE,
    "feded": {"predictions": _TRAINED},
    "fedcmc": {**_WEIGHTED, "similarities": _TRAINED, "rows": _TRAINED},
    "fedprox": _WEIGHTED,
    "scaffold": {
        "update": _TRAINED,
        "variate": "the mean of DP-SGD's noisy gradients, which are charged as training",
    },
    "fedatt": {"norms": _TRAINED, "update": _TRAINED},
    "moon": _WEIGHTED,
    "fedrs": _WEIGHTED,
    "fedlc": _WEIGHTED,
    "fedlcc": _UPDATE,
    "fedner": {"target": _RELEASED, "update": _TRAINED},
    "fadv_ganin": _UPDATE,
    "fadv_peng": _UPDATE,
    "fadv_hong": _UPDATE,
    "tagger": _WEIGHTED,
}

#: Those whose record is a bag of sentences.
BAG_METHODS = frozenset({"lazymil", "one", "ave", "att", "att_ra"})

_REFERENCE = "it is a reference, not a federation: its models stand in one place for comparison, without noise"

#: Method -> why it does not run with a budget.
REFUSED: Mapping[str, str] = {
    "centralised": _REFERENCE,
    "local": _REFERENCE,
    "public_only": "no silo trains or sends anything, so there is nothing to protect",
}


def why_free(method: str, disclosure: str, dp: str) -> str:
    """Why a disclosure costs nothing beside what was charged for training or for the sum; empty: it
    does cost.
    """
    if dp == "record":
        return RECORD.get(method, {}).get(disclosure, "")
    if dp == "silo":
        return _ONE if disclosure == "weight" else _IN_SUM
    return ""


def unit_of(settings: Settings, task: Task) -> str:
    """What is protected, in a word."""
    if settings.dp == "silo":
        return "silo"
    return "bag" if settings.method in BAG_METHODS else task.record_unit


def records_in(settings: Settings, task: Any, data: Any) -> int:
    """How many records `data` holds, as DP=record counts them."""
    return len(task.bags(data)) if settings.method in BAG_METHODS else int(task.size(data))


def check(method: Method, task: Task, settings: Settings) -> Method:
    """The method as it runs under the settings' privacy, or one sentence why it does not."""
    if settings.dp == "silo":
        _check_silo(method)
    if settings.dp == "record":
        _check_record(method, task)
    return method


def check_reference(name: str, settings: Settings) -> None:
    """Before the method is built: a reference builds another, which may well run."""
    if settings.dp != "off" and name in REFUSED:
        raise UserError(f'The method "{name}" does not run with DP={settings.dp}: {REFUSED[name]}.')


def _check_silo(method: Method) -> None:
    sealed = [d.name for d in method.disclosures if d.channel != "masked"]
    if sealed:
        more = "; use SET=logits=masked" if method.name == "feded" else ""
        raise UserError(
            f'The method "{method.name}" does not run with DP=silo: its {sealed[0]} are read by the coordinator one '
            f"silo at a time, and noise hides a silo only within a sum{more}."
        )


def _check_record(method: Method, task: Task) -> None:
    free = RECORD.get(method.name)
    if free is None:
        why = "nobody has shown that what it sends is covered"
        raise UserError(f'The method "{method.name}" does not run with DP=record: {why}.')
    open_ = [d.name for d in method.disclosures if d.name not in free]
    if open_:
        raise UserError(
            f'The method "{method.name}" does not run with DP=record: nobody has shown that its {open_[0]} are covered.'
        )
    if not task.record_unit:
        raise UserError(
            f"The {task.name} task does not run with DP=record: nobody has said what its records are."
        )
