"""Real processes that train a part of a network: the plain loop's model bit for bit, also after a
kill, and no features of anybody's text are left.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.simulation.inprocess import run_inprocess
from config.load import load
from study.prepare import prepare
from tests.conftest import Running, sottovoce, summary, wait_for

SENTENCE = ("METHOD=fedavg", "CORPUS=sentence:sentences=120,dev=40,test=40")
COMMON = ("SILOS=3", "ROUNDS=2", "BATCH=16", "SEED=3")

pytestmark = pytest.mark.slow


def _plain(run: Path, words: tuple[str, ...]) -> str:
    run.mkdir()
    overrides = {k.lower(): v for k, _, v in (w.partition("=") for w in words)}
    assert run_inprocess(run, prepare(load(None, overrides))) == 0
    assert not list(run.rglob("*.bf16"))
    return str(summary(run)["model_sha256"])


def test_both_runners_train_the_same_adapters(tmp_path: Path) -> None:
    words = (*SENTENCE, *COMMON, "TRAIN=lora:2")
    done = sottovoce("simulate", *words, f"OUT={tmp_path / 'runs'}")
    assert done.returncode == 0, done.stdout + done.stderr
    run = tmp_path / "runs" / "latest"
    assert summary(run)["model_sha256"] == _plain(tmp_path / "plain", words)
    assert "adapters of rank 2" in summary(run)["network"]
    assert (run / "model" / "adapter" / "adapter_model.safetensors").is_file()


def test_a_killed_run_goes_on_with_the_features_that_were_kept(
    tmp_path: Path, start: Callable[..., Running]
) -> None:
    words = (*SENTENCE, *COMMON, "TRAIN=top:1", "EPOCHS=12")
    running = start(*words)
    wait_for(lambda: running.computing("silo-001", round=1))
    os.killpg(running.process.pid, signal.SIGINT)
    assert running.finish(timeout=5)[0] == 130
    kept = sorted((running.run / "silos").glob("*/features/*/*.bf16"))
    assert len(kept) == 3  # each silo in its own folder
    (half,) = kept[0].parent.glob("*.npy")
    os.truncate(half, half.stat().st_size // 2)  # as if it had been killed while it wrote
    done = sottovoce("simulate", "--resume", str(running.run))
    assert done.returncode == 0, done.stdout + done.stderr
    assert summary(running.run)["model_sha256"] == _plain(tmp_path / "plain", words)
    assert not list(running.run.rglob("*.bf16"))
