"""What a reader did to a corpus that its user should know: one record per kind of thing, with a
count and one example.

A reader hands its notes over with what it read. They stand in the corpus's `meta.json`, in
`sottovoce corpus`, in the first lines of a run and in its report. Examples are the user's text:
only `sottovoce corpus` shows them, logs and reports have the words and the counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

__all__ = ["KINDS", "Note", "Notes", "Reading", "sentence_of"]

#: repaired: read otherwise than it stands in the file. cut: taken off a text or a split.
#: merged: several became one. skipped: not read. set aside: kept out of training on purpose.
#: said: nothing was changed, and it matters all the same.
KINDS = ("said", "repaired", "cut", "merged", "skipped", "set aside")
_FILES = 4  #: files of a split that a line names
_EXAMPLE = 160  #: characters of an example


@dataclass(frozen=True)
class Note:
    kind: str  #: one of KINDS
    what: str  #: in words that follow the count: "spans across sentences"
    count: int = 1
    example: str = ""  #: of the user's own text
    place: str = ""  #: the file of the example, and its line where it has one

    def sentence(self) -> str:
        """Without the example: for logs, first lines and reports."""
        if self.kind == "said":
            return self.what
        return (
            f"{self.kind}: {self.count} {self.what}" if self.count else f"{self.kind}: {self.what}"
        )


@dataclass
class Notes:
    """Collects notes while files are read. The first example of each thing is kept."""

    found: dict[tuple[str, str], Note] = field(default_factory=dict)

    def add(
        self, kind: str, what: str, *, example: str = "", place: str = "", count: int = 1
    ) -> None:
        """`count` 0: the sentence has no number in front."""
        if kind not in KINDS:
            raise ValueError(f'no kind of note: "{kind}"')
        if kind == "cut" and not count:
            return  # nothing was
        before = self.found.get((kind, what))
        if before is None:
            shown = " ".join(example.split())
            shown = shown if len(shown) <= _EXAMPLE else shown[: _EXAMPLE - 1] + "…"
            self.found[kind, what] = Note(kind, what, count, shown, place)
        else:
            self.found[kind, what] = Note(
                kind, what, before.count + count, before.example, before.place
            )

    def take(self, notes: Iterable[Note]) -> None:
        for n in notes:
            self.add(n.kind, n.what, example=n.example, place=n.place, count=n.count)

    def count(self, kind: str) -> int:
        return sum(n.count for n in self.found.values() if n.kind == kind)

    def all(self, folder: Path | None = None) -> tuple[Note, ...]:
        """`folder`: places are named from there."""
        root = "" if folder is None else f"{folder}/"
        return tuple(replace(n, place=n.place.removeprefix(root)) for n in self.found.values())


@dataclass(frozen=True)
class Reading:
    """How a corpus came about: the format, which file became which split, what was done to it."""

    format: str = "built-in"
    #: split -> files, named from the corpus's folder; a split that was cut off another has none
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    #: split -> documents, where a unit is less than a document and the files say which is which
    documents: Mapping[str, int] = field(default_factory=dict)

    @property
    def said(self) -> str:
        """Which file became what, in one line: "train from train.tsv; dev cut from train"."""
        return "; ".join(
            f"{split} from {_listed(names)}" if names else f"{split} cut from train"
            for split, names in self.files.items()
        )

    def as_meta(self) -> dict[str, Any]:
        return {
            "format": self.format,
            "files": {split: list(names) for split, names in self.files.items()},
            "notes": [asdict(n) for n in self.notes],
            "documents": dict(self.documents),
        }

    @staticmethod
    def of_meta(meta: Mapping[str, Any]) -> Reading:
        return Reading(
            str(meta["format"]),
            {split: tuple(names) for split, names in meta["files"].items()},
            tuple(Note(**n) for n in meta["notes"]),
            dict(meta["documents"]),
        )


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_FILES])
    return f"{shown} and {len(names) - _FILES} more files" if len(names) > _FILES else shown


def sentence_of(notes: Iterable[Note]) -> str:
    """All notes in one line, without their examples."""
    return "; ".join(n.sentence() for n in notes)
