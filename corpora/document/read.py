"""Real document-relation corpora from a folder the user names, in the format they are published in.

`CORPUS=folder` recognises the format; `CORPUS=format:folder` says it (pubtator, docred, pairs). The
three splits are files with train, dev (or val) and test in their names, plain or gzipped. DocRED's
test has no labels: its dev split then serves as the test, as its papers report, and a tenth of the
training documents chooses the round.

CDR's hypernym filter needs a MeSH tree: a file of the folder with "mesh" in its name, or the option
`mesh`. Without one the corpus is unfiltered, and every report says which it is. `relations.txt`,
one relation a line, fixes the relations and their order where the data of one silo would not show
them all. Nothing read here is ever copied out of the user's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from config.errors import UserError
from corpora.document import docred, pubtator
from corpora.document import pairs as document_pairs
from corpora.document.hypernyms import leave_out, read_tree
from corpora.document.table import Content, Document, DocumentCorpus, cached
from corpora.lines import corpus_folder, file_hash, format_and_place, lines

__all__ = ["FORMATS", "load", "recognise"]

FORMATS = ("pubtator", "docred", "pairs")
_VERSION = 2  #: part of the cache key: bump it when the same files would give other documents
_ROLES = {
    "train": ("train",),
    "dev": ("dev", "val"),
    "test": ("test",),
    "names": ("rel_info",),
    "relations": ("relations.txt",),
}
_HELD_OUT = 10  #: every tenth training document is held out where there is no dev split
Splits = dict[str, Sequence[Document]]


def load(spec: str, mesh: str = "") -> DocumentCorpus:
    """The corpus that `spec` names, from the cache or read now."""
    kind, place = format_and_place(spec, FORMATS)
    folder = corpus_folder(place)
    kind = kind or recognise(folder)
    if not kind:
        raise UserError(
            f"{folder}: no document-relation format that we know ({', '.join(FORMATS)})."
        )
    files = _files(folder)
    tree = _tree_file(folder, mesh)
    source = {
        "reader": f"document {kind}",
        "version": _VERSION,
        "name": folder.resolve().name,
        "files": {role: file_hash(f) for role, f in files.items()},
        "mesh": file_hash(tree) if tree is not None else "",
    }
    return cached(source, lambda: _content(folder.resolve().name, kind, files, tree))


def recognise(folder: Path) -> str:
    """Which format a folder is in; empty if none that we know."""
    train = _files(folder, strict=False).get("train")
    first = (
        next((text for _, text in lines(train) if text.strip()), "") if train is not None else ""
    )
    if (
        len(first.split("|", 2)) == 3
        and first.split("|", 2)[1] == "t"
        and "\t" not in first.split("|", 1)[0]
    ):
        return "pubtator"
    if first.lstrip().startswith("[") and '"vertexSet"' in first[:200_000]:
        return "docred"
    columns = first.count("\t") + 1
    if columns > document_pairs.COLUMNS and (columns - 2) % document_pairs.COLUMNS == 0:
        return "pairs"
    return ""


def _files(folder: Path, strict: bool = True) -> dict[str, Path]:
    """role -> file. Of several files for one role the annotated, revised or unfiltered one is
    meant.
    """
    found: dict[str, Path] = {}
    for role, stems in _ROLES.items():
        matching = sorted(
            p
            for p in folder.iterdir()
            if p.is_file()
            and any(s in p.name.lower() for s in stems)
            and "distant" not in p.name.lower()
        )
        if len(matching) > 1:
            better = [p for p in matching if "revised" in p.name or "annotated" in p.name]
            matching = better or [p for p in matching if "filter" not in p.name]
        if len(matching) > 1 and strict:
            names = ", ".join(p.name for p in matching)
            raise UserError(f'{folder} has several files for "{role}" ({names}); keep one.')
        if matching:
            found[role] = matching[0]
    for role in ("train", "test"):
        if strict and role not in found:
            raise UserError(
                f"{folder} has no {role} file: a file with {role} in its name, plain or gzipped."
            )
    return found


def _tree_file(folder: Path, mesh: str) -> Path | None:
    if mesh:
        if not Path(mesh).is_file():
            raise UserError(f'Option "mesh": there is no file "{mesh}".')
        return Path(mesh)
    return next(
        (p for p in sorted(folder.iterdir()) if p.is_file() and "mesh" in p.name.lower()), None
    )


def _content(name: str, kind: str, files: dict[str, Path], tree: Path | None) -> Content:
    notes = [f"read as {kind}"]
    if kind == "pubtator":
        splits = _pubtator(files, notes)
    elif kind == "docred":
        named = docred.relation_names(files.get("names"))
        splits = {
            r: list(docred.read(files[r], named)) for r in ("train", "dev", "test") if r in files
        }
    else:
        splits = {
            r: list(document_pairs.read(files[r])) for r in ("train", "dev", "test") if r in files
        }
    if not any(p.relations for d in splits["test"] for p in d.pairs):
        if "dev" not in splits:
            raise UserError(
                f"{files['test']} has no relations, and there is no dev split to test on."
            )
        notes.append("the published test split has no labels: the dev split is the test here")
        splits["test"] = splits.pop("dev")
    if "dev" not in splits:
        notes.append("a tenth of the training documents held out for choosing the round")
        train = splits["train"]
        splits["dev"] = train[::_HELD_OUT]
        splits["train"] = [d for i, d in enumerate(train) if i % _HELD_OUT]
    if tree is not None:
        places = read_tree(tree)
        splits = {r: [leave_out(d, places) for d in some] for r, some in splits.items()}
        gone = sum(not p.counted for some in splits.values() for d in some for p in d.pairs)
        notes.append(
            f"hypernym-filtered with {tree.name}: {gone} negative pairs left out, by the gold relations"
        )
    elif kind == "pubtator":
        notes.append(
            "unfiltered: no MeSH tree was given, so pairs with a more general concept count as negatives"
        )
    elif any(not p.counted for some in splits.values() for d in some for p in d.pairs):
        notes.append("filtered by whoever made the files")
    relations = sorted(
        {r for some in splits.values() for d in some for p in d.pairs for r in p.relations}
    )
    if not relations:
        raise UserError(f'The corpus "{name}" has no relations.')
    if "relations" in files:
        listed = [text.strip() for _, text in lines(files["relations"]) if text.strip()]
        odd = sorted(set(relations) - set(listed))
        if odd:
            raise UserError(
                f'The corpus "{name}": the relation "{odd[0]}" is not listed in relations.txt.'
            )
        relations = listed
    return Content(name, "; ".join(notes), tuple(relations), splits)


def _pubtator(files: dict[str, Path], notes: list[str]) -> Splits:
    odd = pubtator.Notes()
    raws = {
        role: pubtator.read(files[role], odd) for role in ("train", "dev", "test") if role in files
    }
    types = pubtator.pair_types(raws["train"])
    if not types:
        raise UserError(f"{files['train']} has no relation between two mentioned concepts.")
    splits: Splits = {
        role: list(pubtator.documents(some, types, odd)) for role, some in raws.items()
    }
    notes.append("candidate pairs: " + ", ".join(f"{a} with {b}" for a, b in types))
    if odd.sentence():
        notes.append(odd.sentence())
    return splits
