"""Which file of a folder is which split, for all tasks and formats.

A split is told by whole words of a name, never by a part of a word: `device_01.txt` is no dev
split. Words are runs of letters: `eng.train`, `semeval_train.txt`, `CDR_TestSet.PubTator.txt`.
CoNLL-2003's `testa` and `testb` are dev and test. A file whose name says train and dev
(`train_dev.tsv`) holds both. It is read only where there is no training file beside it, and then
there must be no dev file either: nobody may train on what selects the model.

A folder tells the split of all files below it (`train/`, `Test/`). Where every document is a file
of its own, only folders do, since a note may be called `blood_test_001.txt`.

Two files for one split are an error that names them. They are read together, and the notes say so,
if they are numbered parts (`train-00000-of-00002`) or lie in the split's own folder.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from config.errors import UserError
from corpora.holding import may_lack, only_held
from corpora.notes import Note, Notes

__all__ = [
    "BOTH",
    "PUBLIC",
    "Assigned",
    "NoSplit",
    "assign",
    "cut_documents",
    "data_files",
    "is_own",
    "split_of",
    "training_file",
]

BOTH = "train+dev"  #: a file that holds two splits
PUBLIC = "public"  #: FedED's labelled public set
_SETS = ("", "set", "data", "file", "ing")
_TRAIN = {f"{w}{s}" for w in ("train",) for s in _SETS} | {"trainingset", "trainingdata", "trn"}
_DEV = {f"{w}{s}" for w in ("dev", "devel", "develop", "development") for s in _SETS}
_DEV |= {f"{w}{s}" for w in ("val", "valid", "validation", "tune") for s in _SETS} | {"testa"}
_TEST = {f"{w}{s}" for w in ("test",) for s in _SETS} | {"testingset", "testb", "tst"}
_WORDS = {
    **dict.fromkeys(_TRAIN, "train"),
    **dict.fromkeys(_DEV, "dev"),
    **dict.fromkeys(_TEST, "test"),
    **dict.fromkeys(("traindev", "traindevel", "trainval", "trainvalid"), BOTH),
    "public": PUBLIC,
}
#: files about a corpus, by the whole of their name: a note may be called notice_01.txt
_ABOUT = re.compile(
    r"(readme(?![a-z]).*|licen[cs]e|citation|changelog|copying|notice)(\.(txt|md|rst|cff|html|pdf))?",
    re.I,
)
_CAPITALS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  #: before a word, as in NCBItrainset
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  #: of a word, as in goldTrain
_SHARD = re.compile(r"\d+-of-\d+")
_SEEN = 12  #: files that an error names


def _splits_in(name: str) -> set[str]:
    found: set[str] = set()
    for word in re.findall(r"[^\W\d_]+", name):
        parts = (word.lstrip(_CAPITALS), *_PARTS.findall(word))
        for part in (word,) if word.lower() in _WORDS else parts:
            split = _WORDS.get(part.lower(), "")
            found |= {"train", "dev"} if split == BOTH else {split} - {""}
    return found


def split_of(name: str) -> str:
    """train, dev, test, public, `BOTH`, or nothing: the name says no split, or two that no file has
    together.
    """
    found = _splits_in(name)
    if found == {"train", "dev"}:
        return BOTH
    return found.pop() if len(found) == 1 else ""


def data_files(folder: Path) -> list[Path]:
    """Every file below a folder but hidden ones and those about the corpus (README, LICENSE)."""
    found = []
    for path in sorted(_below(folder)):
        parts = path.relative_to(folder).parts
        if any(p.startswith(".") for p in parts) or path.name.endswith("~"):
            continue
        if path.is_file() and not _ABOUT.fullmatch(path.name):
            found.append(path)
    return found


def _below(folder: Path) -> Iterator[Path]:
    """What is below, but folders. A folder that is closed to this user is an error, and not empty."""

    def closed(error: OSError) -> None:
        if isinstance(error, PermissionError):
            raise error

    for here, _, names in os.walk(folder, onerror=closed):
        yield from (Path(here) / name for name in names)


def is_own(folder: Path, path: Path) -> bool:
    """Whether a file is of the corpus in this folder: it lies there, or in a folder that names its
    split. Other folders are corpora of their own.
    """
    above = path.relative_to(folder).parts[:-1]
    return not above or split_of(above[0]) != ""


def training_file(folder: Path) -> Path | None:
    """A file of the training split, for telling the format. That there are several is said when
    they are read.
    """
    found: dict[str, Path] = {}
    for path in data_files(folder):
        if is_own(folder, path):
            parts = path.relative_to(folder).parts
            found.setdefault(next(filter(None, map(split_of, parts)), ""), path)
    # a coordinator's folder has none
    held_out = ("test", "dev") if may_lack("train") else ()
    return next((found[s] for s in ("train", BOTH, *held_out) if s in found), None)


class NoSplit(UserError):
    """A corpus lacks a split that it needs."""

    def __init__(self, split: str, text: str) -> None:
        super().__init__(text)
        self.split = split


@dataclass(frozen=True)
class Assigned:
    """The files of a corpus by split, as their names tell."""

    folder: Path
    files: Mapping[str, tuple[Path, ...]]  #: train, dev, test, public: those that there are
    unsplit: tuple[Path, ...] = ()  #: files of the format whose names say nothing
    notes: tuple[Note, ...] = ()
    _seen: tuple[str, ...] = field(default=(), repr=False)

    def names(self) -> dict[str, tuple[str, ...]]:
        """As `corpora.notes.Reading` has them."""
        return {
            split: tuple(str(p.relative_to(self.folder)) for p in files)
            for split, files in self.files.items()
        }

    def need(self, *splits: str) -> None:
        """Refuses a corpus without one of these; says which files were looked at."""
        for split in splits:
            if split in self.files:
                continue
            seen = ", ".join(self._seen[:_SEEN]) or "none"
            seen += f" and {len(self._seen) - _SEEN} more" * (len(self._seen) > _SEEN)
            raise NoSplit(
                split,
                f'{self.folder} has no {split} file: a file or folder with the word "{split}" in its '
                f"name, plain or gzipped. Files seen: {seen}.",
            )


def assign(
    folder: Path,
    wanted: Callable[[Path], bool] = lambda path: True,
    *,
    document_files: bool = False,
    better: Callable[[Sequence[Path]], Sequence[Path]] | None = None,
) -> Assigned:
    """The files below `folder` that `wanted` takes, by split.

    `document_files`: every document is a file of its own, so that only folders tell splits (and a
    file that is called train and nothing else). `better` chooses among several files of one split
    where a publisher is known to offer several.
    """
    notes = Notes()
    found: dict[str, list[Path]] = {}
    by_folder: dict[str, list[Path]] = {}
    seen: list[str] = []
    for path in filter(wanted, data_files(folder)):
        parts = path.relative_to(folder).parts
        above = next(filter(None, map(split_of, parts[:-1])), "")
        split = above or _of_file(parts[-1], document_files)
        (by_folder if above else found).setdefault(split, []).append(path)
        seen.append(f"{Path(*parts)} ({split or 'no split'})")
    for split in list(found):
        if split and len(found[split]) > 1 and better is not None:
            found[split] = list(better(found[split]))
        if split and split in by_folder:
            _several(folder, split, [*found[split], *by_folder[split]])
        if split and len(found[split]) > 1:
            _one_or_parts(folder, split, found[split], notes)
    for split, paths in by_folder.items():
        found[split] = list(better(paths)) if better is not None else paths
    _both(folder, found, notes)
    unsplit = tuple(found.pop("", ()))
    files = {s: tuple(found[s]) for s in ("train", "dev", "test", PUBLIC) if s in found}
    return only_held(Assigned(folder, files, unsplit, notes.all(), tuple(seen)))


def _of_file(name: str, document_files: bool) -> str:
    if not document_files:
        return split_of(name)
    return _WORDS.get(name.partition(".")[0].lower(), "")


def _names(folder: Path, paths: Iterable[Path]) -> str:
    return ", ".join(str(p.relative_to(folder)) for p in paths)


def _several(folder: Path, split: str, paths: Sequence[Path]) -> None:
    raise UserError(
        f"{folder} has several files for {split} ({_names(folder, paths[:_SEEN])}); keep one, or put "
        f"those that belong together into a folder called {split}."
    )


def _one_or_parts(folder: Path, split: str, paths: Sequence[Path], notes: Notes) -> None:
    stems = {(p.parent, _SHARD.sub("#", p.name)) for p in paths}
    if len(stems) > 1 or not _SHARD.search(paths[0].name):
        _several(folder, split, paths)
    notes.add("merged", f"numbered files are the {split} split", count=len(paths))


def _both(folder: Path, found: dict[str, list[Path]], notes: Notes) -> None:
    """A file with train and dev together: beside a training file it is passed over."""
    if BOTH not in found:
        return
    joint = found.pop(BOTH)
    names = _names(folder, joint)
    if "train" in found:
        notes.add(
            "skipped", f"file holds train and dev together, and train is there alone: {names}"
        )
    elif "dev" in found:
        raise UserError(
            f"{names} in {folder} holds train and dev together, and {_names(folder, found['dev'])} is dev: "
            "what selects the model would be trained on. Keep one of them, or a file of train alone."
        )
    else:
        found["train"] = joint
        notes.add("said", f"{names} holds train and dev together and is read as train")


def cut_documents(documents: Collection[str], wanted: Collection[str]) -> dict[str, str]:
    """Document -> train, or one of `wanted` (dev, test), for corpora that lack these splits.

    About a tenth each, decided by a hash of the document's name alone: the same in every run and at
    every silo. In a corpus so small that a split would be empty, it gets the document with the
    least hash of the largest split. Raises ValueError where there are fewer documents than splits.
    A silo scores nothing, so nothing is cut from its documents.
    """
    wanted = [split for split in wanted if not may_lack(split)]
    if not wanted:
        return dict.fromkeys(documents, "train")
    hashes = {
        d: int.from_bytes(hashlib.blake2b(d.encode(), digest_size=4).digest(), "little")
        for d in documents
    }
    tenth = {0: "test", 1: "dev"}
    made = {
        d: split if (split := tenth.get(h % 10, "")) in wanted else "train"
        for d, h in hashes.items()
    }
    if len(made) <= len(set(wanted)):
        raise ValueError(
            f"{len(made)} documents cannot be cut into train and {' and '.join(wanted)}"
        )
    for split in ("train", *wanted):
        if split not in made.values():
            size = Counter(made.values())
            spare = [d for d, s in made.items() if s == max(size, key=lambda s: (size[s], s))]
            made[min(spare, key=lambda d: (hashes[d], d))] = split
    return made
