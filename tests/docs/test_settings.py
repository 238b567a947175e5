"""docs/settings.md has every setting and option of the code, with its default."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import pytest

import methods
from config.settings import (
    FULL_SIZE,
    FULL_SIZE_DEFAULTS,
    FULL_SIZE_PART_LR,
    FULL_SIZE_RECORD_LR,
    RECORD_DEFAULTS,
    RECORD_HEAD_DEFAULTS,
    TASK_DEFAULTS,
    Settings,
)
from tests.conftest import ROOT

PAGE = (ROOT / "docs/settings.md").read_text("utf-8")


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value) or "empty"


def _chapter(title: str) -> str:
    (body,) = re.findall(rf"^## {title}$(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    return body


def test_every_setting_is_there_and_its_default() -> None:
    rows = dict(re.findall(r"^\| `([A-Z0-9_]+)` \| .+ \| ?(.*?) \|$", PAGE, re.M))
    defaults = {f.name: getattr(Settings(), f.name) for f in fields(Settings)}
    del defaults["options"]
    assert set(rows) - {"SET", "CONFIG"} == {name.upper() for name in defaults}
    for name, value in defaults.items():
        if value not in (0, "", -1.0):  # these stand for something that the table says in words
            assert rows[name.upper()] == _shown(value), name


@pytest.mark.parametrize("task", TASK_DEFAULTS)
@pytest.mark.parametrize("private", [False, True])
def test_the_tasks_defaults(task: str, private: bool) -> None:
    wanted = {"partition": "iid", **TASK_DEFAULTS[task]}
    if private:
        wanted |= RECORD_DEFAULTS[task]
    rows = {f"{task}{', `DP=record`' if private else ''}": wanted}
    if private and task in RECORD_HEAD_DEFAULTS:
        (bare,) = rows
        more = f"{bare}, `TRAIN={'top:1' if task == 'distant' else 'bias'}`"
        rows = {more: wanted, bare: {**wanted, **RECORD_HEAD_DEFAULTS[task]}}
    keys = ("rounds", "epochs", "batch", "lr", "decay", "partition")
    for name, values in rows.items():
        cells = " | ".join(_shown(values[key]) for key in keys)
        assert f"| {name} | {cells} |" in PAGE

    rest = ("optimizer", "weight_decay", "warmup", "schedule", "clip_norm")
    cells = " | ".join(_shown(TASK_DEFAULTS[task][key]) for key in rest)
    assert f"| {task} | {cells} |" in PAGE


def test_the_defaults_for_a_full_size_encoder() -> None:
    told = dict(re.findall(r"^\| ([^|]+) \| (\w+ [^|]+?) \|$", PAGE, re.M))
    known = {task: dict(d) for task, d in FULL_SIZE_DEFAULTS.items()}
    known |= {
        name: dict(own)
        for name in methods.METHODS
        if (own := getattr(methods.find(name).module, "FULL_SIZE", None))
    }
    found = {
        name.strip("`"): text
        for names, text in told.items()
        for name in names.split(", ")
        if name.strip("`") in known
    }
    words = {n: ", ".join(f"{k} {_shown(v)}" for k, v in d.items()) for n, d in known.items()}
    assert found == words
    assert f"`LR` {_shown(FULL_SIZE_RECORD_LR)}" in PAGE and FULL_SIZE == 5_000_000
    assert FULL_SIZE_PART_LR == {"head": 0.001, "bias": 0.001, "lora": 0.0005}
    assert "`TRAIN=head` and `TRAIN=bias` have `LR` 0.001, `TRAIN=lora:R` has\n0.0005." in PAGE


def _options(chapter: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    owner = ""
    for first, option, default in re.findall(
        r"^\| (?:`(\w+)`)? ?\| `(\w+)` \| .+ \| (\S+) \|$", _chapter(chapter), re.M
    ):
        owner = first or owner
        found.setdefault(owner, {})[option] = default
    return found


def _as_shown(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: _shown(value) for name, value in values.items()}


def test_the_methods_options() -> None:
    told = _options("Options of the methods")
    known = {name: _as_shown(methods.describe(name).options) for name in methods.METHODS}
    assert told == {name: options for name, options in known.items() if options}


def test_the_tasks_options() -> None:
    known = {
        task: _as_shown(asdict(importlib.import_module(f"methods.tasks.{task}").Knobs()))
        for task in TASK_DEFAULTS
    }
    assert _options("Options of the tasks") == known
