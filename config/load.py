"""From defaults, a TOML file and overrides to one checked `Settings`, and back to a file that runs
it again.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from config.errors import UserError, nearest
from config.part import ALL, HEAD, Part, parse_part
from config.settings import (
    DEVICES,
    FULL_SIZE_DEFAULTS,
    FULL_SIZE_PART_LR,
    FULL_SIZE_RECORD_LR,
    OPTIMIZERS,
    PRECISIONS,
    RECORD_DEFAULTS,
    RECORD_HEAD_DEFAULTS,
    SCHEDULES,
    TASK_DEFAULTS,
    Settings,
)

__all__ = ["check", "dump", "load", "read_file", "read_toml", "typed", "with_task_defaults"]

_TYPES = {
    f.name: type(getattr(Settings(), f.name)) for f in fields(Settings) if f.name != "options"
}
_KINDS = {int: "a whole number", float: "a number", bool: "on or off", str: "text"}
_LANES = (32, 21, 16)
#: What zero leaves open, and what a user may say instead.
_OPEN = {
    "silos": "between 1 and 10000",
    "rounds": "1 or more",
    "epochs": "1 or more",
    "batch": "1 or more",
    "lr": "above 0",
    "public_epochs": "1 or more",
}


def load(file: str | Path | None, overrides: Mapping[str, str]) -> Settings:
    """Defaults, then `file`, then `overrides` (lower-case names; text as a user typed it)."""
    values: dict[str, Any] = read_file(Path(file)) if file else {}
    options = dict(values.pop("options", {}))
    for key, text in overrides.items():
        if key.startswith("options."):
            options[key.removeprefix("options.")] = _guess(text)
            continue
        values[key] = _parse(key, text)
        _refuse_open(key, values[key], "")
    if str(values.get("method", "")).endswith(".py"):  # found again from wherever a run is resumed
        values["method"] = str(Path(values["method"]).expanduser().resolve())
    settings = replace(Settings(), **values, options=options)
    check(settings)
    return settings


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(f"The configuration file {path} does not exist; check CONFIG.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise UserError(f"The configuration file {path} cannot be read: {e}.") from None


def read_file(path: Path) -> dict[str, Any]:
    table = read_toml(path)
    table.pop("run", None)  # what a finished run noted about itself (versions, command)
    return typed(path, table)


def typed(path: Path, table: Mapping[str, Any]) -> dict[str, Any]:
    """Settings from a TOML table, each of its type; `path` is named where one is not."""
    out: dict[str, Any] = {}
    for key, value in table.items():
        if key == "options" and isinstance(value, dict):
            out[key] = value
            continue
        if key not in _TYPES:
            raise UserError(f'{path}: unknown key "{key}".{nearest(key, [*_TYPES, "options"])}')
        want = _TYPES[key]
        if want is float and type(value) is int:
            value = float(value)
        if type(value) is not want:
            raise UserError(
                f"{path}: {key} must be {_KINDS[want]}, not {json.dumps(value, default=str)}."
            )
        _refuse_open(key, value, f"{path}: ")
        out[key] = value
    if str(out.get("method", "")).endswith(".py"):  # beside the file that names it
        out["method"] = str((path.parent / Path(out["method"]).expanduser()).resolve())
    return out


def _refuse_open(key: str, value: Any, where: str) -> None:
    """In the record, zero of these says that the user left it open. So nobody may say zero."""
    if key in _OPEN and value == 0:
        raise UserError(f"{where}{key.upper()} must be {_OPEN[key]}, not 0.")


def with_task_defaults(
    settings: Settings,
    task: str,
    silos: int = 10,
    train: Part = ALL,
    paper: Mapping[str, Any] | None = None,
) -> Settings:
    """Fill what the user left open with what the task wants; `silos`: how many its corpus
    suggests; `train`: which part of its network is trained. `paper`: given where the encoder is
    full-size, and then what the method's paper sets for one.
    """
    open_ = {"partition": "iid", "silos": silos, "train": str(train)}
    wanted = {**open_, **TASK_DEFAULTS.get(task, {})}
    if paper is not None:
        wanted |= {**FULL_SIZE_DEFAULTS.get(task, {}), **paper}
        if train.kind in FULL_SIZE_PART_LR and str(wanted["optimizer"]).startswith("adam"):
            wanted["lr"] = FULL_SIZE_PART_LR[train.kind]
    if settings.dp == "record":
        wanted |= RECORD_DEFAULTS.get(task, {})
        wanted |= {"lr": FULL_SIZE_RECORD_LR} if paper is not None else {}
        wanted |= RECORD_HEAD_DEFAULTS.get(task, {}) if train == HEAD else {}
    fill = {
        key: value
        for key, value in wanted.items()
        if getattr(settings, key) == getattr(Settings(), key)
    }
    filled = replace(settings, **fill)
    _check_optimizer(filled)
    _check_cohort(filled)
    return filled


def dump(settings: Settings, about: Mapping[str, str]) -> str:
    """TOML that `load` takes back unchanged, with a `[run]` table for readers."""
    plain = asdict(settings)
    options = plain.pop("options")
    said = {k: v for k, v in plain.items() if not (k in _OPEN and v == 0)}
    lines = [f"{key} = {_toml(value)}" for key, value in said.items()]
    lines += ["", "[options]", *(f"{key} = {_toml(value)}" for key, value in options.items())]
    lines += ["", "[run]", *(f"{key} = {_toml(value)}" for key, value in about.items()), ""]
    return "\n".join(lines)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False)


def _parse(key: str, text: str) -> Any:
    if key not in _TYPES:
        raise UserError(f'Unknown setting "{key.upper()}".{nearest(key, _TYPES)}')
    want, word = _TYPES[key], text.strip()
    try:
        if want is bool:
            return {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}[
                word.lower()
            ]
        return want(word)
    except (KeyError, ValueError):
        raise UserError(f'{key.upper()} must be {_KINDS[want]}, not "{text}".') from None


def _guess(text: str) -> Any:
    """An option's value as TOML would read it; plain words are text. The method checks the type."""
    if text in ("on", "off"):
        return text == "on"
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


