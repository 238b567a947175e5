"""Models that read whole texts: relations between given entities of a document, and named entities
that are found.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from config.errors import UserError
from corpora.document.table import UNLINKED, Entity
from corpora.ner.formats import words_of
from corpora.splitting import sentence_spans
from extract.read_texts import Text
from models import document_encoder, pointer, saved
from models import document_heads as heads
from models.device import here, there
from models.document_pieces import assemble, tokenise
from models.pieces import Pieces, ends_of, to_pieces
from models.pointer_targets import parse
from models.tagger import Tagger, spans_of

__all__ = [
    "Link",
    "NerExtractor",
    "Passage",
    "DocumentExtractor",
    "TaggerExtractor",
    "TextExtractor",
    "Thing",
]

_BATCH = 16
_MOST = 4  #: relations of one pair by an adaptive threshold, as in training
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Thing:
    """An entity: given, or found with a score."""

    id: str
    type: str
    mentions: tuple[tuple[int, int], ...]
    score: float | None = None


@dataclass(frozen=True)
class Link:
    head: int  #: position in the passage's entities
    tail: int
    relation: str | None  #: None: the model says there is none
    score: float


@dataclass(frozen=True)
class Passage:
    """A text and what a model made of it."""

    id: str
    text: str
    entities: tuple[Thing, ...]
    links: tuple[Link, ...] = field(default=())


class TextExtractor(ABC):
    finds: str  #: what it finds, in a word, for the closing line

    @abstractmethod
    def extract(self, texts: Sequence[Text], progress: Progress) -> list[Passage]:
        """`progress` is called with the number of texts done."""


class DocumentExtractor(TextExtractor):
    finds = "relations"

    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        self._model, self._tokenizer, config = document_encoder.open_model(folder)
        self._relations, self._head = tuple(config["relations"]), str(config["head"])
        self._window, self._limit = int(config["window"]), int(config["max_length"])
        self._types = {(h, t) for h, t in config.get("pair_types", ())}

    def extract(self, texts: Sequence[Text], progress: Progress) -> list[Passage]:
        pairs = [list(self._pairs(t)) for t in texts]
        for text in texts:
            if len(text.entities) < 2:
                raise UserError(
                    f'The text "{text.id}" has {len(text.entities)} entities given, and a relation is between two: '
                    "give PubTator, BRAT or JSON lines with the entities marked."
                )
        if not any(pairs):
            known = ", ".join(f"{h} and {t}" for h, t in sorted(self._types))
            seen = ", ".join(sorted({e.type for t in texts for e in t.entities}))
            raise UserError(
                f"No pair of entities is of types that this model was trained on ({known}; given: {seen})."
            )
        made = ((t.text, [e.mentions for e in t.entities], p) for t, p in zip(texts, pairs))
        packed = tokenise(made, self._tokenizer, self._limit)
        t = self._tokenizer
        ids, out = (t.cls_token_id, t.sep_token_id, t.pad_token_id), []
        for b in range(0, len(texts), _BATCH):
            rows = range(b, min(b + _BATCH, len(texts)))
            with torch.inference_mode():
                logits = self._model(assemble(packed, np.array(rows), self._window, *ids))
                most = _MOST if self._head == "atl" else 0
                chosen = there(heads.predict(self._head, logits, most))
                scores = there(heads.scores(self._head, logits))
            at = 0
            for row in rows:
                some = slice(at, at + len(pairs[row]))
                at = some.stop
                out.append(self._passage(texts[row], pairs[row], chosen[some], scores[some]))
            progress(len(rows))
        return out

    def _pairs(self, text: Text) -> Iterator[tuple[int, int]]:
        """Those of types that have relations in training; of two of one type the first is the
        head.
        """
        linked = [i for i, e in enumerate(text.entities) if e.id != UNLINKED]
        for i in linked:
            for j in linked:
                a, b = text.entities[i], text.entities[j]
                wanted = (a.type, b.type) in self._types or not self._types
                if i != j and wanted and a.id != b.id and (a.type != b.type or i < j):
                    yield i, j

    def _passage(
        self, text: Text, pairs: list[tuple[int, int]], chosen: np.ndarray, scores: np.ndarray
    ) -> Passage:
        links = []
        for (head, tail), yes, p in zip(pairs, chosen, scores):
            links += [
                Link(head, tail, r, float(p[k])) for k, r in enumerate(self._relations) if yes[k]
            ]
            if not yes.any():
                links.append(Link(head, tail, None, float(1 - p.max())))
        return Passage(text.id, text.text, tuple(map(_given, text.entities)), tuple(links))


def _given(e: Entity) -> Thing:
    return Thing(e.id, e.type, e.mentions)


class _Finder(TextExtractor):
    """Texts cut into sentences and words as the readers of NER corpora cut them; entities back at
    their characters.
    """

    finds = "entities"
    types: tuple[str, ...]
    _tokenizer: Any
    _length: int
    _begin: int | None
    _end: int

    def extract(self, texts: Sequence[Text], progress: Progress) -> list[Passage]:
        sentences: list[tuple[int, list[tuple[int, int]]]] = []  # (text, where its words stand)
        for k, text in enumerate(texts):
            for a, b in _sentences(text.text):
                words = [(a + x, a + y) for x, y in words_of(text.text[a:b])]
                if words:
                    sentences.append((k, words))
        if not sentences:
            raise UserError("There is no word in what was given.")
        found: list[list[Thing]] = [[] for _ in texts]
        left = [0] * len(texts)
        for k, _ in sentences:
            left[k] += 1
        pieces = to_pieces(
            ([texts[k].text[a:b] for a, b in words] for k, words in sentences),
            self._tokenizer, self._begin, self._end, self._length,
        )  # fmt: skip
        order = np.argsort(pieces.lengths, kind="stable")
        for b in range(0, len(order), _BATCH):
            rows = order[b : b + _BATCH]
            with torch.inference_mode():
                answers = self._entities(pieces, rows)
            done = 0
            for row, answer in zip(rows, answers):
                k, words = sentences[row]
                for start, end, kind, score in answer:
                    span = (words[start][0], words[end - 1][1])
                    found[k].append(Thing("", self.types[kind], (span,), score))
                left[k] -= 1
                done += left[k] == 0
            progress(done)
        return [
            Passage(t.id, t.text, tuple(sorted(f, key=lambda e: (e.mentions, e.type))))
            for t, f in zip(texts, found)
        ]

    def _inputs(self, pieces: Pieces, rows: np.ndarray) -> tuple[pointer.Inputs, list[list[int]]]:
        ids, first = [pieces.row(int(i)) for i in rows], [pieces.first_piece(int(i)) for i in rows]
        shape = (len(rows), max(map(len, ids)))
        padded = np.full(shape, int(self._tokenizer.pad_token_id), np.int64)
        real, starts = np.zeros(shape, bool), np.zeros(shape, bool)
        for i, (row, at) in enumerate(zip(ids, first)):
            padded[i, : len(row)], real[i, : len(row)], starts[i, at] = row, True, True
        return pointer.Inputs(*map(here, (padded, real, starts))), first

    @abstractmethod
    def _entities(
        self, pieces: Pieces, rows: np.ndarray
    ) -> list[list[tuple[int, int, int, float]]]:
        """Per sentence: first word, word after the last, type, score."""


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    """A line break ends a sentence, and so does a sign that ends one before a capital."""
    at = 0
    for line in text.splitlines(keepends=True):
        if line.strip():
            yield from ((at + a, at + b) for a, b in sentence_spans(line))
        at += len(line)


class NerExtractor(_Finder):
    """The pointer network: an entity is three tokens that it wrote, and its score the probability
    of the three.
    """

    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        self._model, self._tokenizer, self.types = pointer.open_model(folder)
        config = self._model.backbone.config
        self._begin, self._end = ends_of(config, self._tokenizer)
        self._length = int(about["max_length"])

    def _entities(
        self, pieces: Pieces, rows: np.ndarray
    ) -> list[list[tuple[int, int, int, float]]]:
        inputs, first = self._inputs(pieces, rows)
        written = self._model.write(inputs, grammar=True)
        longest = max(map(len, written), default=0)
        if not longest:
            return [[] for _ in rows]
        tokens = torch.tensor([[*w, *([1] * (longest - len(w)))] for w in written])
        p = torch.exp(-self._model.token_losses(inputs, tokens)).tolist()
        out = []
        for w, likely, at in zip(written, p, first):
            scores: dict[tuple[int, int, int], float] = {}
            for k in range(0, len(w) - 2, 3):
                for span in parse(w[k : k + 3], at, len(self.types)):
                    scores.setdefault(span, likely[k] * likely[k + 1] * likely[k + 2])
            out.append([(*span, score) for span, score in scores.items()])
        return out


class TaggerExtractor(_Finder):
    """A tag per word; an entity's score is the probability of its least certain word."""

    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        backbone = saved.new_backbone(folder, about)
        self.types, self._length = tuple(about["types"]), int(about["max_length"])
        standard = bool(about.get("standard"))
        self._model = saved.loaded(Tagger(backbone, len(self.types), 0.0, standard), folder)
        self._tokenizer = saved.open_tokenizer(folder)
        self._begin, self._end = ends_of(backbone.config, self._tokenizer)

    def _entities(
        self, pieces: Pieces, rows: np.ndarray
    ) -> list[list[tuple[int, int, int, float]]]:
        inputs, first = self._inputs(pieces, rows)
        p, best = self._model(inputs.ids, inputs.real).softmax(dim=-1).max(dim=-1)
        out = []
        for likely, tags, at in zip(p.tolist(), best.tolist(), first):
            found = spans_of([tags[i] for i in at])
            out.append(
                [(a, b, kind, min(likely[at[w]] for w in range(a, b))) for a, b, kind in found]
            )
        return out
