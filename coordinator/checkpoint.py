"""What the coordinator needs to go on after a crash, in one file that is always whole; and the
model it leaves.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from config.errors import UserError
from methods.base import Arrays, State
from methods.common.arrays import save_arrays
from models import saved
from wire.crowd import when_descriptors_are_free
from wire.stored import Lazily

__all__ = [
    "Checkpoint",
    "Midway",
    "forget_midway",
    "keep_only",
    "model_file",
    "read",
    "read_midway",
    "read_model",
    "save_model",
    "write",
    "write_midway",
]

_NAME = "checkpoint-2"  #: of the layout of a checkpoint


@dataclass(frozen=True)
class Checkpoint:
    finished: int  #: rounds that are done
    state: State
    figures: Mapping[str, Any] = field(default_factory=dict)  #: what else the loop carries, JSON


@dataclass(frozen=True)
class Midway:
    """A round between two of its exchanges. The checkpoint of the round's beginning stands beside
    it.
    """

    round: int
    state: State
    figures: Mapping[str, Any]


def write_midway(folder: Path, midway: Midway) -> None:
    folder.mkdir(exist_ok=True)
    arrays = {f"model:{k}": v for k, v in midway.state.model.items()}
    arrays |= {f"memory:{k}": v for k, v in midway.state.memory.items()}
    meta = json.dumps({"round": midway.round, "figures": dict(midway.figures)})
    when_descriptors_are_free(
        lambda: save_arrays(folder / "midway.safetensors", arrays, {"midway": meta})
    )


def read_midway(folder: Path) -> Midway | None:
    path = folder / "midway.safetensors"
    if not path.exists():
        return None
    meta, parts = _parts(path, "midway")
    return Midway(meta["round"], State(parts["model"], parts["memory"]), meta["figures"])


def forget_midway(folder: Path) -> None:
    (folder / "midway.safetensors").unlink(missing_ok=True)


def write(folder: Path, checkpoint: Checkpoint) -> None:
    """The state, and under a name of its own the model of the last round, until `keep_only`."""
    folder.mkdir(exist_ok=True)
    arrays = {f"model:{k}": v for k, v in checkpoint.state.model.items()}
    arrays |= {f"memory:{k}": v for k, v in checkpoint.state.memory.items()}
    meta = json.dumps({"finished": checkpoint.finished, "figures": dict(checkpoint.figures)})
    path = folder / "state.safetensors"

    def save() -> None:
        save_arrays(path, arrays, {_NAME: meta})
        model = model_file(folder, checkpoint.finished - 1)
        model.unlink(missing_ok=True)
        try:
            model.hardlink_to(path)  # the same bytes: the next state will be another file
        except OSError:  # a file system without links
            shutil.copyfile(path, model)

    when_descriptors_are_free(save)


def model_file(folder: Path, round: int) -> Path:
    """The model after this round."""
    return folder / f"round-{round:05d}.safetensors"


def keep_only(folder: Path, rounds: Collection[int]) -> None:
    """Of the models that have names of their own."""
    wanted = {model_file(folder, round) for round in rounds}
    for path in set(folder.glob("round-*.safetensors")) - wanted:
        path.unlink(missing_ok=True)


def read_model(path: Path) -> Arrays:
    """Each array when it is looked up."""
    file = safe_open(path, framework="numpy").__enter__()
    names = [key for key in file.keys() if key.startswith("model:")]  # noqa: SIM118 (not a dict)
    return Lazily(
        (n.removeprefix("model:") for n in names), lambda n: file.get_tensor(f"model:{n}")
    )


def read(folder: Path) -> Checkpoint | None:
    path = folder / "state.safetensors"
    if not path.exists():
        return None
    meta, parts = _parts(path, _NAME)
    # safetensors sorts by name; the order of parameters is the method's, restored by whoever built
    # the model.
    state = State(parts["model"], parts["memory"])
    return Checkpoint(meta["finished"], state, meta["figures"])


def _parts(path: Path, name: str) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    parts: dict[str, dict[str, np.ndarray]] = {"model": {}, "memory": {}}
    with safe_open(path, framework="numpy") as f:
        if name not in (metadata := f.metadata() or {}):
            raise UserError(
                f'"{path.parent.parent}" was begun by another version of this program, which alone '
                "can go on with it; begin a new run."
            )
        meta: dict[str, Any] = json.loads(metadata[name])
        for key in f.keys():  # noqa: SIM118 (not a dict)
            part, array = key.split(":", 1)
            parts[part][array] = f.get_tensor(key)
    return meta, parts


def save_model(
    folder: Path, model: Arrays, files: Mapping[str, bytes], per_silo: bool = False
) -> None:
    """The model as `models.saved` lays it out, every file with the mode that the umask gives.
    `per_silo`: the arrays are a model for each silo, so that no one encoder can stand by itself.
    """
    encoder = saved.has_encoder(files) and not per_silo
    weights = saved.divided(model, encoder)
    for name in (n for n in saved.WEIGHTS if n not in weights):
        (folder / name).unlink(missing_ok=True)  # of an earlier attempt, in the other layout
    for name, content in files.items():
        if encoder or not saved.has_encoder([name]):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    for name, (arrays, metadata) in weights.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        save_arrays(folder / name, arrays, metadata, public=True)
