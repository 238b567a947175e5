"""Real distant-supervision corpora from a folder the user names, in the format they are published
in.

A split the publisher did not make is held out by entity pair, always the same one: dev from the
training pairs (5 %) where there is none, since nobody may train on what selects the model; for PGR,
which has one file, dev and test (10 and 20 %). Nothing read here is ever copied out of the user's
cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from config.errors import UserError
from corpora.distant import formats
from corpora.distant.gids import gids, is_gids, without_train
from corpora.distant.rows import Row, Rows, held_out, parsed
from corpora.distant.table import Content, Corpus, cached
from corpora.formats import unknown_format
from corpora.holding import Holding, held, may_lack, now, reading
from corpora.json_rows import first_json, json_rows
from corpora.lines import corpus_folder, file_hash, first_line, lines, plain_name, read_json
from corpora.notes import Notes, Reading
from corpora.splits import Assigned, assign, is_own, training_file

__all__ = ["load", "recognise"]

_VERSION = 3  #: part of the cache key: bump it when the same files would give other rows
_DEV_PERCENT = 5
_PGR_HEADER = "FILE_ID\tSENTENCE\t"
_RELATIONS = ("rel2id.json", "relation2id.txt")
Parse = Callable[[Any], Iterable[Row]]


def load(folder: str, holding: Holding | None = None) -> Corpus:
    """The corpus in `folder`, from the cache or read now. `holding`: what its party has of a
    study's data.
    """
    with reading(holding):
        return _load(folder)


def _load(folder: str) -> Corpus:
    holding = now()
    path = corpus_folder(folder)
    found = assign(path, lambda p: is_own(path, p) and not _lists_relations(p))
    kind = recognise(path)
    if kind == "gids":
        found = without_train(found)
    found.need("train")
    if kind != "pgr":
        found.need("test")
    if not kind:
        raise unknown_format(path, ("distant",))
    listed = _listed(path)
    source = {
        "reader": kind,
        "version": _VERSION,
        "name": path.name,
        "files": {s: [file_hash(f) for f in files] for s, files in found.files.items()},
        "relations": file_hash(listed) if listed is not None else "",
        **({"holding": holding.source()} if holding is not None else {}),
    }
    return cached(source, lambda: _content(kind, found, listed))


def recognise(folder: Path) -> str:
    """Which format a folder is in; empty if none that we know."""
    train = training_file(folder)
    first = first_line(train) if train is not None else ""
    if first.startswith(_PGR_HEADER):
        return "pgr"
    if train is not None and first.lstrip().startswith(("{", "[")):
        row = first_json(train)
        return "opennre" if isinstance(row, dict) and {"h", "t"} <= set(row) else ""
    if train is None and is_gids(folder):
        return "gids"
    if first.count("\t") >= 5:
        return "nyt10" if _listed(folder) is not None or not is_gids(folder) else "gids"
    # one tab, and tagged entities behind it: a table of two columns is something else
    return "mirgene" if first.count("\t") == 1 and "</" in first.partition("\t")[2] else ""


def _lists_relations(path: Path) -> bool:
    return plain_name(path).endswith(_RELATIONS)


def _listed(folder: Path) -> Path | None:
    found = [p for p in sorted(folder.iterdir()) if p.is_file() and _lists_relations(p)]
    if len(found) > 1:
        names = ", ".join(p.name for p in found)
        raise UserError(f"{folder} has several lists of relations ({names}); keep one.")
    return found[0] if found else None


def _content(kind: str, found: Assigned, listed: Path | None) -> Content:
    rows, notes = Rows(), Notes()
    notes.take(found.notes)
    name = found.folder.name
    for path in found.unsplit:
        notes.add("skipped", "files whose names say no split", place=str(path))
    if kind == "pgr":
        files = _pgr(rows, found, notes)
    else:
        files = _publishers(rows, kind, found, listed, notes)
    rows.rename(f'The corpus "{name}"', notes)
    # Freebase relations are those of NYT10, of which the paper counts the first 2,000 points; of
    # others all.
    freebase = kind == "nyt10" or any(r.startswith("/") for r in rows.relations)
    points = 2000 if freebase and kind != "pgr" else 0
    return rows.content(name, Reading(kind, held(files), notes.all(found.folder)), points)


def _table(path: Path, notes: Notes, header: str = "") -> Iterator[tuple[int, str]]:
    for number, line in lines(path, notes):
        if line.strip() and not (header and number == 1 and line.startswith(header)):
            yield number, line


def _publishers(
    rows: Rows, kind: str, found: Assigned, listed: Path | None, notes: Notes
) -> dict[str, tuple[str, ...]]:
    """The publisher's splits; where there is no dev, one is held out by entity pair."""
    parse: Parse = formats.opennre if kind == "opennre" else formats.mirgene
    if kind == "opennre" and listed is not None:
        rows.name(_from_json(listed))
    if kind == "gids":
        text = "entities are a part of a word, and stand where the word does"
        inside = lambda name: notes.add("repaired", text, example=name)  # noqa: E731
        parse = lambda line: gids(line, inside)  # noqa: E731
    if kind == "nyt10":
        parse = _with_list(rows, found.folder, listed, notes)
    cut_dev = "dev" not in found.files
    for split, paths in found.files.items():
        if split not in rows.splits:
            continue
        for path in paths:
            given = json_rows(path, notes) if kind == "opennre" else _table(path, notes)
            for row in parsed(path, given, parse):
                kept_out = split == "train" and cut_dev and held_out(row, _DEV_PERCENT, "dev")
                rows.add("dev" if kept_out else split, row)
    if not cut_dev:
        return found.names()
    text = f"sentences of {_DEV_PERCENT} % of the training pairs became dev, for choosing the round"
    notes.add("cut", text, count=len(rows.splits["dev"]))
    return {**found.names(), "dev": ()}


