"""Which parameters of a network are trained, and so travel, are clipped and are noised: all, or
few.

`light` is for DP-SGD. Its noise is added to every trained coordinate, so its norm grows with the
square root of their number while a record's clipped gradient does not. A pretrained encoder then
trains its biases and layer norms, and what stands on top of it (BiTFiT: Ben Zaken et al. 2022; with
DP-SGD: Bu et al. 2024, "Differentially Private Bias-Term Fine-Tuning of Foundation Models", ICML),
of a document encoder without the wide projections there. A PCNN keeps its word vectors. What is not
trained is given, or fixed random numbers that are the same everywhere.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from config.errors import check_choice

__all__ = [
    "FULL",
    "LIGHT",
    "LIGHTLY",
    "biases_only",
    "fixed_vectors",
    "frozen",
    "rows_are_records",
    "tuning",
]

FULL, LIGHT = "full", "light"
LIGHTLY = ", of which only biases, layer norms and what stands on top are trained"  #: for a report
#: Networks in which every layer is used once and its first axis is the text: what one-pass clipping
#: needs. Others share layers or have ones of their own. With all parameters trained BERT alone,
#: because it is told its positions by text.
_ROWS = {"bert", "roberta", "camembert", "electra", "distilbert", "mpnet", "modernbert", "big_bird"}


def tuning(asked: str, private: bool) -> str:
    """What the user asked for; where nothing, `light` with DP=record and `full` without."""
    if asked:
        check_choice("tune", asked, (FULL, LIGHT))
    return asked or (LIGHT if private else FULL)


def rows_are_records(backbone: Any, tune: str) -> bool:
    """Whether gradients of a batch of texts can be clipped in one pass (`methods.dp.engine`)."""
    kind = getattr(backbone.config, "model_type", "")
    return kind == "bert" or (kind in _ROWS and tune == LIGHT)


def biases_only(backbone: Any) -> None:
    for layer in backbone.modules():
        whole = isinstance(layer, nn.LayerNorm)
        for name, p in layer.named_parameters(recurse=False):
            p.requires_grad_(whole or name == "bias")


def fixed_vectors(table: nn.Embedding, given: bool) -> None:
    """The table is not trained. Unless it was `given` it is drawn from a seed that is nobody's."""
    if not given:
        with torch.no_grad():
            table.weight.copy_(
                torch.randn(table.weight.shape, generator=torch.Generator().manual_seed(0))
            )
            if table.padding_idx is not None:
                table.weight[table.padding_idx] = 0.0
    table.weight.requires_grad_(False)


def frozen(model: nn.Module) -> dict[str, Any]:
    """What is not trained, as arrays: a saved model is whole."""
    return {
        n: p.detach().numpy().copy() for n, p in model.named_parameters() if not p.requires_grad
    }
