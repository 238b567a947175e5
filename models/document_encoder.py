"""The document encoder: entities from mentions, the context that two entities share, a grouped
bilinear classifier.

FedLCC's model (equations 1 to 10; after Zhou et al. 2021, ATLOP), over any BERT-type network. All
pairs of all documents of a batch are computed together.

* A mention is the hidden state at its opening star; an entity is the logsumexp of its mentions (2).
* An entity's attention is the mean over its mentions of the last layer's attention at the star, per
  head. For a pair, q = sum over heads of A_s * A_o, a = q / (sum q + 1e-5), and c = H^T a is its
  localized context (3 to 5).
* z_s = tanh(W_s [h_s; c] + b), z_o likewise with its own weights (6, 7); groups of `block`
  dimensions of both are multiplied out and classified (8 to 10).

A document in two windows has the mean of its overlapping hidden states; overlapping attentions are
added, and every row is normalised to one. An entity without a readable mention is zeros, and so is
its attention.
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
from models.document_pieces import Batch
from models.halves import upper_half
from models.precision import computing
from models.standard import Standard
from models.star_attention import Looks, rows_at, use_star_attention
from models.tuning import fixed_numbers

__all__ = ["EPSILON", "DocumentEncoder", "Reading", "open_model", "seen_by"]

EPSILON = 1e-5


@dataclass(frozen=True)
class Reading:
    """What the network makes of every pair of a batch."""

    logits: torch.Tensor  #: (pairs, outputs)
    context: torch.Tensor  #: c, (pairs, d)
    subject: torch.Tensor  #: z_s, (pairs, d)
    object: torch.Tensor  #: z_o


class DocumentEncoder(nn.Module):
    """`backbone` is copied: one loaded checkpoint serves any number of models."""

    def __init__(
        self,
        backbone: Any,
        outputs: int,
        block: int = 64,
        linear: bool = False,
        drop_attention: bool = True,
    ) -> None:
        """`linear`: for a head on a frozen encoder, one linear layer on standardised [h_s; h_o; c]
        in place of the bilinear classifier and its projections. `drop_attention`: in training, as
        the checkpoint's config says; without it training is about twice as fast.
        """
        super().__init__()
        self.backbone = copy.deepcopy(backbone)
        if drop_attention:
            self.backbone.set_attn_implementation("eager")  # which hands its attention out
        else:
            use_star_attention(self.backbone)
        self._upper: tuple[Any, ...] = ()  # in a tuple, so that its layers are not listed twice
        config = backbone.config
        self._positions = getattr(config, "model_type", "") == "bert"
        width = int(config.hidden_size if hasattr(config, "hidden_size") else config.dim)
        if width % block:
            raise ValueError(f"blocks of {block} do not divide {width} dimensions")
        self.block = block
        self.standard: Standard | None = None
        if linear:
            self.standard = Standard(3 * width)
            self.linear = nn.Linear(3 * width, outputs)
            nn.init.zeros_(self.linear.weight)
            nn.init.zeros_(self.linear.bias)
            return
        self.subject = nn.Linear(2 * width, width)
        self.object = nn.Linear(2 * width, width)
        self.bilinear = nn.Linear(width * block, outputs)

    def forward(self, batch: Batch) -> torch.Tensor:
        return self.read(batch).logits

    def read(self, batch: Batch, by_document: bool = False) -> Reading:
        """`by_document`: the first axis of every layer is the document, as per-document gradients
        (DP-SGD) need it.
        """
        if batch.seen is not None:
            return self._pairs(batch, *batch.seen, by_document)
        return self.classify(batch, *self.encode(batch), by_document)

    def cut(self, part: Part) -> None:
        """Read what the frozen part below `part` made of a document (`Batch.below`), if a batch has
        it.
        """
        self._upper = (upper_half(self.backbone, part),) if part.kind == "top" else ()

    def fix_projections(self) -> None:
        """For DP-SGD with few parameters: W_s and W_o are random projections, and not trained."""
        fixed_numbers([self.subject.weight, self.object.weight])

    def encode(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor | Looks]:
        """Hidden states (windows, width, d) and the last layer's attention (windows, heads, width,
        width), or what it is made of.
        """
        if batch.below is not None:
            (upper,) = self._upper
            with computing(self.backbone):
                return _read_by(upper, batch, inputs_embeds=batch.below)
        more = {}
        if self._positions:
            # One row of positions per window, not one for all: per-example gradients (DP-SGD) need
            # it so.
            more["position_ids"] = torch.arange(batch.ids.shape[1]).expand(batch.ids.shape)
        with computing(self.backbone):
            return _read_by(self.backbone, batch, input_ids=batch.ids, **more)

    def classify(
        self,
        batch: Batch,
        hidden: torch.Tensor,
        attention: torch.Tensor | Looks,
        by_document: bool = False,
    ) -> Reading:
        return self._pairs(batch, *seen(batch, hidden, attention), by_document)

    def _pairs(
        self, batch: Batch, entities: torch.Tensor, context: torch.Tensor, by_document: bool
    ) -> Reading:
        if self.standard is not None:
            return self._read_linearly(batch, entities, context, by_document)
        s, o = (torch.cat([entities[e], context], dim=1) for e in (batch.head, batch.tail))
        if by_document:
            s, o = _beside(batch, s), _beside(batch, o)
        z_s, z_o = torch.tanh(self.subject(s)), torch.tanh(self.object(o))
        if not by_document:
            return Reading(self._grouped(z_s, z_o), context, z_s, z_o)
        pairs = (batch.pair_document, batch.pair_slot)
        return Reading(self._multiplied(z_s, z_o)[pairs], context, z_s[pairs], z_o[pairs])

    def _read_linearly(
        self, batch: Batch, entities: torch.Tensor, context: torch.Tensor, by_document: bool
    ) -> Reading:
        assert self.standard is not None
        subject, object_ = entities[batch.head], entities[batch.tail]
        x = self.standard(torch.cat([subject, object_, context], dim=1))
        logits = self.linear(_beside(batch, x) if by_document else x)
        logits = logits[batch.pair_document, batch.pair_slot] if by_document else logits
        return Reading(logits, context, subject, object_)

    def _grouped(self, z_s: torch.Tensor, z_o: torch.Tensor) -> torch.Tensor:
        """b_r + sum over groups of z_s^T W_r z_o."""
        pairs, width = z_s.shape
        groups, outputs = width // self.block, self.bilinear.out_features
        s, o = z_s.view(pairs, groups, self.block), z_o.view(pairs, groups, self.block)
        if outputs > self.block:  # then the products themselves are the smaller thing to hold
            return self._multiplied(z_s, z_o)
        w = self.bilinear.weight.view(outputs, groups, self.block, self.block)
        half = torch.einsum("pgi,rgij->prgj", s, w)
        return (half * o.unsqueeze(1)).sum(dim=(2, 3)) + self.bilinear.bias

    def _multiplied(self, z_s: torch.Tensor, z_o: torch.Tensor) -> torch.Tensor:
        """The same with the products written out, for any axes before the last: the classifier is
        called as a layer.
        """
        s, o = z_s.unflatten(-1, (-1, self.block)), z_o.unflatten(-1, (-1, self.block))
        out: torch.Tensor = self.bilinear((s.unsqueeze(-1) * o.unsqueeze(-2)).flatten(-3))
        return out


def _read_by(
    encoder: Any, batch: Batch, **inputs: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor | Looks]:
    out = encoder(
        **inputs, attention_mask=batch.real.long(), output_attentions=True, return_dict=True
    )
    # Nothing times what stands at padding is nothing only if that is a number.
    hidden = out.last_hidden_state.float().masked_fill(~batch.real.unsqueeze(2), 0.0)
    last = out.attentions[-1]
    if isinstance(last, tuple):
        query, key, scaling = last
        return hidden, Looks(query, key, scaling, batch.real)
    return hidden, last.float()


def seen(
    batch: Batch, hidden: torch.Tensor, attention: torch.Tensor | Looks
) -> tuple[torch.Tensor, torch.Tensor]:
    """All that the classifier reads of a batch: its entities (entities, d), and the context of each
    pair (pairs, d). Nothing here has parameters.
    """
    states, rows = _joined(batch, hidden, attention)
    mentions = states[batch.mention_document, batch.mention_place]
    entities = _logsumexp(batch, mentions)
    looks = _entity_attention(batch, rows)
    return entities, _localized_context(batch, states, looks)


def seen_by(encoder: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """The same from an encoder by itself."""
    return seen(batch, *_read_by(encoder, batch, input_ids=batch.ids))


def _joined(
    batch: Batch, hidden: torch.Tensor, attention: torch.Tensor | Looks
) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden states (documents, longest, d), and per mention its attention row (mentions, heads,
    longest).
    """
    document, place = batch.mention_document, batch.mention_place
    if batch.slots == 1:
        return hidden, rows_at(attention, document, place)
    width, longest = hidden.shape[1], batch.column.shape[2]
    nothing = hidden.new_zeros(hidden.shape[0], 1, hidden.shape[2])
    padded = torch.cat([hidden, nothing], dim=1)
    read = batch.column < width
    states = padded[batch.window.unsqueeze(2), batch.column].sum(dim=1)
    states = states / read.sum(dim=1).clamp(min=1).unsqueeze(2)
    rows = hidden.new_zeros(len(document), 1, longest)
    for slot in range(batch.slots):
        column = batch.column[document, slot, place]
        row = rows_at(attention, batch.window[document, slot], column.clamp(max=width - 1))
        row = nn.functional.pad(row, (0, 1)) * (column < width)[:, None, None]
        where = batch.column[document, slot].unsqueeze(1).expand(-1, row.shape[1], -1)
        rows = rows + row.gather(2, where)
    in_two = (batch.window[:, 0] != batch.window[:, 1])[document]
    whole = torch.where(
        in_two[:, None, None], rows.sum(dim=2, keepdim=True) + 1e-10, rows.new_ones(1)
    )
    return states, rows / whole


