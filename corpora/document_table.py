"""Documents with entities, their mentions, and candidate pairs of entities, at rest: one Arrow table per split.

A candidate pair carries the relations that hold between its two entities; none is a negative pair. A pair that is left
out (`counted` false: CDR's hypernym filter calls it "not_include") is neither trained on nor scored, but its entities
stay in the document. The folder stands in the same cache as the other corpora and is written beside its place and
renamed, so that it is never half there.
"""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from config.errors import UserError
from corpora.table import cache_root

__all__ = ["SPLITS", "UNLINKED", "Content", "Counts", "Document", "DocumentCorpus", "Entity", "Pair", "cached", "count"]

SPLITS = ("train", "dev", "test")
UNLINKED = "-1"  #: the identifier of a mention that belongs to no concept: an entity of its own, in no pair
_FORMAT = 1  #: part of every cache key: bump it when the files below change
Span = tuple[int, int]


@dataclass(frozen=True)
class Entity:
    id: str
    type: str
    mentions: tuple[Span, ...]  #: half-open character spans, in the order of the text


@dataclass(frozen=True)
class Pair:
    head: int  #: position in the document's entities
    tail: int
    relations: tuple[str, ...]  #: empty: a negative pair
    counted: bool = True


@dataclass(frozen=True)
class Document:
    id: str
    text: str
    sentences: tuple[Span, ...]
    entities: tuple[Entity, ...]
    pairs: tuple[Pair, ...]

    @property
    def candidates(self) -> tuple[Pair, ...]:
        """The pairs that are trained on and scored."""
        return tuple(p for p in self.pairs if p.counted)

    def sentence_of(self, span: Span) -> int:
        """The sentence in which a mention starts."""
        starts = [s for s, _ in self.sentences]
        return max(int(np.searchsorted(starts, span[0], side="right")) - 1, 0)

    @cached_property
    def sentences_of(self) -> tuple[frozenset[int], ...]:
        """Per entity, the sentences that mention it."""
        return tuple(frozenset(self.sentence_of(m) for m in e.mentions) for e in self.entities)

    def crosses(self, pair: Pair) -> bool:
        """Whether no sentence mentions both entities of a pair."""
        return not self.sentences_of[pair.head] & self.sentences_of[pair.tail]

    def problem(self) -> str:
        """What is wrong with it, or nothing."""
        for e in self.entities:
            for start, end in e.mentions:
                if not 0 <= start < end <= len(self.text):
                    return f"the mention {start}-{end} of {e.id} does not lie in a text of {len(self.text)} characters"
        for p in self.pairs:
            if not (0 <= p.head < len(self.entities) and 0 <= p.tail < len(self.entities)):
                return f"the pair {p.head}-{p.tail} is of entities that are not there"
        return ""


@dataclass(frozen=True)
class Counts:
    documents: int
    mentions: int  #: places in the text; one that stands for two concepts is one
    entities: int  #: concepts of a document, unlinked mentions left aside
    positive: int  #: candidate pairs with a relation
    negative: int
    left_out: int  #: pairs that are not counted
    relations: int


def count(documents: Sequence[Document]) -> Counts:
    pairs = [p for d in documents for p in d.candidates]
    return Counts(
        documents=len(documents),
        mentions=sum(len({(e.type, m) for e in d.entities for m in e.mentions}) for d in documents),
        entities=sum(e.id != UNLINKED for d in documents for e in d.entities),
        positive=sum(bool(p.relations) for p in pairs),
        negative=sum(not p.relations for p in pairs),
        left_out=sum(not p.counted for d in documents for p in d.pairs),
        relations=sum(len(p.relations) for p in pairs),
    )


@dataclass(frozen=True)
class Content:
    """A corpus as a generator or reader hands it over."""

    name: str
    note: str  #: what a report must say about it
    relations: tuple[str, ...]
    splits: Mapping[str, Sequence[Document]]


