"""Real processes and real masks give the model of the plain loop, bit for bit, for methods of two exchanges."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.inprocess import run_inprocess
from bench.prepare import prepare
from config.load import load
from tests.conftest import sottovoce
from tests.sentence.small import tiny_folder


@pytest.mark.parametrize("method", ["fedcmc", "fedatt"])
def test_processes_give_the_model_of_the_plain_loop(method: str, tmp_path: Path) -> None:
    given = {"method": method, "encoder": str(tiny_folder()), "silos": "4", "rounds": "2", "epochs": "1"}
    given |= {"batch": "16", "lr": "0.01", "corpus": "sentence:sentences=100,dev=20,test=20", "out": str(tmp_path)}
    done = sottovoce("simulate", *(f"{k.upper()}={v}" for k, v in given.items()), "--set", "max_length=64")
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (p for p in tmp_path.iterdir() if p.is_dir() and not p.is_symlink())
    by_processes = json.loads((run / "summary.json").read_text("utf-8"))
    assert by_processes["bytes_up_total"] > 0
    plain = tmp_path / "plain"
    plain.mkdir()
    assert run_inprocess(plain, prepare(load(None, {**given, "options.max_length": "64"}))) == 0
    by_loop = json.loads((plain / "summary.json").read_text("utf-8"))
    assert by_processes["model_sha256"] == by_loop["model_sha256"]
    assert by_processes["value"] == by_loop["value"]