def _logsumexp(batch: Batch, mentions: torch.Tensor) -> torch.Tensor:
    """(entities, d). Free places of the table are minus infinity; an entity without a mention is
    log e^0 = 0.
    """
    d = mentions.shape[1]
    rows = torch.cat([mentions, mentions.new_zeros(1, d), mentions.new_full((1, d), float("-inf"))])
    return torch.logsumexp(rows[batch.mention_table], dim=1)


def _entity_attention(batch: Batch, rows: torch.Tensor) -> torch.Tensor:
    """(entities, heads, longest): the mean over an entity's mentions."""
    total = rows.new_zeros(batch.entities, *rows.shape[1:]).index_add(0, batch.mention_entity, rows)
    count = torch.bincount(batch.mention_entity, minlength=batch.entities).clamp(min=1)
    return total / count[:, None, None]


def _localized_context(batch: Batch, states: torch.Tensor, looks: torch.Tensor) -> torch.Tensor:
    """c of every pair, (pairs, d): one matrix product per document, its pairs side by side."""
    q = (looks[batch.head] * looks[batch.tail]).sum(dim=1)
    a = q / (q.sum(dim=1, keepdim=True) + EPSILON)
    return (_beside(batch, a) @ states)[batch.pair_document, batch.pair_slot]


def _beside(batch: Batch, x: torch.Tensor) -> torch.Tensor:
    """What pairs have, (pairs, d), with those of a document side by side: (documents, most pairs,
    d), zeros behind.
    """
    most = int(batch.pair_slot.max()) + 1 if len(batch.pair_slot) else 1
    free = x.new_zeros(len(batch.window), most, x.shape[1])
    return free.index_put((batch.pair_document, batch.pair_slot), x)


def open_model(folder: str | Path) -> tuple[DocumentEncoder, Any, dict[str, Any]]:
    """A model that a run left in its `model/` folder: the network in eval mode, its tokenizer, and
    its config.
    """
    folder = Path(folder)
    about = json.loads((folder / "config.json").read_text("utf-8"))
    backbone = saved.new_backbone(folder, about)
    linear = about.get("classifier", "bilinear") == "linear"
    model = DocumentEncoder(backbone, int(about["outputs"]), int(about["block"]), linear)
    return saved.loaded(model, folder), saved.open_tokenizer(folder), about
