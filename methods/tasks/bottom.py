"""The frozen bottom of a task's network: its features of every text that a task holds, computed
when they are first read (`models.frozen_features`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch

from config.part import HEAD, Part
from methods.tasks.batching import for_each
from models.backbone import Checkpoint
from models.device import here, place
from models.document_encoder import seen_by
from models.document_pieces import Batch, Pieces, assemble
from models.frozen_features import ForEach, FrozenFeatures, text_hash
from models.halves import lower_half
from models.marking import Packed
from models.sentence_encoder import Style, pooled

__all__ = ["Bottom", "of_documents", "of_sentences", "of_words", "with_features"]


def _name(checkpoint: Checkpoint, part: Part, *more: object) -> bytes:
    """Of all that decides what the frozen part makes of a text."""
    started = (checkpoint.start,) if checkpoint.start else ()
    said = "/".join(map(str, (checkpoint.sha256, part, *more, *started)))
    return hashlib.sha256(said.encode()).digest()


@dataclass
class _Held:
    """What is known of the texts of one source (a split's arrays)."""

    source: Any  #: kept, so that no other object can get its id
    texts: list[bytes | None]
    done: np.ndarray


@dataclass
class Bottom:
    name: bytes  #: `_name`
    width: int
    text: Callable[[Any, int], bytes]  #: (source, row) -> hash of the row's text
    compute: Callable[[Any, int], torch.Tensor]  #: (source, row) -> its features (rows, width)
    lasting: bool = False  #: whether features outlive the run
    _store: FrozenFeatures | None = None
    _held: dict[int, _Held] = field(default_factory=dict)
    #: what is kept in each folder: silos that share a process have one each
    _kept: dict[Path, tuple[FrozenFeatures, dict[int, _Held]]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @property
    def store(self) -> FrozenFeatures:
        if self._store is None:
            self._store = FrozenFeatures(None, self.name, self.width)
        return self._store

    @property
    def folder(self) -> Path | None:
        """Where it keeps features; None: in memory."""
        return None if self._store is None else self._store.folder

    def keep_in(self, folder: Path, lasting: bool = False) -> None:
        """From now on; what it knows of another folder is there when that one is named again."""
        if folder not in self._kept:
            self._kept[folder] = FrozenFeatures(folder, self.name, self.width), {}
        self._store, self._held = self._kept[folder]
        self.lasting = lasting

    def prepare(self, source: Any, every: np.ndarray) -> None:
        """Computes what is missing, on all threads that scoring has: before they read it."""
        self._ready(source, every, for_each)

    def _ready(self, source: Any, every: np.ndarray, how: ForEach | None) -> _Held:
        with self._lock:
            held = self._held.get(id(source))
            if held is None:
                held = _Held(source, [None] * len(source), np.zeros(len(source), bool))
                self._held[id(source)] = held
            if not held.done[every].all():
                wanted = np.unique(every[~held.done[every]])
                for r in wanted:
                    held.texts[r] = self.text(source, int(r))
                names = [t for r in wanted if (t := held.texts[r]) is not None]
                self.store.fill(names, lambda i: self.compute(source, int(wanted[i])), how)
                held.done[wanted] = True
            return held

    def forget(self) -> None:
        if not self.lasting:
            self.store.forget()
        if self.folder is not None:
            self._kept.pop(self.folder, None)
        self._held = {}

    def texts(self, source: Any, every: np.ndarray, rows: np.ndarray) -> list[bytes]:
        """The names under which the features of `rows` are in the store. Where one of `every` is
        missing, all of `every` are computed now: so the first batch pays for the first epoch.
        """
        held = self._ready(source, every, None)
        return [t for r in rows if (t := held.texts[int(r)]) is not None]


def _width(backbone: Any) -> int:
    config = backbone.config
    return int(config.hidden_size if hasattr(config, "hidden_size") else config.dim)


def _below(checkpoint: Checkpoint, part: Part) -> Callable[[np.ndarray], torch.Tensor]:
    """Pieces of one text -> what the frozen part makes of them, (1, pieces, d)."""
    lower = lower_half(checkpoint.backbone, part).eval()

    def hidden(pieces: np.ndarray) -> torch.Tensor:
        place(lower)  # where this process computes, which is known when it first does
        ids = here(pieces.astype(np.int64))[None]
        out = lower(input_ids=ids, attention_mask=torch.ones_like(ids))
        made: torch.Tensor = out.last_hidden_state
        return made

    return hidden


def of_sentences(checkpoint: Checkpoint, part: Part, style: Style) -> Bottom:
    """A marked sentence's hidden states; where only the head is trained, all that it reads."""
    below, width = _below(checkpoint, part), _width(checkpoint.backbone)

    def text(p: Packed, row: int) -> bytes:
        span = slice(int(p.at[row]), int(p.at[row + 1]))
        return text_hash(p.ids[span], p.flags[span])

    def compute(p: Packed, row: int) -> torch.Tensor:
        span = slice(int(p.at[row]), int(p.at[row + 1]))
        hidden = below(p.ids[span])
        if part != HEAD:
            return hidden[0]
        return pooled(hidden, here(p.flags[span].astype(np.int64))[None], style)

    wide = (3 if style.cls else 2) * width if part == HEAD else width
    return Bottom(_name(checkpoint, part, style.cls), wide, text, compute)


def of_words(checkpoint: Checkpoint, part: Part) -> Bottom:
    """A tagger's: the hidden states of all pieces."""
    below = _below(checkpoint, part)
    return Bottom(
        _name(checkpoint, part, "words"),
        _width(checkpoint.backbone),
        lambda p, row: text_hash(p.row(row)),
        lambda p, row: below(p.row(row))[0],
    )


def of_documents(
    checkpoint: Checkpoint,
    part: Part,
    window: int,
    special: tuple[int, int, int],
    fused: bool = False,
) -> Bottom:
    """The hidden states of a document's windows; where only the head is trained, its entities and
    then the contexts of its pairs. `fused`: with torch's attention in one piece, where none is read.
    """
    backbone, fused = checkpoint.backbone, fused and part != HEAD
    # the plain form is the only one that hands its attention out
    backbone.set_attn_implementation("sdpa" if fused else "eager")
    lower = lower_half(backbone, part).eval()

    def text(p: Pieces, row: int) -> bytes:
        document = p.ids[p.at[row] : p.at[row + 1]]
        mentions, pairs = (slice(a[row], a[row + 1]) for a in (p.mention_at, p.pair_at))
        tables = (p.star[mentions], p.entity[mentions], p.pairs[pairs], p.entities[row : row + 1])
        return text_hash(document, *tables)

    def compute(p: Pieces, row: int) -> torch.Tensor:
        batch = assemble(p, np.array([row]), window, *special)
        if part == HEAD:
            return torch.cat(seen_by(lower, batch))
        out = lower(input_ids=batch.ids, attention_mask=batch.real.long())
        hidden: torch.Tensor = out.last_hidden_state
        return hidden[batch.real]

    name = _name(checkpoint, part, "documents", window, *(("fused",) if fused else ()))
    return Bottom(name, _width(backbone), text, compute)


def with_features(batch: Batch, store: FrozenFeatures, texts: Sequence[bytes], part: Part) -> Batch:
    """A batch of documents with what the frozen part made of them."""
    of_each = store.rows(texts).split([store.length(t) for t in texts])
    if part == HEAD:
        pairs = torch.bincount(batch.pair_document, minlength=len(texts)).tolist()
        both = [f.split([len(f) - n, n]) for f, n in zip(of_each, pairs)]
        return replace(
            batch, seen=(torch.cat([e for e, _ in both]), torch.cat([c for _, c in both]))
        )
    below = torch.zeros(*batch.ids.shape, store.width)
    for i, f in enumerate(of_each):
        windows = batch.window[i].unique().tolist()
        lengths = [int(batch.real[w].sum()) for w in windows]
        for w, rows in zip(windows, f.split(lengths)):
            below[w, : len(rows)] = rows
    return replace(batch, below=below)
