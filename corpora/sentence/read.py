"""Real sentence-relation corpora from a folder the user names, in the format they are published in,
or from the hub.

`CORPUS=folder` recognises the format; `CORPUS=format:folder` says it (blinded, chemprot,
biocreative, pgr, ddi, i2b2, jsonl); `CORPUS=format,positive:folder` leaves out the examples without
a relation, as FedCMC does with i2b2; and `CORPUS=hub:owner/name` loads a dataset whose columns are
those of our own JSON lines.

Where a corpus has no dev split a tenth of its training data becomes one, since nobody may train on
what selects the model. D_v is cut from the training data, unless the folder has a file of its own
for it (`public.jsonl`): silos that hold their own data must all hold the same one. For the same
reason `relations.txt`, one relation a line, fixes the relations and their order where the data of
one silo would not show them all. Nothing read here is ever copied out of the user's cache.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from config.errors import UserError, nearest
from corpora.formats import NEEDS, unknown_format
from corpora.holding import Holding, held, may_lack, now, reading
from corpora.json_rows import first_json
from corpora.lines import corpus_folder, file_hash, first_line, lines, plain_name
from corpora.notes import Notes, Reading
from corpora.records import is_saved
from corpora.relations import nones
from corpora.sentence import one_a_line as by_line
from corpora.sentence.files import PGR_HEADER, Splits, read_files
from corpora.sentence.given import GIVEN, read_given, recognise_given
from corpora.sentence.table import Content, SentenceCorpus, cached, divide
from corpora.splits import PUBLIC, data_files, training_file
from corpora.standoff.bioc import is_bioc

__all__ = ["FORMATS", "load", "recognise"]

_VERSION = 3  #: part of the cache key: bump it when the same files would give other examples
#: The relation that says there is none, where a format fixes it. Others: "None", or what is called so.
_NOTHING = {"blinded": by_line.FALSE, "pgr": by_line.FALSE, "chemprot": "", "biocreative": ""}
FORMATS = (*NEEDS["sentence"], "hub")


def load(
    spec: str, seed: int, public: float, columns: str = "", holding: Holding | None = None
) -> SentenceCorpus:
    """The corpus that `spec` names, from the cache or read now. `columns`: which column of a table
    is which (`corpora.sentence.rows`). `holding`: what its party has of a study's data.
    """
    with reading(holding):
        return _load(spec, seed, public, columns)


def _load(spec: str, seed: int, public: float, columns: str) -> SentenceCorpus:
    holding = now()
    kind, positive, place = _parsed(spec)
    source: dict[str, Any] = {
        "reader": kind,
        "version": _VERSION,
        "positive": positive,
        "public": public,
        "seed": seed,
        **({"columns": columns} if columns else {}),
        **({"holding": holding.source()} if holding is not None else {}),
    }
    if kind == "hub":
        return cached(
            {**source, "hub": place},
            lambda: _content(
                place,
                kind,
                positive=positive,
                splits=_hub(place),
                reading=Reading("hub", {}),
                seed=seed,
                public=public,
            ),
        )
    folder = corpus_folder(place)
    kind = kind or recognise(folder, columns)
    if not kind:
        raise unknown_format(folder, ("sentence",))
    if columns and kind != "table":
        raise UserError(f'Option "columns" is for tables, and {folder} is read as {kind}.')
    files = {str(p.relative_to(folder)): file_hash(p) for p in data_files(folder)}

    def build() -> Content:
        notes = Notes()
        if kind in GIVEN:
            splits, assigned = read_given(folder, kind, columns, notes)
        else:
            splits, assigned = read_files(folder, kind, notes)
        how = Reading(kind, assigned.names(), (*assigned.notes, *notes.all(folder)))
        listed = folder / "relations.txt"
        names = (
            [text.strip() for _, text in lines(listed) if text.strip()] if listed.is_file() else []
        )
        return _content(
            folder.resolve().name,
            kind,
            positive=positive,
            splits=splits,
            reading=how,
            seed=seed,
            public=public,
            listed=names,
        )

    return cached({**source, "reader": kind, "name": folder.resolve().name, "files": files}, build)


def recognise(folder: Path, columns: str = "") -> str:
    """Which format a folder is in; empty if none that we know."""
    return _recognise(folder) or recognise_given(folder, columns)


def _recognise(folder: Path) -> str:
    files = data_files(folder)
    names = [plain_name(p) for p in files]
    if any(n.endswith(".con") for n in names):
        return "i2b2"
    if any(n.endswith(".xml") and not is_bioc(p) for n, p in zip(names, files)):
        return "ddi"
    if any("relations" in n and n.endswith(".tsv") for n in names):
        return "biocreative"
    if is_saved(folder):
        return ""
    train = training_file(folder)
    first = first_line(train) if train is not None else ""
    if first.startswith(PGR_HEADER):
        return "pgr"
    if re.search(r"@[A-Z]+\$", first) and not first.lstrip().startswith(("{", "[")):
        return "blinded"
    if train is None or not first.lstrip().startswith(("{", "[")):
        return ""
    row = first_json(train)
    if isinstance(row, dict) and "text" in row and row.get("label") in by_line.CPR:
        return "chemprot"
    if not isinstance(row, dict) or not {"head", "tail", "text", "relation"} <= set(row):
        return ""
    return "jsonl" if isinstance(row["head"], dict) else ""


def _parsed(spec: str) -> tuple[str, bool, str]:
    kind, colon, place = spec.partition(":")
    name, comma, option = kind.partition(",")
    if not colon or Path(spec).exists():
        return "", False, spec
    if name not in FORMATS:
        raise UserError(f'Unknown corpus format "{name}".{nearest(name, FORMATS)}')
    if comma and option != "positive":
        raise UserError(f'After "{name}," only "positive" is understood, not "{option}".')
    return name, bool(comma), place


def _hub(name: str) -> Splits:
    import os

    os.environ["HF_HUB_OFFLINE"] = "0"  # the user named it
    import datasets

    try:
        loaded = datasets.load_dataset(name)
    except Exception as e:  # the hub's own errors are of many kinds; all mean that it cannot be had
        raise UserError(
            f'The hub dataset "{name}" cannot be loaded: {str(e).splitlines()[0]}'
        ) from None
    splits: Splits = {"dev": []}
    for role, names in (("train", ("train",)), ("test", ("test",)), ("dev", ("dev", "validation"))):
        found = next((n for n in names if n in loaded), None)
        if found is None and role != "dev":
            raise UserError(f'The hub dataset "{name}" has no {role} split.')
        try:
            splits[role] = [by_line.own(dict(row)) for row in loaded[found]] if found else []
        except (KeyError, ValueError, TypeError) as e:
            raise UserError(
                f'The hub dataset "{name}", split {found}: columns other than ours ({e}).'
            ) from None
    return splits


def _content(
    name: str,
    kind: str,
    *,
    positive: bool,
    splits: Splits,
    reading: Reading,
    seed: int,
    public: float,
    listed: Sequence[str] = (),
) -> Content:
    notes = Notes()
    notes.take(reading.notes)
    known = {e.relation for some in splits.values() for e in some}
    none = _NOTHING.get(kind, by_line.NONE)
    if none == by_line.NONE and now() is None:  # a study says which class it is
        said = nones(known, by_line.NONE, notes)
        none = none if none in said or not said else min(said)
        splits = {
            role: [replace(e, relation=none) if e.relation in said else e for e in some]
            for role, some in splits.items()
        }
        known = known - said | ({none} & (said | known))
    if positive and none:
        before = sum(map(len, splits.values()))
        splits = {role: [e for e in some if e.relation != none] for role, some in splits.items()}
        gone = before - sum(map(len, splits.values()))
        notes.add("skipped", "examples without a relation left out", count=gone)
        known, none = known - {none}, ""
    for role in ("train", "test"):
        if not splits.setdefault(role, []) and not may_lack(role):
            raise UserError(f'The corpus "{name}" has no {role} examples.')
    if (holding := now()) is not None:
        found = Counter(e.relation for some in splits.values() for e in some)
        to = holding.names(found, f'The corpus "{name}"', notes)
        splits = {
            role: [replace(e, relation=to[e.relation]) for e in some if to[e.relation]]
            for role, some in splits.items()
        }
        known, none, listed = set(holding.classes), holding.none, holding.classes
    if listed:
        odd = sorted(known - set(listed))
        if odd:
            raise UserError(
                f'The corpus "{name}": the relation "{odd[0]}" is not listed in relations.txt.'
            )
        known = set(listed)
    if none not in known:
        none = ""
    relations = tuple(listed) or ((none,) if none else ()) + tuple(sorted(known - {none}))
    given = splits.get(PUBLIC, [])
    cut = divide(splits["train"], splits["dev"], 0.0 if given else public, seed)
    cut[PUBLIC] = given or cut[PUBLIC]
    files: Mapping[str, tuple[str, ...]] = reading.files
    lacks = [s for s in ("dev", "train") if not cut[s] and not may_lack(s)]
    if lacks:
        raise UserError(
            f'The corpus "{name}" has no dev file, and its {len(splits["train"])} training examples are '
            "too few to cut one from: give it a file with dev in its name."
        )
    if not splits["dev"] and not may_lack("dev"):
        files = {**files, "dev": ()}
        text = f"of {len(splits['train'])} training examples became dev, for choosing the round"
        notes.add("cut", text, count=len(cut["dev"]))
    return Content(
        name,
        f"read as {kind}",
        relations,
        none,
        {**cut, "test": splits["test"]},
        Reading(kind, held(files), notes.all()),
    )
