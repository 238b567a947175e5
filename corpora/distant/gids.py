"""GIDS (Jat et al. 2018), the Google-IISc distant supervision set: NYT10's columns without its list
of relations, and entities as words joined by `_`.

Its training file cannot be had any more. Where only dev and test are there, the larger of the two is
trained on, the other is the test split, and dev is held out by pair.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from corpora.distant.rows import Row
from corpora.lines import first_line
from corpora.notes import Notes
from corpora.splits import Assigned, data_files, split_of

__all__ = ["gids", "is_gids", "without_train"]

_END = "###END###"


def is_gids(folder: Path) -> bool:
    """Whether a training, dev or test file of the folder has these columns."""
    for path in data_files(folder):
        fields = first_line(path).split("\t") if split_of(path.name) else []
        if len(fields) in (6, 7) and _END in fields[-1] + fields[-2] and all(fields[:5]):
            return True
    return False


def without_train(found: Assigned) -> Assigned:
    """The larger of dev and test is trained on, where they are all there is."""
    if "train" in found.files or not {"dev", "test"} <= set(found.files):
        return found
    size = {s: sum(p.stat().st_size for p in found.files[s]) for s in ("dev", "test")}
    larger = max(size, key=lambda s: (size[s], s))
    other = "dev" if larger == "test" else "test"
    notes = Notes()
    notes.take(found.notes)
    said = f"there is no training file: the {larger} file, the larger one, is trained on, and the {other} file is test"
    notes.add("said", said)
    files = {"train": found.files[larger], "test": found.files[other]}
    return replace(found, files=files, notes=notes.all())


def gids(line: str, inside: Callable[[str], None] = lambda name: None) -> Iterator[Row]:
    """`inside` is told the name of an entity that is a part of a word, and stands where the word
    does.
    """
    fields = line.split("\t")
    if len(fields) not in (6, 7):
        raise ValueError(f"{len(fields)} fields between tabs instead of 6")
    head_id, tail_id, head, tail, relation, sentence = (f.strip() for f in fields[:6])
    text = sentence.removesuffix(_END).strip()
    starts = [m.start() for m in re.finditer(r"\S+", text)]
    places = []
    for name in (head, tail):
        whole = re.search(rf"(?<!\S){re.escape(name)}(?!\S)", text) if name else None
        # else a full stop or a bracket clings to it, or it is a part of the other's name
        at = whole.start() if whole else text.find(name)
        if not name or at < 0:
            raise ValueError(f'the entity "{name}" does not stand in its sentence')
        if whole is None:
            inside(name)
        places.append(bisect.bisect_right(starts, at) - 1)
    yield Row(text.split(), places[0], places[1], head_id, tail_id, relation)
