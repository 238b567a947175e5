"""BRAT's stand-off files, and those of the BioNLP shared tasks, which have the same lines.

`x.txt` has the text. BRAT's `x.ann` has all marks; BioNLP's `x.a1` has the given entities, `x.a2`
(and `x.rel`) what was to be found. An annotation has offsets and the words that it marks. Both are
compared (`corpora.standoff.offsets`): tools count the carriage returns of a Windows file or do not,
and texts were edited.

A folder that `sottovoce convert` wrote has a file `sottovoce.json`, which says how its texts are laid
out: sentences on lines, words between blanks, names of files with `%` signs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from config.errors import UserError
from corpora.lines import beginning, plain_name, read_text
from corpora.notes import Notes
from corpora.standoff.offsets import UNPLACED, alike, located
from corpora.standoff.table import Link, Marked, Mention, Span

__all__ = [
    "LAYOUT",
    "MARKS",
    "bionlp",
    "brat",
    "check_texts",
    "may_relate",
    "read_layout",
    "standoff",
    "stem",
]

LAYOUT = "sottovoce.json"
#: format -> endings of the files with marks
MARKS: Mapping[str, tuple[str, ...]] = {"brat": (".ann",), "bionlp": (".a1", ".a2", ".rel")}
_ENTITY = re.compile(r"(T\S+)\t(\S+) ([\d ;]+)(?:\t(.*))?$")
_RELATION = re.compile(r"(R\S+)\t(\S+) \S+?:([TE]\S+) \S+?:([TE]\S+)\s*$")
_CONCEPT = re.compile(r"N\S+\tReference (\S+) (\S+)(?:\t.*)?$")


def brat(path: Path, notes: Notes) -> Iterator[Marked]:
    """`x.txt` with the `x.ann` beside it."""
    yield from _document(path, "brat", notes)


def bionlp(path: Path, notes: Notes) -> Iterator[Marked]:
    """`x.txt` with `x.a1`, and `x.a2` and `x.rel` where they are."""
    yield from _document(path, "bionlp", notes)


def stem(path: Path) -> str:
    return re.sub(r"\.gz$", "", path.name, flags=re.I).rpartition(".")[0]


def check_texts(files: Sequence[Path], kind: str) -> None:
    """Refuses annotations without a text beside them: their marks would be lost."""
    texts = {(p.parent, stem(p)) for p in files if plain_name(p).endswith(".txt")}
    for path in files:
        if plain_name(path).endswith(MARKS[kind]) and (path.parent, stem(path)) not in texts:
            raise UserError(f"{path} has no text beside it: {stem(path)}.txt is expected.")


def may_relate(path: Path) -> bool:
    """Whether a file with marks has a line of a relation."""
    return not plain_name(path).endswith(".txt") and "\nR" in "\n" + beginning(path, -1)


def read_layout(folder: Path) -> dict[str, str]:
    """What `sottovoce convert` says of a folder that it wrote; empty elsewhere. The splits lie one
    folder below.
    """
    path = next((f / LAYOUT for f in (folder, folder.parent) if (f / LAYOUT).is_file()), None)
    if path is None:
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as e:
        raise UserError(f"{path}: cannot be read as JSON ({e}).") from None
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def _document(path: Path, kind: str, notes: Notes) -> Iterator[Marked]:
    if not plain_name(path).endswith(".txt"):
        return  # marks are read with their text
    beside = [path.with_name(f"{stem(path)}{e}{gz}") for e in MARKS[kind] for gz in ("", ".gz")]
    files = [p for p in beside if p.is_file()]
    if not files:
        notes.add("skipped", f"texts without {MARKS[kind][0]} beside them", place=str(path))
        return
    yield standoff(path, files, notes)


def standoff(path: Path, files: Sequence[Path], notes: Notes) -> Marked:
    """The text in `path` with the marks of one file or several."""
    raw = read_text(path, notes)
    rows = [line for file in files for line in _rows(file, read_text(file, notes))]
    entities = [_entity(row) for row in rows if row.kind == "T"]
    text = _as_counted(raw, entities, str(path), notes)
    concepts, same = _identities(rows)
    mentions = []
    for e in entities:
        spans = _placed(e, text, path, notes)
        if spans is not None:
            mentions.append(Mention(e.id, e.type, spans, tuple(concepts.get(e.id, ()))))
    layout = read_layout(path.parent)
    lined = layout.get("sentences") == "lines"
    return Marked(
        unquote(stem(path)) if layout else stem(path),
        text,
        tuple(mentions),
        tuple(_relations(rows, notes)),
        sentences=_runs(r"[^\n]+", text) if lined else (),
        words=_runs(r"\S+", text) if lined else (),
        same=tuple(same),
        place=str(files[0]),
    )


def _runs(pattern: str, text: str) -> tuple[Span, ...]:
    return tuple(m.span() for m in re.finditer(pattern, text))


@dataclass(frozen=True)
class _Row:
    """A line of a file with marks."""

    kind: str  #: its first letter
    line: str
    place: str


def _rows(path: Path, content: str) -> Iterator[_Row]:
    for number, line in enumerate(content.split("\n"), start=1):
        row = _Row(line[:1], line.rstrip("\r"), f"{path}, line {number}")
        if not row.line.strip():
            continue
        if row.kind not in "TRNEAM#*":
            raise UserError(f"{row.place}: no line of BRAT begins with {row.kind!r}.")
        yield row


@dataclass(frozen=True)
class _Entity:
    id: str
    type: str
    spans: tuple[Span, ...]  #: as they are written, in the order of the text
    words: str
    place: str


def _entity(row: _Row) -> _Entity:
    match = _ENTITY.match(row.line)
    try:
        if match is None:
            raise ValueError
        spans = [tuple(int(n) for n in part.split()) for part in match[3].split(";")]
        if any(len(s) != 2 or s[0] >= s[1] for s in spans):
            raise ValueError
    except ValueError:
        raise UserError(
            f'{row.place}: not an entity of BRAT ("T1", type, start and end).'
        ) from None
    pieces = tuple(sorted((s[0], s[1]) for s in spans))
    return _Entity(match[1], match[2], pieces, (match[4] or "").strip(), row.place)


def _identities(rows: Sequence[_Row]) -> tuple[dict[str, list[str]], list[tuple[str, str]]]:
    """Concepts by entity (N), and entities that are one thing (*)."""
    concepts: dict[str, list[str]] = {}
    same: list[tuple[str, str]] = []
    for row in rows:
        if row.kind == "N":
            match = _CONCEPT.match(row.line)
            if match is None:
                raise UserError(f'{row.place}: not a concept of BRAT ("N1", Reference T1 concept).')
            concepts.setdefault(match[1], []).append(match[2])
        elif row.line.startswith("*\tEquiv "):
            first, *others = row.line.split()[2:]
            same += [(first, other) for other in others]
    return concepts, same


def _relations(rows: Sequence[_Row], notes: Notes) -> Iterator[Link]:
    """Relations between entities. Events, their relations and attributes are counted, notes (#) are
    not read.
    """
    for row in rows:
        if row.kind in "EAM":
            what = "events, whose triggers are entities" if row.kind == "E" else "attributes"
            notes.add("skipped", what, example=row.line, place=row.place)
        if row.kind != "R":
            continue
        match = _RELATION.match(row.line)
        if match is None:
            raise UserError(f'{row.place}: not a relation of BRAT ("R1", type, two arguments).')
        if "E" in (match[3][0], match[4][0]):
            notes.add("skipped", "relations of events", example=row.line, place=row.place)
        else:
            yield Link(match[2], match[3], match[4])


def _fits(text: str, e: _Entity) -> bool:
    if e.spans[-1][1] > len(text):
        return False
    return not e.words or alike(" ".join(text[a:b] for a, b in e.spans), e.words)


def _as_counted(raw: str, entities: Sequence[_Entity], place: str, notes: Notes) -> str:
    """The text whose characters the offsets count: as it stands, without carriage returns, or with a
    sign before it (a byte-order mark), which is read as a blank then.
    """
    if all(_fits(raw, e) for e in entities):
        return raw
    plain = raw.replace("\r\n", "\n")
    carriage = "texts have carriage returns that their offsets do not count"
    mark = "texts have offsets that count one sign before the first, as a byte-order mark is"
    ways = {(): raw, (carriage,): plain, (mark,): f" {raw}", (mark, carriage): f" {plain}"}
    fit = {said: sum(_fits(text, e) for e in entities) for said, text in ways.items()}
    best = max(ways, key=lambda said: fit[said])  # the first of equals
    for said in best:
        notes.add("repaired", said, place=place)
    return ways[best]


def _placed(e: _Entity, text: str, path: Path, notes: Notes) -> tuple[Span, ...] | None:
    """Where an annotation stands; None (and counted) where that cannot be told."""
    if _fits(text, e):
        return e.spans
    start, end = e.spans[0][0], e.spans[-1][1]
    # words in several pieces are not looked for: between them anything may stand
    whole = e.words if len(e.spans) == 1 else ""
    found = located(text, start, end, whole, notes, e.place) if whole else None
    if found is None and end > len(text):
        raise UserError(
            f"{e.place}: the span {start}-{end} does not lie in a text of {len(text)} characters "
            f"({path.name})."
        )
    if found is None and not whole:
        notes.add("skipped", UNPLACED, example=f"{e.words!r} at {start}-{end}", place=e.place)
    return None if found is None else (found,)
