"""Real processes: the model of the plain loop, bit for bit, and who is let in with which encoder."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from bench.inprocess import run_inprocess
from bench.prepare import prepare
from config.load import load
from methods import METHODS, module
from models.checkpoint import load_checkpoint
from models.marking import MARKERS
from tests.conftest import ROOT, command, lines, sottovoce, wait_for
from tests.sentence.small import tiny_checkpoint, tiny_folder


@pytest.mark.parametrize("method", ["fedcmc", "fedatt", "public_only"])
def test_processes_give_the_model_of_the_plain_loop(method: str, tmp_path: Path) -> None:
    given = {"method": method, "encoder": str(tiny_folder()), "silos": "4", "rounds": "2", "epochs": "1"}
    given |= {"batch": "16", "lr": "0.01", "corpus": "sentence:sentences=100,dev=20,test=20", "out": str(tmp_path)}
    done = sottovoce("simulate", *(f"{k.upper()}={v}" for k, v in given.items()), "--set", "max_length=64")
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (p for p in tmp_path.iterdir() if p.is_dir() and not p.is_symlink())
    by_processes = json.loads((run / "summary.json").read_text("utf-8"))
    assert by_processes["runner"] == "processes"
    assert by_processes["bytes_up_total"] > 0
    assert (by_processes["arrays_up_per_silo_round"] > 0) == (method != "public_only")
    plain = tmp_path / "plain"
    plain.mkdir()
    assert run_inprocess(plain, prepare(load(None, {**given, "options.max_length": "64"}))) == 0
    by_loop = json.loads((plain / "summary.json").read_text("utf-8"))
    assert by_processes["model_sha256"] == by_loop["model_sha256"]
    same = ("value", "arrays_up_per_silo_round", "arrays_down_per_silo_round")
    assert {k: by_processes[k] for k in same} == {k: by_loop[k] for k in same}


def _with_another_weight(folder: Path) -> None:
    """One weight of the checkpoint differs in its last bits."""
    weights = load_file(folder / "model.safetensors")
    name = next(k for k in sorted(weights) if "word_embeddings" in k)
    weights[name][0, 0] *= 1.01
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def test_a_silo_with_another_encoder_is_refused_by_name(tmp_path: Path) -> None:
    same, other, keys = tmp_path / "elsewhere", tmp_path / "other", tmp_path / "keys"
    shutil.copytree(tiny_folder(), same)
    shutil.copytree(tiny_folder(), other)
    _with_another_weight(other)
    study = ["METHOD=fedavg", "SILOS=3", "ROUNDS=1", "CORPUS=sentence:sentences=100,dev=20,test=20"]
    study += [f"OUT={tmp_path}", "--set", "max_length=64"]

    def begin(name: str, *words: str) -> subprocess.Popen[str]:
        out = (tmp_path / f"{name}.txt").open("w")
        return subprocess.Popen(command(*words, *study), cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, text=True)

    started = [begin("coordinator", "coordinator", f"ENCODER={tiny_folder()}", "--keys", str(keys))]
    try:
        log = tmp_path / "coordinator.txt"
        port = wait_for(lambda: re.search(r"listening on 127\.0\.0\.1:(\d+)", log.read_text()))[1]
        for i, folder in enumerate((same, other)):
            home = keys / "silos" / f"silo-00{i}"
            words = ["--index", str(i), "--address", f"127.0.0.1:{port}", "--keys", str(home)]
            started.append(begin(f"silo-{i}", "silo", *words, f"ENCODER={folder}"))
        assert started[2].wait(180) == 2
        said = " ".join((tmp_path / "silo-1.txt").read_text().split())
        mine = tiny_checkpoint().sha256[:12]
        assert f"did not let silo-001 in: it has another encoder than this study (encoder {mine}…)." in said
        assert "Traceback" not in said
        events = tmp_path / "latest" / "events.jsonl"
        wait_for(lambda: "silo-000" in [e.get("silo") for e in lines(events) if e["event"] == "hello"])
        assert [e["silo"] for e in lines(events) if e["event"] == "refused"] == ["silo-001"]
        assert started[1].poll() is None  # the same weights in another folder: it is in, and waits
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_the_encoders_hash_is_of_weights_and_vocabulary(tmp_path: Path) -> None:
    def hash_of(folder: Path) -> str:
        return load_checkpoint(str(folder), "bert", MARKERS).sha256

    folder = tmp_path / "copy"
    shutil.copytree(tiny_folder(), folder)
    assert hash_of(folder) == tiny_checkpoint().sha256
    vocabulary = folder / "tokenizer.json"
    table = json.loads(vocabulary.read_text("utf-8"))
    first, second = list(table["model"]["vocab"])[-2:]
    words = table["model"]["vocab"]
    words[first], words[second] = words[second], words[first]  # same weights, but two pieces are swapped
    vocabulary.write_text(json.dumps(table), "utf-8")
    assert hash_of(folder) != tiny_checkpoint().sha256


@pytest.mark.parametrize("method", [m for m in METHODS if "sentence" in module(m).TASKS])
def test_every_method_runs_from_its_name(method: str, tmp_path: Path) -> None:
    """Settings as `make simulate METHOD=…` makes them, defaults and all, but for a small corpus and encoder."""
    words = {"method": method, "corpus": "sentence:sentences=100,dev=20,test=20", "encoder": str(tiny_folder())}
    words |= {"rounds": "1", "silos": "4", "out": str(tmp_path), "options.max_length": "64"}
    study = prepare(load(None, words))
    assert run_inprocess(tmp_path, study) == 0
    summary = json.loads((tmp_path / "summary.json").read_text("utf-8"))
    assert summary["method"] == method
    assert summary["task"] == "sentence"