def _need(ok: bool, sentence: str) -> None:
    if not ok:
        raise UserError(sentence)


def check(s: Settings) -> None:
    """What can be said without knowing the method. One sentence each, naming the key and what to
    do.
    """
    figures = (
        "fraction",
        "lr",
        "decay",
        "range",
        "deadline",
        "quorum",
        "target",
        "epsilon",
        "delta",
        "clip",
        "noise",
        "weight_decay",
        "warmup",
        "clip_norm",
    )
    for key in figures:
        _need(math.isfinite(getattr(s, key)), f"{key.upper()} must be a finite number.")
    _need(0 <= s.silos <= 10_000, f"SILOS must be between 1 and 10000, not {s.silos}.")
    _need(s.rounds >= 0, f"ROUNDS must be 1 or more, not {s.rounds}.")
    _need(s.epochs >= 0, f"EPOCHS must be 1 or more, not {s.epochs}.")
    _need(s.batch >= 0, f"BATCH must be 1 or more, not {s.batch}.")
    _need(s.public_epochs >= 0, f"PUBLIC_EPOCHS must be 1 or more, not {s.public_epochs}.")
    _need(
        bool(s.public) or not s.public_epochs,
        "PUBLIC_EPOCHS needs PUBLIC: without public text there is nothing to pass over.",
    )
    _need(0 < s.fraction <= 1, f"FRACTION must be above 0 and at most 1, not {s.fraction}.")
    _need(s.lr >= 0, f"LR must be above 0, not {s.lr}.")
    _need(
        s.decay == -1 or 0 <= s.decay < 1, f"DECAY must be at least 0 and below 1, not {s.decay}."
    )
    if s.train:
        parse_part(s.train)
    _need(s.bits in _LANES, f"BITS must be one of 32, 21 and 16, not {s.bits}.")
    _need(s.minimum >= 0, f"MINIMUM must be 0 or a number of silos, not {s.minimum}.")
    _need(s.range >= 0, f"RANGE must be 0 (adapted) or above, not {s.range}.")
    _need(s.deadline > 0, f"DEADLINE must be above 0 seconds, not {s.deadline}.")
    _need(0 < s.quorum <= 1, f"QUORUM must be above 0 and at most 1, not {s.quorum}.")
    _need(
        s.silos_per_process >= 1,
        f"SILOS_PER_PROCESS must be 1 (a process each) or more, not {s.silos_per_process}.",
    )
    _need(s.slots >= 0, f"SLOTS must be 0 (one per core) or more, not {s.slots}.")
    _need(0 <= s.port < 65536, f"PORT must be between 0 (any free one) and 65535, not {s.port}.")
    host, _, port = s.metrics.rpartition(":")
    good = not s.metrics or (
        port.isascii() and port.isdigit() and int(port) < 65536 and (host or ":" not in s.metrics)
    )
    _need(bool(good), f'METRICS must be PORT or HOST:PORT, not "{s.metrics}".')
    _need(
        s.target >= 0, f"TARGET must be a value of the dev metric, or 0 for none, not {s.target}."
    )
    _need(s.seed >= 0, f"SEED must be 0 or more, not {s.seed}.")
    _need(
        s.partition_seed >= -1,
        f"PARTITION_SEED must be 0 or more, or -1 for SEED's, not {s.partition_seed}.",
    )
    runners = ("processes", "inprocess")
    _need(
        s.runner in runners,
        f'RUNNER must be processes or inprocess, not "{s.runner}".{nearest(s.runner, runners)}',
    )
    _need(
        not s.features or s.runner == "inprocess",
        "FEATURES puts what was made of all silos' texts into one folder: it needs RUNNER=inprocess.",
    )
    launchers = ("local", "ssh", "ray")
    what = f'LAUNCHER must be local, ssh or ray, not "{s.launcher}".'
    _need(s.launcher in launchers, what + nearest(s.launcher, launchers))
    _need(
        s.launcher != "ssh" or bool(s.hosts.split()),
        'LAUNCHER=ssh needs HOSTS="a b": where silos are to run.',
    )
    device = f'DEVICE must be auto, cpu, cuda or mps, not "{s.device}".'
    _need(s.device in DEVICES, device + nearest(s.device, DEVICES))
    _check_optimizer(s)
    _check_privacy(s)
    if s.silos:
        _check_cohort(s)


