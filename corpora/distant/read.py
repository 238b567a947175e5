"""Real distant-supervision corpora from a folder the user names, in the format they are published
in.

A split the publisher did not make is held out by entity pair, always the same one: dev from the
training pairs (5 %) where there is none, since nobody may train on what selects the model; for PGR,
which has one file, dev and test (10 and 20 %). Nothing read here is ever copied out of the user's
cache.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from config.errors import UserError
from corpora.distant import formats
from corpora.distant.rows import Row, Rows, held_out, parsed
from corpora.distant.table import NA, Content, Corpus, cached
from corpora.lines import corpus_folder, file_hash, find, lines

__all__ = ["load"]

_VERSION = 1  #: part of the cache key: bump it when the same files would give other rows
_DEV_PERCENT = 5


def load(folder: str) -> Corpus:
    """The corpus in `folder`, from the cache or read now."""
    path = corpus_folder(folder)
    kind, files = _recognise(path)
    source = {
        "reader": kind,
        "version": _VERSION,
        "name": path.name,
        "files": {role: file_hash(f) for role, f in files.items()},
    }
    return cached(source, lambda: _READERS[kind](path.name, files))


def _recognise(path: Path) -> tuple[str, dict[str, Path]]:
    train = find(path, "train")
    if train is None:
        raise UserError(
            f"{path} has no training file: a file with train in its name, plain or gzipped."
        )
    first = next((text for _, text in lines(train) if text.strip()), "")
    files = {"train": train}
    if first.startswith("FILE_ID\tSENTENCE\t"):
        return "pgr", files
    for role, stems in (
        ("test", ("test",)),
        ("dev", ("val", "dev")),
        ("relations", ("rel2id", "relation2id")),
    ):
        found = find(path, *stems)
        if found is not None:
            files[role] = found
    if "test" not in files:
        raise UserError(f"{path} has no test file: a file with test in its name, plain or gzipped.")
    if first.lstrip().startswith("{"):
        return "opennre", files
    if first.count("\t") >= 5:
        if "relations" not in files:
            raise UserError(
                f"{path} has no relation2id.txt, which lists the relations of this format."
            )
        return "nyt10", files
    if first.count("\t") == 1:
        return "mirgene", files
    raise UserError(f"{train}, line 1: not a format we know (OpenNRE, NYT10, MIRGENE or PGR).")


def _split_files(rows: Rows, files: dict[str, Path], parse: Callable[[str], Iterable[Row]]) -> str:
    for row in parsed(files["train"], parse):
        dev = "dev" not in files and held_out(row, _DEV_PERCENT, "dev")
        rows.add("dev" if dev else "train", row)
    for role in ("dev", "test"):
        if role in files:
            for row in parsed(files[role], parse):
                rows.add(role, row)
    if "dev" in files:
        return "the publisher's splits"
    return f"the publisher's test split; {_DEV_PERCENT} % of the training pairs held out for choosing the round"


def _opennre(name: str, files: dict[str, Path]) -> Content:
    rows = Rows()
    if "relations" in files:
        text = "\n".join(line for _, line in lines(files["relations"]))
        try:
            listed = json.loads(text)
            names = sorted(listed, key=lambda r: int(listed[r]))
        except (ValueError, TypeError, AttributeError) as e:
            raise UserError(
                f"{files['relations']}: not a JSON object from relation to number ({e})."
            ) from None
        _number(rows, names)
    note = _split_files(rows, files, formats.opennre)
    # Freebase relations are those of NYT10, of which the paper counts the first 2,000 points; of
    # MIRGENE all.
    freebase = any(r.startswith("/") for r in rows.relations)
    return rows.content(name, f"read from OpenNRE files: {note}", 2000 if freebase else 0)


def _nyt10(name: str, files: dict[str, Path]) -> Content:
    rows = Rows()
    names = []
    for number, line in lines(files["relations"]):
        fields = line.split()
        if number == 1 and len(fields) == 1 and fields[0].isdigit():
            continue
        if not fields:
            continue
        if len(fields) != 2 or not fields[1].isdigit():
            raise UserError(f'{files["relations"]}, line {number}: not "relation number".')
        names.append((int(fields[1]), fields[0]))
    _number(rows, [r for _, r in sorted(names)])
    known = set(rows.relations)

    def parse(line: str) -> Iterable[Row]:
        for row in formats.nyt10(line):
            if row.relation not in known:
                raise ValueError(f'the relation "{row.relation}" is not in relation2id.txt')
            yield row

    note = _split_files(rows, files, parse)
    return rows.content(name, f"read from tab-separated NYT10 files: {note}", 2000)


def _mirgene(name: str, files: dict[str, Path]) -> Content:
    rows = Rows()
    note = _split_files(rows, files, formats.mirgene)
    return rows.content(name, f"read from MIRGENE files: {note}", 0)


def _pgr(name: str, files: dict[str, Path]) -> Content:
    rows = Rows()
    for row in parsed(files["train"], formats.pgr, skip=1):
        if held_out(row, 20, "test"):
            rows.add("test", row)
        else:
            rows.add("dev" if held_out(row, 10, "dev") else "train", row)
    return rows.content(
        name,
        "read from PGR: 20 % of the pairs held out for test and 10 % of the rest for dev; labels are distant",
        0,
    )


def _number(rows: Rows, names: list[str]) -> None:
    """Relations in the publisher's order, NA first whatever its number there."""
    for relation in names:
        if relation != NA:
            rows.relations.setdefault(relation, len(rows.relations))


_READERS: dict[str, Callable[[str, dict[str, Path]], Content]] = {
    "opennre": _opennre,
    "nyt10": _nyt10,
    "mirgene": _mirgene,
    "pgr": _pgr,
}
