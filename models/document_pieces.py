"""From documents to the pieces an encoder reads: a star before and after every mention, and two
windows where one is too short.

FedLCC, section 3.2 (after ATLOP): "*" is put before and after each mention of an entity that is in
some candidate pair, and the opening star stands for the mention. Mentions that begin, or end, at
the same character share a star; nested and overlapping ones each have their own.

A document longer than the encoder's window W is read in two: its first W-1 pieces closed by [SEP],
and its last W-1 pieces opened by [CLS]. So at most 2W-2 pieces can be read; the rest is cut off,
and a mention beyond it is lost (counted in `lost`); an entity can lose all of its mentions that
way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from models.device import here

__all__ = ["STAR", "Batch", "Marked", "Pieces", "assemble", "tokenise"]

STAR = "*"
#: text; per entity its mention spans; per pair (head, tail)
Marked = tuple[str, Sequence[Sequence[tuple[int, int]]], Sequence[tuple[int, int]]]


@dataclass(frozen=True)
class Pieces:
    """Documents one after another; document i's pieces are `ids[at[i]:at[i + 1]]`, [CLS] and [SEP]
    included.

    Its entities are numbered from 0; `mention_at`, `entity_at` and `pair_at` cut the other arrays
    likewise.
    """

    ids: np.ndarray  #: int32
    at: np.ndarray  #: int64, documents + 1
    star: np.ndarray  #: int32: per mention the position of its opening star in its document
    entity: np.ndarray  #: int32: per mention the number of its entity in its document
    mention_at: np.ndarray
    entities: np.ndarray  #: int32: how many entities each document has
    pairs: np.ndarray  #: int32 (pairs, 2): numbers of the two entities
    pair_at: np.ndarray
    shortened: int  #: how many documents did not fit two windows
    lost: int  #: how many mentions were cut off with them

    def __len__(self) -> int:
        return len(self.at) - 1

    @cached_property
    def lengths(self) -> np.ndarray:
        return np.diff(self.at)


@dataclass(frozen=True)
class Batch:
    """Some documents as tensors. `slots` is 1 where every document fits a window, 2 otherwise."""

    ids: torch.Tensor  #: (windows, longest window), padded
    real: torch.Tensor
    window: torch.Tensor  #: (documents, slots): which windows a document is read in
    #: (documents, slots, longest document): a piece's column there; the width where it has none
    column: torch.Tensor
    mention_document: torch.Tensor
    mention_place: torch.Tensor  #: per mention, the position of its star in its document
    mention_entity: torch.Tensor  #: numbered through the batch
    #: (entities, most mentions): numbers of mentions; see `assemble` for the padding
    mention_table: torch.Tensor
    entities: int
    head: torch.Tensor  #: per pair, an entity of the batch
    tail: torch.Tensor
    pair_document: torch.Tensor
    pair_slot: torch.Tensor  #: the how-manieth pair of its document
    pair_rows: np.ndarray  #: per pair, its position in the `pairs` of the whole split
    #: Hidden states of the windows (windows, width, d) where a frozen part below has made them.
    below: torch.Tensor | None = None
    #: Entities and pairs' contexts where all of the encoder is frozen.
    seen: tuple[torch.Tensor, torch.Tensor] | None = None

    @property
    def slots(self) -> int:
        return self.window.shape[1]

    def mean_of_pairs(self, values: torch.Tensor) -> torch.Tensor:
        """What pairs have, (pairs,), in the mean over each document, (documents,); 0 where it has
        none.
        """
        documents = len(self.window)
        count = torch.bincount(self.pair_document, minlength=documents).clamp(min=1)
        return values.new_zeros(documents).index_add(0, self.pair_document, values) / count


def tokenise(documents: Iterable[Marked], tokenizer: Any, limit: int) -> Pieces:
    """Every document as pieces, once. `limit`: the most pieces that can be read, [CLS] and [SEP]
    included.
    """
    rows = [(_segments(text, entities), entities, pairs) for text, entities, pairs in documents]
    words = list(dict.fromkeys(s for segments, _, _ in rows for s, _ in segments if s))
    known: dict[str, Sequence[int]] = {}
    if words:
        known = dict(
            zip(words, tokenizer(words, add_special_tokens=False, verbose=False)["input_ids"])
        )
    star = tokenizer.convert_tokens_to_ids(STAR)
    out: dict[str, list[Any]] = {k: [] for k in ("ids", "star", "entity", "entities", "pairs")}
    sizes: dict[str, list[int]] = {"ids": [], "star": [], "pairs": []}
    shortened = lost = 0
    for segments, entities, pairs in rows:
        body: list[int] = []
        opened: dict[int, int] = {}  # character -> position of the star that opens there
        for text, mark in segments:
            if mark is not None:
                opened[mark] = len(body) + 1  # [CLS] comes first
            body += [star] if not text else known[text]
        shortened += len(body) > limit - 2
        body = body[: limit - 2]
        kept = [
            (opened[start], e)
            for e, spans in enumerate(entities)
            for start in dict.fromkeys(s for s, _ in spans)
            if opened[start] <= len(body)
        ]
        lost += sum(len({s for s, _ in spans}) for spans in entities) - len(kept)
        ids = [tokenizer.cls_token_id, *body, tokenizer.sep_token_id]
        out["ids"] += ids
        out["star"] += [s for s, _ in kept]
        out["entity"] += [e for _, e in kept]
        out["entities"].append(len(entities))
        out["pairs"] += pairs
        for key, some in (("ids", ids), ("star", kept), ("pairs", pairs)):
            sizes[key].append(len(some))
    at = {k: np.concatenate([[0], np.cumsum(v)]).astype(np.int64) for k, v in sizes.items()}
    return Pieces(
        ids=np.array(out["ids"], np.int32),
        at=at["ids"],
        star=np.array(out["star"], np.int32),
        entity=np.array(out["entity"], np.int32),
        mention_at=at["star"],
        entities=np.array(out["entities"], np.int32),
        pairs=np.array(out["pairs"], np.int32).reshape(-1, 2),
        pair_at=at["pairs"],
        shortened=shortened,
        lost=lost,
    )


def _segments(
    text: str, entities: Sequence[Sequence[tuple[int, int]]]
) -> list[tuple[str, int | None]]:
    """(words, None) or, for a star, ("", where it opens); a closing star opens nowhere: ("",
    None).
    """
    starts = {s for spans in entities for s, _ in spans}
    ends = {e for spans in entities for _, e in spans}
    segments: list[tuple[str, int | None]] = []
    at = 0
    for place in sorted(starts | ends):
        if text[at:place].strip():
            segments.append((text[at:place], None))
        at = place
        if place in ends:
            segments.append(("", None))
        if place in starts:
            segments.append(("", place))
    if text[at:].strip():
        segments.append((text[at:], None))
    return segments


def _span(at: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The positions `at[r] … at[r + 1]` for every row, joined, and the number in `rows` each of
    them belongs to.
    """
    counts = at[rows + 1] - at[rows]
    owner = np.repeat(np.arange(len(rows)), counts)
    first = np.repeat(at[rows] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
    return first + np.arange(len(owner)), owner


def assemble(pieces: Pieces, rows: np.ndarray, window: int, cls: int, sep: int, pad: int) -> Batch:
    """The documents at `rows`, padded. `window`: the most pieces the encoder reads at once."""
    n = len(rows)
    lengths = pieces.lengths[rows]
    long = lengths > window
    width = int(np.where(long, window, lengths).max(initial=1))
    slots = 2 if long.any() else 1
    seconds = n + np.cumsum(long) - 1  # windows: one per document, then the second ones
    ids = np.full((n + int(long.sum()), width), pad, np.int64)
    place = np.arange(width)
    first = np.where(long, window - 1, lengths)
    inside = place < first[:, None]
    ids[:n][inside] = pieces.ids[(pieces.at[rows][:, None] + place)[inside]]
    real = np.zeros(ids.shape, bool)
    real[:n] = place < np.where(long, window, lengths)[:, None]
    document = np.arange(int(lengths.max(initial=1)))
    column = np.full((n, slots, len(document)), width, np.int64)
    column[:, 0] = np.where(document < first[:, None], document, width)
    windows = np.tile(np.arange(n)[:, None], (1, slots))
    if slots == 2:
        ids[np.flatnonzero(long), window - 1] = sep
        tail = (pieces.at[rows] + lengths - (window - 1))[long]
        ids[n:, 0], ids[n:, 1:] = cls, pieces.ids[tail[:, None] + np.arange(window - 1)]
        real[n:] = True
        windows[long, 1] = seconds[long]
        start = (lengths - (window - 1))[:, None]
        covered = long[:, None] & (document >= start) & (document < lengths[:, None])
        column[:, 1] = np.where(covered, document - start + 1, width)
    mentions, owner = _span(pieces.mention_at, rows)
    offset = np.concatenate([[0], np.cumsum(pieces.entities[rows])]).astype(np.int64)
    entity = pieces.entity[mentions] + offset[owner]
    pair_rows, pair_owner = _span(pieces.pair_at, rows)
    pairs = pieces.pairs[pair_rows] + offset[pair_owner][:, None]
    before = np.concatenate([[0], np.cumsum(np.bincount(pair_owner, minlength=n))])
    slot = np.arange(len(pair_rows)) - before[pair_owner]

    def tensor(x: np.ndarray) -> torch.Tensor:
        return here(np.ascontiguousarray(x, dtype=np.int64))

    return Batch(
        ids=tensor(ids),
        real=here(real),
        window=tensor(windows),
        column=tensor(column),
        mention_document=tensor(owner),
        mention_place=tensor(pieces.star[mentions]),
        mention_entity=tensor(entity),
        mention_table=tensor(_table(entity, int(offset[-1]))),
        entities=int(offset[-1]),
        head=tensor(pairs[:, 0]),
        tail=tensor(pairs[:, 1]),
        pair_document=tensor(pair_owner),
        pair_slot=tensor(slot),
        pair_rows=pair_rows,
    )


def _table(entity: np.ndarray, entities: int) -> np.ndarray:
    """Per entity the numbers of its mentions. Free places hold M+1 (nothing); an entity without any
    begins with M (zeros), M being the number of mentions.
    """
    m = len(entity)
    counts = np.bincount(entity, minlength=entities)
    table = np.full((entities, max(int(counts.max(initial=0)), 1)), m + 1, np.int64)
    order = np.argsort(entity, kind="stable")
    nth = np.arange(m) - np.concatenate([[0], np.cumsum(counts)])[entity[order]]
    table[entity[order], nth] = order
    table[counts == 0, 0] = m
    return table
