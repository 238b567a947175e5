"""Checking what came over the wire, field by field: type, length and bounds, before anything else
looks at it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from crypto.errors import Refusal

__all__ = [
    "MOST_SILOS",
    "blob",
    "entry",
    "items",
    "names",
    "only",
    "real",
    "silo_name",
    "text",
    "whole",
]

MOST_SILOS = 4096
_MOST_NAME = 64
_MOST_WHOLE = 2**63 - 1
_T = TypeVar("_T")


def only(kind: str, record: Any, *fields: str, perhaps: str | None = None) -> Mapping[str, Any]:
    """The record, if it is a mapping with exactly these fields, and `perhaps` this one."""
    if not isinstance(record, Mapping) or set(record) - {perhaps} != set(fields):
        raise Refusal("wrong-shape", f"a {kind} does not have the declared fields")
    return record


def blob(kind: str, value: Any, length: int | None = None, most: int = 0) -> bytes:
    """Bytes of exactly `length`, or of at most `most`."""
    if type(value) is not bytes or (length is not None and len(value) != length):
        raise Refusal(
            "wrong-shape", f"{kind} is not {length if length is not None else 'a string of'} bytes"
        )
    if length is None and len(value) > most:
        raise Refusal("oversize", f"{kind} has {len(value)} bytes, more than {most}")
    return value


def silo_name(value: Any) -> str:
    if (
        type(value) is not str
        or not 1 <= len(value) <= _MOST_NAME
        or not value.isascii()
        or not value.isprintable()
    ):
        raise Refusal("wrong-shape", "a silo's name must be 1 to 64 printable ASCII characters")
    return value


def text(kind: str, value: Any, most: int = _MOST_NAME) -> str:
    if type(value) is not str or len(value) > most or not value.isprintable():
        raise Refusal("wrong-shape", f"{kind} is not a short printable text")
    return value


def whole(kind: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MOST_WHOLE:
        raise Refusal("wrong-shape", f"{kind} is not a whole number from 0 to 2**63 - 1")
    return value


def real(kind: str, value: Any) -> float:
    if type(value) is not float or not math.isfinite(value) or value <= 0:
        raise Refusal("wrong-shape", f"{kind} is not a finite number above zero")
    return value


def items(
    kind: str, value: Any, read: Callable[[Any], _T], most: int = MOST_SILOS
) -> tuple[_T, ...]:
    """A list of at most `most` things, each read by `read`."""
    if not isinstance(value, list | tuple):
        raise Refusal("wrong-shape", f"{kind} is not a list")
    if len(value) > most:
        raise Refusal("oversize", f"{kind} has {len(value)} entries, more than {most}")
    return tuple(read(entry) for entry in value)


def names(kind: str, value: Any) -> tuple[str, ...]:
    """Silo names, sorted and distinct."""
    read = items(kind, value, silo_name)
    if tuple(sorted(set(read))) != read:
        raise Refusal("wrong-shape", f"{kind} is not sorted, or names a silo twice")
    return read


def entry(kind: str, value: Any, length: int) -> Any:
    """A list of exactly so many things."""
    if not isinstance(value, list | tuple) or len(value) != length:
        raise Refusal("wrong-shape", f"{kind} is not a list of {length}")
    return value
