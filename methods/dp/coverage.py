"""What a method says of itself under differential privacy, checked before anything runs.

`DP=record` trains with DP-SGD (`methods.dp.dpsgd`): the trained model is private, and what is
computed from it and from public things is free. A method declares every disclosure it makes with
the reason why it is free once training (and, where the method has one, its noisy release) is
charged. A disclosure that is not declared would be a non-private release, so the method is refused.

`DP=silo` puts noise into the secure sum (`silo.noise`), so it is for methods that send nothing but
masked sums and have said that these may carry noise.

A method that declares nothing is refused by name: nothing is noised by guess.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from config.errors import UserError
from config.settings import Settings

if TYPE_CHECKING:
    from methods.base import Exchange, Method
    from methods.tasks.base import Examples, Task

__all__ = [
    "COUNT",
    "RELEASED",
    "TRAINED",
    "check",
    "large_delta",
    "refuse_reference",
    "records_in",
    "unit_of",
    "why_free",
]

# Why a disclosure is free under DP=record, for method files to say.
TRAINED = "computed from the model that DP-SGD trained, which is charged as training"
COUNT = "the number of records, which this guarantee does not protect"
RELEASED = "noised, and charged as a release of its own"

_IN_SUM = "a part of the noisy sum, which is charged as a whole"
_ONE = "one for every silo, whatever its data"
_UNDECLARED = (
    "its file declares no privacy, so nobody has shown what a budget covers "
    '(docs/methods.md, "Privacy")'
)


def why_free(method: Method, exchange: Exchange, disclosure: str, dp: str) -> str:
    """Why a disclosure costs nothing beside what was charged for training or for the sum; empty: it
    does cost.
    """
    if method.privacy is None:
        return ""
    if dp == "record":
        declared = method.privacy.record
        return "" if declared is None else declared.free.get(disclosure, "")
    if dp == "silo" and method.privacy.silo:
        arrays = [s for name, s in exchange.masked.items() if name.split("/")[0] == disclosure]
        return _ONE if arrays and all(s.public_count for s in arrays) else _IN_SUM
    return ""


def unit_of(settings: Settings, task: Task, method: Method) -> str:
    """What is protected, in a word."""
    if settings.dp == "silo":
        return "silo"
    record = method.privacy.record if method.privacy is not None else None
    return record.unit.word if record is not None and record.unit is not None else task.record_unit


def records_in(method: Method, task: Task, data: Examples) -> int:
    """How many records `data` holds, as DP=record counts them."""
    record = method.privacy.record if method.privacy is not None else None
    if record is not None and record.unit is not None:
        return record.unit.count(task, data)
    return int(task.size(data))


def large_delta(settings: Settings, records: int) -> str:
    """A sentence where delta is not below one in so many records; empty: it is."""
    if not records or settings.delta < 1 / records:
        return ""
    return (
        f"delta {settings.delta:g} is not below 1/{records}: a mechanism that published one of this "
        f"silo's {records} records at random would meet such a guarantee; lower DELTA."
    )


def check(method: Method, task: Task, settings: Settings) -> Method:
    """The method as it runs under the settings' privacy, or one sentence why it does not."""
    if settings.dp == "silo":
        _check_silo(method)
    if settings.dp == "record":
        _check_record(method, task)
    return method


def refuse_reference(name: str, settings: Settings, why: str) -> None:
    """A reference says this before it builds another method, which may well run with a budget."""
    if settings.dp != "off":
        raise _refusal(name, settings.dp, why)


def _refusal(name: str, dp: str, why: str) -> UserError:
    return UserError(f'The method "{name}" does not run with DP={dp}: {why}.')


def _check_silo(method: Method) -> None:
    if method.privacy is None or not method.privacy.silo:
        raise _refusal(method.name, "silo", _UNDECLARED)
    sealed = [d.name for d in method.disclosures if d.channel != "masked"]
    if sealed:
        more = f"; {method.privacy.instead}" if method.privacy.instead else ""
        why = (
            f"its {sealed[0]} are read by the coordinator one silo at a time, and noise hides a silo "
            f"only within a sum{more}"
        )
        raise _refusal(method.name, "silo", why)


def _check_record(method: Method, task: Task) -> None:
    if method.privacy is None or method.privacy.record is None:
        raise _refusal(method.name, "record", _UNDECLARED)
    free = method.privacy.record.free
    uncovered = [d.name for d in method.disclosures if d.name not in free]
    if uncovered:
        why = f"nobody has shown that its {uncovered[0]} are covered"
        raise _refusal(method.name, "record", why)
    if not task.record_unit:
        raise UserError(
            f"The {task.name} task does not run with DP=record: nobody has said what its records are."
        )
