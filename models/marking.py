"""From a sentence with two entities to the pieces an encoder reads: markers, blinding, and a window
that moves.

The prepared sequence of FedED (section 3.2) and FedCMC (section 3.1): [CLS] … <e1> head </e1> …
<e2> tail </e2> … [SEP]. With blinding, an entity's words are replaced by its type. Every piece
knows whether it belongs to the head, to the tail, to both (overlapping mentions) or to neither;
markers belong to neither, so that pooling leaves them out.

Truncation never cuts an entity off. Where a sentence is too long, the window moves to the entities;
where they stand further apart than the window is wide, pieces are left out between them. Only an
entity that is itself longer than the window loses pieces, its last ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

__all__ = ["HEAD", "MARKERS", "TAIL", "Mention", "Packed", "mark", "tokenise", "window"]

MARKERS = ("<e1>", "</e1>", "<e2>", "</e2>")
HEAD, TAIL = 1, 2  #: bits of a piece's flags
#: this bit is set, while the window is chosen, on everything that must stay: entities and markers
_NEEDED = 4
#: text, head span, tail span, head type, tail type
Mention = tuple[str, tuple[int, int], tuple[int, int], str, str]


@dataclass(frozen=True)
class Packed:
    """Prepared sequences one after another; row i is `ids[at[i]:at[i + 1]]`, [CLS] and [SEP]
    included.
    """

    ids: np.ndarray  #: int32
    flags: np.ndarray  #: uint8: HEAD, TAIL, both or neither
    at: np.ndarray  #: int64, rows + 1
    shortened: int  #: how many rows did not fit the window whole

    def __len__(self) -> int:
        return len(self.at) - 1

    @cached_property
    def lengths(self) -> np.ndarray:
        return np.diff(self.at)


def mark(mention: Mention, blinding: bool) -> list[tuple[str, int]]:
    """The sentence as segments: (text, flags), where a marker is a segment of its own with the flag
    _NEEDED.
    """
    text, head, tail, head_type, tail_type = mention
    overlap = head[0] < tail[1] and tail[0] < head[1]
    if blinding and overlap:
        # Neither type could stand inside the other's: they are set side by side where the two were.
        both = [(head, HEAD, head_type), (tail, TAIL, tail_type)]
        both.sort(key=lambda b: (b[0], b[1]))
        start, end = min(head[0], tail[0]), max(head[1], tail[1])
        middle = [s for _, bit, kind in both for s in _wrapped(kind, bit)]
        return [(text[:start], 0), *middle, (text[end:], 0)]
    kinds = {HEAD: head_type, TAIL: tail_type}
    # At one place, what closes comes before what opens; of two that open the longer opens first,
    # and closes last.
    events = sorted(
        [(at, opens, -length if opens else length, bit if opens else -bit)
         for (a, b), bit in ((head, HEAD), (tail, TAIL))
         for at, opens, length in ((a, 1, b - a), (b, 0, b - a))]
    )  # fmt: skip
    segments: list[tuple[str, int]] = []
    inside, at = 0, 0
    for place, opens, _, signed in events:
        bit = abs(signed)
        if not (blinding and inside):
            segments.append((text[at:place], inside))
        at = place
        if opens:
            segments.append((MARKERS[0 if bit == HEAD else 2], _NEEDED))
            inside |= bit
            if blinding:
                segments.append((kinds[bit], bit))
        else:
            inside &= ~bit
            segments.append((MARKERS[1 if bit == HEAD else 3], _NEEDED))
    segments.append((text[at:], 0))
    return [s for s in segments if s[0]]


def _wrapped(kind: str, bit: int) -> list[tuple[str, int]]:
    first = 0 if bit == HEAD else 2
    return [(MARKERS[first], _NEEDED), (kind, bit), (MARKERS[first + 1], _NEEDED)]


def window(needed: np.ndarray, room: int) -> np.ndarray:
    """Which pieces of a body stay (positions, ascending) when only `room` of them may.

    `needed` says which belong to an entity or are its markers. Everything needed stays if it fits;
    the rest of the room goes to the pieces nearest to the needed ones, so what is left is entities
    in their context.
    """
    n = len(needed)
    if n <= room:
        return np.arange(n)
    must = np.flatnonzero(needed)
    if len(must) > room:
        return _squeezed(needed, room)
    if len(must) == 0:
        return np.arange(room)
    place = np.arange(n)
    after = np.searchsorted(must, place)
    before_gap = np.where(after > 0, place - must[np.maximum(after - 1, 0)], n)
    after_gap = np.where(after < len(must), must[np.minimum(after, len(must) - 1)] - place, n)
    distance = np.minimum(before_gap, after_gap)
    return np.sort(np.lexsort((place, distance))[:room])


def _squeezed(needed: np.ndarray, room: int) -> np.ndarray:
    """Entities that are together longer than the window: the runs' first and last pieces (their
    markers) stay, and the runs give up pieces before their last one, the longest run first.
    """
    must = np.flatnonzero(needed)
    runs = [list(r) for r in np.split(must, np.flatnonzero(np.diff(must) > 1) + 1)]
    while sum(map(len, runs)) > room:
        longest = max(runs, key=len)
        del longest[-2 if len(longest) > 1 else -1]
    return np.array(sorted(p for r in runs for p in r), dtype=np.int64)


def tokenise(
    mentions: Iterable[Mention], tokenizer: Any, blinding: bool, max_length: int
) -> Packed:
    """Every sentence as pieces, once: what training and evaluation read from then on.

    Segments are tokenised apart from each other, which for WordPiece gives the pieces of the whole
    except where an entity begins or ends inside a word.
    """
    rows = [mark(m, blinding) for m in mentions]
    marker_ids = dict(zip(MARKERS, tokenizer.convert_tokens_to_ids(list(MARKERS))))
    words = list(dict.fromkeys(text for row in rows for text, flag in row if flag != _NEEDED))
    pieces: dict[str, Sequence[int]] = {}
    if words:
        pieces = dict(
            zip(words, tokenizer(words, add_special_tokens=False, verbose=False)["input_ids"])
        )
    ids: list[np.ndarray] = []
    flags: list[np.ndarray] = []
    shortened = 0
    for row in rows:
        row_ids: list[int] = []
        row_flags: list[int] = []
        for text, flag in row:
            found = [marker_ids[text]] if flag == _NEEDED else pieces[text]
            # an entity of characters that the vocabulary drops
            if flag in (HEAD, TAIL) and not found:
                found = [tokenizer.unk_token_id]
            row_ids += found
            row_flags += [flag] * len(found)
        body, body_flags = np.array(row_ids, np.int32), np.array(row_flags, np.uint8)
        keep = window(body_flags > 0, max_length - 2)
        shortened += len(keep) < len(body)
        ids.append(
            np.concatenate([[tokenizer.cls_token_id], body[keep], [tokenizer.sep_token_id]]).astype(
                np.int32
            )
        )
        flags.append(np.concatenate([[0], body_flags[keep] & (HEAD | TAIL), [0]]).astype(np.uint8))
    at = np.concatenate([[0], np.cumsum([len(i) for i in ids])]).astype(np.int64)
    empty = np.zeros(0, np.int32)
    return Packed(
        np.concatenate([empty, *ids]),
        np.concatenate([empty.astype(np.uint8), *flags]),
        at,
        shortened,
    )
