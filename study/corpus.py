"""`sottovoce corpus FOLDER`: what a run would be given of a user's data, before anything is trained.

Counts, files, notes and a look at three examples are those of the task that a run would load, so
that what is said here is what a run does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from config.errors import UserError, check_choice
from config.load import load
from config.settings import Settings
from corpora.holding import Holding, Unnamed
from corpora.recognise import choose
from corpora.relations import is_none
from corpora.splits import NoSplit
from methods import tasks_of
from methods.tasks.base import Task
from methods.tasks.distant import DistantTask
from methods.tasks.document import DocumentTask
from methods.tasks.load import load_task, task_name
from methods.tasks.ner import NerTask
from methods.tasks.sentence import SentenceTask

__all__ = ["Shown", "SplitCounts", "as_json", "counts", "domains", "examples", "open_corpus"]

#: The method with which a corpus is looked at where the user names none: of its task alone.
_METHODS = {"document": "fedlcc", "sentence": "fedcmc", "ner": "fedner", "distant": "lazymil"}
_LOOK = 600  #: characters of an example


@dataclass(frozen=True)
class SplitCounts:
    files: tuple[str, ...]
    units: int  #: sentences, or documents
    mentions: int
    relations: int
    labels: Mapping[str, int]
    documents: int | None = None  #: where the files say which they are


@dataclass(frozen=True)
class Shown:
    """A text with its entities, for a look. Spans are half-open and in order."""

    text: str
    entities: tuple[tuple[int, int, str], ...]
    said: tuple[str, ...]  #: relations, in words


def open_corpus(spec: str, overrides: Mapping[str, str]) -> tuple[Settings, Task]:
    """The task of a corpus: of METHOD, of TASK, or the first that can read it."""
    given = {**overrides, "corpus": spec}
    task = given.pop("task", "")
    if task:
        check_choice("task", task, _METHODS)
    if "method" in given:
        possible = tasks_of(given["method"])
        if task and task not in possible:
            raise UserError(
                f"METHOD={given['method']} is for {' and '.join(possible)}, not {task}."
            )
        settings = load(None, given)
        return settings, _loaded(settings)
    for name in (task,) if task else _METHODS:
        settings = load(None, {**given, "method": _METHODS[name]})
        try:
            found = task_name(settings)
        except UserError:
            continue
        if found == name:
            return settings, _loaded(settings)
    choose(spec, (task,) if task else tuple(_METHODS))  # says why none fits
    raise UserError(f'"{spec}" is no corpus that can be read.')


def _loaded(settings: Settings) -> Task:
    """A folder without a test file is read as a silo's, which needs training files and no more."""
    try:
        return load_task(settings)
    except NoSplit as e:
        if e.split != "test":
            raise
        task = task_name(settings)
    try:
        return load_task(settings, Holding(task, (), "train"))
    except Unnamed as e:
        if not e.found:
            raise
        none = next(filter(is_none, e.found), "") if task == "sentence" else ""
        return load_task(settings, Holding(task, e.found, "train", none))


def counts(task: Task) -> dict[str, SplitCounts]:
    """By split. A split that was set aside as the public set is one of its own."""
    if isinstance(task, SentenceTask):
        found = dict(_of_sentences(task))
    elif isinstance(task, DistantTask):
        found = dict(_of_bags(task))
    elif isinstance(task, DocumentTask):
        found = dict(_of_documents(task))
    elif isinstance(task, NerTask):
        found = dict(_of_entities(task))
    else:
        raise TypeError(f"nobody counts the task {task.name}")
    reading = task.reading
    return {
        split: replace(
            c,
            files=tuple(reading.files.get(split, ())),
            documents=reading.documents.get(split, c.documents),
        )
        for split, c in found.items()
    }


def _named(names: tuple[str, ...], numbers: np.ndarray) -> dict[str, int]:
    found = np.bincount(np.asarray(numbers), minlength=len(names))
    return {name: int(n) for name, n in zip(names, found)}


def _of_sentences(task: SentenceTask) -> Iterator[tuple[str, SplitCounts]]:
    for split, rows in task.corpus.splits.items():
        if split == "public" and not len(rows):
            continue
        labels = _named(task.labels, rows.relation)
        spans = {(e.text, s) for e in task.corpus.examples(split) for s in (e.head, e.tail)}
        some = len(rows) - (labels[task.labels[task.none]] if task.none >= 0 else 0)
        yield split, SplitCounts((), len(rows), len(spans), some, labels)


def _of_bags(task: DistantTask) -> Iterator[tuple[str, SplitCounts]]:
    for split in ("train", "dev", "test"):
        rows = task.corpus.split(split)
        labels = _named(task.labels, rows.relation)
        some = len(rows) - labels[task.labels[0]]
        yield split, SplitCounts((), len(rows), 2 * len(rows), some, labels)


