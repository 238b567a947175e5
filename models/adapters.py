"""LoRA through `peft`: a frozen encoder with small trained matrices beside its linear layers.

Hu et al. 2022, "LoRA: Low-Rank Adaptation of Large Language Models", ICLR. Every linear layer of
the encoder gets a pair A, B; B begins at zero, so training starts from the checkpoint itself. In a
saved model the pairs are a folder of their own, `adapter/`, which `peft.PeftModel.from_pretrained`
loads onto the encoder beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from config.part import Part

__all__ = [
    "ADAPTER",
    "adapter_files",
    "add_adapters",
    "as_network",
    "as_peft",
    "with_saved_adapter",
]

ADAPTER = "adapter"  #: the folder that `peft` loads
_CONFIG = f"{ADAPTER}/adapter_config.json"
#: what `peft` calls its parts inside a network, and in its own files
_INSIDE = re.compile(r"backbone\.(.*\.lora_[AB])\.default\.weight")
_FILED = re.compile(r"base_model\.model\.(.*)\.(lora_[AB])\.weight")

Arrays = Mapping[str, np.ndarray]


def _config(rank: int) -> Any:
    from peft import LoraConfig

    # The scale is alpha / R: twice the rank, as is usual, so that rates fit any rank.
    return LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear")


def add_adapters(backbone: Any, rank: int) -> None:
    """Puts adapters into `backbone` itself, which is frozen but for them."""
    from peft import inject_adapter_in_model

    inject_adapter_in_model(_config(rank), backbone)


def adapter_files(backbone: Any, part: Part) -> dict[str, bytes]:
    """The config of `adapter/`, as `peft` reads it; nothing where no adapters are trained."""
    from torch import nn

    if part.kind != "lora":
        return {}
    config = _config(part.size).to_dict()
    config["target_modules"] = sorted(
        name for name, m in backbone.named_modules() if isinstance(m, nn.Linear)
    )
    config = {k: sorted(v) if isinstance(v, set) else v for k, v in config.items()}
    return {_CONFIG: json.dumps(config, indent=1, sort_keys=True, default=str).encode()}


def as_peft(model: Arrays) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(all others under the names that they have without adapters, the adapters as `peft` calls
    them).
    """
    inside = {name: found[1] for name in model if (found := _INSIDE.fullmatch(name))}
    adapters = {f"base_model.model.{place}.weight": model[n] for n, place in inside.items()}
    if not adapters:
        return dict(model), {}
    rest = {n.replace(".base_layer.", "."): v for n, v in model.items() if n not in inside}
    return rest, adapters


def as_network(model: Arrays, adapters: Arrays) -> dict[str, np.ndarray]:
    """The way back."""
    out, adapted = {}, set()
    for name, value in adapters.items():
        if found := _FILED.fullmatch(name):
            adapted.add(f"backbone.{found[1]}")
            out[f"backbone.{found[1]}.{found[2]}.default.weight"] = value
        else:
            out[name] = value  # which no network has: refused there by its name
    for name, value in model.items():
        module, _, leaf = name.rpartition(".")
        out[f"{module}.base_layer.{leaf}" if module in adapted else name] = value
    return out


def with_saved_adapter(backbone: Any, folder: str | Path) -> Any:
    """`backbone`, with places for the adapters of a saved model, if it has any."""
    path = Path(folder) / _CONFIG
    if path.is_file():
        add_adapters(backbone, int(json.loads(path.read_text("utf-8"))["r"]))
    return backbone
