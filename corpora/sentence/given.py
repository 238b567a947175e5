"""Sentence relations in formats that others give: SemEval 2010, rows with named fields (TACRED,
OpenNRE's supervised corpora, texts with marks, tables), and marked texts (`corpora.standoff`).

Where test or dev is missing, a tenth of the training documents becomes it, decided by a hash of the
document's name; where a row says no document, its text stands for it, so that one sentence never
stands on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from config.errors import UserError
from corpora.formats import MARKED
from corpora.holding import may_lack, tells
from corpora.notes import Notes
from corpora.records import first_record, is_saved, records, saved_splits
from corpora.sentence import rows as by_row
from corpora.sentence.one_a_line import NONE
from corpora.sentence.semeval import is_semeval, semeval
from corpora.sentence.table import Example
from corpora.splits import Assigned, assign, cut_documents, data_files, is_own
from corpora.standoff import read as standoff
from corpora.standoff.candidates import rule_of
from corpora.standoff.to_sentences import directions, examples

__all__ = ["GIVEN", "read_given", "recognise_given"]

Splits = dict[str, list[Example]]
Told = Callable[[Mapping[str, Any]], bool]
_ROWS: dict[str, tuple[Told, by_row.Parse]] = {
    "tacred": (by_row.is_tacred, by_row.tacred),
    "opennre": (by_row.is_opennre, by_row.opennre),
    "marked": (by_row.is_marked, by_row.marked),
}
GIVEN = ("semeval", *_ROWS, "table", *MARKED)


def _fits_table(row: Mapping[str, Any], columns: str) -> bool:
    if not row:
        return False
    found = by_row.Columns.of(list(row), columns)
    return found is not None and found.fits(row)


def _told(kind: str, columns: str) -> Told:
    return _ROWS[kind][0] if kind in _ROWS else lambda row: _fits_table(row, columns)


def recognise_given(folder: Path, columns: str = "") -> str:
    """Which of these formats a folder is in; empty if none, or if marked texts have no relation."""
    if is_saved(folder):
        probes = list(saved_splits(folder).values())[:1]
    else:
        probes = [p for p in data_files(folder) if is_own(folder, p)]
        if any(is_semeval(p) for p in probes):
            return "semeval"
    firsts = [first_record(p) for p in probes]
    for kind, (told, _) in _ROWS.items():
        if any(told(row) for row in firsts if row):
            return kind
    kind = standoff.recognise(folder)
    if kind:
        return kind if standoff.has_relations(folder, kind) else ""
    return "table" if any(_fits_table(row, columns) for row in firsts) else ""


def read_given(folder: Path, kind: str, columns: str, notes: Notes) -> tuple[Splits, Assigned]:
    """Examples by split, and which file became what."""
    if kind in MARKED:
        return _marked_texts(folder, kind, notes)
    if kind == "semeval":
        found = assign(folder, lambda p: is_own(folder, p) and is_semeval(p))
        pairs = {
            split: [(e, e.text) for p in files for e in semeval(p, notes)]
            for split, files in [*found.files.items(), ("", found.unsplit)]
        }
    else:
        found = standoff.row_files(folder, _told(kind, columns))
        pairs = {
            split: [pair for p in files for pair in _examples(p, kind, columns, notes)]
            for split, files in [*found.files.items(), ("", found.unsplit)]
        }
    found = _whole(found, notes)
    loose = pairs.pop("", [])
    if loose and "train" not in pairs:
        pairs["train"] = loose
    given = {split for split, some in pairs.items() if some}
    made = {s: () for s in ("dev", "test") if s not in given}  # cut off the training split
    return _cut(folder, pairs, notes), replace(found, files={**found.files, **made})


def _whole(found: Assigned, notes: Notes) -> Assigned:
    """Files whose names say no split are for training, unless another is."""
    if not found.unsplit:
        return found
    if "train" not in found.files:
        return replace(found, files={**found.files, "train": found.unsplit}, unsplit=())
    for path in found.unsplit:
        notes.add("skipped", "files whose names say no split", place=str(path))
    return found


def _examples(path: Path, kind: str, columns: str, notes: Notes) -> Iterator[tuple[Example, str]]:
    """(example, what it must not be parted from)."""
    layout: by_row.Columns | None = None
    for place, row in records(path, notes):
        try:
            if kind == "table":
                layout = layout or by_row.Columns.of(list(row), columns)
                if layout is None or not layout.fits(row):
                    raise ValueError("no columns for text, relation, head and tail")
                example = layout.example(row, place, notes)
                document = layout.document(row)
            else:
                example = _ROWS[kind][1](row, place, notes)
                document = str(row.get("docid") or row.get("doc_id") or (example and example.text))
            if example is not None and example.problem():
                raise ValueError(example.problem())
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as e:
            what = f"missing {e}" if isinstance(e, KeyError) else str(e)
            raise UserError(f"{place}: not an example of this format: {what}.") from None
        if example is not None:
            yield example, document


def _cut(folder: Path, pairs: dict[str, list[tuple[Example, str]]], notes: Notes) -> Splits:
    if not pairs.setdefault("train", []) and not may_lack("train"):
        raise UserError(f"{folder} has no training examples.")
    missing = [s for s in ("dev", "test") if not pairs.get(s)]
    if missing:
        train = pairs["train"]
        try:
            made = cut_documents({d for _, d in train}, missing)
        except ValueError as e:
            raise UserError(f"{folder} has no {' and no '.join(missing)} split: {e}.") from None
        for split in missing:
            pairs[split] = [(x, d) for x, d in train if made[d] == split]
            said = f"of {len(train)} examples became {split}, by a hash of their documents or texts"
            notes.add("cut", said, count=len(pairs[split]))
        pairs["train"] = [(x, d) for x, d in train if made[d] == "train"]
    return {split: [x for x, _ in some] for split, some in pairs.items()}


def _marked_texts(folder: Path, kind: str, notes: Notes) -> tuple[Splits, Assigned]:
    read = standoff.read(folder, kind)
    notes.take(read.notes)
    rule = rule_of(d for document in tells(read.splits) for d in directions(document))
    if not rule.asked:
        raise UserError(f"{folder} has no relation between two mentions of one training sentence.")
    notes.add("said", rule.words(), count=0)
    splits = {
        split: [e for document in some for e in examples(document, rule, NONE, notes)]
        for split, some in read.splits.items()
    }
    files = {s: tuple(folder / n for n in read.files.get(s, ())) for s in ("train", "dev", "test")}
    return splits, Assigned(folder, files)
