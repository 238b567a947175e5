"""Documents from marked texts (`corpora.standoff`): BRAT, BioC, BigBio, our own JSON lines, exports of
annotation tools.

Our own rows may say their candidate pairs themselves; then they are read exactly as they stand. All
others get their candidates from the types between which the training split has relations.
"""

from __future__ import annotations

from pathlib import Path

from config.errors import UserError
from corpora.document.table import Document
from corpora.holding import may_lack, tells
from corpora.notes import Notes
from corpora.records import first_record, records
from corpora.splits import cut_documents
from corpora.standoff import read as standoff
from corpora.standoff import to_documents
from corpora.standoff.own import has_pairs, own_document

__all__ = ["Files", "read_given", "recognise_given"]

Files = dict[str, tuple[str, ...]]


def recognise_given(folder: Path) -> str:
    """The format of a folder of marked texts with relations; empty if it is none."""
    kind = standoff.recognise(folder)
    return kind if kind and standoff.has_relations(folder, kind) else ""


def read_given(folder: Path, kind: str, notes: Notes) -> tuple[dict[str, list[Document]], Files]:
    """Documents by split, and the files of each split."""
    found = standoff.sources(folder, kind)
    everything = [p for some in (*found.files.values(), found.unsplit) for p in some]
    if kind == "documents" and any(has_pairs(first_record(p)) for p in everything):
        return _exact(folder, notes)
    read = standoff.read(folder, kind)
    notes.take(read.notes)
    linked = to_documents.has_concepts(tells(read.splits))
    rule = to_documents.rule(tells(read.splits), linked)
    if not rule.asked:
        raise UserError(f"{folder} has no relation between two mentions of a training document.")
    if not linked:
        said = "mentions of one type with the same words are one entity, since none has a concept"
        notes.add("said", said, count=0)
    notes.add("said", rule.words(), count=0)
    splits = {
        split: list(to_documents.documents(some, rule, linked, notes))
        for split, some in read.splits.items()
    }
    files = {s: read.files.get(s, ()) for s in ("train", "dev", "test")}
    return splits, files


def _exact(folder: Path, notes: Notes) -> tuple[dict[str, list[Document]], Files]:
    found = standoff.sources(folder, "documents")
    notes.take(found.notes)
    splits: dict[str, list[Document]] = {}
    files = dict(found.names())
    for split, paths in [*found.files.items(), ("", found.unsplit)]:
        for path in paths:
            for place, row in records(path, notes):
                try:
                    splits.setdefault(split, []).append(own_document(row, place))
                except (KeyError, TypeError, ValueError, AttributeError) as e:
                    what = f"missing {e}" if isinstance(e, KeyError) else str(e)
                    raise UserError(f"{place}: not a document with pairs: {what}.") from None
    loose = splits.pop("", [])
    if loose and "train" in splits:
        notes.add("skipped", "documents of files whose names say no split", count=len(loose))
    elif loose:
        splits["train"] = loose
        files["train"] = tuple(str(p.relative_to(folder)) for p in found.unsplit)
    if not splits.setdefault("train", []) and not may_lack("train"):
        raise UserError(f"{folder} has no training documents.")
    missing = [s for s in ("dev", "test") if not splits.get(s)]
    if missing:
        train = splits["train"]
        try:
            made = cut_documents({d.id for d in train}, missing)
        except ValueError as e:
            raise UserError(f"{folder} has no {' and no '.join(missing)} split: {e}.") from None
        for split in (*missing, "train"):
            splits[split] = [d for d in train if made[d.id] == split]
        for split in missing:
            said = f"of {len(train)} documents became {split}, by a hash of their names"
            notes.add("cut", said, count=len(splits[split]))
    return splits, {s: files.get(s, ()) for s in ("train", "dev", "test")}
