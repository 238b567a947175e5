"""Sentences given as words, cut into a language model's pieces, with the place where every word
begins.

Every word is tokenised on its own behind a space, as byte-level vocabularies such as BART's expect;
WordPiece does not notice. A sentence longer than the window keeps its first words, as many as fit
whole: what lies beyond cannot be pointed at, so entities there are not trained on, and in scoring
they count as missed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Pieces", "ends_of", "label_pieces", "label_words", "to_pieces"]

_WITHOUT_BEGIN = ("marian", "t5")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_]+")


@dataclass(frozen=True)
class Pieces:
    """Sentences one after another; row i is `ids[at[i]:at[i + 1]]` with begin and end, and its
    words begin, counted from the row's own start, at `first[word_at[i]:word_at[i + 1]]`.
    """

    ids: np.ndarray  #: int32
    at: np.ndarray  #: int64, rows + 1
    first: np.ndarray  #: int32
    word_at: np.ndarray  #: int64, rows + 1
    shortened: int  #: how many rows did not fit the window whole

    def __len__(self) -> int:
        return len(self.at) - 1

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.at)

    def row(self, i: int) -> np.ndarray:
        return self.ids[self.at[i] : self.at[i + 1]]

    def first_piece(self, i: int) -> list[int]:
        """Where every word of the row begins."""
        return self.first[self.word_at[i] : self.word_at[i + 1]].tolist()


def ends_of(config: Any, tokenizer: Any) -> tuple[int | None, int]:
    """The pieces before and after a sentence. Marian and T5 have none before it, whatever a config
    calls their begin.
    """
    begin, end = getattr(config, "bos_token_id", None), getattr(config, "eos_token_id", None)
    if getattr(config, "model_type", "") in _WITHOUT_BEGIN:
        return None, int(config.eos_token_id)
    return (
        tokenizer.cls_token_id if begin is None else begin,
        tokenizer.sep_token_id if end is None else end,
    )


def to_pieces(
    sentences: Iterable[Sequence[str]], tokenizer: Any, begin: int | None, end: int, window: int
) -> Pieces:
    known: dict[str, list[int]] = {}
    rows = [list(s) for s in sentences]
    words = list(dict.fromkeys(w for row in rows for w in row))
    if words:
        found = tokenizer([f" {w}" for w in words], add_special_tokens=False, verbose=False)[
            "input_ids"
        ]
        known = dict(zip(words, found))
    ids: list[list[int]] = []
    first: list[list[int]] = []
    shortened = 0
    for row in rows:
        pieces: list[int] = [] if begin is None else [begin]
        starts: list[int] = []
        for word in row:
            # a word of characters that the vocabulary drops
            these = known[word] or [tokenizer.unk_token_id]
            if len(pieces) + len(these) + 1 > window:
                shortened += 1
                break
            starts.append(len(pieces))
            pieces += these
        ids.append([*pieces, end])
        first.append(starts)

    def joined(parts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
        flat = np.array([x for p in parts for x in p], dtype=np.int32)
        return flat, np.concatenate([[0], np.cumsum([len(p) for p in parts])]).astype(np.int64)

    return Pieces(*joined(ids), *joined(first), shortened)


def label_words(kind: str) -> str:
    """The words that stand for a type: its name, taken apart. `Simple_chemical` is "simple
    chemical".
    """
    return " ".join(_PARTS.findall(kind)).lower() or kind


def label_pieces(kinds: Sequence[str], tokenizer: Any) -> list[list[int]]:
    words = [f" {label_words(k)}" for k in kinds]
    return (
        [list(p) for p in tokenizer(words, add_special_tokens=False)["input_ids"]] if words else []
    )
