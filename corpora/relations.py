"""What a file says the relation is: a name, a list of names, or one of the words for none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["is_none", "named_none", "names_of"]

#: As the usual corpora write that there is no relation: OpenNRE, TACRED, SemEval-2010, GIDS, ours.
_NONE = frozenset(
    {"na", "n/a", "none", "null", "no_relation", "no relation", "no-relation", "norelation"}
    | {"other", "unknown", "not_related", "unrelated", "false"}
)


def is_none(name: str) -> bool:
    return name.strip().casefold() in _NONE


def named_none(names: Iterable[str]) -> str:
    """The one of these names that says there is no relation; empty where none or several do."""
    found = sorted({n for n in names if is_none(n)})
    return found[0] if len(found) == 1 else ""


def names_of(value: Any) -> tuple[str, ...]:
    """One name, or those of a list; nothing at all is no relation. ValueError for anything else."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(v, str) for v in value):
        return tuple(dict.fromkeys(value))
    raise ValueError(f"the relation is {value!r}, which is neither a name nor a list of names")
