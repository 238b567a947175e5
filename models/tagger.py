"""The conventional NER model: a BERT-type encoder and a linear layer that gives every word a tag of
one union tag set.

What a user would try first. A word is classified at its first piece; tags are O, and B- and I- of
every type.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from config.part import Part
from models.halves import encoder_of, upper_half
from models.pointer_targets import Span
from models.precision import computing
from models.standard import Standard

__all__ = ["OUTSIDE", "Tagger", "spans_of", "tags_of"]

OUTSIDE = 0  #: the tag O; B of type t is 1 + 2 t, I of type t is 2 + 2 t


class Tagger(nn.Module):
    """`backbone` is copied: one loaded checkpoint serves any number of models. Of a language model
    with an encoder and a decoder, the encoder reads.

    `standard`: hidden states are standardised by fixed, public statistics, for a head that is
    trained with noise.
    """

    def __init__(
        self, backbone: Any, types: int, dropout: float = 0.1, standard: bool = False
    ) -> None:
        super().__init__()
        self.backbone = copy.deepcopy(backbone)
        self._upper: tuple[Any, ...] = ()  # in a tuple, so that its layers are not listed twice
        config = backbone.config
        width = int(config.hidden_size if hasattr(config, "hidden_size") else config.dim)
        self.standard = Standard(width) if standard else None
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(width, 1 + 2 * types)
        nn.init.normal_(self.classifier.weight, std=0.0 if standard else 0.02)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, ids: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Scores (rows, pieces, tags). `ids` are pieces, or what a frozen part made of them
        (`cut`).
        """
        return self.classifier(self.dropout(self.read(ids, real)))

    def read(self, ids: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """(rows, pieces, d): what the classifier reads, dropout left out."""
        hidden = self.hidden(ids, real)
        return hidden if self.standard is None else self.standard(hidden)

    def cut(self, part: Part) -> None:
        """Take the hidden states (rows, pieces, d) that the frozen part below `part` made of a
        text in place of its pieces.
        """
        self._upper = (upper_half(self.backbone, part),) if part.kind == "top" else ()

    def hidden(self, ids: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """(rows, pieces, d): what the encoder makes of a text."""
        if ids.is_floating_point():
            if not self._upper:
                return ids
            (upper,) = self._upper
            with computing(self.backbone):
                above = upper(inputs_embeds=ids, attention_mask=real.long()).last_hidden_state
            return torch.Tensor.float(above)
        more = {}
        if getattr(self.backbone.config, "model_type", "") == "bert":
            # One row of positions per sentence, not one for all: gradients by record (DP-SGD) need
            # it so.
            more["position_ids"] = torch.arange(ids.shape[1]).expand(ids.shape)
        with computing(self.backbone):
            out = encoder_of(self.backbone)(input_ids=ids, attention_mask=real.long(), **more)
        return torch.Tensor.float(out.last_hidden_state)


def tags_of(spans: Sequence[Span], words: int) -> list[int]:
    """IOB2 tags of a sentence. Of spans that overlap the longer is told; one beyond the words is
    left out.
    """
    tags = [OUTSIDE] * words
    for start, end, kind in sorted(spans, key=lambda s: (s[0] - s[1], s[0], s[2])):
        if end <= words and not any(tags[start:end]):
            tags[start:end] = [1 + 2 * kind] + [2 + 2 * kind] * (end - start - 1)
    return tags


def spans_of(tags: Sequence[int]) -> list[Span]:
    """Entities of a tag sequence; an I that continues nothing of its type begins one."""
    found: list[Span] = []
    begin, kind = 0, -1
    for i, tag in enumerate([*tags, OUTSIDE]):
        this, inside = (tag - 1) // 2 if tag else -1, bool(tag) and tag % 2 == 0
        if kind >= 0 and not (inside and this == kind):
            found.append((begin, i, kind))
            kind = -1
        if this >= 0 and kind < 0:
            begin, kind = i, this
    return found