def _of_documents(task: DocumentTask) -> Iterator[tuple[str, SplitCounts]]:
    for split in ("train", "dev", "test"):
        c = task.corpus.counts(split)
        seen = Counter(r for d in task.documents(split) for p in d.candidates for r in p.relations)
        labels = {r: seen[r] for r in task.relations}
        yield split, SplitCounts((), c.documents, c.mentions, c.relations, labels, c.documents)


def _of_entities(task: NerTask) -> Iterator[tuple[str, SplitCounts]]:
    for split, rows in task.corpus.splits.items():
        labels = _named(task.labels, rows.entities[:, 2])
        yield split, SplitCounts((), len(rows), len(rows.entities), 0, labels)


def domains(task: Task) -> dict[str, int]:
    """Domain -> units in all splits; nothing where a task has none."""
    if not isinstance(task, NerTask):
        return {}
    corpus = task.corpus
    every = np.concatenate([np.asarray(rows.domain) for rows in corpus.splits.values()])
    return _named(corpus.domains, every)


def as_json(task: Task) -> dict[str, Any]:
    found = {split: asdict(c) for split, c in counts(task).items()}
    for split in found.values():
        del split["documents"]
    return {
        "task": task.name,
        "format": task.reading.format,
        "splits": found,
        "domains": domains(task),
        "notes": [asdict(n) for n in task.notes()],
    }


def examples(task: Task, count: int = 3) -> list[Shown]:
    """Training units that say something, spread over the split: the same ones every time."""
    if isinstance(task, SentenceTask):
        some = [i for i, r in enumerate(task.corpus.splits["train"].relation) if r != task.none]
        return [_sentence(task, i) for i in _spread(some, task.train_size(), count)]
    if isinstance(task, DistantTask):
        some = np.flatnonzero(np.asarray(task.corpus.train.relation)).tolist()
        return [_bag_sentence(task, i) for i in _spread(some, task.train_size(), count)]
    if isinstance(task, DocumentTask):
        some = [
            i for i, d in enumerate(task.documents("train")) if any(p.relations for p in d.pairs)
        ]
        return [_document(task, i) for i in _spread(some, task.train_size(), count)]
    assert isinstance(task, NerTask)
    rows = task.corpus.splits["train"]
    some = np.flatnonzero(np.diff(rows.entity_at)).tolist()
    return [_tagged(task, i) for i in _spread(some, len(rows), count)]


def _spread(some: list[int], all_: int, count: int) -> list[int]:
    chosen = some or list(range(all_))
    return [chosen[int(k)] for k in np.unique(np.linspace(0, len(chosen) - 1, count).astype(int))]


def _sentence(task: SentenceTask, row: int) -> Shown:
    rows = task.corpus.splits["train"]
    a, b, c, d = rows.spans[row].tolist()
    kinds = [task.corpus.types[t] for t in rows.types[row]]
    text = rows.sentence(row)
    relation = task.labels[int(rows.relation[row])]
    spans = tuple(sorted([(a, b, kinds[0]), (c, d, kinds[1])]))
    return Shown(text, spans, (f"{text[a:b]} — {relation} — {text[c:d]}",))


def _bag_sentence(task: DistantTask, row: int) -> Shown:
    corpus, rows = task.corpus, task.corpus.train
    words = [corpus.words[t] for t in rows.tokens[rows.offsets[row] : rows.offsets[row + 1]]]
    starts = np.concatenate([[0], np.cumsum([len(w) + 1 for w in words])])
    spans = [
        (int(starts[at]), int(starts[at] + len(words[at])), kind)
        for at, kind in ((int(rows.head_at[row]), "head"), (int(rows.tail_at[row]), "tail"))
    ]
    names = corpus.entities[int(rows.head[row])], corpus.entities[int(rows.tail[row])]
    relation = task.labels[int(rows.relation[row])]
    return Shown(" ".join(words), tuple(sorted(spans)), (f"{names[0]} — {relation} — {names[1]}",))


def _document(task: DocumentTask, row: int) -> Shown:
    d = task.documents("train")[row]
    spans = {(a, b, e.type) for e in d.entities for a, b in e.mentions if b <= _LOOK}

    def name(number: int) -> str:
        a, b = d.entities[number].mentions[0]
        return d.text[a:b]

    said = [f"{name(p.head)} — {r} — {name(p.tail)}" for p in d.candidates for r in p.relations]
    more = "…" if len(d.text) > _LOOK else ""
    return Shown(d.text[:_LOOK] + more, tuple(sorted(spans)), tuple(said[:3]))


def _tagged(task: NerTask, row: int) -> Shown:
    rows = task.corpus.splits["train"]
    words = rows.words(row)
    starts = np.concatenate([[0], np.cumsum([len(w) + 1 for w in words])]).tolist()
    spans = tuple((starts[a], starts[b] - 1, task.labels[t]) for a, b, t in rows.spans(row))
    return Shown(" ".join(words), spans, ())
