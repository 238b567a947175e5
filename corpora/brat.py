"""BRAT stand-off: `x.txt` with `x.ann` beside it, read once for every task.

An annotation has offsets and the words that it marks. Both are compared. Where they differ (tools
count the carriage returns of a Windows file, or do not; texts were edited), the place of the words
is taken if there is only one in the text, and it is counted. An annotation whose words are nowhere,
or in several places, is left out and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from config.errors import UserError
from corpora.lines import plain_name, read_text
from corpora.notes import Notes
from corpora.splits import data_files

__all__ = ["Marked", "Relation", "Standoff", "annotated", "read_standoff"]

_ENTITY = re.compile(r"(T\S+)\t(\S+) ([\d ;]+)(?:\t(.*))?$")
_RELATION = re.compile(r"(R\S+)\t(\S+) \S+?:([TE]\S+) \S+?:([TE]\S+)\s*$")
_CONCEPT = re.compile(r"N\S+\tReference (\S+) (\S+)(?:\t.*)?$")


@dataclass(frozen=True)
class Marked:
    id: str
    type: str
    pieces: tuple[tuple[int, int], ...]  #: half-open, in the text's order; most have one

    @property
    def start(self) -> int:
        return self.pieces[0][0]

    @property
    def end(self) -> int:
        return self.pieces[-1][1]


@dataclass(frozen=True)
class Relation:
    id: str
    type: str
    head: str  #: id of an entity
    tail: str


@dataclass(frozen=True)
class Standoff:
    """One annotated text. Offsets count its characters."""

    text: str
    entities: tuple[Marked, ...]
    relations: tuple[Relation, ...]
    concepts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  #: by entity
    same: tuple[tuple[str, str], ...] = ()  #: entities that are one thing (Equiv)


def annotated(
    folder: Path, notes: Notes, files: Sequence[Path] = ()
) -> Iterator[tuple[Path, Path]]:
    """(text, annotation) of every document; `files`: only of these, else of all below `folder`.

    A text without an annotation is passed over and counted. An annotation without a text is an
    error: its marks would be lost.
    """
    there = list(files) or data_files(folder)
    texts = {_stem(p): p for p in there if plain_name(p).endswith(".txt")}
    marks = {_stem(p): p for p in there if plain_name(p).endswith(".ann")}
    for stem, path in marks.items():
        if stem not in texts:
            raise UserError(f"{path} has no text beside it: {stem.name}.txt is expected.")
    for stem, path in texts.items():
        if stem in marks:
            yield path, marks[stem]
        else:
            notes.add("skipped", "texts without an .ann file beside them", place=str(path))


def _stem(path: Path) -> Path:
    name = path.name.removesuffix(".gz")
    return path.with_name(name.rpartition(".")[0])


def read_standoff(
    text_file: Path, marks: Path, notes: Notes, more: Sequence[Path] = ()
) -> Standoff:
    """`more`: further files with marks on the same text, as the BioNLP tasks have them."""
    raw = read_text(text_file, notes)
    contents = [(path, read_text(path, notes)) for path in (marks, *more)]
    rows = [(path, *row) for path, content in contents for row in _rows(path, content)]
    text = _as_counted(raw, [(spans, words) for *_, spans, words in rows])
    if text != raw:
        notes.add(
            "repaired",
            "texts have carriage returns that their offsets do not count",
            place=str(text_file),
        )
    entities = []
    for path, number, name, kind, spans, words in rows:
        pieces = _placed(text, spans, words)
        place = f"{path}, line {number}"
        if pieces is None and (not words or spans[-1][1] > len(text)):
            raise UserError(
                f"{place}: the span {spans[0][0]}-{spans[-1][1]} does not lie in {text_file.name}."
            )
        if pieces is None:
            start, end = spans[0][0], spans[-1][1]
            notes.add(
                "skipped",
                "annotations whose words do not stand where their offsets say, nor in one other place",
                example=f"{words!r} at {start}-{end}, where the text has {text[start:end]!r}",
                place=place,
            )
            continue
        if pieces != spans:
            notes.add(
                "repaired",
                "annotations stood elsewhere than their offsets say and were found by their words",
                example=f"{words!r} at {spans[0][0]}, found at {pieces[0][0]}",
                place=place,
            )
        entities.append(Marked(name, kind, pieces))
    relations = [r for path, content in contents for r in _relations(path, content, notes)]
    concepts, same = _identities(contents, notes)
    return Standoff(text, tuple(entities), tuple(relations), concepts, same)


def _identities(
    contents: Sequence[tuple[Path, str]], notes: Notes
) -> tuple[dict[str, tuple[str, ...]], tuple[tuple[str, str], ...]]:
    """Concepts (N) and equivalents (*). Events and attributes are counted; notes (#) are not read."""
    concepts: dict[str, tuple[str, ...]] = {}
    same: list[tuple[str, str]] = []
    for path, content in contents:
        for number, line in enumerate(content.split("\n"), start=1):
            place, line = f"{path}, line {number}", line.rstrip("\r")
            if line.startswith("N"):
                match = _CONCEPT.match(line)
                if match is None:
                    raise UserError(f'{place}: not a concept of BRAT ("N1", Reference T1 concept).')
                concepts[match[1]] = (*concepts.get(match[1], ()), match[2])
            elif line.startswith("*\tEquiv "):
                ends = line.split()[2:]
                same += [(ends[0], other) for other in ends[1:]]
            elif line[:1] in ("E", "A", "M"):
                what = "events, whose triggers are entities" if line[0] == "E" else "attributes"
                notes.add("skipped", what, example=line, place=place)
            elif line.strip() and line[0] not in "TR#*":
                raise UserError(f"{place}: no line of BRAT begins with {line[0]!r}.")
    return concepts, tuple(same)


Row = tuple[int, str, str, tuple[tuple[int, int], ...], str]


def _rows(marks: Path, content: str) -> Iterator[Row]:
    """(line, id, type, spans, words) of every entity."""
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.startswith("T"):
            continue  # relations, attributes, notes
        match = _ENTITY.match(line.rstrip("\r"))
        try:
            if match is None:
                raise ValueError
            spans = [tuple(int(n) for n in part.split()) for part in match[3].split(";")]
            if any(len(s) != 2 or s[0] >= s[1] for s in spans):
                raise ValueError
        except ValueError:
            raise UserError(
                f'{marks}, line {number}: not an entity of BRAT ("T1", type, start and end).'
            ) from None
        pieces = tuple(sorted((s[0], s[1]) for s in spans))
        yield number, match[1], match[2], pieces, (match[4] or "").strip()


def _relations(marks: Path, content: str, notes: Notes) -> Iterator[Relation]:
    for number, line in enumerate(content.split("\n"), start=1):
        if line.startswith("R"):
            match = _RELATION.match(line.rstrip("\r"))
            if match is None:
                raise UserError(
                    f'{marks}, line {number}: not a relation of BRAT ("R1", type, two arguments).'
                )
            if "E" in (match[3][0], match[4][0]):
                place = f"{marks}, line {number}"
                notes.add("skipped", "relations of events", example=line, place=place)
                continue
            yield Relation(match[1], match[2], match[3], match[4])


def _same(found: str, words: str) -> bool:
    """Whether two texts are alike but for blanks and line breaks."""
    return found == words or found.split() == words.split()


def _fits(text: str, spans: tuple[tuple[int, int], ...], words: str) -> bool:
    if spans[-1][1] > len(text):
        return False
    return not words or _same(" ".join(text[a:b] for a, b in spans), words)


def _as_counted(raw: str, rows: Sequence[tuple[tuple[tuple[int, int], ...], str]]) -> str:
    """The text whose characters the offsets count: as it stands, or without carriage returns."""
    if "\r" not in raw:
        return raw
    without = raw.replace("\r\n", "\n")
    fit = [sum(_fits(text, spans, words) for spans, words in rows) for text in (raw, without)]
    return raw if fit[0] >= fit[1] else without


def _placed(
    text: str, spans: tuple[tuple[int, int], ...], words: str
) -> tuple[tuple[int, int], ...] | None:
    """Where the annotation stands; None where that cannot be told."""
    if _fits(text, spans, words):
        return spans
    if not words or len(spans) > 1:
        return None
    pattern = r"\s+".join(map(re.escape, words.split()))
    places = [m.span() for m in re.finditer(pattern, text)]
    return (places[0],) if len(places) == 1 else None
