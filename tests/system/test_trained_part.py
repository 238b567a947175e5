"""Real processes that train a part of a network: the plain loop's model bit for bit, also after
kills and an interruption, and no features of anybody's text are left.
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
#: small enough to be run three times for every part
FEW = ("METHOD=fedavg", "CORPUS=sentence:sentences=60,dev=20,test=20")
THREE = ("SILOS=3", "ROUNDS=3", "EPOCHS=1", "BATCH=16", "SEED=3")
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


def test_features_of_a_silo_that_was_lost_go_with_the_run(
    tmp_path: Path, start: Callable[..., Running]
) -> None:
    running = start(*SENTENCE, "SILOS=5", "ROUNDS=2", "BATCH=16", "TRAIN=top:1", "EPOCHS=12")
    victim = running.pids()["silos"]["silo-004"]
    wait_for(lambda: running.computing("silo-004", round=1))
    assert list((running.run / "silos/silo-004").rglob("*.bf16"))
    os.kill(victim, signal.SIGKILL)
    status, text = running.finish()
    assert status == 0 and "silo-004 was lost" in text, text
    assert not list(running.run.rglob("*.bf16"))


@pytest.mark.parametrize(
    "words",
    [
        (*FEW, "TRAIN=lora:2"),
        (*FEW, "TRAIN=head"),
        (*FEW, "TRAIN=bias"),
        (*FEW, "TRAIN=top:1", "PRECISION=bfloat16"),
        (*FEW, "TRAIN=top:1", "SILOS_PER_PROCESS=2"),
        ("METHOD=fedner", "CORPUS=ner:sentences=30,dev=12,test=12", "TRAIN=prompts"),
    ],
    ids=lambda words: ",".join(w for w in words[2:]),
)
def test_every_part_has_one_model_after_kills_and_a_resume(
    tmp_path: Path, start: Callable[..., Running], words: tuple[str, ...]
) -> None:
    words = (*words, *THREE)
    running = start(*words)
    pids = running.pids()["silos"]
    wait_for(lambda: running.computing("silo-000", round=1))
    kept = "top:1" in str(words) or "head" in str(words)
    assert len(list((running.run / "silos").glob("*/features/*/*.bf16"))) == 3 * kept
    # with the last round to come, too few are left for it even if this one was over
    for pid in {pids["silo-001"], pids["silo-002"]}:
        os.kill(pid, signal.SIGKILL)
    assert running.finish()[0] == 3
    done = sottovoce("simulate", "--resume", str(running.run))
    assert done.returncode == 0, done.stdout + done.stderr
    assert summary(running.run)["model_sha256"] == _plain(tmp_path / "plain", words)
    assert not list(running.run.rglob("*.bf16"))
