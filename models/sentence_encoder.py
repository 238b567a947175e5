"""The sentence encoder: a BERT-type network, pooled at the two entities, and a linear classifier.

FedED's model (equations 1 and 2 of its paper) and FedCMC's (equations 1 and 2 of its own) are two
settings of one class: FedED pools [CLS; e1; e2] over blinded entities and has a bias; FedCMC pools
[e1; e2] over the words themselves, and its classifier is nothing but one vector per class.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from config.part import Part
from models import saved
from models.halves import upper_half
from models.marking import HEAD, TAIL
from models.precision import computing
from models.standard import Standard

__all__ = [
    "FEDCMC",
    "FEDED",
    "STYLES",
    "SentenceEncoder",
    "Style",
    "open_model",
    "pooled",
]


@dataclass(frozen=True)
class Style:
    cls: bool  #: pool [CLS; e1; e2] rather than [e1; e2]
    blinding: bool  #: entities' words are replaced by their type
    bias: bool
    dropout: float = 0.1  #: before the classifier
    projection: int = 0  #: outputs of MOON's two-layer head between pooling and classifier; 0: none
    standard: bool = False  #: h is standardised by fixed, public statistics (`Standard`)


FEDED = Style(cls=True, blinding=True, bias=True)
FEDCMC = Style(cls=False, blinding=False, bias=False)
STYLES = {"feded": FEDED, "fedcmc": FEDCMC}


def pooled(hidden: torch.Tensor, flags: torch.Tensor, style: Style) -> torch.Tensor:
    """[CLS; e1; e2] or [e1; e2] of hidden states (batch, pieces, d)."""
    # The sum over an entity's pieces, as both papers have it, not the mean; markers carry no flag.
    weights = torch.stack([(flags & HEAD) > 0, (flags & TAIL) > 0], dim=1).to(hidden.dtype)
    entities = (weights @ hidden).flatten(1)
    return torch.cat([hidden[:, 0], entities], dim=1) if style.cls else entities


class SentenceEncoder(nn.Module):
    """`backbone` is copied: one loaded checkpoint serves any number of models. `shared`: it is not,
    because no model trains or runs it.
    """

    def __init__(self, backbone: Any, relations: int, style: Style, shared: bool = False) -> None:
        super().__init__()
        self.backbone = backbone if shared else copy.deepcopy(backbone)
        self.style = style
        self._upper: tuple[Any, ...] = ()  # in a tuple, so that its layers are not listed twice
        config = backbone.config
        self._positions = getattr(config, "model_type", "") == "bert"
        width = int(config.hidden_size if hasattr(config, "hidden_size") else config.dim)
        pooled = (3 if style.cls else 2) * width
        self.standard = Standard(pooled) if style.standard else None
        self.projection: nn.Sequential | None = None
        if style.projection:
            self.projection = nn.Sequential(
                nn.Linear(pooled, pooled), nn.ReLU(), nn.Linear(pooled, style.projection)
            )
            pooled = style.projection
        self.dropout = nn.Dropout(style.dropout)
        self.classifier = nn.Linear(pooled, relations, bias=style.bias)
        nn.init.normal_(self.classifier.weight, std=0.02)
        if style.bias:
            nn.init.zeros_(self.classifier.bias)

    def cut(self, part: Part) -> None:
        """Take what the frozen part below `part` made of a text in place of its pieces: `pooled`
        where only the head is trained, else hidden states (batch, pieces, d).
        """
        self._upper = (upper_half(self.backbone, part),) if part.kind == "top" else ()

    def encode(self, ids: torch.Tensor, real: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
        """h of equation 1, (batch, 2d or 3d). `real` is False on padding; `flags` say which pieces
        are entities'. `ids` are pieces, or what a frozen part made of them (`cut`).
        """
        h = self.pool(ids, real, flags)
        h = h if self.standard is None else self.standard(h)
        return h if self.projection is None else self.projection(h)

    def pool(self, ids: torch.Tensor, real: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
        """The same before it is standardised and projected."""
        ready = ids.is_floating_point() and ids.dim() == 2
        return ids if ready else pooled(self._hidden(ids, real), flags, self.style)

    def standardise(self, features: torch.Tensor) -> None:
        """By the statistics of these features, with the same answers."""
        assert self.standard is not None
        reader = self.classifier if self.projection is None else self.projection[0]
        assert isinstance(reader, nn.Linear)
        self.standard.take(features, reader)

    def _hidden(self, ids: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        if ids.is_floating_point():
            (upper,) = self._upper
            with computing(self.backbone):
                above = upper(inputs_embeds=ids, attention_mask=real.long()).last_hidden_state
            return torch.Tensor.float(above)
        more = {}
        if self._positions:
            # One row of positions per sentence, not one for all: per-example gradients (DP-SGD)
            # need it so.
            more["position_ids"] = torch.arange(ids.shape[1]).expand(ids.shape)
        with computing(self.backbone):
            out = self.backbone(input_ids=ids, attention_mask=real.long(), **more)
        return torch.Tensor.float(out.last_hidden_state)

    def classify(self, h: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.dropout(h))

    def forward(self, ids: torch.Tensor, real: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
        """Logits (batch, relations): equation 2 before its softmax."""
        return self.classify(self.encode(ids, real, flags))


def open_model(folder: str | Path) -> tuple[SentenceEncoder, Any, tuple[str, ...]]:
    """A model that a run left in its `model/` folder: the network in eval mode, its tokenizer and
    the relations.
    """
    folder = Path(folder)
    about = json.loads((folder / "config.json").read_text("utf-8"))
    backbone = saved.new_backbone(folder, about)
    model = SentenceEncoder(backbone, len(about["relations"]), Style(**about["style"]))
    return saved.loaded(model, folder), saved.open_tokenizer(folder), tuple(about["relations"])
