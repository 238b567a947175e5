"""What the prompted language models have in common, whichever family they are of: BART and Marian
(`models.prompted_bart`) or T5 (`models.prompted_t5`).

A family is three functions over a `transformers` model: `family_sizes` of its config, `encode` and
`decode`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F

from models.prompts import KeyValues, Projected, Sizes

__all__ = ["Cache", "Family", "Source", "heads", "keep_rows", "visible", "with_prompt"]

Cache = list[KeyValues]


@dataclass(frozen=True)
class Source:
    """Encoded sentences, and what every decoder layer attends to in them."""

    hidden: torch.Tensor  #: (rows, pieces, width), the encoder's last layer
    layers: tuple[torch.Tensor, ...]  #: every layer's output; the last is `hidden`
    cross: tuple[KeyValues, ...]  #: per decoder layer, prompts included
    mask: torch.Tensor  #: (rows, 1, 1, prompts + pieces): what may be attended to

    def some(self, rows: torch.Tensor) -> Source:
        """Of these rows, what decoding reads."""
        cross = tuple(keep_rows(kv, rows) for kv in self.cross)
        return replace(self, hidden=self.hidden[rows], layers=(), cross=cross, mask=self.mask[rows])


@dataclass(frozen=True)
class Family:
    sizes: Callable[[Any], Sizes]  #: of a config
    #: (model, pieces, which are no padding, prompts)
    encode: Callable[[Any, torch.Tensor, torch.Tensor, Projected | None], Source]
    #: (model, word vectors, encoded sentences, prompts, cache): the decoder's states and the cache
    #: for the steps after them. With a cache the vectors are the next steps only.
    decode: Callable[
        [Any, torch.Tensor, Source, Projected | None, Cache | None], tuple[torch.Tensor, Cache]
    ]


def heads(x: torch.Tensor, count: int) -> torch.Tensor:
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def keep_rows(kv: KeyValues, rows: torch.Tensor) -> KeyValues:
    return kv[0][rows], kv[1][rows]


def with_prompt(prompt: KeyValues | None, own: KeyValues) -> KeyValues:
    if prompt is None:
        return own
    rows = len(own[0])
    return (
        torch.cat([prompt[0].expand(rows, -1, -1, -1), own[0]], dim=2),
        torch.cat([prompt[1].expand(rows, -1, -1, -1), own[1]], dim=2),
    )


def visible(real: torch.Tensor, prompts: int) -> torch.Tensor:
    """(rows, 1, 1, prompts + pieces): every prompt, and every piece that is not padding."""
    return F.pad(real, (prompts, 0), value=True)[:, None, None, :]
