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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from config.errors import UserError, nearest
from corpora.lines import file_hash, find, lines
from corpora.sentence import folders
from corpora.sentence import one_a_line as by_line
from corpora.sentence.table import Content, Example, SentenceCorpus, cached, divide

__all__ = ["FORMATS", "load", "recognise"]

_VERSION = 1  #: part of the cache key: bump it when the same files would give other examples
_LINE = {"jsonl": by_line.own, "blinded": by_line.blinded, "chemprot": by_line.chemprot}
# others: None
_NOTHING = {"blinded": by_line.FALSE, "pgr": by_line.FALSE, "chemprot": "", "biocreative": ""}
FORMATS = (*_LINE, "biocreative", "pgr", "ddi", "i2b2", "hub")
Splits = dict[str, list[Example]]


def load(spec: str, seed: int, public: float) -> SentenceCorpus:
    """The corpus that `spec` names, from the cache or read now."""
    kind, positive, place = _parsed(spec)
    source: dict[str, Any] = {
        "reader": kind,
        "version": _VERSION,
        "positive": positive,
        "public": public,
        "seed": seed,
    }
    if kind == "hub":
        return cached(
            {**source, "hub": place},
            lambda: _content(
                place,
                kind,
                positive=positive,
                splits=_hub(place),
                note="",
                seed=seed,
                public=public,
            ),
        )
    folder = Path(place)
    if not folder.is_dir():
        raise UserError(f'The corpus "{place}" is not a folder.')
    kind = kind or recognise(folder)
    if not kind:
        raise UserError(
            f"{folder}: no sentence-relation format that we know ({', '.join(FORMATS[:-1])})."
        )
    files = {
        str(p.relative_to(folder)): file_hash(p) for p in sorted(folder.rglob("*")) if p.is_file()
    }

    def build() -> Content:
        splits, note = _read(folder, kind)
        listed = folder / "relations.txt"
        names = (
            [text.strip() for _, text in lines(listed) if text.strip()] if listed.is_file() else []
        )
        return _content(
            folder.resolve().name,
            kind,
            positive=positive,
            splits=splits,
            note=note,
            seed=seed,
            public=public,
            listed=names,
        )

    return cached({**source, "reader": kind, "name": folder.resolve().name, "files": files}, build)


def recognise(folder: Path) -> str:
    """Which format a folder is in; empty if none that we know."""
    names = [p.name.lower().removesuffix(".gz") for p in folder.rglob("*") if p.is_file()]
    if any(n.endswith(".con") for n in names):
        return "i2b2"
    if any(n.endswith(".xml") for n in names):
        return "ddi"
    if any("relations" in n and n.endswith(".tsv") for n in names):
        return "biocreative"
    train = find(folder, "train")
    first = (
        next((text for _, text in lines(train) if text.strip()), "") if train is not None else ""
    )
    if first.startswith("FILE_ID\tSENTENCE\t"):
        return "pgr"
    if re.search(r"@[A-Z]+\$", first):
        return "blinded"
    if first.lstrip().startswith("{") and '"label"' in first:
        return "chemprot"
    if first.lstrip().startswith("{") and '"head"' in first and '"tail"' in first:
        return "jsonl"
    return ""


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


def _examples(
    path: Path, parse: Callable[[str], Example], skip_header: bool = False
) -> Iterator[Example]:
    """Every example of a file; blank lines are passed over; a line that `parse` refuses is
    named.
    """
    for number, line in lines(path):
        if not line.strip() or (number == 1 and skip_header):
            continue
        try:
            example = parse(line)
            if example.problem():
                raise ValueError(example.problem())
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as e:
            what = f"missing {e}" if isinstance(e, KeyError) else str(e)
            raise UserError(
                f"{path}, line {number}: not an example of this format: {what}."
            ) from None
        yield example


