"""What `sottovoce extract` reads: sentences with two marked entities, from files, folders or
standard input.

* **Plain text**, one sentence a line, its entities marked: `<e1:drug>aspirin</e1> prevents
  <e2:disease>stroke</e2> .` The type may be left out. `e1` is the head of the relation, whichever
  comes first.
* **JSON lines**: `{"text": "…", "head": {"start": 0, "end": 7, "type": "drug"}, "tail": {…}}`, or,
  for every ordered pair of several, `{"text": "…", "entities": [{"start": 0, "end": 7, "type":
  "drug"}, …]}`. Offsets count characters, the end is exclusive. `id` is kept if it is there.
* **PubTator**, and **BRAT** (`x.txt` with `x.ann`): every ordered pair of entities that one
  sentence mentions.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

from config.errors import UserError
from corpora.notes import Notes
from corpora.sentence.table import Example
from corpora.splitting import sentence_spans
from extract.read_texts import Given, Text, has_entities, parsed

__all__ = ["Candidate", "read_candidates"]

_MARK = re.compile(r"<(/?)e([12])(?::([^<>]*))?>")
_SUFFIXES = (".txt", ".jsonl", ".json", ".pubtator")
_HINT = (
    'mark them as in "<e1:drug>aspirin</e1> prevents <e2:disease>stroke</e2>", or give JSON lines'
)


@dataclass(frozen=True)
class Candidate:
    """One sentence with a pair of entities of which nobody knows yet how they are related."""

    id: str
    example: Example  #: its relation is empty


def read_candidates(paths: Sequence[str | Given], notes: Notes | None = None) -> list[Candidate]:
    """All candidates of the files, of the .txt and .jsonl files of folders, of standard input
    ("-"), and of what is given as it is. `notes` are told what was repaired.
    """
    found: list[Candidate] = []
    notes = Notes() if notes is None else notes
    for path in paths:
        for name, raw in _contents(path):
            before = len(found)
            found += _parsed(name, raw, notes)
            if len(found) == before:
                raise UserError(f'"{name}" is empty: there is no sentence to read in it.')
    return found


def _contents(path: str | Given) -> Iterator[tuple[str, bytes]]:
    if isinstance(path, Given):
        yield path.name, path.content.encode()
        return
    if path == "-":
        yield "standard input", sys.stdin.buffer.read()
        return
    place = Path(path)
    files = [place]
    if place.is_dir():
        files = sorted(p for p in place.iterdir() if p.suffix in _SUFFIXES and p.is_file())
        if not files:
            raise UserError(f'"{path}" is a folder without any {" or ".join(_SUFFIXES)} file.')
    for file in files:
        try:
            yield str(file), file.read_bytes()
        except OSError as e:
            raise UserError(f'"{file}" cannot be read ({e.strerror}).') from None


def _parsed(name: str, raw: bytes, notes: Notes) -> Iterator[Candidate]:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        at = raw[: e.start].count(b"\n") + 1
        raise UserError(
            f"{name}, line {at}: byte {e.start} is not UTF-8; convert the file to UTF-8."
        ) from None
    if has_entities(name, text):
        beside = Path(name).with_suffix(".ann")
        for whole in parsed(name, text, beside if beside.is_file() else None, notes):
            yield from _sentences_of(whole)
        return
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            pairs = (
                _json(line)
                if line.lstrip().startswith("{")
                else [(f"{Path(name).name}:{number}", _marked(line))]
            )
            for k, (id_, example) in enumerate(pairs):
                if problem := example.problem():
                    raise ValueError(problem)
                yield Candidate(
                    id_ or f"{Path(name).name}:{number}" + (f".{k + 1}" if len(pairs) > 1 else ""),
                    example,
                )
        except KeyError as e:
            raise UserError(f"{name}, line {number}: there is no {e} in it.") from None
        except (ValueError, TypeError, AttributeError) as e:
            raise UserError(f"{name}, line {number}: {e}.") from None


def _sentences_of(whole: Text) -> Iterator[Candidate]:
    """Every ordered pair of entities that a sentence of the text mentions, each at its first
    mention there.
    """
    spans = [m for e in whole.entities for m in e.mentions]
    for k, (a, b) in enumerate(sentence_spans(whole.text, spans), 1):
        here = []
        for e in whole.entities:
            inside = [(x - a, y - a) for x, y in e.mentions if a <= x and y <= b]
            here += [(inside[0], e.type)] if inside else []
        for n, (head, tail) in enumerate(permutations(here, 2), 1):
            if head[0] != tail[0]:
                yield Candidate(f"{whole.id}:{k}.{n}", _pair(whole.text[a:b].rstrip(), head, tail))


def _marked(line: str) -> Example:
    plain, at = "", 0
    opened: dict[str, tuple[int, str]] = {}
    spans: dict[str, tuple[tuple[int, int], str]] = {}
    for m in _MARK.finditer(line):
        plain += line[at : m.start()]
        at = m.end()
        closes, which, kind = m[1], m[2], m[3]
        if not closes:
            if which in opened or which in spans:
                raise ValueError(f"<e{which}> stands twice")
            opened[which] = (len(plain), kind or "entity")
        elif which in opened:
            start, kind = opened.pop(which)
            spans[which] = ((start, len(plain)), kind)
        else:
            raise ValueError(f"</e{which}> closes what was not opened")
    plain += line[at:]
    if set(spans) != {"1", "2"}:
        raise ValueError(f"it does not have both entities; {_HINT}")
    (head, head_type), (tail, tail_type) = spans["1"], spans["2"]
    return Example(plain, head, tail, head_type, tail_type, "")


def _json(line: str) -> list[tuple[str, Example]]:
    try:
        item = json.loads(line)
    except json.JSONDecodeError as e:
        raise ValueError(f"not JSON ({e.msg} at character {e.pos + 1})") from None
    text, id_ = item["text"], str(item.get("id", ""))
    if not isinstance(text, str):
        raise ValueError("text must be a string")
    if "entities" in item:
        entities = [_span(e, f"entity {k + 1}") for k, e in enumerate(item["entities"])]
        if len(entities) < 2:
            raise ValueError(f"{len(entities)} entities where at least two are needed")
        pairs = list(permutations(entities, 2))
        return [(f"{id_}.{k + 1}" if id_ else "", _pair(text, *p)) for k, p in enumerate(pairs)]
    return [(id_, _pair(text, _span(item["head"], "head"), _span(item["tail"], "tail")))]


def _span(entity: Any, name: str) -> tuple[tuple[int, int], str]:
    start, end = entity["start"], entity["end"]
    if type(start) is not int or type(end) is not int:
        raise ValueError(f"start and end of the {name} must be whole numbers")
    return (start, end), str(entity.get("type") or "entity")


def _pair(
    text: str, head: tuple[tuple[int, int], str], tail: tuple[tuple[int, int], str]
) -> Example:
    return Example(text, head[0], tail[0], head[1], tail[1], "")
