"""Real NER corpora from folders the user names: one corpus per silo, or one corpus that is cut.

`CORPUS=folder` is one corpus, or a folder of corpora; `CORPUS=folder,folder` are several; `conll:`,
`conll2012:`, `brat:` or `ade:` before a folder says its format where it would not be recognised.
Each corpus is a domain of its own name; in CoNLL-2012 each genre is one. A type is covered in a
domain if the domain's annotation has it.

A label-mapping file makes corpora agree on names, one `Simple_chemical = Chemical` a line; nothing
after the `=` leaves the type out. Splits are the files' or folders' own (train, dev or devel,
test); where there is none, a tenth of the documents becomes test, and another dev, decided by a
hash of the document's name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from config.errors import UserError, nearest
from corpora.lines import corpus_folder, file_hash, format_and_place, lines
from corpora.ner.formats import Found, Losses, ade, brat, conll, conll2012
from corpora.ner.table import Content, NerCorpus, Sentence, cached
from corpora.ner.tags import union

__all__ = ["FORMATS", "load", "places", "read_mapping", "recognise", "recognised"]

_VERSION = 1  #: part of the cache key: bump it when the same files would give other sentences
FORMATS = ("conll", "conll2012", "brat", "ade")
_ROLES = {"train": ("train",), "dev": ("dev", "valid"), "test": ("test",)}
Splits = dict[str, list[Sentence]]


def load(spec: str, mapping: str = "", types: str = "") -> NerCorpus:
    """The corpus that `spec` names, from the cache or read now. `types`, separated by commas, fixes
    the union where one silo's data would not show it all.
    """
    found = places(spec)
    named = [t.strip() for t in types.split(",") if t.strip()]
    renamed = read_mapping(Path(mapping)) if mapping else {}
    source = {
        "reader": "ner",
        "version": _VERSION,
        "types": named,
        "mapping": renamed,
        "corpora": [
            [
                kind,
                folder.resolve().name,
                {str(p.relative_to(folder)): file_hash(p) for p in _files(folder)},
            ]
            for kind, folder in found
        ],
    }
    return cached(source, lambda: _content(found, renamed, named))


def places(spec: str) -> list[tuple[str, Path]]:
    """(format, folder) of every corpus that a spec names."""
    found: list[tuple[str, Path]] = []
    for part in filter(None, spec.split(",")):
        kind, place = format_and_place(part, FORMATS)
        folder = corpus_folder(place)
        inside = sorted(p for p in folder.iterdir() if p.is_dir())
        if kind or recognise(folder):
            found.append((kind or recognise(folder), folder))
        elif inside and all(recognise(p) for p in inside):
            found += [(recognise(p), p) for p in inside]
        else:
            raise UserError(f"{folder}: no NER format that we know ({', '.join(FORMATS)}).")
    names = [folder.resolve().name for _, folder in found]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise UserError(
            f'Two corpora are called "{twice}"; the name of its folder is a corpus\'s domain.'
        )
    return found


def recognised(spec: str) -> bool:
    """Whether every folder that a spec names is a NER corpus, or a folder of some."""
    try:
        return bool(places(spec))
    except UserError:
        return False


def recognise(folder: Path) -> str:
    """Which format a folder is in; empty if none that we know. Sub-folders count only as splits."""
    names = [p.name.lower().removesuffix(".gz") for p in _files(folder)]
    if any(n.endswith(".ann") for n in names):
        return "brat"
    if any(n.endswith("_conll") for n in names):
        return "conll2012"
    if any(n == "drug-ae.rel" for n in names):
        return "ade"
    here = [p for p in sorted(folder.iterdir()) if p.is_file() and _role(p.name)]
    for path in here:
        first = next((text for _, text in lines(path) if text.strip()), "")
        columns = first.split("\t") if "\t" in first else first.split()
        last = columns[-1].strip() if len(columns) > 1 else ""
        if last == "O" or last[:2] in ("B-", "I-", "E-", "S-"):
            return "conll"
    return ""


def read_mapping(path: Path) -> dict[str, str]:
    """`Name = Other` a line; `#` begins a remark."""
    if not path.is_file():
        raise UserError(f'Option "mapping": the label-mapping file {path} does not exist.')
    found: dict[str, str] = {}
    for number, line in lines(path):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        name, equals, other = (part.strip() for part in text.partition("="))
        if not equals or not name or name in found:
            raise UserError(
                f'{path}, line {number}: "Name = Other name" is expected, each name once.'
            )
        found[name] = other
    return found


def _files(folder: Path) -> list[Path]:
    return [p for p in sorted(folder.rglob("*")) if p.is_file()]


def _role(name: str) -> str:
    """The split that a file or folder is for by its name, or nothing."""
    return next(
        (role for role, stems in _ROLES.items() if any(s in name.lower() for s in stems)), ""
    )


def _read(kind: str, folder: Path, losses: Losses) -> Iterator[tuple[str, Found]]:
    """(split, or nothing where we must make one; sentence)."""
    domain = folder.resolve().name
    for path in _files(folder):
        name = path.name.lower().removesuffix(".gz")
        role = next(filter(None, (_role(part) for part in path.relative_to(folder).parts)), "")
        if kind == "conll" and role:
            yield from ((role, f) for f in conll(path, domain))
        elif kind == "conll2012" and name.endswith(("_conll", ".conll")):
            yield from ((role, f) for f in conll2012(path, losses))
        elif kind == "brat" and name.endswith(".txt"):
            yield from ((role, f) for f in brat(path, domain, losses))
        elif kind == "ade" and name == "drug-ae.rel":
            yield from (("", f) for f in ade(path, domain, losses))


def _split_of(document: str) -> str:
    tenth = (
        int.from_bytes(hashlib.blake2b(document.encode(), digest_size=4).digest(), "little") % 10
    )
    return {0: "test", 1: "dev"}.get(tenth, "train")


def _content(
    found: list[tuple[str, Path]], renamed: Mapping[str, str], named: list[str]
) -> Content:
    splits: Splits = {"train": [], "dev": [], "test": []}
    notes: list[str] = []
    met: set[str] = set()
    covered: dict[str, set[str]] = {}
    for kind, folder in found:
        losses = Losses()
        rows = list(_read(kind, folder, losses))
        has = {role for role, _ in rows}
        cut = [r for r in ("dev", "test") if r not in has]
        for role, f in rows:
            met |= {t for *_, t in f.sentence.entities}
            s = _renamed(f.sentence, renamed)
            made = _split_of(f.document)
            split = role or "train"
            splits[made if split == "train" and made in cut else split].append(s)
            covered.setdefault(s.domain, set()).update(t for *_, t in s.entities)
        name = folder.resolve().name
        made_up = f"; {' and '.join(cut)} cut from its documents by hash" if cut else ""
        lost = (
            f"; {losses.count} annotations left out ({', '.join(sorted(losses.why))})"
            if losses.count
            else ""
        )
        notes.append(f"{name} read as {kind}{made_up}{lost}")
    odd = sorted(set(renamed) - met)
    if odd:
        raise UserError(
            f'The label mapping names "{odd[0]}", which is no type of these corpora.{nearest(odd[0], met)}'
        )
    everything = union(covered.values())
    unnamed = [t for t in everything if named and t not in named]
    if unnamed:
        hint = nearest(unnamed[0], named)
        raise UserError(
            f'The type "{unnamed[0]}" is in the data but not among those of the option "types".{hint}'
        )
    types = tuple(named) or everything
    if not types:
        raise UserError("These corpora have no entities at all.")
    domains = tuple(covered)
    name = "+".join(folder.resolve().name for _, folder in found)
    return Content(
        name,
        "; ".join(notes),
        types,
        domains,
        {d: frozenset(t) for d, t in covered.items()},
        splits,
    )


def _renamed(s: Sentence, renamed: Mapping[str, str]) -> Sentence:
    kept = tuple((a, b, renamed.get(t, t)) for a, b, t in s.entities if renamed.get(t, t))
    return replace(s, entities=tuple(dict.fromkeys(kept)))
