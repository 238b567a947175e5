"""What a tagger's head reads of words, for the statistics by which it is standardised."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from corpora.ner.generate import pretraining_text
from methods.tasks.bottom import Bottom
from methods.tasks.ner_networks import Batch
from models.pieces import Pieces, ends_of, to_pieces
from models.tagger import Tagger

__all__ = ["public_features", "read_words"]

_ENOUGH, _SEED = 400, 0x57A7  #: built-in sentences whose words' features are standardised by


def public_features(bottom: Bottom | None, checkpoint: Any, window: int) -> torch.Tensor:
    """Of every word of some sentences that are built in and in no corpus: (words, d)."""
    assert bottom is not None  # a head stands on it
    tokenizer = checkpoint.tokenizer
    ends = ends_of(checkpoint.backbone.config, tokenizer)
    sentences = (text.split() for text in pretraining_text(_ENOUGH, _SEED))
    pieces = to_pieces(sentences, tokenizer, *ends, window)
    rows = np.arange(len(pieces))
    return bottom.store.rows(bottom.texts(pieces, rows, rows))[_word_rows(pieces)]


def _word_rows(pieces: Pieces) -> np.ndarray:
    """Where every word begins, counted over all sentences."""
    return np.asarray(pieces.first + np.repeat(pieces.at[:-1], np.diff(pieces.word_at)))


def read_words(model: Tagger, batches: Iterable[Batch]) -> torch.Tensor:
    """Of every word of these batches, as the model's own encoder reads them: (words, d)."""
    with torch.no_grad():
        return torch.cat(
            [model.hidden(b.inputs.ids, b.inputs.real)[b.inputs.first] for b in batches]
        )
