"""PCNN, the piecewise convolutional network of Zeng et al. (2015), as OpenNRE and Lazy MIL build
it.

Tokens and their distances to the two entities are embedded, a convolution of width 3 runs over
them, and the maximum is taken within each of the three pieces into which the entities' starts cut
the sentence; dropout and one linear layer give the logits (Lazy MIL, section 3.2 and equation 1).
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from config.part import ALL, HEAD, Part
from models.standard import Standard
from models.tuning import fixed_numbers, fixed_vectors

__all__ = [
    "MAX_LENGTH",
    "PAD",
    "PARTS",
    "PCNN",
    "UNKNOWN",
    "PiecewiseMax",
    "hashed_word",
    "pieces",
    "positions",
]

MAX_LENGTH = 128  #: longer sentences are cut
PAD, UNKNOWN = 0, 1  #: the first two entries of every vocabulary
#: kind of a trained part -> what a report says of it
PARTS = {
    "all": "",
    "top": ", with word vectors that stay as they are",
    "head": ", of which only the classifier is trained",
    "sums": ", of which words beside the entities are added up in each piece and only the classifier "
    "is trained",
}
_POSITIONS = 2 * MAX_LENGTH  #: entry 0 is padding; distance d stands at d + MAX_LENGTH


def positions(length: int, start: torch.Tensor) -> torch.Tensor:
    """Entry of the position table for each of `length` tokens, given where the entity starts:
    (batch, length).
    """
    index = torch.arange(length) - start.unsqueeze(1) + MAX_LENGTH
    return index.clamp_(max=_POSITIONS - 1)


def hashed_word(word: str, slots: int) -> int:
    """A word's place where the vocabulary is hashed: the same everywhere, and nobody has to collect
    words.
    """
    digest = hashlib.blake2b(word.lower().encode(), digest_size=8).digest()
    return 2 + int.from_bytes(digest, "little") % slots


def pieces(length: int, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """0 up to and including the first entity's start, 1 up to and including the second's, 2 after:
    (batch, length).
    """
    i = torch.arange(length)
    return (i > first.unsqueeze(1)).long() + (i > second.unsqueeze(1)).long()


class PiecewiseMax(torch.autograd.Function):
    """ReLU, then the maximum within each piece: (batch, length, filters) to (batch, 3, filters).

    Outside its piece a position counts -100 before the ReLU, that is 0 after it: so an empty piece
    is zeros. Written out because the gradient of three masked maxima, left to autograd, takes a
    third of a training step.
    """

    @staticmethod
    def forward(ctx: Any, features: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
        """`inside` (batch, length, 3) is 1 where a position belongs to a piece, 0 elsewhere."""
        out = torch.stack(
            [(features * inside[:, :, p : p + 1]).amax(dim=1) for p in range(3)], dim=1
        ).clamp_(min=0)
        ctx.save_for_backward(features, inside, out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        features, inside, out = ctx.saved_tensors
        # Every position is in at most one piece, so a product with `inside` looks up its piece's
        # maximum.
        highest = features == torch.bmm(inside, out)
        return torch.bmm(inside, gradient) * (highest & (features > 0)), None


class PCNN(nn.Module):
    """`encode` gives sentence vectors (three times `filters`), `forward` logits; `out` is the
    classifier.
    """

    def __init__(
        self,
        words: int,
        relations: int,
        *,
        word_dim: int = 50,
        position_dim: int = 5,
        filters: int = 230,
        dropout: float = 0.2,
        vectors: np.ndarray | None = None,
        sums: bool = False,
    ) -> None:
        """`sums`: for a head that is trained with noise, a sentence vector is the sum of the word
        vectors in each piece, standardised, in place of a convolution's maxima.
        """
        super().__init__()
        self.word = nn.Embedding(words, word_dim, padding_idx=PAD)
        self.standard = Standard(3 * word_dim) if sums else None
        if sums:
            self.dropout, self.out = nn.Dropout(dropout), nn.Linear(3 * word_dim, relations)
            nn.init.zeros_(self.out.weight)
            self._take(vectors)
            return
        self.head_position = nn.Embedding(_POSITIONS, position_dim, padding_idx=0)
        self.tail_position = nn.Embedding(_POSITIONS, position_dim, padding_idx=0)
        # A convolution of width 3 is a linear layer over each token and its two neighbours. Written
        # so, it is a third faster on one core for sentences this short, and per-example gradients
        # (DP-SGD) know the layer.
        self.convolution = nn.Linear(3 * (word_dim + 2 * position_dim), filters)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(3 * filters, relations)
        self._take(vectors)

    def _take(self, vectors: np.ndarray | None) -> None:
        if vectors is not None:
            with torch.no_grad():
                self.word.weight.copy_(
                    torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float32))
                )

    def train_part(self, part: Part, given: bool) -> PCNN:
        """`given`: the word vectors are somebody's; else fixed ones are drawn."""
        if part == ALL:
            return self
        fixed_vectors(self.word, given)
        if part == HEAD and self.standard is None:
            for table in (self.head_position, self.tail_position):
                fixed_vectors(table, given=False)
            fixed_numbers([self.convolution.weight])
            with torch.no_grad():
                self.convolution.bias.zero_()
            self.convolution.bias.requires_grad_(False)
        return self

    def encode(
        self,
        words: torch.Tensor,
        lengths: torch.Tensor,
        head_at: torch.Tensor,
        tail_at: torch.Tensor,
    ) -> torch.Tensor:
        """Sentence vectors (batch, 3 * filters). `words` is padded with PAD beyond each row's
        length.
        """
        if self.standard is not None:
            made: torch.Tensor = self.standard(self.pooled(words, lengths, head_at, tail_at))
            return made
        longest = words.shape[1]
        real = torch.arange(longest) < lengths.unsqueeze(1)
        head_at, tail_at = head_at.clamp(max=MAX_LENGTH - 1), tail_at.clamp(max=MAX_LENGTH - 1)
        embedded = torch.cat(
            [
                self.word(words),
                self.head_position(positions(longest, head_at) * real),
                self.tail_position(positions(longest, tail_at) * real),
            ],
            dim=-1,
        )
        padded = F.pad(embedded, (0, 0, 1, 1))
        window = torch.cat([padded[:, :-2], padded[:, 1:-1], padded[:, 2:]], dim=-1)
        piece = pieces(longest, torch.minimum(head_at, tail_at), torch.maximum(head_at, tail_at))
        inside = F.one_hot(piece, 3).to(embedded.dtype) * real.unsqueeze(-1)
        pooled: torch.Tensor = PiecewiseMax.apply(self.convolution(window), inside)
        return pooled.flatten(1)

    def pooled(
        self,
        words: torch.Tensor,
        lengths: torch.Tensor,
        head_at: torch.Tensor,
        tail_at: torch.Tensor,
    ) -> torch.Tensor:
        """The sums of word vectors in each piece, (batch, 3 * word_dim), without the two entities'
        own: what they are called says little of how they are related, and adds noise.
        """
        longest = words.shape[1]
        real = torch.arange(longest) < lengths.unsqueeze(1)
        head_at, tail_at = head_at.clamp(max=MAX_LENGTH - 1), tail_at.clamp(max=MAX_LENGTH - 1)
        piece = pieces(longest, torch.minimum(head_at, tail_at), torch.maximum(head_at, tail_at))
        vectors, at = self.word(words), torch.arange(longest)
        context = real & (at != head_at.unsqueeze(1)) & (at != tail_at.unsqueeze(1))
        inside = F.one_hot(piece, 3).to(vectors.dtype) * context.unsqueeze(-1)
        return torch.bmm(inside.transpose(1, 2), vectors).flatten(1)

    def forward(
        self,
        words: torch.Tensor,
        lengths: torch.Tensor,
        head_at: torch.Tensor,
        tail_at: torch.Tensor,
    ) -> torch.Tensor:
        return self.out(self.dropout(self.encode(words, lengths, head_at, tail_at)))
