"""Attention that is handed out at some places only, for an encoder without dropout of attention.

The document encoder reads the last layer's attention at its stars and nowhere else. Encoders hand
out all of it, (heads, width, width) for every window, and drop some of it in training: for documents
of 350 pieces that is more than half of a training step. Without that dropout the layers can use
torch's attention in one piece, which never writes it out; queries and keys of the last layer give the
rows at the stars afterwards. In eval mode both ways compute the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from config.errors import UserError

__all__ = ["Looks", "rows_at", "use_star_attention"]

_NAME = "sottovoce-stars"  #: under which `transformers` knows it
#: model_type of encoders whose attention is nothing but queries, keys and values
_CAN = {"bert", "roberta", "xlm-roberta", "camembert", "electra"}


@dataclass(frozen=True)
class Looks:
    """What a layer's attention is made of: (windows, heads, width, d) each."""

    query: torch.Tensor
    key: torch.Tensor
    scaling: float
    real: torch.Tensor  #: (windows, width)

    def at(self, window: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
        """The attention of the places `column` of `window`, (places, heads, width)."""
        if not len(window):
            return self.key.new_zeros(0, *self.key.shape[1:3], dtype=torch.float32)
        count = torch.bincount(window, minlength=len(self.query))
        order = torch.argsort(window, stable=True)
        nth = torch.empty_like(window)
        nth[order] = torch.arange(len(window)) - (count.cumsum(0) - count)[window[order]]
        windows, heads, _, d = self.query.shape
        asked = self.query.new_zeros(windows, int(count.max()), heads, d)
        asked = asked.index_put((window, nth), self.query[window, :, column])
        scores = asked.transpose(1, 2).float() @ self.key.transpose(2, 3).float() * self.scaling
        scores = scores.masked_fill(~self.real[:, None, None], float("-inf"))
        found: torch.Tensor = scores.softmax(dim=3)[window, :, nth]
        return found


def rows_at(
    attention: torch.Tensor | Looks, window: torch.Tensor, column: torch.Tensor
) -> torch.Tensor:
    """The same from either form; `attention`: (windows, heads, width, width) where it was written
    out.
    """
    if isinstance(attention, Looks):
        return attention.at(window, column)
    return attention[window, :, column]


def use_star_attention(backbone: Any) -> None:
    """The encoder computes so from now on, and drops no attention."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    kind = str(getattr(backbone.config, "model_type", ""))
    if kind not in _CAN:
        raise UserError(
            f'Option "attention_dropout": none is for encoders such as BERT, not for one of type "{kind}".'
        )
    ALL_ATTENTION_FUNCTIONS.register(_NAME, _attend)
    ALL_MASK_ATTENTION_FUNCTIONS.register(_NAME, sdpa_mask)
    backbone.set_attn_implementation(_NAME)


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor, float]]:
    """In place of the attention itself, what it is made of."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if query.dtype == torch.bfloat16:
        out = _InHalf.apply(query, key, value, attention_mask, scale)
    else:
        out = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=attention_mask, scale=scale
        )
    return out.transpose(1, 2).contiguous(), (query, key, scale)


class _InHalf(torch.autograd.Function):
    """In bfloat16 torch's own, which computes blocks in float32, takes twice as long as this."""

    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
        scale: float,
    ) -> torch.Tensor:
        q, k, v = ((query * scale).flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1))
        scores = q @ k.transpose(1, 2)
        if mask is not None:
            each = scores.view(*query.shape[:2], *scores.shape[1:])
            each.masked_fill_(~mask, float("-inf"))
        shares = scores.softmax(dim=2)
        ctx.save_for_backward(q, k, v, shares)
        ctx.shape, ctx.scale = query.shape, scale
        return (shares @ v).view(query.shape)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, k, v, shares = ctx.saved_tensors
        grad = grads[0].flatten(0, 1)
        to_value = shares.transpose(1, 2) @ grad
        to_scores = torch._softmax_backward_data(grad @ v.transpose(1, 2), shares, 2, shares.dtype)
        to_query = to_scores @ k * ctx.scale
        to_key = to_scores.transpose(1, 2) @ q
        made = (x.view(ctx.shape) for x in (to_query, to_key, to_value))
        return (*made, None, None)
