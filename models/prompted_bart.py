"""BART's and Marian's forward pass with prompts in the keys and values of every attention, over a
`transformers` model's weights.

`transformers` has no place where keys and values could be put into an encoder, so the layers are
walked here: post-norm blocks of self-attention, cross-attention and a feed-forward part, without
dropout, because the language model is frozen. Without prompts the result is that of `BartModel` or
`MarianModel` itself, which a test holds. Marian is of BART's family: its layers are the same, its
positions are sines that count from 0, and no layer norm follows its word vectors.

What can be kept, with prompts in the encoder too: within one decoding, the encoder's output and the
keys and values that every layer makes of it (`Source`), and the decoder's own keys and values from
step to step (`cache`). Across rounds nothing can, because new prompts change every layer.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from models.prompted import Cache, Family, Source, heads, visible, with_prompt
from models.prompts import KeyValues, Projected, Sizes

__all__ = ["BART", "decode", "embed", "encode", "family_sizes"]


def family_sizes(config: Any) -> Sizes:
    """(layers, heads, dimensions of a head) of the three families of attentions."""
    encoder = (int(config.encoder_layers), int(config.encoder_attention_heads))
    decoder = (int(config.decoder_layers), int(config.decoder_attention_heads))
    width = int(config.d_model)
    return {
        family: (layers, count, width // count)
        for family, (layers, count) in (
            ("encoder", encoder),
            ("decoder", decoder),
            ("cross", decoder),
        )
    }


def _key_values(attention: Any, x: torch.Tensor) -> KeyValues:
    return heads(attention.k_proj(x), attention.num_heads), heads(
        attention.v_proj(x), attention.num_heads
    )


def _attend(
    attention: Any, x: torch.Tensor, kv: KeyValues, mask: torch.Tensor | None
) -> torch.Tensor:
    """Scaled by the square root of the head's dimension, not of the model's as the paper prints."""
    q = heads(attention.q_proj(x), attention.num_heads)
    out = F.scaled_dot_product_attention(q, *kv, attn_mask=mask, scale=attention.scaling)
    return attention.out_proj(out.transpose(1, 2).flatten(2))


def _feed_forward(layer: Any, x: torch.Tensor) -> torch.Tensor:
    return layer.final_layer_norm(x + layer.fc2(layer.activation_fn(layer.fc1(x))))


def embed(part: Any, vectors: torch.Tensor, start: int = 0) -> torch.Tensor:
    """What the encoder or decoder makes of word vectors (rows, length, width) before its first
    layer.
    """
    positions = part.embed_positions
    first = getattr(positions, "offset", 0) + start  # BART's table begins with two rows of nothing
    at = positions.weight[first : first + vectors.shape[1]]
    if hasattr(part, "layernorm_embedding"):
        scale = getattr(part.embed_tokens, "embed_scale", 1.0)
        return part.layernorm_embedding(vectors * scale + at)
    return vectors * part.embed_scale + at


def encode(bart: Any, ids: torch.Tensor, real: torch.Tensor, prompts: Projected | None) -> Source:
    part = bart.encoder
    length = prompts.encoder[0][0].shape[2] if prompts is not None else 0
    mask = visible(real, length)
    x = embed(part, bart.shared.weight[ids])
    every = []
    for i, layer in enumerate(part.layers):
        kv = with_prompt(prompts.encoder[i] if prompts else None, _key_values(layer.self_attn, x))
        x = layer.self_attn_layer_norm(x + _attend(layer.self_attn, x, kv, mask))
        x = _feed_forward(layer, x)
        every.append(x)
    cross = tuple(
        with_prompt(prompts.cross[i] if prompts else None, _key_values(layer.encoder_attn, x))
        for i, layer in enumerate(bart.decoder.layers)
    )
    return Source(x, tuple(every), cross, mask)


def decode(
    bart: Any,
    vectors: torch.Tensor,
    source: Source,
    prompts: Projected | None,
    cache: Cache | None = None,
) -> tuple[torch.Tensor, Cache]:
    """Decoder states (rows, steps, width) for input word vectors, and the cache for the steps after
    them.

    With a cache the vectors are the next steps only; keys and values of the steps before come from
    it.
    """
    length = prompts.decoder[0][0].shape[2] if prompts is not None else 0
    before = cache[0][0].shape[2] - length if cache else 0
    steps = vectors.shape[1]
    x = embed(bart.decoder, vectors, before)
    causal = torch.ones(steps, length + before + steps, dtype=torch.bool).tril(length + before)
    after: Cache = []
    for i, layer in enumerate(bart.decoder.layers):
        own = _key_values(layer.self_attn, x)
        if cache:
            kv = (torch.cat([cache[i][0], own[0]], dim=2), torch.cat([cache[i][1], own[1]], dim=2))
        else:
            kv = with_prompt(prompts.decoder[i] if prompts else None, own)
        after.append(kv)
        x = layer.self_attn_layer_norm(
            x + _attend(layer.self_attn, x, kv, causal if steps > 1 else None)
        )
        x = layer.encoder_attn_layer_norm(
            x + _attend(layer.encoder_attn, x, source.cross[i], source.mask)
        )
        x = _feed_forward(layer, x)
    return x, after


BART = Family(family_sizes, encode, decode)
