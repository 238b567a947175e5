"""Which parameters of a network are trained, and so travel, are clipped and are noised: what
`TRAIN` (`config.part`) means for each network.

`bias` and `head` are for DP-SGD too. Its noise is added to every trained coordinate, so its norm
grows with the square root of their number while a record's clipped gradient does not. With `bias` a
pretrained encoder trains its biases and layer norms, and what stands on top of it (BiTFiT: Ben
Zaken et al. 2022; with DP-SGD: Bu et al. 2024, "Differentially Private Bias-Term Fine-Tuning of
Foundation Models", ICML), of a document encoder without the wide projections there. What is not
trained is given, or fixed random numbers that are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from config.errors import UserError
from config.part import Part
from models.adapters import add_adapters
from models.device import there

__all__ = [
    "check_part",
    "fixed_numbers",
    "fixed_vectors",
    "frozen",
    "layers_of",
    "layers_path",
    "rows_are_records",
    "train_part",
    "words_of",
]

#: network -> the kinds of parts that it can train
_CAN = {
    "a PCNN": ("all", "top", "head"),
    "an encoder": ("all", "top", "head", "lora", "bias"),
    "a prompted pointer network": ("all", "lora", "bias", "prompts"),
}
#: Networks in which every layer is used once and its first axis is the text: what one-pass clipping
#: needs. Others share layers or have ones of their own. With all parameters trained BERT alone,
#: because it is told its positions by text.
_ROWS = {"bert", "roberta", "camembert", "electra", "distilbert", "mpnet", "modernbert", "big_bird"}
#: model_type -> where its layers are. Each layer reads what the one before it wrote, and nothing
#: stands behind the last: so a network can be cut between two of them.
_LAYERS = {
    "bert": "encoder.layer",
    "roberta": "encoder.layer",
    "xlm-roberta": "encoder.layer",
    "camembert": "encoder.layer",
    "electra": "encoder.layer",
    "mpnet": "encoder.layer",
    "distilbert": "transformer.layer",
}


def _kind(backbone: Any) -> str:
    return str(getattr(backbone.config, "model_type", ""))


def check_part(part: Part, network: str, backbone: Any = None, layers: int = 0) -> Part:
    """Refuses what a network cannot do. `layers`: how many it has, where `backbone` does not say."""
    can = _CAN[network]
    if part.kind not in can:
        *first, last = can
        raise UserError(
            f"TRAIN={part} is nothing that {network} can do; it can train {', '.join(first)} or {last}."
        )
    if part.kind != "top":
        return part
    if backbone is not None:
        if _kind(backbone) not in _LAYERS:
            raise UserError(
                f'TRAIN={part} does not know the layers of an encoder of type "{_kind(backbone)}"; '
                "take head, lora:R, bias or all."
            )
        layers = len(layers_of(backbone))
    if part.size > layers:
        raise UserError(f"TRAIN={part}: {network} of {layers} layers has no {part.size} to train.")
    return part


def layers_path(backbone: Any) -> str:
    return _LAYERS[_kind(backbone)]


def layers_of(backbone: Any) -> nn.ModuleList:
    layers = backbone.get_submodule(layers_path(backbone))
    assert isinstance(layers, nn.ModuleList)
    return layers


def train_part(backbone: Any, part: Part) -> None:
    """Of an encoder, or a language model, trains what `part` says, and nothing else. What stands on
    it is not touched. Adapters are drawn from torch's own generator.
    """
    if part.kind == "all":
        return
    backbone.requires_grad_(False)
    if part.kind == "bias":
        for layer in backbone.modules():
            whole = isinstance(layer, nn.LayerNorm)
            for name, p in layer.named_parameters(recurse=False):
                p.requires_grad_(whole or name == "bias")
    elif part.kind == "top":
        for layer in layers_of(backbone)[-part.size :]:
            layer.requires_grad_(True)
    elif part.kind == "lora":
        add_adapters(backbone, part.size)


def rows_are_records(backbone: Any, part: Part) -> bool:
    """Whether gradients of a batch of texts can be clipped in one pass (`methods.dp.engine`)."""
    kind = _kind(backbone)
    return kind == "bert" or part.kind == "head" or (kind in _ROWS and part.kind != "all")


def words_of(part: Part) -> str:
    """For a report, behind the name of the network."""
    return {
        "all": "",
        "top": f", of which only the last {part.size if part.size > 1 else 'layer'}"
        f"{' layers' * (part.size > 1)} and what stands on top are trained",
        "head": ", of which only what stands on top is trained",
        "lora": f", of which only adapters of rank {part.size} (LoRA) and what stands on top are "
        "trained",
        "bias": ", of which only biases, layer norms and what stands on top are trained",
        "prompts": "",
    }[part.kind]


def fixed_vectors(table: nn.Embedding, given: bool) -> None:
    """The table is not trained. Unless it was `given` it is drawn from a seed that is nobody's."""
    if not given:
        with torch.no_grad():
            table.weight.copy_(
                torch.randn(
                    table.weight.shape, generator=torch.Generator().manual_seed(0), device="cpu"
                )
            )
            if table.padding_idx is not None:
                table.weight[table.padding_idx] = 0.0
    table.weight.requires_grad_(False)


def fixed_numbers(weights: Iterable[torch.Tensor]) -> None:
    """Matrices that are not trained are random projections, the same numbers whatever the run's
    seed.
    """
    fixed = torch.Generator().manual_seed(0)
    for weight in weights:
        with torch.no_grad():
            drawn = torch.rand(weight.shape, generator=fixed, device="cpu") * 2 - 1
            weight.copy_(drawn / weight.shape[1] ** 0.5)
        weight.requires_grad_(False)


def frozen(model: nn.Module) -> dict[str, Any]:
    """What is not trained, as arrays: a saved model is whole."""
    return {n: there(p).copy() for n, p in model.named_parameters() if not p.requires_grad}
