"""What a linear head reads of documents (`models.document_encoder`, `linear`), for its statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

from corpora.document.generate import public_documents
from methods.tasks.document_data import Data, prepare
from models.document_encoder import seen_by
from models.document_pieces import Batch

__all__ = ["in_parts", "linear_features", "public_data"]

_ENOUGH = 200  #: built-in documents whose features are standardised by
_AT_ONCE = 4


def public_data(tokenizer: Any, limit: int) -> Data:
    """Some documents that are built in and in no corpus."""
    ready = prepare(public_documents(_ENOUGH), ("causes",), tokenizer, limit)
    return Data(ready, np.arange(len(ready.pieces)))


def in_parts(data: Data) -> Iterator[np.ndarray]:
    """All positions of the data's list."""
    for at in range(0, len(data.indices), _AT_ONCE):
        yield np.arange(at, min(at + _AT_ONCE, len(data.indices)))


def linear_features(batches: Iterable[Batch], encoder: Any = None) -> torch.Tensor:
    """[h_s; h_o; c] of every pair. `encoder`: by which they are read, where nothing was computed
    below a head.
    """
    found = []
    with torch.no_grad():
        for b in batches:
            entities, context = b.seen if b.seen is not None else seen_by(encoder, b)
            found.append(torch.cat([entities[b.head], entities[b.tail], context], dim=1))
    return torch.cat(found)
