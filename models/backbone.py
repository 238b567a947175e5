"""Which encoder: the small one that is shipped, a folder, or a hub name that the user gave.

Nothing is fetched unless the user names a hub checkpoint, and weights are read from safetensors
only: a pickle can run code.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from config.errors import UserError
from models.device import there

__all__ = ["PRETRAINED", "Checkpoint", "load_checkpoint"]

PRETRAINED = Path(__file__).parent / "pretrained"  #: made by `sottovoce pretrain`
#: What the user names a checkpoint of that kind with. "document": a bert that was pretrained on
#: whole documents.
_SETTING = {"bert": "ENCODER", "document": "ENCODER", "bart": "SEQ2SEQ"}
#: files of a tokenizer that need not be there
_OPTIONAL = {"target_vocab_file", "tokenizer_config_file"}
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True)
class Checkpoint:
    """A loaded encoder and its tokenizer, to be copied from, never trained itself."""

    name: str
    backbone: Any  #: a `transformers` encoder; Any, because torch's types hide its `config`
    tokenizer: Any
    #: of weights and vocabulary as loaded: a silo with another checkpoint is refused when it enrols
    sha256: str
    note: str  #: what a report must say of it; empty when there is nothing to say
    #: of the weights that public text gave it in place of those that `sha256` names; empty: none
    start: str = ""

    @property
    def words(self) -> str:
        """Which one it is, in a sentence."""
        return self.note.partition(": ")[2] or f'the encoder "{Path(self.name).name}"'

    @property
    def size(self) -> int:
        """How many parameters it has."""
        return sum(int(p.numel()) for p in self.backbone.parameters())

    def positions(self, otherwise: int) -> int:
        """How many pieces it can read at once; `otherwise` where its config does not say."""
        return int(getattr(self.backbone.config, "max_position_embeddings", otherwise))


def load_checkpoint(
    name: str, kind: str = "bert", extra_tokens: tuple[str, ...] = ()
) -> Checkpoint:
    """`name` empty: the shipped checkpoint of that kind. "random": the same network without its
    training.

    Tokens that the vocabulary lacks are added; their vectors start at the mean of all others, apart
    from each other by a little fixed noise.
    """
    with torch.device("cpu"):  # whatever this process computes on: its copies are moved there
        return _loaded(name, kind, extra_tokens)


def _loaded(name: str, kind: str, extra_tokens: tuple[str, ...]) -> Checkpoint:
    source, note = _source(name, kind)
    from transformers import AutoConfig, AutoModel, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        if name == "random":
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                backbone = AutoModel.from_config(AutoConfig.from_pretrained(source))
        else:
            backbone = AutoModel.from_pretrained(source, dtype=torch.float32, use_safetensors=True)
    except (OSError, ValueError, KeyError, ImportError, TypeError) as e:
        if find_spec("sentencepiece") is None and _kind(source) == "marian":
            raise UserError(
                f'{_SETTING[kind]} "{name}" is a Marian, whose tokenizer needs sentencepiece: '
                "pip install 'sottovoce[marian]'."
            ) from None
        if isinstance(e, TypeError) and _kind(source) == "marian":  # a file's name was None
            _check_tokenizer(f'{_SETTING[kind]} "{name}"', source, _MARIAN)
        raise UserError(
            f'{_SETTING[kind]} "{name}" cannot be loaded: {str(e).splitlines()[0]}'
        ) from None
    _check_tokenizer(f'{_SETTING[kind]} "{name}"', source, tokenizer.vocab_files_names)
    if hasattr(backbone, "pooler"):
        backbone.pooler = None  # no model here reads it, so it must not travel either
    backbone.float()  # shipped in half precision, trained in full
    _add_tokens(backbone, tokenizer, extra_tokens)
    return Checkpoint(
        name or f"built-in {kind}",
        backbone.train(),
        tokenizer,
        _fingerprint(backbone, tokenizer),
        note,
    )


#: the files of its tokenizer, which has none for tokenizers in general
_MARIAN = {"source_spm": "source.spm", "target_spm": "target.spm", "vocab": "vocab.json"}


def _check_tokenizer(which: str, source: str, files: Mapping[str, str]) -> None:
    """`files`: of the tokenizer, by kind. In a folder without them transformers makes a tokenizer that
    reads every word as unknown, and says nothing.
    """
    folder, own = Path(source), {k: v for k, v in files.items() if k not in _OPTIONAL}
    whole = own.pop("tokenizer_file", "")
    if not folder.is_dir() or (whole and (folder / whole).is_file()):
        return
    needed = list(own.values()) or [whole] * bool(whole)
    if missing := [name for name in needed if not (folder / name).is_file()]:
        instead = f", or {whole}" * bool(whole and own)
        raise UserError(
            f"{which} has no tokenizer: {' and '.join(missing)}{instead} must be in its folder."
        )


def _kind(source: str) -> str:
    """What the config of a folder calls its type; empty where it is no folder, or does not say."""
    try:
        said = json.loads((Path(source) / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return ""
    return str(said.get("model_type", ""))


def _source(name: str, kind: str) -> tuple[str, str]:
    if name in ("", "random"):
        folder = PRETRAINED / kind
        if not (folder / "config.json").is_file():
            raise UserError(
                f"The built-in {kind} is missing from {folder}; make it with: sottovoce pretrain {kind}"
            )
        how = "pretrained on synthetic text" if not name else "without any pretraining"
        what = "language model" if kind == "bart" else "encoder"
        return str(folder), f"{what}: the small built-in one, {how}"
    if Path(name).is_dir():
        if not (Path(name) / "config.json").is_file():
            raise UserError(
                f'{_SETTING[kind]} "{name}" has no config.json: give the folder that the checkpoint\'s files are in.'
            )
        return name, ""
    if "/" in name and (name.startswith((".", "/", "~")) or Path(name).parent.is_dir()):
        raise UserError(f'{_SETTING[kind]} "{name}" is not a folder here.')
    if not _HUB_NAME.fullmatch(name):
        raise UserError(
            f'{_SETTING[kind]} "{name}" is neither a folder nor a hub name such as "owner/model".'
        )
    # the user named it; read when the hub's library is first imported
    os.environ["HF_HUB_OFFLINE"] = "0"
    return name, ""


def _add_tokens(backbone: Any, tokenizer: Any, tokens: tuple[str, ...]) -> None:
    before = backbone.get_input_embeddings().num_embeddings
    tokenizer.add_tokens(list(tokens), special_tokens=True)
    if len(tokenizer) <= before:
        return
    backbone.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    weight = backbone.get_input_embeddings().weight
    noise = torch.randn(
        len(weight) - before, weight.shape[1], generator=torch.Generator().manual_seed(0)
    )
    with torch.no_grad():
        weight[before:] = weight[:before].mean(dim=0) + 0.02 * noise


def _fingerprint(backbone: nn.Module, tokenizer: Any) -> str:
    digest = hashlib.sha256(json.dumps(sorted(tokenizer.get_vocab().items())).encode())
    for key, value in sorted(backbone.state_dict().items()):
        digest.update(f"{key}:{tuple(value.shape)};".encode())
        digest.update(there(value.contiguous()).tobytes())
    return digest.hexdigest()
