"""PCNN, the piecewise convolutional network of Zeng et al. (2015), as OpenNRE and Lazy MIL build
it.

Tokens and their distances to the two entities are embedded, a convolution of width 3 runs over
them, and the maximum is taken within each of the three pieces into which the entities' starts cut
the sentence; dropout and one linear layer give the logits (Lazy MIL, section 3.2 and equation 1).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
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
    "Windows",
    "back_to_maxima",
    "hashed_word",
    "layout",
    "maxima",
    "out_of_windows",
    "pieces",
    "positions",
    "windows",
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
    """Entry of the position table for each of `length` tokens, given where the entity starts: one
    dimension more than `start` has.
    """
    index = torch.arange(length) - (start - MAX_LENGTH).unsqueeze(-1)
    return index.clamp_(max=_POSITIONS - 1)


def hashed_word(word: str, slots: int) -> int:
    """A word's place where the vocabulary is hashed: the same everywhere, and nobody has to collect
    words.
    """
    digest = hashlib.blake2b(word.lower().encode(), digest_size=8).digest()
    return 2 + int.from_bytes(digest, "little") % slots


def pieces(length: int, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """0 up to and including the first entity's start, 1 up to and including the second's, 2 after:
    (batch, length). Which of the two is the first does not matter.
    """
    i = torch.arange(length)
    return (i > first.unsqueeze(1)).long() + (i > second.unsqueeze(1))


def rows(piece: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """Each position's piece in the list of all pieces of the batch; beyond a sentence's end, one more
    than there are.
    """
    count = 3 * len(piece)
    return torch.where(real, piece + torch.arange(0, count, 3).unsqueeze(1), count)


def layout(
    length: int, lengths: torch.Tensor, head_at: torch.Tensor, tail_at: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """For each of `length` tokens: the entry of both tables of positions, and the row of its piece."""
    real = torch.arange(length) < lengths.unsqueeze(1)
    starts = torch.stack([head_at, tail_at]).clamp_(max=MAX_LENGTH - 1)
    head_from, tail_from = positions(length, starts).mul_(real)
    return head_from, tail_from, rows(pieces(length, *starts), real)


def maxima(features: torch.Tensor, row: torch.Tensor, count: int) -> torch.Tensor:
    """The maximum of each of `count` pieces, at least 0 (that is the ReLU; an empty piece is zeros):
    (count + 1, filters), the last row to be ignored. `features`: (positions, filters).
    """
    top = features.new_zeros(count + 1, features.shape[1])
    return top.scatter_reduce_(0, row.unsqueeze(1).expand_as(features), features, "amax")


def back_to_maxima(
    gradient: torch.Tensor, features: torch.Tensor, row: torch.Tensor, top: torch.Tensor
) -> torch.Tensor:
    """The gradient of `features`, given that of the pieces' maxima."""
    wanted = torch.zeros_like(top)  # of the last row nothing is, nor where zero is the maximum
    torch.mul(top[:-1].sign(), gradient.reshape(-1, top.shape[1]), out=wanted[:-1])
    # in place, because a comparison that makes booleans is not vectorised
    highest = top.index_select(0, row).eq_(features)
    return highest.mul_(wanted.index_select(0, row))


def windows(*parts: torch.Tensor) -> torch.Tensor:
    """Vectors beside each other, and each token's between those of its two neighbours: (batch,
    length, d), … to (batch, length, 3 * sum of d), with zeros beyond both ends.
    """
    batch, length, _ = parts[0].shape
    width = sum(p.shape[2] for p in parts)
    padded = parts[0].new_zeros(batch, length + 2, width)
    torch.cat(parts, dim=2, out=padded[:, 1:-1])
    # three tokens that follow each other are one row already
    whole = padded.as_strided((batch, length, 3 * width), ((length + 2) * width, width, 1))
    return whole.contiguous()


def out_of_windows(gradient: torch.Tensor, widths: Sequence[int]) -> tuple[torch.Tensor, ...]:
    """The gradients of the parts, given that of their windows."""
    before, own, after = gradient.chunk(3, dim=2)
    total = own.clone(memory_format=torch.contiguous_format)
    total[:, 1:].add_(after[:, :-1])  # in the order of autograd, so that sums round alike
    total[:, :-1].add_(before[:, 1:])
    return total.split(widths, dim=2)


class PiecewiseMax(torch.autograd.Function):
    """ReLU, then the maximum within each piece: (batch, length, filters) to (batch, 3, filters).

    Written out because the gradient of three masked maxima, left to autograd, takes a third of a
    training step.
    """

    @staticmethod
    def forward(ctx: Any, features: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        """`row` (batch, length): what `rows` says."""
        flat, row = features.flatten(0, 1), row.flatten()
        top = maxima(flat, row, 3 * len(features))
        ctx.save_for_backward(features, row, top)
        return top[:-1].view(-1, 3, flat.shape[1])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        features, row, top = ctx.saved_tensors
        return back_to_maxima(gradient, features.flatten(0, 1), row, top).view_as(features), None


class Windows(torch.autograd.Function):
    """`windows`, whose gradient would be twenty operations if it were left to autograd."""

    @staticmethod
    def forward(ctx: Any, *parts: torch.Tensor) -> torch.Tensor:
        ctx.widths = [p.shape[2] for p in parts]
        return windows(*parts)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return out_of_windows(gradient, ctx.widths)


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
        head_from, tail_from, row = layout(words.shape[1], lengths, head_at, tail_at)
        window = Windows.apply(
            self.word(words), self.head_position(head_from), self.tail_position(tail_from)
        )
        pooled: torch.Tensor = PiecewiseMax.apply(self.convolution(window), row)
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
        piece = pieces(longest, head_at, tail_at)
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
