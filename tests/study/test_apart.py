"""What the process that others are forked from has done in a child: it touches no accelerator itself."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from rich.console import Console

import bench.simulation.run as simulation
import coordinator.evaluation
import coordinator.process
import models.device
import silo.process
import study.prepare
import study.public_start
from bench.planning.calibrate import calibrate
from config.load import load
from models.precision import gain
from study.apart import apart
from study.prepare import prepare
from tests.conftest import summary

SMALL = {
    "method": "fedavg",
    "corpus": "sentence:sentences=60,dev=20,test=20",
    "silos": "3",
    "rounds": "1",
}


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine that may have a card, on which this process must not ask for it. Who asks in a child
    is written down: its process, and what it was told.
    """
    told, parent, use = tmp_path / "used", os.getpid(), models.device.use_device

    def recording(said: str, index: int = 0) -> torch.device:
        assert os.getpid() != parent, "the process that others are forked from has used a card"
        with told.open("a") as f:
            f.write(f"{os.getpid()} {said} {index}\n")
        return use("cpu")

    def never(*_: Any) -> None:
        assert os.getpid() != parent, "the process that others are forked from has used a card"

    for module in (models.device, coordinator.evaluation, coordinator.process, silo.process):
        monkeypatch.setattr(module, "use_device", recording)
    for module in (study.prepare, study.public_start):
        monkeypatch.setattr(module, "may_accelerate", lambda said: True)
    monkeypatch.setattr(torch.cuda, "_lazy_init", never)
    monkeypatch.setattr(torch.cuda, "init", never)
    return told


def _said(told: Path) -> list[str]:
    """What each process was told, in the order in which they asked."""
    return [line.split(" ", 1)[1] for line in told.read_text().splitlines()]


@pytest.mark.slow
def test_a_simulation_uses_no_accelerator_before_it_forks(
    used: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Public text, calibration, coordinator, evaluator and silos: each a child that asks for itself."""
    public = {"public": "sentence:sentences=24", "public_epochs": "1"}
    settings = load(None, SMALL | public | {"device": "auto", "out": str(tmp_path / "runs")})
    monkeypatch.setattr(simulation, "worth_calibrating", lambda study: True)
    assert simulation.simulate(settings, Console(file=io.StringIO())) == 0
    processes = [line.split()[0] for line in used.read_text().splitlines()]
    # public text, two of the calibration, then five; each has asked once
    assert len(set(processes)) == len(processes) == 8
    assert sorted(_said(used)) == ["auto 0"] * 6 + ["auto 1", "auto 2"]
    assert summary(tmp_path / "runs" / "latest")["public"] == "sentence:sentences=24"


def test_public_text_is_trained_on_in_a_child_alike(used: Path, tmp_path: Path) -> None:
    public = {"public": "sentence:sentences=24", "public_epochs": "1", "device": "mps"}
    prepared = prepare(load(None, SMALL | public))
    made = []
    for name in ("apart", "here"):
        (tmp_path / name).mkdir()
        settings = replace(prepared.settings, device={"apart": "mps", "here": "cpu"}[name])
        if name == "here":
            study.public_start._made(
                tmp_path / name / "public.safetensors", settings, prepared.task
            )
        made.append(study.public_start.made_public_start(tmp_path / name, settings, prepared.task))
    assert _said(used) == ["mps 0"]
    assert made[0].keys() == made[1].keys()
    assert all(made[0][k].tobytes() == made[1][k].tobytes() for k in made[0])


def test_precision_is_timed_on_the_device(used: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study.prepare, "FULL_SIZE", 1)
    monkeypatch.setattr(study.prepare, "gain", lambda: 2.0)
    monkeypatch.setattr(study.prepare, "paper_settings", lambda *_: {})
    assert prepare(load(None, SMALL | {"device": "cuda"})).settings.precision == "bfloat16"
    assert _said(used) == ["cuda 0"]


def test_the_gain_is_that_of_the_process_device(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    autocast = torch.autocast

    def recording(kind: str, **how: Any) -> Any:
        asked.append(kind)
        return autocast("cpu", **how)

    monkeypatch.setattr(torch, "autocast", recording)
    assert gain(1) > 0 and set(asked) == {"cpu"}
    asked.clear()
    monkeypatch.setattr(torch, "get_default_device", lambda: torch.device("cuda"))
    assert gain(1) > 0 and set(asked) == {"cuda"}


def test_a_calibration_asks_its_children_how_many_silos_compute_at_once(
    used: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And needs no figure of shared memory that only Linux has."""
    whole = psutil.Process.memory_full_info
    monkeypatch.setattr(
        psutil.Process, "memory_full_info", lambda self: SimpleNamespace(uss=whole(self).uss)
    )
    prepared = prepare(load(None, SMALL | {"device": "mps"}))
    assert calibrate(prepared).slots == (os.cpu_count() or 1)
    assert _said(used) == ["mps 0", "mps 0"]
    three = replace(prepared, settings=replace(prepared.settings, slots=3))
    found = calibrate(three)
    assert found.slots == 3 and found.shared_mb > 0


def test_where_fork_is_not_safe_the_device_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOTTOVOCE_START", "spawn")
    seen = apart("trial", lambda: {"process": os.getpid()}, "cpu")
    assert seen == {"process": os.getpid()} and models.device.device_words() == "cpu"
