"""Folders of marked texts: which format they are in, their splits, and the three tasks read from them.

`FORMATS` is the one table of these formats. A format is told by a file of the folder; a folder that
`datasets` saved, by its first row. Splits are told by names (`corpora.splits`). Where test or dev is
missing, a tenth of the training documents becomes it, decided by a hash of the document's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from config.errors import UserError
from corpora.holding import may_lack, only_held
from corpora.lines import plain_name
from corpora.notes import Note, Notes
from corpora.records import SUFFIXES, first_record, is_saved, records, saved_splits
from corpora.splits import Assigned, assign, cut_documents, data_files, is_own, split_of
from corpora.standoff import bioc, brat, knowledge, own, tools, webanno
from corpora.standoff.table import Marked, kept

__all__ = [
    "FORMATS",
    "Format",
    "Read",
    "documents_of",
    "has_relations",
    "read",
    "recognise",
    "row_files",
    "row_sources",
    "saved_splits",
    "sources",
]

Told = Callable[[Mapping[str, Any]], bool]
Parse = Callable[[Mapping[str, Any], str, Notes], Iterator[Marked]]
_PROBED = 4  #: files of a folder that are looked into to tell its format


@dataclass(frozen=True)
class Format:
    name: str
    title: str  #: for people
    told_by: Callable[[Path], bool]
    read: Callable[[Path, Notes], Iterator[Marked]]
    document_files: bool = False  #: every document is a file of its own


def _rows(name: str, title: str, told_by: Told, parse: Parse) -> Format:
    def is_one(path: Path) -> bool:
        if path.is_file() and not plain_name(path).endswith(SUFFIXES):
            return False
        return told_by(first_record(path))

    def read_rows(path: Path, notes: Notes) -> Iterator[Marked]:
        for place, row in records(path, notes):
            try:
                yield from parse(row, place, notes)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError) as e:
                what = f"missing {e}" if isinstance(e, KeyError) else str(e)
                raise UserError(f"{place}: not a row of {title}: {what}.") from None

    return Format(name, title, is_one, read_rows)


def _ends(*endings: str) -> Callable[[Path], bool]:
    return lambda path: path.is_file() and plain_name(path).endswith(endings)


_FILES = (
    Format("brat", "BRAT", _ends(".ann"), brat.brat, document_files=True),
    Format("bionlp", "the BioNLP shared tasks", _ends(".a1"), brat.bionlp, document_files=True),
    Format("docbin", "spaCy", _ends(".spacy"), knowledge.docbin),
    Format("webanno", "WebAnno", webanno.is_webanno, webanno.webanno, document_files=True),
    Format("bioc", "BioC", bioc.is_bioc, bioc.bioc),
)
_ROWS = (
    _rows("documents", "our JSON lines for documents", own.is_own, own.own),
    _rows("bigbio", "BigBio", knowledge.is_bigbio, knowledge.bigbio),
    _rows("chemdisgene", "ChemDisGene", knowledge.is_chemdisgene, knowledge.chemdisgene),
    _rows("labelstudio", "Label Studio", tools.is_label_studio, tools.label_studio),
    _rows("prodigy", "Prodigy", tools.is_prodigy, tools.prodigy),
    _rows("doccano", "doccano", tools.is_doccano, tools.doccano),
)
FORMATS: dict[str, Format] = {f.name: f for f in (*_FILES, *_ROWS)}


def recognise(folder: Path) -> str:
    """The format of a folder of marked texts; empty if none of these."""
    if is_saved(folder):
        probes = list(saved_splits(folder).values())[:1]
    else:
        probes = _probes(folder)
    return next((f.name for f in FORMATS.values() if any(map(f.told_by, probes))), "")


def _probes(folder: Path) -> list[Path]:
    """A few files of every ending: a format is told by any of them."""
    by_ending: dict[str, list[Path]] = {}
    for path in data_files(folder):
        ending = Path(plain_name(path)).suffix
        if len(by_ending.setdefault(ending, [])) < _PROBED:
            by_ending[ending].append(path)
    return [p for some in by_ending.values() for p in some]


def row_sources(
    folder: Path, wanted: Callable[[Path], bool], *, document_files: bool = False
) -> Assigned:
    """The files of a folder, or the tables that `datasets` saved in it, by split."""
    if not is_saved(folder):
        return assign(folder, wanted, document_files=document_files)
    files: dict[str, tuple[Path, ...]] = {}
    notes = Notes()
    seen = []
    for name, place in saved_splits(folder).items():
        split = split_of(name)
        seen.append(f"{name} ({split or 'no split'})")
        if name and (not split or split in files):
            notes.add("skipped", f'the saved split "{name}", which is no split of ours', count=0)
        elif name:
            files[split] = (place,)
    whole = (folder,) if "" in saved_splits(folder) else ()
    return only_held(Assigned(folder, files, whole, notes.all(), tuple(seen)))


def row_files(folder: Path, told: Told) -> Assigned:
    """The files with rows of one kind. A file of the same ending that has no row that can be read is
    damaged, and among them: its reader says where.
    """
    own = [p for p in data_files(folder) if is_own(folder, p)]
    endings = {Path(plain_name(p)).suffix for p in own if told(first_record(p))}

    def wanted(path: Path) -> bool:
        if not is_own(folder, path) or not plain_name(path).endswith(SUFFIXES):
            return False
        row = first_record(path)
        return told(row) or (not row and Path(plain_name(path)).suffix in endings)

    return row_sources(folder, wanted)


@dataclass(frozen=True)
class Read:
    splits: Mapping[str, list[Marked]]  #: train, dev and test
    files: Mapping[str, tuple[str, ...]]  #: split -> files, as `corpora.notes.Reading` has them
    notes: tuple[Note, ...]


def _wanted(folder: Path, kind: str) -> Callable[[Path], bool]:
    """Which files are meant. A file with the same ending as one of the format is read even if it
    cannot be told: then it is damaged, and its reader says where. A file of rows of another kind is
    passed over.
    """
    if kind in brat.MARKS:
        return _ends(".txt", *brat.MARKS[kind])
    told = FORMATS[kind].told_by
    endings = {Path(plain_name(p)).suffix for p in data_files(folder) if told(p)}
    rows = kind in {f.name for f in _ROWS}

    def wanted(path: Path) -> bool:
        ending = Path(plain_name(path)).suffix
        if told(path):
            return True
        if not endings:
            return rows and ending in SUFFIXES
        return ending in endings and not (rows and first_record(path))

    return wanted


def sources(folder: Path, kind: str) -> Assigned:
    if kind in brat.MARKS:
        brat.check_texts(data_files(folder), kind)
    wanted = _wanted(folder, kind)
    found = row_sources(folder, wanted, document_files=FORMATS[kind].document_files)
    notes = Notes()
    notes.take(found.notes)
    for path in data_files(folder) if kind in {f.name for f in _ROWS} else ():
        if not is_saved(folder) and plain_name(path).endswith(SUFFIXES) and not wanted(path):
            notes.add("skipped", "files of another form", place=str(path))
    return replace(found, notes=notes.all())


def documents_of(path: Path, kind: str, notes: Notes) -> Iterator[Marked]:
    """The documents of one file."""
    for document in FORMATS[kind].read(path, notes):
        yield kept(document, notes)


def _documents(found: Assigned, kind: str, notes: Notes) -> Iterator[tuple[str, Marked]]:
    """(split, or nothing where names say none; document)."""
    for split, files in [*found.files.items(), ("", found.unsplit)]:
        for path in files:
            yield from ((split, d) for d in documents_of(path, kind, notes))


def has_relations(folder: Path, kind: str) -> bool:
    """Whether any document of the folder has a relation; stops at the first."""
    found = sources(folder, kind)
    if kind in brat.MARKS:  # where no line can be one, thousands of texts need not be compared
        files = [p for some in (*found.files.values(), found.unsplit) for p in some]
        if not any(brat.may_relate(p) for p in files):
            return False
    return any(d.links or d.facts for _, d in _documents(found, kind, Notes()))


def read(folder: Path, kind: str) -> Read:
    notes = Notes()
    form = FORMATS[kind]
    found = sources(folder, kind)
    notes.take(found.notes)
    splits: dict[str, list[Marked]] = {}
    for split, document in _documents(found, kind, notes):
        splits.setdefault(split, []).append(document)
    loose = splits.pop("", [])
    if loose and "train" in splits:
        said = "documents of files whose names say no split, though others do"
        notes.add("skipped", said, example=loose[0].id, place=loose[0].place, count=len(loose))
    elif loose:
        splits["train"] = loose
    names = dict(found.names())
    if loose and "train" not in names:
        names["train"] = tuple(str(p.relative_to(folder)) for p in found.unsplit)
    if not splits.setdefault("train", []) and not may_lack("train"):
        raise UserError(f"{folder} has no training documents of {form.title}.")
    return Read(_cut(folder, splits, notes), names, notes.all())


def _cut(folder: Path, splits: dict[str, list[Marked]], notes: Notes) -> dict[str, list[Marked]]:
    missing = [s for s in ("dev", "test") if not splits.get(s)]
    if not missing:
        return splits
    train = splits["train"]
    try:
        made = cut_documents([d.id for d in train], missing)
    except ValueError as e:
        raise UserError(f"{folder} has no {' and no '.join(missing)} split, and {e}.") from None
    for split in missing:
        splits[split] = [d for d in train if made[d.id] == split]
        said = f"training documents became the {split} split, chosen by a hash of their names"
        notes.add("cut", said, count=len(splits[split]))
    splits["train"] = [d for d in train if made[d.id] == "train"]
    return splits
