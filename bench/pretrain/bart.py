"""The small BART, pretrained by denoising (Lewis et al. 2020, section 2.2): text infilling.

Spans of pieces, their lengths drawn from a Poisson distribution, are each replaced by one mask; a
span of length zero puts a mask where nothing is missing. The decoder writes the whole sentence
again. Called by `bench.pretrain.make`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

__all__ = ["build", "infill", "reconstruction"]

_SPAN = 2.0  #: mean length of a span, in pieces; BART's 3 is for whole paragraphs


def build(
    vocabulary: int, layers: int, width: int, heads: int, positions: int, tokens: dict[str, int]
) -> Any:
    """A BartForConditionalGeneration of that size; `tokens` are the numbers of pad, begin and
    end.
    """
    from transformers import BartConfig, BartForConditionalGeneration

    config = BartConfig(
        vocab_size=vocabulary,
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        max_position_embeddings=positions,
        pad_token_id=tokens["pad"],
        bos_token_id=tokens["begin"],
        eos_token_id=tokens["end"],
        decoder_start_token_id=tokens["end"],
        forced_eos_token_id=tokens["end"],
    )
    return BartForConditionalGeneration(config)


def infill(row: np.ndarray, share: float, mask: int, rng: np.random.Generator) -> np.ndarray:
    """The row with about `share` of its inner pieces in masked spans; its first and last piece
    always stay.
    """
    body = row[1:-1]
    gone = np.zeros(len(body), dtype=bool)
    opens = np.zeros(len(body), dtype=bool)
    while gone.sum() + opens.sum() < share * len(body):
        at, length = int(rng.integers(len(body))), int(rng.poisson(_SPAN))
        opens[at] = True
        gone[at : at + length] = True
    out = [int(row[0])]
    for i, piece in enumerate(body):
        if opens[i] and not (i and gone[i - 1] and out[-1] == mask):
            out.append(mask)
        if not gone[i]:
            out.append(int(piece))
    return np.array([*out, int(row[-1])], dtype=np.int64)


def reconstruction(
    model: Any, pad: int, mask: int, share: float
) -> Callable[[list[np.ndarray], np.random.Generator], torch.Tensor]:
    """The loss of a batch: cross-entropy of every piece of the original, given the noised
    sentence.
    """

    def padded(rows: list[np.ndarray]) -> torch.Tensor:
        out = np.full((len(rows), max(map(len, rows))), pad, dtype=np.int64)
        for i, row in enumerate(rows):
            out[i, : len(row)] = row
        return torch.from_numpy(out)

    def loss(batch: list[np.ndarray], rng: np.random.Generator) -> torch.Tensor:
        noised, whole = padded([infill(r, share, mask, rng) for r in batch]), padded(batch)
        start = torch.full((len(batch), 1), model.config.decoder_start_token_id)
        hidden = model.model(
            input_ids=noised,
            attention_mask=(noised != pad).long(),
            decoder_input_ids=torch.cat([start, whole[:, :-1]], dim=1),
        ).last_hidden_state
        wanted = whole != pad
        return torch.nn.functional.cross_entropy(model.lm_head(hidden[wanted]), whole[wanted])

    return loss