def _read(folder: Path, kind: str) -> tuple[Splits, str]:
    """Train, test and dev (empty if there is none), and what a report must say."""
    if kind in _LINE:
        return _files(folder, _LINE[kind]), f"read as {kind}"
    if kind == "pgr":
        return _pgr(folder)
    splits: Splits = {}
    lost = 0
    for role in ("train", "test", "dev"):
        if kind == "biocreative":
            name = {"train": "train", "test": "test", "dev": "devel"}[role]
            present = any(name in p.name.lower() for p in folder.rglob("*.tsv*"))
            splits[role], missing = folders.biocreative(folder, name) if present else ([], 0)
        else:
            inside = [p for p in sorted(folder.rglob("*")) if p.is_dir() and role in p.name.lower()]
            tops = [p for p in inside if not any(q in p.parents for q in inside)]
            found = [(folders.i2b2 if kind == "i2b2" else folders.ddi)(p) for p in tops]
            splits[role] = [e for examples, _ in found for e in examples]
            missing = sum(n for _, n in found)
        lost += missing
    note = f"read as {kind}"
    return splits, note + (f"; {lost} relations across sentences left out" if lost else "")


def _files(folder: Path, parse: Callable[[str], Example]) -> Splits:
    splits: Splits = {"dev": []}
    roles = (
        ("train", ("train",)),
        ("test", ("test",)),
        ("dev", ("dev", "val")),
        ("public", ("public",)),
    )
    for role, stems in roles:
        path = find(folder, *stems)
        if path is None and role in ("train", "test"):
            raise UserError(
                f"{folder} has no {role} file: a file with {role} in its name, plain or gzipped."
            )
        if path is not None:
            first = next((text for _, text in lines(path)), "")
            splits[role] = list(_examples(path, parse, first.lower().startswith("index\t")))
    return splits


def _pgr(folder: Path) -> tuple[Splits, str]:
    """The distantly labelled file to train on; the expert-labelled one for test, its sentences not
    trained on.
    """
    train_file, test_file = find(folder, "train"), find(folder, "test")
    if train_file is None or test_file is None:
        raise UserError(f"{folder} needs a train and a test file, plain or gzipped.")
    train = list(_examples(train_file, by_line.pgr, skip_header=True))
    test = list(_examples(test_file, by_line.blinded, skip_header=True))
    shared = _standing_in(test, {e.text for e in train})
    kept = [e for e in train if e.text not in shared]
    note = f"read as pgr; {len(train) - len(kept)} training examples left out whose sentences stand in the test file"
    return {"train": kept, "test": test, "dev": []}, note


def _standing_in(test: list[Example], texts: set[str]) -> set[str]:
    """Those of `texts` that are a test sentence once its two blinded entities are filled in
    again.
    """
    joined, found = "\n".join(texts), set()
    for e in test:
        parts = re.split(r"@[A-Z]+\$", e.text)
        longest = max(parts, key=len)
        # most are not there at all; asking so is a hundred times faster than matching
        if longest not in joined:
            continue
        whole = re.compile(".+?".join(map(re.escape, parts)))
        found |= {t for t in texts if longest in t and whole.fullmatch(t)}
    return found


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
            splits[role] = [by_line.own_row(dict(row)) for row in loaded[found]] if found else []
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
    note: str,
    seed: int,
    public: float,
    listed: Sequence[str] = (),
) -> Content:
    none = _NOTHING.get(kind, by_line.NONE)
    if positive and none:
        splits = {role: [e for e in some if e.relation != none] for role, some in splits.items()}
        note, none = f"{note}; examples without a relation left out", ""
    for role in ("train", "test"):
        if not splits[role]:
            raise UserError(f'The corpus "{name}" has no {role} examples.')
    known = {e.relation for some in splits.values() for e in some}
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
    if not splits["dev"]:
        note += "; a tenth of the training data held out for choosing the round"
    given = splits.get("public", [])
    cut = divide(splits["train"], splits["dev"], 0.0 if given else public, seed)
    cut["public"] = given or cut["public"]
    return Content(name, note.lstrip("; "), relations, none, {**cut, "test": splits["test"]})
