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

__all__ = ["Given", "Text", "has_entities", "parsed", "read_texts"]

_SUFFIXES = (".txt", ".jsonl", ".json", ".pubtator")
_PUBTATOR = re.compile(r"^[^|\s]+\|t\|", re.MULTILINE)
_STANDOFF = re.compile(r"T\d+\t(\S+) (\d+) (\d+(?:;\d+ \d+)*)(?:\t.*)?$")


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


def read_texts(paths: Sequence[str | Given]) -> list[Text]:
    found: list[Text] = []
    for path in paths:
        for name, raw, beside in _contents(path):
            text = _decoded(name, raw)
            if not text.strip():
                raise UserError(f'"{name}" is empty: there is no text to read in it.')
            before = len(found)
            found += parsed(name, text, beside)
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


def parsed(name: str, text: str, beside: Path | None) -> Iterator[Text]:
    """The texts of one file's content; `beside`: its .ann file."""
    if _PUBTATOR.search(text):
        yield from _pubtator(name, text)
    elif text.lstrip().startswith("{"):
        yield from _json_lines(name, text)
    elif beside is not None:
        yield Text(Path(name).stem, text, tuple(_standoff(beside, text)))
    else:
        yield Text(Path(name).stem if name != "standard input" else "stdin", text, (), plain=True)


def _pubtator(name: str, text: str) -> Iterator[Text]:
    # the reader reads files; an error must name the user's
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "texts"
        copy.write_text(text, "utf-8")
        try:
            raws = pubtator.read(copy, Notes())
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


def _standoff(path: Path, text: str) -> Iterator[Entity]:
    """The T lines of a BRAT file, one entity per type and words."""
    spans: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for number, line in enumerate(_decoded(str(path), path.read_bytes()).split("\n"), 1):
        if not line.startswith("T"):
            continue  # relations, attributes, notes
        match = _STANDOFF.match(line.rstrip("\r"))
        if match is None:
            raise UserError(
                f'{path}, line {number}: not an entity of BRAT ("T1", type, start and end).'
            )
        # a broken span from its first to its last part
        start, end = int(match[2]), int(re.split("[; ]", match[3])[-1])
        if not 0 <= start < end <= len(text):
            raise UserError(
                f"{path}, line {number}: the span {start}-{end} does not lie in a text of {len(text)} characters."
            )
        spans.setdefault((match[1], text[start:end].lower()), []).append((start, end))
    for k, ((kind, _), where) in enumerate(spans.items(), 1):
        yield Entity(f"E{k}", kind, tuple(sorted(set(where))))


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
