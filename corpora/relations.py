"""What a file says the relation is: a name, a list of names, or one of the words for none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from corpora.notes import Notes

__all__ = ["is_none", "names_of", "nones"]

#: As the usual corpora write that there is no relation: OpenNRE, TACRED, GIDS, ours.
_NONE = frozenset(
    {"na", "n/a", "none", "null", "no_relation", "no relation", "no-relation", "norelation"}
    | {"not_related", "unrelated", "false"}
)
#: Some corpora write it so (SemEval-2010). Where one of the words above is there, these are classes.
_PERHAPS = frozenset({"other", "unknown"})


def is_none(name: str) -> bool:
    """Whether a name says that there is no relation, in every corpus."""
    return name.strip().casefold() in _NONE


def nones(names: Iterable[str], own: str, notes: Notes) -> frozenset[str]:
    """Those of a corpus's names that say there is no relation. What had to be guessed is noted;
    `own`, as our own tables write it, is none.
    """
    known = sorted(set(names))
    found = [n for n in known if is_none(n)]
    perhaps = [n for n in known if n.strip().casefold() in _PERHAPS]
    if not found and len(perhaps) == 1:
        found, perhaps = perhaps, []
    for name in found:
        if name != own:
            notes.add("said", f'the relation "{name}" is taken to say that there is none')
    for name in perhaps:
        notes.add("said", f'the relation "{name}" is a class: another may say that there is none')
    return frozenset(found)


def names_of(value: Any) -> tuple[str, ...]:
    """One name, or those of a list; nothing at all is no relation. ValueError for anything else."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(v, str) for v in value):
        return tuple(dict.fromkeys(value))
    raise ValueError(f"the relation is {value!r}, which is neither a name nor a list of names")
