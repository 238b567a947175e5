"""T5's forward pass with prompts in the keys and values of every attention, over a `transformers`
model's weights.

Pre-norm blocks without biases; positions are a bias on the scores of the first layer, which the
others share, and prompts stand nowhere: their bias is 0. Scores are not scaled. Where T5's word
vectors are its output layer too, its states are scaled before they meet them, as T5 does itself.
Without prompts the result is that of `T5Model`, which a test holds.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from models.prompted import Cache, Family, Source, heads, visible, with_prompt
from models.prompts import KeyValues, Projected, Sizes

__all__ = ["T5", "decode", "encode", "family_sizes", "output_scale"]


def family_sizes(config: Any) -> Sizes:
    """(layers, heads, dimensions of a head) of the three families of attentions."""
    count, dim = int(config.num_heads), int(config.d_kv)
    decoder = (int(config.num_decoder_layers), count, dim)
    return {"encoder": (int(config.num_layers), count, dim), "decoder": decoder, "cross": decoder}


def output_scale(config: Any) -> float:
    """What the decoder's states are multiplied with before they meet word vectors."""
    return float(config.d_model) ** -0.5 if config.tie_word_embeddings else 1.0


def _key_values(attention: Any, x: torch.Tensor) -> KeyValues:
    return heads(attention.k(x), attention.n_heads), heads(attention.v(x), attention.n_heads)


def _attend(attention: Any, x: torch.Tensor, kv: KeyValues, bias: torch.Tensor) -> torch.Tensor:
    """`bias` is added to the scores, or says what may be seen."""
    q = heads(attention.q(x), attention.n_heads)
    out = F.scaled_dot_product_attention(q, *kv, attn_mask=bias, scale=1.0)
    return attention.o(out.transpose(1, 2).flatten(2))


def _feed_forward(block: Any, x: torch.Tensor) -> torch.Tensor:
    layer = block.layer[-1]
    return x + layer.DenseReluDense(layer.layer_norm(x))


def _positions(part: Any, queries: int, keys: int, prompts: int) -> torch.Tensor:
    """(1, heads, queries, prompts + keys): the bias of the last `queries` of `keys` positions."""
    first = part.block[0].layer[0].SelfAttention
    return F.pad(first.compute_bias(keys, keys)[:, :, keys - queries :], (prompts, 0))


def encode(t5: Any, ids: torch.Tensor, real: torch.Tensor, prompts: Projected | None) -> Source:
    part = t5.encoder
    length = prompts.encoder[0][0].shape[2] if prompts is not None else 0
    mask = visible(real, length)
    x = t5.shared.weight[ids]
    bias = _positions(part, ids.shape[1], ids.shape[1], length)
    bias = bias.masked_fill(~mask, float("-inf"))
    every = []
    for i, block in enumerate(part.block):
        own = block.layer[0]
        y = own.layer_norm(x)
        kv = with_prompt(prompts.encoder[i] if prompts else None, _key_values(own.SelfAttention, y))
        x = _feed_forward(block, x + _attend(own.SelfAttention, y, kv, bias))
        every.append(x)
    x = part.final_layer_norm(x)
    cross = tuple(
        with_prompt(
            prompts.cross[i] if prompts else None, _key_values(block.layer[1].EncDecAttention, x)
        )
        for i, block in enumerate(t5.decoder.block)
    )
    return Source(x, (*every[:-1], x), cross, mask)


def decode(
    t5: Any,
    vectors: torch.Tensor,
    source: Source,
    prompts: Projected | None,
    cache: Cache | None = None,
) -> tuple[torch.Tensor, Cache]:
    """As `models.prompted_bart.decode`."""
    length = prompts.decoder[0][0].shape[2] if prompts is not None else 0
    before = cache[0][0].shape[2] - length if cache else 0
    steps, x = vectors.shape[1], vectors
    causal = torch.ones(steps, length + before + steps, dtype=torch.bool).tril(length + before)
    bias = _positions(t5.decoder, steps, before + steps, length)
    bias = bias.masked_fill(~causal, float("-inf"))
    after: Cache = []
    for i, block in enumerate(t5.decoder.block):
        own, other = block.layer[0], block.layer[1]
        y = own.layer_norm(x)
        kv = _key_values(own.SelfAttention, y)
        if cache:
            kv = (torch.cat([cache[i][0], kv[0]], dim=2), torch.cat([cache[i][1], kv[1]], dim=2))
        else:
            kv = with_prompt(prompts.decoder[i] if prompts else None, kv)
        after.append(kv)
        x = x + _attend(own.SelfAttention, y, kv, bias)
        y = other.layer_norm(x)
        x = x + _attend(other.EncDecAttention, y, source.cross[i], source.mask)
        x = _feed_forward(block, x)
    return t5.decoder.final_layer_norm(x) * output_scale(t5.config), after


T5 = Family(family_sizes, encode, decode)