def _from_json(path: Path) -> list[str]:
    table = read_json(path)
    try:
        return sorted(table, key=lambda r: int(table[r]))
    except (ValueError, TypeError, AttributeError, KeyError) as e:
        raise UserError(f"{path}: not a JSON object from relation to number ({e}).") from None


def _with_list(rows: Rows, folder: Path, listed: Path | None, notes: Notes) -> Parse:
    if listed is None:
        raise UserError(
            f"{folder} has no relation2id.txt, which lists the relations of this format."
        )
    names = []
    for number, line in lines(listed):
        fields = line.split()
        if number == 1 and len(fields) == 1 and fields[0].isdigit():
            continue
        if not fields:
            continue
        if len(fields) != 2 or not fields[1].isdigit():
            raise UserError(f'{listed}, line {number}: not "relation number".')
        names.append((int(fields[1]), fields[0]))
    rows.name([r for _, r in sorted(names)])
    known = set(rows.relations)

    def absent(name: str) -> None:
        text = "entities are no word of their sentence and were taken to stand at its start"
        notes.add("repaired", text, example=name)

    def parse(line: str) -> Iterable[Row]:
        for row in formats.nyt10(line, absent):
            if row.relation not in known:
                raise ValueError(f'the relation "{row.relation}" is not in relation2id.txt')
            yield row

    return parse


def _pgr(rows: Rows, found: Assigned, notes: Notes) -> dict[str, tuple[str, ...]]:
    """One file with ids, or two (2018). The test of 2019 is blinded, so that it has no pairs to make
    bags of.
    """
    files = found.names()
    tests = [p for p in found.files.get("test", ()) if first_line(p).startswith(_PGR_HEADER)]
    for path in sorted(set(found.files.get("test", ())) - set(tests)):
        notes.add("skipped", "test files without ids, which make no bags", place=str(path))
        files["test"] = ()
    seen: set[tuple[str, ...]] = set()
    for path in tests:
        for row in parsed(path, _table(path, notes, _PGR_HEADER), formats.pgr):
            rows.add("test", row)
            seen.add(tuple(row.words))
    left = 0
    for path in found.files["train"]:
        for row in parsed(path, _table(path, notes, _PGR_HEADER), formats.pgr):
            if tuple(row.words) in seen:
                left += 1
            elif not tests and not may_lack("test") and held_out(row, 20, "test"):
                rows.add("test", row)
            else:
                cut = not may_lack("dev") and held_out(row, 10, "dev")
                rows.add("dev" if cut else "train", row)
    if left:
        text = "training sentences left out that stand in the test file"
        notes.add("skipped", text, count=left)
    if not tests:
        text = "sentences of 20 % of the pairs became test"
        notes.add("cut", text, count=len(rows.splits["test"]))
        files["test"] = ()
    text = "sentences of 10 % of the other pairs became dev, for choosing the round"
    notes.add("cut", text, count=len(rows.splits["dev"]))
    notes.add("said", "labels are distant")
    return {**files, "dev": ()}
