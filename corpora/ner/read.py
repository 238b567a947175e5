"""Real NER corpora from folders the user names: one corpus per silo, or one corpus that is cut.

`CORPUS=folder` is one corpus, or a folder of corpora; `CORPUS=folder,folder` are several; a name of
`FORMATS` and a colon before a folder say its format where it would not be recognised.
Each corpus is a domain of its own name; in CoNLL-2012 each genre is one. A type is covered in a
domain if the domain's annotation has it.

A label-mapping file makes corpora agree on names, one `Simple_chemical = Chemical` a line; nothing
after the `=` leaves the type out. Splits are the files' or folders' own (train, dev or devel,
test); where there is none, a tenth of the documents becomes test, and another dev, decided by a
hash of the document's name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from config.errors import UserError, nearest
from corpora.formats import NEEDS, unknown_format
from corpora.holding import Holding, held, may_lack, now, read_mapping, reading
from corpora.lines import corpus_folder, file_hash, format_and_place, plain_name
from corpora.ner import rows as by_row
from corpora.ner.conll import (
    DEFAULT,
    NO_DOCUMENTS,
    RUN,
    Layout,
    conll,
    conllu,
    is_conll,
    is_conllu,
)
from corpora.ner.formats import ade, conll2012
from corpora.ner.psytar import is_psytar, psytar
from corpora.ner.table import Content, Found, NerCorpus, Sentence, cached
from corpora.ner.tags import union
from corpora.notes import Notes, Reading
from corpora.records import first_record, is_saved
from corpora.splits import Assigned, assign, cut_documents, data_files, is_own, split_of
from corpora.standoff import read as standoff
from corpora.standoff.brat import read_layout
from corpora.standoff.to_sentences import ner_sentences

__all__ = ["FORMATS", "load", "places", "read_mapping", "recognise", "recognised"]

_VERSION = 3  #: part of the cache key: bump it when the same files would give other sentences
FORMATS = tuple(NEEDS["ner"])
_ROWS = {"entities": by_row.is_own, "tokens": by_row.is_tagged}
Splits = dict[str, list[Sentence]]


def load(
    spec: str,
    mapping: str = "",
    types: str = "",
    columns: str = "",
    entity: str = "",
    holding: Holding | None = None,
) -> NerCorpus:
    """The corpus that `spec` names, from the cache or read now. `types`, separated by commas, fixes
    the union where one silo's data would not show it all. `columns` and `entity`: see
    `corpora.ner.conll`. `holding`: what its party has of a study's data.
    """
    with reading(holding):
        return _load(spec, mapping, types, columns, entity)


def _load(spec: str, mapping: str, types: str, columns: str, entity: str) -> NerCorpus:
    holding = now()
    layout = Layout.of(columns, entity)
    found = places(spec, layout)
    for kind, folder in found:
        for option, given, takes in (
            ("columns", columns, ("conll",)),
            ("entity", entity, ("conll", "conllu")),
        ):
            if given and kind not in takes:
                raise UserError(
                    f'Option "{option}" is for CoNLL columns, and {folder} is read as {kind}.'
                )
    named = [t.strip() for t in types.split(",") if t.strip()]
    renamed = read_mapping(Path(mapping), 'Option "mapping"') if mapping else {}
    source = {
        "reader": "ner",
        "version": _VERSION,
        "types": named,
        "mapping": renamed,
        "layout": [columns, entity],
        **({"holding": holding.source()} if holding is not None else {}),
        "corpora": [
            [
                kind,
                folder.resolve().name,
                {str(p.relative_to(folder)): file_hash(p) for p in data_files(folder)},
            ]
            for kind, folder in found
        ],
    }
    return cached(source, lambda: _content(found, renamed, named, layout))


def places(spec: str, layout: Layout = DEFAULT) -> list[tuple[str, Path]]:
    """(format, folder) of every corpus that a spec names."""
    found: list[tuple[str, Path]] = []
    for part in filter(None, spec.split(",")):
        kind, place = format_and_place(part, FORMATS)
        folder = corpus_folder(place)
        inside = sorted(p for p in folder.iterdir() if p.is_dir())
        if kind or recognise(folder, layout):
            found.append((kind or recognise(folder, layout), folder))
        elif inside and all(recognise(p, layout) for p in inside):
            found += [(recognise(p, layout), p) for p in inside]
        else:
            raise unknown_format(folder, ("ner",))
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


def recognise(folder: Path, layout: Layout = DEFAULT) -> str:
    """Which format a folder is in; empty if none that we know. Sub-folders count only as splits."""
    if is_saved(folder):
        first = first_record(next(iter(standoff.saved_splits(folder).values())))
        return next((k for k, told in _ROWS.items() if told(first)), "") or standoff.recognise(
            folder
        )
    files = data_files(folder)
    names = [plain_name(p) for p in files]
    if any(n.endswith(".ann") for n in names):
        return "brat"
    if any(n.endswith("_conll") for n in names):
        return "conll2012"
    if any(n == "drug-ae.rel" for n in names):
        return "ade"
    if is_psytar(folder):
        return "psytar"
    own = [p for p in files if is_own(folder, p)]
    if any(is_conllu(p) for p in own):
        return "conllu"
    if any(is_conll(p, layout) for p in own):
        return "conll"
    for kind, told in _ROWS.items():
        if any(told(first_record(p)) for p in own):
            return kind
    return standoff.recognise(folder) if own else ""


def _is_2012(path: Path) -> bool:
    return plain_name(path).endswith(("_conll", ".conll"))


def _assigned(kind: str, folder: Path, layout: Layout) -> Assigned:
    if kind == "conll":
        # a file that says its split is meant: if it cannot be read, its reader says so
        named = lambda p: any(map(split_of, p.relative_to(folder).parts))  # noqa: E731
        return assign(folder, lambda p: is_own(folder, p) and (named(p) or is_conll(p, layout)))
    if kind == "conllu":
        return assign(folder, lambda p: is_own(folder, p) and is_conllu(p))
    if kind == "conll2012":
        return assign(folder, _is_2012, document_files=True)
    if kind == "psytar":
        return assign(
            folder, lambda p: plain_name(p) == "psytar_sentences.csv", document_files=True
        )
    if kind in _ROWS:
        return standoff.row_files(folder, _ROWS[kind])
    if kind in standoff.FORMATS:
        return standoff.sources(folder, kind)
    return assign(folder, lambda p: plain_name(p) == "drug-ae.rel", document_files=True)


def _read(kind: str, found: Assigned, layout: Layout, notes: Notes) -> Iterator[tuple[str, Found]]:
    """(split, or nothing where we must make one; sentence)."""
    domain = found.folder.resolve().name
    laid_out = kind == "brat" and read_layout(found.folder).get("sentences") == "lines"
    for split, files in [*found.files.items(), ("", found.unsplit)]:
        for path in files:
            name = str(path.relative_to(found.folder))
            if kind in standoff.FORMATS:
                by_file = standoff.FORMATS[kind].document_files
                for document in standoff.documents_of(path, kind, notes):
                    own = document.id if laid_out else domain
                    # two folders may have documents of one name
                    document = replace(document, id=name) if by_file else document
                    yield from ((split, f) for f in ner_sentences(document, own, notes))
            elif kind in ("conll", "conllu"):
                alone = split or len(files) == 1
                own = domain if alone else plain_name(path).partition(".")[0]
                parse = conll if kind == "conll" else conllu
                yield from ((split, f) for f in parse(path, own, notes, name, layout))
            elif kind in _ROWS:
                yield from ((split, f) for f in by_row.read_rows(path, kind, domain, notes))
            elif kind == "conll2012":
                yield from ((split, f) for f in conll2012(path, notes))
            elif kind == "psytar":
                yield from ((split, f) for f in psytar(found.folder, domain, notes))
            else:
                yield from ((split, f) for f in ade(path, domain, notes))


def _by_split(
    kind: str, folder: Path, found: Assigned, layout: Layout, notes: Notes
) -> tuple[list[tuple[str, Found]], tuple[str, ...]]:
    """Every sentence with its split, and the splits that we had to cut."""
    notes.take(found.notes)
    if found.unsplit and "train" in found.files:
        for path in found.unsplit:
            notes.add("skipped", "files whose names say no split", place=str(path))
        found = replace(found, unsplit=())
    rows = list(_read(kind, found, layout, notes))
    has = {split for split, _ in rows}
    if not has:
        raise UserError(f"{folder}: there is no sentence in it.")
    if "" not in has and "train" not in has and not may_lack("train"):
        found.need("train")
    cut = tuple(s for s in ("dev", "test") if s not in has)
    if not cut:
        return [(split or "train", f) for split, f in rows], ()
    try:
        made = cut_documents({f.document for split, f in rows if split in ("", "train")}, cut)
    except ValueError as e:
        raise UserError(f"{folder} has no {' and no '.join(cut)} split: {e}.") from None
    if any(f"/{NO_DOCUMENTS} " in d for d in made):
        notes.add("said", f"no document boundaries: {RUN} sentences in a row count as a document")
    for split in cut:
        count = sum(s == split for s in made.values())
        notes.add(
            "cut", f"of {len(made)} documents became {split}, by a hash of their names", count=count
        )
    return [(made[f.document] if s in ("", "train") else s, f) for s, f in rows], cut


def _content(
    found: list[tuple[str, Path]],
    renamed: Mapping[str, str],
    named: list[str],
    layout: Layout,
) -> Content:
    splits: Splits = {"train": [], "dev": [], "test": []}
    documents: dict[str, set[str]] = {s: set() for s in splits}
    files: dict[str, tuple[str, ...]] = dict.fromkeys(splits, ())
    notes = Notes()
    met: set[str] = set()
    covered: dict[str, set[str]] = {}
    for kind, folder in found:
        assigned, here = _assigned(kind, folder, layout), Notes()
        rows, cut = _by_split(kind, folder, assigned, layout, here)
        name = folder.resolve().name
        for split, f in rows:
            met |= {t for *_, t in f.sentence.entities}
            s = _renamed(f.sentence, renamed)
            splits[split].append(s)
            documents[split].add(f"{name}/{f.document}")
            covered.setdefault(s.domain, set()).update(t for *_, t in s.entities)
        root = f"{name}/" if len(found) > 1 else ""
        named_files = {**assigned.names(), **dict.fromkeys(cut, ())}
        if assigned.unsplit and "train" not in assigned.files:
            named_files["train"] = tuple(str(p.relative_to(folder)) for p in assigned.unsplit)
        for split, names in named_files.items():
            if split in files:
                files[split] += tuple(f"{root}{n}" for n in names)
        for note in here.all(folder):
            notes.take([replace(note, place=f"{root}{note.place}" if note.place else "")])
    for domain in covered:
        if not any(s.domain == domain for s in splits["train"]) and not may_lack("train"):
            notes.add(
                "said", f"the domain {domain} has no training data, and is scored all the same"
            )
    odd = sorted(set(renamed) - met)
    if odd:
        raise UserError(
            f'The label mapping names "{odd[0]}", which is no type of these corpora.{nearest(odd[0], met)}'
        )
    name = "+".join(folder.resolve().name for _, folder in found)
    if (holding := now()) is not None:
        splits, covered = _as_the_study_says(holding, splits, name, notes)
        named = list(holding.classes)
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
    kinds = ", ".join(dict.fromkeys(kind for kind, _ in found))
    sizes = {
        split: len(some)
        for split, some in documents.items()
        if not any(f"/{NO_DOCUMENTS} " in d for d in some)
    }
    return Content(
        name=name,
        note=f"read as {kinds}",
        types=types,
        domains=domains,
        covered={d: frozenset(t) for d, t in covered.items()},
        splits=splits,
        reading=Reading(kinds, held(files), notes.all(), sizes),
    )


def _as_the_study_says(
    holding: Holding, splits: Splits, name: str, notes: Notes
) -> tuple[Splits, dict[str, set[str]]]:
    """Under the study's names, and what each domain's annotation covers."""
    found = Counter(t for some in splits.values() for s in some for *_, t in s.entities)
    to = holding.names(found, f'The corpus "{name}"', notes)
    splits = {split: [_renamed(s, to) for s in some] for split, some in splits.items()}
    covered: dict[str, set[str]] = {}
    for some in splits.values():
        for s in some:
            covered.setdefault(s.domain, set(holding.tags)).update(t for *_, t in s.entities)
    return splits, covered


def _renamed(s: Sentence, renamed: Mapping[str, str]) -> Sentence:
    kept = tuple((a, b, renamed.get(t, t)) for a, b, t in s.entities if renamed.get(t, t))
    return replace(s, entities=tuple(dict.fromkeys(kept)))
