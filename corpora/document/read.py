"""Real document-relation corpora from a folder the user names, in the format they are published in.

`CORPUS=folder` recognises the format; `CORPUS=format:folder` says it (`FORMATS`). The
three splits are files with train, dev (or val) and test in their names, plain or gzipped. DocRED's
test has no labels: its dev split then serves as the test, as its papers report, and a tenth of the
training documents chooses the round.

CDR's hypernym filter needs a MeSH tree: a file of the folder with "mesh" in its name, or the option
`mesh`. Without one the corpus is unfiltered, and every report says which it is. `relations.txt`,
one relation a line, fixes the relations and their order where the data of one silo would not show
them all. Nothing read here is ever copied out of the user's cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from config.errors import UserError
from corpora.document import docred, pubtator
from corpora.document import pairs as document_pairs
from corpora.document.given import read_given, recognise_given
from corpora.document.hypernyms import leave_out, read_tree
from corpora.document.table import Content, Document, DocumentCorpus, Pair, cached
from corpora.formats import MARKED, NEEDS, unknown_format
from corpora.holding import Holding, held, may_lack, now, reading, tells
from corpora.json_rows import first_json
from corpora.lines import corpus_folder, file_hash, first_line, format_and_place, lines, plain_name
from corpora.notes import Notes, Reading
from corpora.splits import Assigned, assign, data_files, is_own, training_file

__all__ = ["FORMATS", "load", "recognise"]

FORMATS = tuple(NEEDS["document"])
_VERSION = 4  #: part of the cache key: bump it when the same files would give other documents
_BESIDE = {"names": "rel_info", "relations": "relations.txt"}  #: files that hold no documents
_HELD_OUT = 10  #: every tenth training document is held out where there is no dev split
Splits = dict[str, Sequence[Document]]


def load(spec: str, mesh: str = "", holding: Holding | None = None) -> DocumentCorpus:
    """The corpus that `spec` names, from the cache or read now. `holding`: what its party has of
    a study's data.
    """
    with reading(holding):
        return _load(spec, mesh)


def _load(spec: str, mesh: str) -> DocumentCorpus:
    holding = now()
    kind, place = format_and_place(spec, FORMATS)
    folder = corpus_folder(place)
    kind = kind or recognise(folder)
    if not kind:
        raise unknown_format(folder, ("document",))
    if kind in MARKED:
        # every file counts: marks may lie beside their texts
        found = Assigned(folder, {"all": tuple(data_files(folder))})
    else:
        found = _assigned(folder)
        found.need("train", "test")
    beside = _beside(folder)
    tree = _tree_file(folder, mesh)
    source = {
        "reader": f"document {kind}",
        "version": _VERSION,
        "name": folder.resolve().name,
        "files": {split: [file_hash(f) for f in files] for split, files in found.files.items()},
        "beside": {role: file_hash(f) for role, f in beside.items()},
        "mesh": file_hash(tree) if tree is not None else "",
        **({"holding": holding.source()} if holding is not None else {}),
    }
    return cached(source, lambda: _content(kind, found, beside, tree))


def recognise(folder: Path) -> str:
    """Which format a folder is in; empty if none that we know."""
    return _recognise(folder) or recognise_given(folder)


def _recognise(folder: Path) -> str:
    train = training_file(folder)
    first = first_line(train) if train is not None else ""
    parts = first.split("|", 2)
    if len(parts) == 3 and parts[1] == "t" and "\t" not in parts[0]:
        return "pubtator"
    if train is not None and first.lstrip().startswith(("[", "{")):
        row = first_json(train)
        return "docred" if isinstance(row, dict) and "vertexSet" in row else ""
    columns = first.count("\t") + 1
    if columns > document_pairs.COLUMNS and (columns - 2) % document_pairs.COLUMNS == 0:
        return "pairs"
    return ""


def _beside(folder: Path) -> dict[str, Path]:
    files = [p for p in sorted(folder.iterdir()) if p.is_file()]
    found = {role: [p for p in files if name in p.name.lower()] for role, name in _BESIDE.items()}
    return {role: some[0] for role, some in found.items() if some}


def _assigned(folder: Path) -> Assigned:
    """Of several files for one split the annotated, revised or unfiltered one is meant."""

    def better(paths: Sequence[Path]) -> Sequence[Path]:
        best = [p for p in paths if "revised" in p.name or "annotated" in p.name]
        return best or [p for p in paths if "filter" not in p.name]

    def wanted(path: Path) -> bool:
        name = plain_name(path)
        aside = ("distant", "mesh", *_BESIDE.values())
        return is_own(folder, path) and not any(word in name for word in aside)

    return assign(folder, wanted, better=better)


def _tree_file(folder: Path, mesh: str) -> Path | None:
    if mesh:
        if not Path(mesh).is_file():
            raise UserError(f'Option "mesh": there is no file "{mesh}".')
        return Path(mesh)
    return next(
        (p for p in sorted(folder.iterdir()) if p.is_file() and "mesh" in p.name.lower()), None
    )


def _content(kind: str, found: Assigned, beside: dict[str, Path], tree: Path | None) -> Content:
    name, notes = found.folder.resolve().name, Notes()
    notes.take(found.notes)
    for path in sorted(found.folder.iterdir()):
        if "distant" in path.name.lower() and path.is_file():
            notes.add("skipped", "files of distant labels", place=str(path))
    for path in found.unsplit:
        notes.add("skipped", "files whose names say no split", place=str(path))
    splits: Splits
    if kind in MARKED:
        splits, files = read_given(found.folder, kind, notes)  # type: ignore[assignment]
    else:
        splits, files = _splits(kind, found, beside, notes), found.names()
    # of a test split that was cut here it is chance, which the task warns of
    published = bool(files.get("test")) and not may_lack("test")
    if published and not any(p.relations for d in splits["test"] for p in d.pairs):
        if "dev" not in splits:
            raise UserError(
                f"The test split of {found.folder} has no relations, and there is no dev split to test on."
            )
        notes.add("said", "the published test split has no labels: the dev split is the test here")
        splits["test"], files["test"] = splits.pop("dev"), files.pop("dev")
    if "dev" not in splits and not may_lack("dev"):
        train = splits["train"]
        splits["dev"], files["dev"] = train[::_HELD_OUT], ()
        splits["train"] = [d for i, d in enumerate(train) if i % _HELD_OUT]
        text = f"of {len(train)} training documents became dev, for choosing the round"
        notes.add("cut", text, count=len(splits["dev"]))
    if tree is not None:
        places = read_tree(tree)
        splits = {r: [leave_out(d, places) for d in some] for r, some in splits.items()}
        gone = sum(not p.counted for some in splits.values() for d in some for p in d.pairs)
        text = f"hypernym-filtered with {tree.name}: {gone} negative pairs left out, by the gold relations"
        notes.add("said", text)
    elif kind == "pubtator":
        text = "unfiltered: no MeSH tree was given, so pairs with a more general concept count as negatives"
        notes.add("said", text)
    elif any(not p.counted for some in splits.values() for d in some for p in d.pairs):
        notes.add("said", "filtered by whoever made the files")
    splits, relations = _relations(name, splits, beside.get("relations"), notes)
    how = Reading(kind, held(files), notes.all(found.folder))
    return Content(name, f"read as {kind}", relations, splits, how)


def _relations(
    name: str, splits: Splits, listing: Path | None, notes: Notes
) -> tuple[Splits, tuple[str, ...]]:
    relations = Counter(
        r for some in splits.values() for d in some for p in d.pairs for r in p.relations
    )
    if (holding := now()) is not None:
        to = holding.names(relations, f'The corpus "{name}"', notes)
        return {s: [_renamed(d, to) for d in some] for s, some in splits.items()}, holding.classes
    if not relations:
        raise UserError(f'The corpus "{name}" has no relations.')
    if listing is None:
        return splits, tuple(sorted(relations))
    listed = [text.strip() for _, text in lines(listing) if text.strip()]
    odd = sorted(set(relations) - set(listed))
    if odd:
        raise UserError(
            f'The corpus "{name}": the relation "{odd[0]}" is not listed in relations.txt.'
        )
    return splits, tuple(listed)


def _renamed(document: Document, to: Mapping[str, str]) -> Document:
    """A pair whose only relation is left out has none then."""

    def names(pair: Pair) -> tuple[str, ...]:
        return tuple(dict.fromkeys(to[r] for r in pair.relations if to[r]))

    return replace(document, pairs=tuple(replace(p, relations=names(p)) for p in document.pairs))


def _splits(kind: str, found: Assigned, beside: dict[str, Path], notes: Notes) -> Splits:
    files = {split: paths for split, paths in found.files.items() if split != "public"}
    if kind == "pubtator":
        return _pubtator(files, notes)
    if kind == "docred":
        named = docred.relation_names(beside.get("names"))
        return {
            s: [d for p in some for d in docred.read(p, named, notes)] for s, some in files.items()
        }
    return {
        s: [d for p in some for d in document_pairs.read(p, notes)] for s, some in files.items()
    }


def _pubtator(files: dict[str, tuple[Path, ...]], notes: Notes) -> Splits:
    raws = {s: [raw for p in some for raw in pubtator.read(p, notes)] for s, some in files.items()}
    types = pubtator.pair_types(tells(raws))
    if not types:
        named = ", ".join(str(p) for some in files.values() for p in some)
        raise UserError(f"{named}: there is no relation between two mentioned concepts.")
    splits: Splits = {s: list(pubtator.documents(some, types, notes)) for s, some in raws.items()}
    notes.add("said", "candidate pairs: " + ", ".join(f"{a} with {b}" for a, b in types))
    return splits
