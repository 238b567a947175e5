"""An encoder in two halves: below, layers that are never trained; above, those that are.

Both halves are views: they share the encoder's own layers, so what is trained in a half is trained
in the encoder. What the lower half makes of a text never changes, so it need be computed only once
(`models.frozen_features`).
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from config.part import Part
from models.tuning import layers_of, layers_path

__all__ = ["encoder_of", "lower_half", "upper_half"]


class _AsGiven(nn.Module):
    """In place of the table of word vectors: hidden states are passed on."""

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        *positions: Any,
        **more: Any,
    ) -> torch.Tensor:
        found = inputs_embeds if input_ids is None else input_ids
        assert found is not None
        return found


def _view(module: Any) -> Any:
    """The same parameters and submodules; which submodules it has can be changed."""
    twin = copy.copy(module)
    twin._modules = dict(module._modules)
    return twin


def _with_layers(backbone: Any, layers: list[nn.Module]) -> Any:
    """The encoder with other layers in its list."""
    top = at = _view(backbone)
    *way, last = layers_path(backbone).split(".")
    for name in way:
        at._modules[name] = _view(at._modules[name])
        at = at._modules[name]
    at._modules[last] = nn.ModuleList(layers)
    return top


def encoder_of(backbone: Any) -> Any:
    """What reads a text: of a language model with a decoder, the other half."""
    both = getattr(backbone.config, "is_encoder_decoder", False)
    return backbone.get_encoder() if both else backbone


def lower_half(backbone: Any, part: Part) -> Any:
    """What is computed before the trained layers; all of the encoder where only a head is trained."""
    if part.kind == "head":
        return encoder_of(backbone)
    return _with_layers(backbone, list(layers_of(backbone))[: -part.size])


def upper_half(backbone: Any, part: Part) -> Any:
    """The trained layers: takes `inputs_embeds`, the hidden states that the lower half gave."""
    half = _with_layers(backbone, list(layers_of(backbone))[-part.size :])
    half._modules["embeddings"] = _AsGiven()
    half._modules.pop("embeddings_project", None)  # ELECTRA's, which the lower half has applied
    return half
