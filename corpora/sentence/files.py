"""The files of a sentence-relation corpus in a folder, in each of the published formats, as examples
by split.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from config.errors import UserError
from corpora.json_rows import json_rows
from corpora.lines import first_line, lines, plain_name
from corpora.notes import Notes
from corpora.sentence import folders
from corpora.sentence import one_a_line as by_line
from corpora.sentence.table import Example
from corpora.splits import Assigned, assign, is_own

__all__ = ["PGR_HEADER", "Splits", "read_files"]

_JSON = {"jsonl": by_line.own, "chemprot": by_line.chemprot}
_LINE = {**_JSON, "blinded": by_line.blinded}
_ENDINGS = {"ddi": (".xml",), "i2b2": (".txt", ".con", ".rel")}
PGR_HEADER = "FILE_ID\tSENTENCE\t"
Splits = dict[str, list[Example]]


def read_files(folder: Path, kind: str, notes: Notes) -> tuple[Splits, Assigned]:
    """Train, test and dev (empty if there is none), and which file became what."""
    splits: Splits = {"dev": []}
    if kind == "biocreative":
        return _biocreative(folder, notes)
    if kind in _ENDINGS:
        return _folders(folder, kind, notes)
    found = assign(folder, lambda p: is_own(folder, p))
    found.need("train", "test")
    if kind == "pgr":
        return _pgr(found, notes), found
    for split, files in found.files.items():
        splits[split] = [e for p in files for e in _examples(p, _rows(p, kind, notes), _LINE[kind])]
    return splits, found


def _folders(folder: Path, kind: str, notes: Notes) -> tuple[Splits, Assigned]:
    """i2b2 and DDI: every document is a file, or three."""

    def wanted(path: Path) -> bool:
        return plain_name(path).endswith(_ENDINGS[kind])

    found = assign(folder, wanted, document_files=True)
    if kind == "ddi":
        own = {
            s: tuple(p for p in f if not folders.is_other_task(p.relative_to(folder)))
            for s, f in found.files.items()
        }
        # a folder may be called so and hold nothing else
        own = {split: some or found.files[split] for split, some in own.items()}
        for split, files in found.files.items():
            for path in files:
                if path not in own[split]:
                    notes.add("skipped", "files of the task that finds drug names", place=str(path))
        found = replace(found, files=own)
    found.need("train", "test")
    for path in found.unsplit:
        notes.add("skipped", "files outside of the splits' folders", place=str(path))
    read = folders.ddi if kind == "ddi" else lambda files: folders.i2b2(files, notes)
    return {"dev": [], **{s: read(files) for s, files in found.files.items()}}, found


def _of_the_task(found: Assigned, notes: Notes) -> Assigned:
    """DDI-2013 without the files of its other task."""
    own: dict[str, tuple[Path, ...]] = {}
    for split, files in found.files.items():
        other = {p for p in files if folders.is_other_task(p.relative_to(found.folder))}
        if len(other) == len(files):
            other = set()  # a folder may be called so and hold all there is
        own[split] = tuple(p for p in files if p not in other)
        for path in sorted(other):
            notes.add("skipped", "files of the task that finds drug names", place=str(path))
    return replace(found, files=own)


def _examples(
    path: Path, rows: Iterable[tuple[int, Any]], parse: Callable[[Any], Example]
) -> Iterator[Example]:
    """Every example of a file; a row that `parse` refuses is named by its line."""
    for number, row in rows:
        try:
            example = parse(row)
            if example.problem():
                raise ValueError(example.problem())
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as e:
            what = f"missing {e}" if isinstance(e, KeyError) else str(e)
            raise UserError(
                f"{path}, line {number}: not an example of this format: {what}."
            ) from None
        yield example


def _table(path: Path, header: str, notes: Notes) -> Iterator[tuple[int, str]]:
    """Lines with something in them; the first is passed over if it begins with `header`."""
    for number, line in lines(path, notes):
        if line.strip() and not (number == 1 and line.lower().startswith(header.lower())):
            yield number, line


def _rows(path: Path, kind: str, notes: Notes) -> Iterator[tuple[int, Any]]:
    return json_rows(path, notes) if kind in _JSON else _table(path, "index\t", notes)


def _biocreative(folder: Path, notes: Notes) -> tuple[Splits, Assigned]:
    """Three files a split. The test files come twice; the second, "_gs", is the gold standard."""

    def better(paths: Sequence[Path]) -> Sequence[Path]:
        return [p for p in paths if "_gs" in p.name.lower()] or paths

    parts = {
        part: assign(
            folder,
            lambda p, part=part: part in plain_name(p) and plain_name(p).endswith(".tsv"),  # type: ignore[misc]
            better=better,
        )
        for part in folders.PARTS
    }
    for some in parts.values():
        some.need("train", "test")
    splits: Splits = {"dev": []}
    named: dict[str, tuple[Path, ...]] = {}
    for split in parts["relations"].files:
        for some in parts.values():
            some.need(split)
            if len(some.files[split]) > 1:
                names = ", ".join(str(p.relative_to(folder)) for p in some.files[split])
                raise UserError(f"{folder} has several files for {split} ({names}); keep one.")
        files = {part: some.files[split][0] for part, some in parts.items()}
        splits[split] = folders.biocreative(files, notes)
        named[split] = tuple(files.values())
    return splits, replace(parts["relations"], files=named)


def _pgr(found: Assigned, notes: Notes) -> Splits:
    """The distantly labelled file to train on; the expert-labelled one for test, its sentences not
    trained on. The test of 2019 has blinded entities, that of 2018 the columns of the training file.
    """

    def read(split: str) -> list[Example]:
        some: list[Example] = []
        for path in found.files.get(split, ()):
            like_train = first_line(path).startswith(PGR_HEADER)
            rows = _table(path, PGR_HEADER if like_train else "index\t", notes)
            some += _examples(path, rows, by_line.pgr if like_train else by_line.blinded)
        return some

    train, test, dev = read("train"), read("test"), read("dev")
    shared = _standing_in(test, {e.text for e in train})
    kept = [e for e in train if e.text not in shared]
    gone = next((e.text for e in train if e.text in shared), "")
    if gone:
        notes.add(
            "skipped",
            "training examples left out whose sentences stand in the test file",
            count=len(train) - len(kept),
            example=gone,
            place=str(found.files["train"][0]),
        )
    return {"train": kept, "test": test, "dev": dev}


def _standing_in(test: list[Example], texts: set[str]) -> set[str]:
    """Those of `texts` that are a test sentence once its two blinded entities are filled in
    again.
    """
    joined, found = "\n".join(texts), set()
    for e in test:
        parts = re.split(r"@[A-Z]+\$", e.text)
        longest = max(parts, key=len)
        # most are not there at all; asking so is a hundred times faster than matching
        if longest not in joined:
            continue
        whole = re.compile(".+?".join(map(re.escape, parts)))
        found |= {t for t in texts if longest in t and whole.fullmatch(t)}
    return found
