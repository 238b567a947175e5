"""Optimizers that are kept, schedules and rounds that are not scored: in both runners, after a kill,
and in what a run says of itself.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.simulation.inprocess import run_inprocess
from config.load import dump, load
from report.export import export_csv, export_parquet
from report.files import read_run
from report.write import write_report
from study.prepare import prepare
from tests.conftest import Running, lines, sottovoce, summary, wait_for

WORDS = (
    "METHOD=fedavg",
    "SILOS=4",
    "CORPUS=distant:sentences=400",
    "ROUNDS=3",
    "OPTIMIZER=momentum",
    "KEEP_OPTIMIZER=on",
    "LR=0.02",
    "WARMUP=0.2",
    "SCHEDULE=cosine",
    "CLIP_NORM=1",
    "WEIGHT_DECAY=1e-4",
    "EVALUATE=2",
)


def _plain(run: Path, *words: str) -> Path:
    run.mkdir()
    given = {k.lower(): v for k, _, v in (w.partition("=") for w in words)}
    study = prepare(load(None, given | {"runner": "inprocess"}))
    (run / "config.toml").write_text(dump(study.settings, {}), "utf-8")
    assert run_inprocess(run, study) == 0
    return run


@pytest.mark.slow  # real processes
def test_both_runners_and_a_run_that_was_killed_end_with_one_model(
    tmp_path: Path, start: Callable[..., Running]
) -> None:
    words = (*WORDS, "EPOCHS=5")
    running = start(*words)
    pids = running.pids()["silos"]
    wait_for(lambda: running.computing("silo-000", round=1))
    for victim in ("silo-001", "silo-002", "silo-003"):
        os.kill(pids[victim], signal.SIGKILL)
    status, text = running.finish()
    assert status == 3 and "sgd with momentum, learning rate 0.02, less 1 % a round, rising" in text
    assert all((running.run / "silos" / s / "optimizer.safetensors").is_file() for s in pids)
    done = sottovoce("simulate", "--resume", str(running.run))
    assert done.returncode == 0, done.stdout + done.stderr
    plain = _plain(tmp_path / "plain", *words)
    assert summary(running.run)["model_sha256"] == summary(plain)["model_sha256"]
    for run in (running.run, plain):
        dev = [r["dev"] for r in lines(run / "rounds.jsonl")]
        assert dev[0] is None and None not in dev[1:]
    assert "a silo keeps its optimizer's state" in (running.run / "report.md").read_text()


def test_rounds_that_are_not_scored_are_left_out_of_every_picture(tmp_path: Path) -> None:
    run = _plain(tmp_path / "run", *WORDS, "ROUNDS=4", "EVALUATE=3", "EPOCHS=1", "TARGET=0.01")
    rounds = lines(run / "rounds.jsonl")
    assert [r["dev"] is None for r in rounds] == [True, True, False, False]
    assert [bool(r["figures"]) for r in rounds] == [False, False, True, True]
    s = summary(run)
    assert s["selected_round"] in (2, 3) and s["dev_value"] == max(r["dev"] for r in rounds[2:])
    assert s["rounds_to_target"] in (3, None)
    write_report(run)
    assert "scored every 3 rounds" in (run / "report.html").read_text("utf-8")
    table = (run / "report.md").read_text("utf-8").split("## Rounds")[1]
    assert table.count("| – |") == 2
    assert read_run(run).rounds == rounds
    for export in (export_csv, export_parquet):
        assert export(read_run(run), tmp_path / "out")


def test_a_run_whose_budget_ends_early_ends_with_a_scored_model(tmp_path: Path) -> None:
    """Of noise for far fewer rounds than are asked for, scored at the end alone."""
    words = ("METHOD=fedavg", "SILOS=3", "CORPUS=distant:sentences=300", "ROUNDS=40", "EPOCHS=1")
    run = _plain(
        tmp_path / "run", *words, "DP=record", "EPSILON=3", "NOISE=3", "BATCH=50", "EVALUATE=40"
    )
    rounds, s = lines(run / "rounds.jsonl"), summary(run)
    assert 0 < len(rounds) < 40 and all(r["dev"] is None for r in rounds)
    assert s["selected_round"] == len(rounds) - 1 and s["dev_value"] > float("-inf")


@pytest.mark.slow  # real processes
def test_one_precision_one_model_in_both_runners(tmp_path: Path) -> None:
    corpus = "CORPUS=sentence:sentences=120,dev=20,test=20"
    words = ("METHOD=fedavg", corpus, "SILOS=3", "ROUNDS=1", "PRECISION=bfloat16")
    done = sottovoce("simulate", f"OUT={tmp_path / 'p'}", *words)
    assert done.returncode == 0 and "the encoder computes in bfloat16" in done.stdout
    hash = summary(tmp_path / "p" / "latest")["model_sha256"]
    assert hash == summary(_plain(tmp_path / "i", *words))["model_sha256"]
    assert 'precision = "bfloat16"' in (tmp_path / "p" / "latest" / "config.toml").read_text()
