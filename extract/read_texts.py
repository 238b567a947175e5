"""Whole texts for `sottovoce extract`, with their entities where these are given: files, folders,
standard input.

* **PubTator** (CDR, BioRED): title, abstract and mentions with their concepts; relations in the
  file are passed over.
* **BRAT**: `x.txt` with `x.ann` beside it. Mentions of one type with the same words are one entity.
* **JSON lines**: `{"id": "1", "text": "…", "entities": [{"type": "drug", "mentions": [[0, 7], [31,
  38]]}, …]}`; an entity of one mention may give `"start"` and `"end"` instead. Offsets count
  characters, the end is exclusive.
* **Plain text**: a file, or all of standard input, is one text without entities: for models that
  find them.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.errors import UserError
from corpora.document import pubtator
from corpora.document.table import UNLINKED, Entity
from corpora.notes import Notes
from corpora.standoff import brat, to_documents
from corpora.standoff.offsets import UNPLACED

__all__ = ["Given", "Text", "has_entities", "parsed", "read_texts"]

_SUFFIXES = (".txt", ".jsonl", ".json", ".pubtator")
_PUBTATOR = re.compile(r"^[^|\s]+\|t\|", re.MULTILINE)


@dataclass(frozen=True)
class Text:
    id: str
    text: str
    entities: tuple[Entity, ...]  #: as they were given; none: nobody said
    plain: bool = False  #: no format says anything about entities

    def problem(self) -> str:
        for e in self.entities:
            for start, end in e.mentions:
                if not 0 <= start < end <= len(self.text):
                    return f"the mention {start}-{end} does not lie in a text of {len(self.text)} characters"
        return ""


@dataclass(frozen=True)
class Given:
    """A text that is no file: what a program hands in. Its name stands in ids and errors."""

    name: str
    content: str


def has_entities(name: str, text: str) -> bool:
    """Whether a file is PubTator, or has BRAT's annotation beside it."""
    return bool(_PUBTATOR.search(text)) or (
        name.endswith(".txt") and Path(name).with_suffix(".ann").is_file()
    )


def read_texts(paths: Sequence[str | Given], notes: Notes | None = None) -> list[Text]:
    """`notes` are told what was repaired."""
    found: list[Text] = []
    notes = Notes() if notes is None else notes
    for path in paths:
        for name, raw, beside in _contents(path):
            text = _decoded(name, raw)
            if not text.strip():
                raise UserError(f'"{name}" is empty: there is no text to read in it.')
            before = len(found)
            found += parsed(name, text, beside, notes)
            if len(found) == before:
                raise UserError(f'"{name}" has no text in it.')
    return found


def _contents(path: str | Given) -> Iterator[tuple[str, bytes, Path | None]]:
    """(name, bytes, the .ann file beside it)."""
    if isinstance(path, Given):
        yield path.name, path.content.encode(), None
        return
    if path == "-":
        yield "standard input", sys.stdin.buffer.read(), None
        return
    place = Path(path)
    files = [place]
    if place.is_dir():
        files = sorted(p for p in place.iterdir() if p.suffix.lower() in _SUFFIXES and p.is_file())
        if not files:
            raise UserError(f'"{path}" is a folder without any {", ".join(_SUFFIXES)} file.')
    for file in files:
        try:
            beside = file.with_suffix(".ann")
            yield (
                str(file),
                file.read_bytes(),
                beside if file.suffix == ".txt" and beside.is_file() else None,
            )
        except OSError as e:
            raise UserError(f'"{file}" cannot be read ({e.strerror}).') from None


def _decoded(name: str, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        at = raw[: e.start].count(b"\n") + 1
        raise UserError(
            f"{name}, line {at}: byte {e.start} is not UTF-8; convert the file to UTF-8."
        ) from None


def parsed(name: str, text: str, beside: Path | None, notes: Notes) -> Iterator[Text]:
    """The texts of one file's content; `beside`: its .ann file."""
    if _PUBTATOR.search(text):
        yield from _pubtator(name, text, notes)
    elif text.lstrip().startswith("{"):
        yield from _json_lines(name, text)
    elif beside is not None:
        yield _standoff(Path(name), beside, notes)
    else:
        yield Text(Path(name).stem if name != "standard input" else "stdin", text, (), plain=True)


def _pubtator(name: str, text: str, notes: Notes) -> Iterator[Text]:
    # the reader reads files; an error must name the user's
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "texts"
        copy.write_text(text, "utf-8")
        try:
            raws = pubtator.read(copy, notes)
        except UserError as e:
            raise UserError(str(e).replace(str(copy), name)) from None
    lengths = {raw.id: len(raw.text) for raw in raws}
    for number, line in enumerate(text.split("\n"), 1):
        fields = line.split("\t")
        if (
            len(fields) >= 5
            and fields[1].isdigit()
            and fields[2].isdigit()
            and fields[0] in lengths
        ):
            start, end, most = int(fields[1]), int(fields[2]), lengths[fields[0]]
            if not start < end <= most:
                raise UserError(
                    f"{name}, line {number}: the mention {start}-{end} does not lie in document {fields[0]}, which has "
                    f"{most} characters."
                )
    for raw in raws:
        yield Text(raw.id, raw.text, tuple(pubtator.entities_of(raw)))


def _standoff(path: Path, beside: Path, notes: Notes) -> Text:
    """A text with the mentions of its BRAT file, read as a corpus is; relations are passed over. A
    mention that cannot be placed is refused: nobody would miss its relations.
    """
    told = Notes()
    found = brat.standoff(path, [beside], told)
    for note in told.all():
        if note.what == UNPLACED:
            raise UserError(f"{note.place}: the words {note.example}.")
        if note.kind == "repaired":
            notes.take([note])
    # a broken span from its first to its last part, as a model for documents was taught
    entities, _ = to_documents.entities_of(found, linked=False)
    named = (Entity(f"E{k}", e.type, e.mentions) for k, e in enumerate(entities, 1))
    return Text(path.stem, found.text, tuple(named))


def _json_lines(name: str, text: str) -> Iterator[Text]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
            if not isinstance(item, dict) or not isinstance(item["text"], str):
                raise ValueError("text must be a string")
            if not item["text"].strip():
                raise ValueError("the text is empty")
            entities = tuple(_entity(e, k) for k, e in enumerate(item.get("entities", ()), 1))
            made = Text(
                str(item.get("id") or f"{Path(name).name}:{number}"), item["text"], entities
            )
            if problem := made.problem():
                raise ValueError(problem)
            yield made
        except json.JSONDecodeError as e:
            where = f"({e.msg} at character {e.pos + 1})"
            raise UserError(f"{name}, line {number}: not JSON {where}.") from None
        except KeyError as e:
            raise UserError(f"{name}, line {number}: there is no {e} in it.") from None
        except (ValueError, TypeError, AttributeError) as e:
            raise UserError(f"{name}, line {number}: {e}.") from None


def _entity(e: dict[str, Any], number: int) -> Entity:
    spans = e["mentions"] if "mentions" in e else [[e["start"], e["end"]]]
    for span in spans:
        if len(span) != 2 or any(type(x) is not int for x in span):
            raise ValueError(f"entity {number}: a mention is two whole numbers, start and end")
    if not spans:
        raise ValueError(f"entity {number} has no mention")
    id_ = str(e.get("id") or f"E{number}")
    return Entity(
        f"E{number}" if id_ == UNLINKED else id_,
        str(e.get("type") or "entity"),
        tuple(map(tuple, spans)),
    )