@dataclass(frozen=True)
class DocumentCorpus:
    folder: Path
    meta: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.meta["name"])

    @property
    def note(self) -> str:
        return str(self.meta["note"])

    @property
    def hash(self) -> str:
        return str(self.meta["hash"])

    @property
    def relations(self) -> tuple[str, ...]:
        return tuple(self.meta["relations"])

    def counts(self, split: str) -> Counts:
        return Counts(**self.meta["counts"][split])

    def documents(self, split: str) -> Iterator[Document]:
        for row in self.table(split):
            entities = tuple(Entity(e["id"], e["type"], _spans(e["mentions"])) for e in row["entities"])
            pairs = tuple(Pair(p["head"], p["tail"], tuple(p["relations"]), p["counted"]) for p in row["pairs"])
            yield Document(row["id"], row["text"], _spans(row["sentences"]), entities, pairs)

    def table(self, split: str) -> Any:
        """The split as a `datasets.Dataset` (Arrow, memory-mapped)."""
        import datasets

        return datasets.load_from_disk(str(self.folder / "table" / split))


def _spans(rows: Sequence[Sequence[int]]) -> tuple[Span, ...]:
    return tuple((a, b) for a, b in rows)


def cached(source: Mapping[str, Any], build: Callable[[], Content]) -> DocumentCorpus:
    """The corpus made from `source` (a description that decides it entirely): from the cache, or built now."""
    described = json.dumps({"document format": _FORMAT, **source}, sort_keys=True).encode()
    place = cache_root() / hashlib.sha256(described).hexdigest()[:24]
    corpus = _open(place)
    if corpus is None:
        shutil.rmtree(place, ignore_errors=True)  # a folder that cannot be opened was damaged after the rename
        _write(place, build())
        corpus = _open(place)
    if corpus is None:
        raise OSError(f"the corpus cache at {place} cannot be read back")
    return corpus


def _open(place: Path) -> DocumentCorpus | None:
    try:
        corpus = DocumentCorpus(place, json.loads((place / "meta.json").read_text("utf-8")))
        sizes = {s: len(corpus.table(s)) for s in SPLITS}
    except (OSError, ValueError, EOFError):
        return None
    return corpus if all(sizes[s] == corpus.counts(s).documents for s in SPLITS) else None


def _write(place: Path, content: Content) -> None:
    for split in SPLITS:
        if not content.splits[split]:
            raise UserError(f'The corpus "{content.name}" has no {split} documents.')
        for d in content.splits[split]:
            if d.problem():
                raise UserError(f'The corpus "{content.name}", document {d.id}: {d.problem()}.')
    temporary = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    digest = hashlib.sha256(json.dumps(content.relations).encode())
    try:
        for split in SPLITS:
            rows = [asdict(d) for d in content.splits[split]]
            digest.update(json.dumps([split, rows], sort_keys=True).encode())
            _write_table(temporary / "table" / split, rows)
        meta = {
            "name": content.name,
            "note": content.note,
            "hash": digest.hexdigest(),
            "relations": list(content.relations),
            "counts": {s: asdict(count(content.splits[s])) for s in SPLITS},
        }
        (temporary / "meta.json").write_text(json.dumps(meta, indent=1), "utf-8")
        try:
            temporary.rename(place)
        except OSError as error:  # another process was first: its folder is as good as ours
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_table(folder: Path, rows: list[dict[str, Any]]) -> None:
    import datasets
    from datasets import Features, List, Value

    number, text = Value("int32"), Value("string")
    features = Features(
        {
            "id": text,
            "text": text,
            "sentences": List(List(number)),
            "entities": List({"id": text, "type": text, "mentions": List(List(number))}),
            "pairs": List({"head": number, "tail": number, "relations": List(text), "counted": Value("bool")}),
        }
    )
    was = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bar()
    try:
        datasets.Dataset.from_list(rows, features=features).save_to_disk(str(folder))
    finally:
        if was:
            datasets.enable_progress_bar()
