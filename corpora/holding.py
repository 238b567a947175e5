"""What one party of a consortium holds of a study's data, under the names that the study gives.

A silo has training data and no test. The coordinator has held-out data to score on and no training
data. The study names the classes: a party's data may lack some of them, and a class that the study
does not name is counted and refused, or mapped by the party's own file; it never becomes a class of
its own.

`load` of each task says with `reading` what is held. The readers of all formats ask here what
may be missing, and need not hand it from one to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from config.errors import UserError, nearest
from corpora.lines import lines
from corpora.notes import Note, Notes
from corpora.relations import is_none

if TYPE_CHECKING:
    from corpora.splits import Assigned

__all__ = [
    "Holding",
    "Unnamed",
    "held",
    "may_lack",
    "now",
    "only_held",
    "read_mapping",
    "reading",
    "tells",
]

T = TypeVar("T")
_SHOWN = 12  #: classes that an error names


class Unnamed(UserError):
    """Nobody named the classes of these data; `found` are those that they have."""

    def __init__(self, found: Iterable[str], where: str) -> None:
        super().__init__(f"{where} has no class at all.")
        self.found = tuple(sorted(found))


@dataclass(frozen=True)
class Holding:
    task: str
    #: in the order of the model's outputs; none: `names` raises `Unnamed` with those of the data
    classes: tuple[str, ...]
    holds: Literal["train", "held-out", "nothing"]
    none: str = ""  #: the class that says there is no relation
    tags: tuple[str, ...] = ()  #: NER: the types that this silo annotates; empty: those it has
    #: this party's names -> the study's; nothing: left out
    mapping: Mapping[str, str] = field(default_factory=dict)

    def source(self) -> dict[str, Any]:
        """For a corpus's place in the cache."""
        return {**vars(self), "mapping": dict(self.mapping)}

    @property
    def usual(self) -> tuple[str, ...]:
        """The classes that this party's data may have."""
        return self.tags or self.classes

    def names(self, found: Mapping[str, int], where: str, notes: Notes) -> dict[str, str]:
        """The study's name for every class that was found; nothing for those left out. `found`:
        class -> how often. Raises UserError with all that the study does not name.
        """
        if not self.classes:
            raise Unnamed(found, where)
        if odd := sorted(set(self.mapping.values()) - {"", *self.classes}):
            raise UserError(
                f'The mapping of {where} leads to "{odd[0]}", which is no class of the study.'
                f"{nearest(odd[0], self.classes)}"
            )
        made: dict[str, str] = {}
        unknown: dict[str, int] = {}
        for name, count in found.items():
            to = self.mapping.get(name, name)
            if to == name and name not in self.classes and self.none and is_none(name):
                to = self.none
            if to and to not in self.usual:
                unknown[name] = count
            elif to != name:
                what = f'"{name}" was read as "{to}"' if to else f'"{name}" was left out'
                notes.add("merged" if to else "skipped", what, count=count)
            made[name] = to
        for name in sorted(set(self.mapping) - set(found)):
            notes.add("said", f'the mapping names "{name}", which these data do not have')
        if unknown:
            raise UserError(self._unknown(unknown, where))
        return made

    def _unknown(self, unknown: Mapping[str, int], where: str) -> str:
        often = sorted(unknown, key=lambda name: (-unknown[name], name))
        listed = ", ".join(f'"{name}" ({unknown[name]})' for name in often[:_SHOWN])
        listed += f" and {len(often) - _SHOWN} more" * (len(often) > _SHOWN)
        whose = "that this silo annotates by the study" if self.tags else "that the study names"
        return (
            f"{where} has classes beside those {whose} ({', '.join(self.usual)}): {listed}. Map "
            f'them with a file (mapping = "classes.txt", a line "{often[0]} = {self.usual[-1]}" '
            "each; nothing after the = leaves them out)."
        )


_NOW: ContextVar[Holding | None] = ContextVar("holding", default=None)


@contextmanager
def reading(holding: Holding | None) -> Iterator[None]:
    token = _NOW.set(holding)
    try:
        yield
    finally:
        _NOW.reset(token)


def now() -> Holding | None:
    """What is held of what is being read; None: a whole corpus."""
    return _NOW.get()


def may_lack(split: str) -> bool:
    """Whether this party need not have this split. None is made up for it then, either."""
    holding = now()
    if holding is None or holding.holds == "nothing":
        return holding is not None
    return split == "train" if holding.holds == "held-out" else split in ("dev", "test")


def held(files: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """For `Reading`: a split that this party lacks was not cut from another."""
    return {split: names for split, names in files.items() if names or not may_lack(split)}


def tells(splits: Mapping[str, Sequence[T]]) -> Sequence[T]:
    """The split that tells what is asked for: the training split, or what a coordinator has."""
    if splits.get("train") or not may_lack("train"):
        return splits["train"]
    return [*splits.get("dev", ()), *splits.get("test", ())]


def only_held(found: Assigned) -> Assigned:
    """Without the files that a silo does not use; a split that may be lacking is there, and empty."""
    holding = now()
    if holding is None:
        return found
    files, notes = dict(found.files), list(found.notes)
    if holding.holds == "train":
        for split in ("dev", "test"):
            for path in files.pop(split, ()):
                text = "files to score on, which a silo does not do"
                notes.append(Note("skipped", text, place=str(path)))
    empty: Iterable[str] = (s for s in ("train", "dev", "test") if may_lack(s) and s not in files)
    return replace(found, files={**files, **dict.fromkeys(empty, ())}, notes=tuple(notes))


def read_mapping(path: Path, told_by: str = "mapping") -> dict[str, str]:
    """`Name = Other` a line; `#` begins a remark. `told_by`: what named the file."""
    if not path.is_file():
        raise UserError(f"{told_by}: the label-mapping file {path} does not exist.")
    found: dict[str, str] = {}
    for number, line in lines(path):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        name, equals, other = (part.strip() for part in text.partition("="))
        if not equals or not name or name in found:
            raise UserError(
                f'{path}, line {number}: "Name = Other name" is expected, each name once.'
            )
        found[name] = other
    return found
