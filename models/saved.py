"""A trained model on disk: which file has which weights, and how they come back.

A network on a BERT-type encoder is kept in two parts. `encoder/` holds what `transformers` itself
would write (config, weights, tokenizer), so `AutoModel.from_pretrained` and
`AutoTokenizer.from_pretrained` load it. `head.safetensors` holds the weights that stand on the
encoder, named as in the network. Adapters (`TRAIN=lora:R`) are in `adapter/` (`models.adapters`).
All other models (PCNN, prompts for a language model that is loaded by its name, one model per silo)
have all their other weights in `model.safetensors`. Runs made before this layout kept every model
that way, and are read as well.
"""

from __future__ import annotations

import copy
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file

from config.errors import UserError
from config.part import Part
from models.adapters import ADAPTER, adapter_files, as_network, as_peft, with_saved_adapter
from models.backbone import Checkpoint
from models.device import here, place

__all__ = [
    "ENCODER",
    "WEIGHTS",
    "divided",
    "encoder_files",
    "has_encoder",
    "is_per_silo",
    "loaded",
    "new_backbone",
    "open_tokenizer",
    "read_weights",
]

ENCODER = "encoder"  #: the folder that `transformers` loads
_WHOLE, _HEAD, _BODY = "model.safetensors", "head.safetensors", f"{ENCODER}/model.safetensors"
_ADAPTER = f"{ADAPTER}/adapter_model.safetensors"
WEIGHTS = (_WHOLE, _HEAD, _BODY, _ADAPTER)
_BACKBONE = "backbone."  #: what every network here calls its encoder
_OF_A_SILO = re.compile(r"\d+/")  #: how the method `local` names the arrays of its silos
#: `transformers` before version 5 refuses a weight file that does not say for which library it is
_METADATA = {"format": "pt"}

M = TypeVar("M", bound=torch.nn.Module)
Arrays = Mapping[str, np.ndarray]


def encoder_files(checkpoint: Checkpoint, part: Part) -> dict[str, bytes]:
    """The config and the tokenizer of `encoder/`, as `transformers` writes them, and the config of
    `adapter/` where the trained part is one.
    """
    config = copy.deepcopy(checkpoint.backbone.config)
    config.architectures, config.dtype = [type(checkpoint.backbone).__name__], torch.float32
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.tokenizer.save_pretrained(folder)
        config.save_pretrained(folder)
        files = {f"{ENCODER}/{p.name}": p.read_bytes() for p in sorted(Path(folder).iterdir())}
    return files | adapter_files(checkpoint.backbone, part)


def has_encoder(files: Iterable[str]) -> bool:
    """Whether some of these files, named as `encoder_files` names them, are an encoder's."""
    return any(name.startswith(f"{ENCODER}/") for name in files)


def divided(model: Arrays, encoder: bool) -> dict[str, tuple[Arrays, Mapping[str, str]]]:
    """File -> arrays and metadata. `encoder`: the model is one network on an encoder."""
    model, adapters = as_peft(model)
    beside = {_ADAPTER: (adapters, _METADATA)} if adapters else {}
    if not encoder:
        return {_WHOLE: (model, {}), **beside}
    body = {k.removeprefix(_BACKBONE): v for k, v in model.items() if k.startswith(_BACKBONE)}
    head = {k: v for k, v in model.items() if not k.startswith(_BACKBONE)}
    return {_BODY: (body, _METADATA), _HEAD: (head, _METADATA), **beside}


def read_weights(folder: str | Path) -> dict[str, np.ndarray]:
    """All weights of a saved model by their names in the network, from either layout."""
    folder = Path(folder)
    adapters = _read(folder / _ADAPTER) if (folder / ADAPTER).is_dir() else {}
    if not (folder / ENCODER).is_dir():
        return as_network(_read(folder / _WHOLE), adapters)
    body = {_BACKBONE + k: v for k, v in _read(folder / _BODY).items()}
    return as_network(body | _read(folder / _HEAD), adapters)


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        return load_file(path)
    except FileNotFoundError:  # which safetensors raises without a filename
        raise UserError(f'The model is not whole: "{path}" is missing.') from None
    except SafetensorError as e:
        raise UserError(f'"{path}" is damaged: {e}.') from None


def is_per_silo(folder: Path) -> bool:
    """Whether the run left a model for each silo (the method `local`) instead of one."""
    if not (folder / _WHOLE).is_file():
        return False
    try:
        with safe_open(folder / _WHOLE, framework="numpy") as f:
            return any(_OF_A_SILO.match(name) for name in f.keys())  # noqa: SIM118 (not a dict)
    except SafetensorError as e:
        raise UserError(f'"{folder / _WHOLE}" is damaged: {e}.') from None


def loaded(model: M, folder: str | Path) -> M:
    """The network with every weight from the file, in eval mode. A weight that is missing, unknown
    or of another shape would make a wrong model, and is refused.
    """
    weights = read_weights(folder)
    # A frozen language model is not in the file.
    own = {n: p for n, p in model.named_parameters() if p.requires_grad or n in weights}
    odd = sorted(set(own) ^ set(weights))
    odd += [n for n, p in own.items() if n in weights and weights[n].shape != p.shape]
    if odd:
        raise UserError(
            f'The weights in "{folder}" are not those of its config.json: {odd[0]} does not fit.'
        )
    with torch.no_grad():
        for name, p in own.items():
            p.copy_(here(weights[name]))
    return place(model).eval()


def new_backbone(folder: str | Path, about: Mapping[str, Any]) -> Any:
    """The encoder of a saved model, its weights not yet loaded. `about`: the model's config.json,
    which in the old layout describes the encoder too.
    """
    from transformers import AutoConfig, AutoModel

    if "backbone" in about:
        described = dict(about["backbone"])
        config = AutoConfig.for_model(described.pop("model_type"), **described)
    else:
        path = Path(folder) / ENCODER / "config.json"
        with path.open("rb"):  # missing, it would be looked for on a hub
            config = AutoConfig.from_pretrained(path.parent)
    backbone = AutoModel.from_config(config)
    if hasattr(backbone, "pooler"):
        backbone.pooler = None  # no network here reads it
    return with_saved_adapter(backbone, folder)


def open_tokenizer(folder: str | Path) -> Any:
    from transformers import PreTrainedTokenizerFast

    folder = Path(folder)
    beside = folder / ENCODER
    return PreTrainedTokenizerFast.from_pretrained(beside if beside.is_dir() else folder)
