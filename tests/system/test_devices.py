"""DEVICE and SLOTS in real processes: what each of them is told, and that the model is the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT, lines, sottovoce, summary

WORDS = ("METHOD=fedavg", "CORPUS=distant:sentences=400", "SILOS=3", "ROUNDS=1", "EPOCHS=1")
#: `sottovoce simulate`, whose processes write down on which device they were told to compute
SPIED = """
import os, sys
import coordinator.evaluation, coordinator.process, silo.process
from cli.main import main
from models.device import use_device

def spied(role):
    def told(said, *more):
        with open(sys.argv[1], "a") as f:
            print(role, said, os.getpid(), file=f, flush=True)
        return use_device(said, *more)
    return told

for module in (coordinator.evaluation, coordinator.process, silo.process):
    module.use_device = spied(module.__name__)
main(sys.argv[2:])
"""


def _most_at_once(run: Path) -> int:
    now, most = 0, 0
    for event in lines(run / "events.jsonl"):
        now += (event["event"] == "computing") - (event["event"] == "answered")
        most = max(most, now)
    return most


@pytest.mark.slow
def test_slots_say_how_many_silos_compute_at_once_and_change_no_model(tmp_path: Path) -> None:
    hashes = set[str]()
    for slots in (1, 3):
        out = tmp_path / str(slots)
        done = sottovoce("simulate", *WORDS, f"SLOTS={slots}", f"OUT={out}")
        assert done.returncode == 0, done.stdout + done.stderr
        assert _most_at_once(out / "latest") == slots
        hashes.add(summary(out / "latest")["model_sha256"])
    assert len(hashes) == 1


@pytest.mark.slow
def test_every_process_computes_on_the_device_that_was_named(tmp_path: Path) -> None:
    told, words = tmp_path / "told", ("simulate", *WORDS, "DEVICE=cpu", f"OUT={tmp_path / 'runs'}")
    done = subprocess.run(
        [sys.executable, "-c", SPIED, str(told), *words], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line.split() for line in told.read_text().splitlines()]
    assert sorted(role for role, _, _ in said) == [
        "coordinator.evaluation",
        "coordinator.process",
        *["silo.process"] * 3,
    ]
    assert {device for _, device, _ in said} == {"cpu"}
    assert len({pid for _, _, pid in said}) == 5


@pytest.mark.slow
def test_a_device_that_is_not_there_ends_a_simulation_before_it_begins(tmp_path: Path) -> None:
    missing = "mps" if torch.cuda.is_available() else "cuda"
    for more in ((), ("RUNNER=inprocess",)):
        done = sottovoce("simulate", *WORDS, f"DEVICE={missing}", *more, f"OUT={tmp_path / 'o'}")
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
        assert f"DEVICE={missing}: torch finds none on this machine" in done.stderr
        assert not (tmp_path / "o").exists()
