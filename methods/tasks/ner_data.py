"""Sentences of one split and what their holder knows of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from corpora.ner.table import Rows
from models.pieces import Pieces
from models.pointer_targets import Span

__all__ = ["Data"]


@dataclass(frozen=True)
class Data:
    """Some sentences of one split and what is known of them: what a silo holds."""

    pieces: Pieces
    rows: Rows
    #: (rows of the split, types) bool: which types are annotated, to whoever holds this
    known: np.ndarray
    platform: np.ndarray  #: of every row of the split
    indices: np.ndarray
    #: Per sentence of `indices`: entities of types outside its tag set that the global model
    #: predicts.
    pseudo: Sequence[Sequence[Span]] | None = None
    weights: np.ndarray | None = None  #: w_i per sentence of `indices`; None: one

    @property
    def lengths(self) -> np.ndarray:
        return self.pieces.lengths[self.indices]

    def gold(self, position: int) -> list[Span]:
        row = int(self.indices[position])
        return [s for s in self.rows.spans(row) if self.known[row, s[2]]]

    def known_types(self, position: int) -> np.ndarray:
        return self.known[int(self.indices[position])]
