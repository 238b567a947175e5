"""A start from public text in real processes: one model in both runners and after a kill, and told
once to each silo, to the byte.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from bench.simulation.inprocess import run_inprocess
from config.load import dump, load
from extract.evaluate import evaluate_model
from study.prepare import prepare
from tests.conftest import Running, lines, sottovoce, summary, wait_for
from tests.methods.small_sentence import tiny_folder

GIVEN = {
    "method": "fedavg",
    "corpus": "sentence:sentences=400,dev=20,test=20",
    "silos": "4",
    "rounds": "3",
    "dp": "record",
    "noise": "1",
    "public": "own",
    "public_epochs": "2",
    "bits": "32",
}


@pytest.mark.slow  # real processes
def test_one_model_in_both_runners_and_after_a_kill(
    tmp_path: Path, start: Callable[..., Running]
) -> None:
    given = {**GIVEN, "encoder": str(tiny_folder())}
    words = [f"{k.upper()}={v}" for k, v in given.items()] + ["SET=max_length=64"]
    running = start(*words)
    pids = running.pids()["silos"]
    wait_for(lambda: running.computing("silo-000", round=1))
    for victim in ("silo-001", "silo-002", "silo-003"):
        os.kill(pids[victim], signal.SIGKILL)
    status, text = running.finish()
    assert "public text: 80 sentences of the corpus's public set, 2 passes" in text
    if status:  # all rounds may have been over before they were killed
        done = sottovoce("simulate", "--resume", str(running.run))
        assert done.returncode == 0, done.stdout + done.stderr
    plain = tmp_path / "plain"
    plain.mkdir()
    study = prepare(load(None, {**given, "options.max_length": "64", "runner": "inprocess"}))
    (plain / "config.toml").write_text(dump(study.settings, {}), "utf-8")
    assert run_inprocess(plain, study) == 0
    s = summary(running.run)
    assert s["model_sha256"] == summary(plain)["model_sha256"]
    assert s["before_value"] == summary(plain)["before_value"] and s["public"] == "own"
    told = sum(a.nbytes for a in study.task.not_trained().values())
    for run in (running.run, plain):
        down = [r["arrays_down"] for r in lines(run / "rounds.jsonl")]
        assert down[0] - down[1] == 4 * told and down[1] == down[2]
    kept = load_file(running.run / "silos" / "silo-002" / "memory.safetensors")
    assert sum(a.nbytes for a in kept.values()) == told
    wire = [t for t in lines(running.run / "traffic.jsonl") if t["direction"] == "down"]
    first = sum(t["wire_bytes"] for t in wire if t["round"] == 0)
    assert first > 4 * told > sum(t["wire_bytes"] for t in wire if t["round"] == 2)
    # the saved model is the one that was scored
    assert evaluate_model(running.run, GIVEN["corpus"], "test")[1].value == s["value"]
    report = (running.run / "report.md").read_text("utf-8")
    assert (
        f"the same before the first round, with public text alone | {s['before_value']:.4f}"
        in report
    )