def _check_optimizer(s: Settings) -> None:
    words = {"optimizer": OPTIMIZERS, "schedule": SCHEDULES, "precision": PRECISIONS}
    for key, known in words.items():
        said, choice = getattr(s, key), f"{', '.join(known[:-1])} or {known[-1]}"
        what = f'{key.upper()} must be {choice}, not "{said}".'
        _need(not said or said in known, what + nearest(said, known))
    for key, most in (("weight_decay", math.inf), ("warmup", 1.0), ("clip_norm", math.inf)):
        value = getattr(s, key)
        below = " and below 1" * (most == 1)
        _need(
            value == -1 or 0 <= value < most,
            f"{key.upper()} must be at least 0{below}, not {value:g}.",
        )
    _need(s.evaluate >= 1, f"EVALUATE must be 1 (every round) or more, not {s.evaluate}.")
    # of an optimizer that is the task's, `study.prepare` asks again when it is known
    _need(
        not (s.dp == "record" and s.precision == "bfloat16"),
        "PRECISION=bfloat16 does not go with DP=record: norms of single records would be rounded "
        "before they are clipped, and the bound that the noise is made for would not hold. Leave it out.",
    )
    _need(
        not (s.keep_optimizer and s.optimizer == "sgd"),
        "KEEP_OPTIMIZER=on needs an optimizer that keeps something, and sgd keeps nothing: "
        "use OPTIMIZER=momentum, adam or adamw.",
    )


def _check_privacy(s: Settings) -> None:
    kinds = ("off", "record", "silo")
    _need(s.dp in kinds, f'DP must be off, record or silo, not "{s.dp}".{nearest(s.dp, kinds)}')
    _need(s.epsilon >= 0, f"EPSILON must be above 0, or 0 for no budget, not {s.epsilon:g}.")
    _need(0 < s.delta < 1, f"DELTA must be above 0 and below 1, not {s.delta:g}.")
    _need(s.clip > 0, f"CLIP must be above 0, not {s.clip:g}.")
    _need(
        s.noise >= 0,
        f"NOISE must be above 0, or 0 to have it solved from EPSILON, not {s.noise:g}.",
    )
    _need(s.physical >= 1, f"PHYSICAL must be 1 or more, not {s.physical}.")
    if s.dp == "off":
        _need(
            not s.epsilon and not s.noise,
            "EPSILON and NOISE need DP=record or DP=silo: without noise, no budget.",
        )
    else:
        _need(
            bool(s.epsilon or s.noise),
            f"DP={s.dp} needs EPSILON (and solves the noise) or NOISE, or both.",
        )
    _need(
        s.dp != "silo" or s.secagg,
        "DP=silo needs SECAGG=on: a silo's share of the noise hides only in a sum.",
    )


def _check_cohort(s: Settings) -> None:
    cohort = s.cohort_size
    if s.minimum > cohort:
        raise UserError(
            f"MINIMUM={s.minimum} silos in a sum cannot be had of {cohort} participants in a round."
        )
    if s.secagg and cohort < 3:
        raise UserError(
            f"A secure sum needs at least three participants in a round, and SILOS={s.silos} with "
            f"FRACTION={s.fraction:g} gives {cohort}; use more, or SECAGG=off for a study without masking."
        )
