"""Parameters that public text gave a network before the first round, and how they get into it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from methods.common.arrays import model_sha256
from models.backbone import Checkpoint
from models.device import here

__all__ = ["plain_name", "put", "with_start"]

_BACKBONE = "backbone."  #: what every network here calls its encoder


def plain_name(name: str) -> str:
    """A parameter's name in the network without adapters (`TRAIN=lora:R`)."""
    return name.replace(".base_layer.", ".")


def put(model: nn.Module, start: Mapping[str, np.ndarray]) -> None:
    """`start` into the parameters of the same names; others stay as they are."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if (plain := plain_name(name)) in start:
                p.copy_(here(np.array(start[plain])))


def with_start(checkpoint: Checkpoint, start: Mapping[str, np.ndarray]) -> Checkpoint:
    """The checkpoint with the weights that `start` has for it, from which models are copied."""
    own = {k.removeprefix(_BACKBONE): start[k] for k in start if k.startswith(_BACKBONE)}
    backbone = copy.deepcopy(checkpoint.backbone)
    with torch.device("cpu"):
        put(backbone, own)
    return replace(checkpoint, backbone=backbone, start=model_sha256(own))
