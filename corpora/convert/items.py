"""What a corpus of any task holds, in plain records that can be written and compared.

Two corpora are the same here if every split has the same items: sentences with words, entities and
domain; examples with text, spans, types and relation; documents with text, entities and pairs; rows
with words, entities and relation. Names of labels count, their order and numbers do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from config.errors import UserError
from corpora.distant import read as distant
from corpora.distant.rows import Row
from corpora.distant.table import Corpus
from corpora.document import read as documents
from corpora.document.table import Document, DocumentCorpus
from corpora.ner import read as ner
from corpora.ner.table import NerCorpus, Sentence
from corpora.sentence import read as sentences
from corpora.sentence.table import Example, SentenceCorpus

__all__ = ["TASKS", "Difference", "Loaded", "difference", "load", "of_corpus"]

TASKS = ("document", "sentence", "ner", "distant")  #: in the order in which they are tried
Item = Sentence | Example | Document | Row


@dataclass(frozen=True)
class Loaded:
    task: str
    name: str
    format: str
    splits: Mapping[str, Sequence[Any]]
    labels: tuple[str, ...]  #: relations, or types of entities
    none: str = ""  #: the relation that says there is none
    note: str = ""


@dataclass(frozen=True)
class Difference:
    """What one corpus has and the other has not."""

    split: str
    lost: int
    added: int
    example: str


def load(spec: str, task: str, *, columns: str = "", mapping: str = "", entity: str = "") -> Loaded:
    """The corpus that `spec` names, as this task reads it. No public set is cut off."""
    if task == "sentence":
        return of_corpus(task, sentences.load(spec, 0, 0.0, columns))
    if task == "document":
        return of_corpus(task, documents.load(spec))
    if task == "ner":
        return of_corpus(task, ner.load(spec, mapping, "", columns, entity))
    if task == "distant":
        return of_corpus(task, distant.load(spec))
    raise UserError(f'There is no task "{task}": {", ".join(TASKS)}.')


def of_corpus(task: str, corpus: Any) -> Loaded:
    none = ""
    if isinstance(corpus, NerCorpus):
        splits: dict[str, list[Any]] = {s: list(_sentences(corpus, s)) for s in corpus.splits}
        labels = corpus.types
    elif isinstance(corpus, SentenceCorpus):
        splits = {s: list(corpus.examples(s)) for s in corpus.splits}
        labels = corpus.relations
        none = str(corpus.meta["none"])
    elif isinstance(corpus, DocumentCorpus):
        splits = {s: list(corpus.documents(s)) for s in ("train", "dev", "test")}
        labels = corpus.relations
    elif isinstance(corpus, Corpus):
        splits = {s: list(_rows(corpus, s)) for s in ("train", "dev", "test")}
        labels = corpus.relations
    else:
        raise TypeError(type(corpus).__name__)
    return Loaded(
        task=task,
        name=corpus.name,
        format=corpus.reading.format,
        splits=splits,
        labels=tuple(labels),
        none=none,
        note=corpus.note,
    )


def _sentences(corpus: NerCorpus, split: str) -> Iterator[Sentence]:
    rows = corpus.splits[split]
    for i in range(len(rows)):
        entities = tuple((a, b, corpus.types[t]) for a, b, t in rows.spans(i))
        yield Sentence(tuple(rows.words(i)), entities, corpus.domains[int(rows.domain[i])])


def _rows(corpus: Corpus, split: str) -> Iterator[Row]:
    s = corpus.split(split)
    for i in range(len(s)):
        words = [corpus.words[t] for t in s.tokens[s.offsets[i] : s.offsets[i + 1]]]
        head, tail = corpus.entities[int(s.head[i])], corpus.entities[int(s.tail[i])]
        relation = corpus.relations[int(s.relation[i])]
        yield Row(words, int(s.head_at[i]), int(s.tail_at[i]), head, tail, relation)


def _plain(item: Any) -> Hashable:
    """An item without what is in an order of its own."""
    if isinstance(item, Sentence):
        return item.words, tuple(sorted(item.entities)), item.domain
    if isinstance(item, Row):
        ends = (item.head_at, item.tail_at, item.head, item.tail)
        return tuple(item.words), *ends, item.relation
    if isinstance(item, Document):
        names = [(e.id, e.type, tuple(sorted(e.mentions))) for e in item.entities]
        pairs = Counter(
            (names[p.head], names[p.tail], tuple(sorted(p.relations)), p.counted)
            for p in item.pairs
        )
        # a pair that is not counted and one that is not there are the same to a method
        return item.id, item.text, frozenset(Counter(names).items()), frozenset(pairs.items())
    found: Hashable = item
    return found


def _said(item: Hashable) -> str:
    return str(item)[:160]


def difference(before: Loaded, after: Loaded) -> list[Difference]:
    """Split by split; empty: the two are the same."""
    found = []
    for split in dict.fromkeys((*before.splits, *after.splits)):
        had = Counter(map(_plain, before.splits.get(split, ())))
        has = Counter(map(_plain, after.splits.get(split, ())))
        lost, added = had - has, has - had
        if lost or added:
            example = _said(next(iter(lost or added)))
            found.append(Difference(split, lost.total(), added.total(), example))
    if before.none != after.none:
        example = f'no relation was "{before.none}" and is "{after.none}"'
        found.append(Difference("labels", 1, 1, example))
    if set(before.labels) != set(after.labels):
        lost_, added_ = (
            set(before.labels) - set(after.labels),
            set(after.labels) - set(before.labels),
        )
        example = ", ".join(sorted(lost_ or added_))
        found.append(Difference("labels", len(lost_), len(added_), example))
    return found
