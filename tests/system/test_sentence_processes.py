"""Real processes: the model of the plain loop, bit for bit, and who is let in with which
encoder.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from bench.simulation.inprocess import run_inprocess
from config.load import load
from methods import METHODS, tasks_of
from models.backbone import load_checkpoint
from models.marking import MARKERS
from study.prepare import prepare
from tests.conftest import lines, sottovoce, wait_for
from tests.consortium import Consortium
from tests.methods.small_sentence import tiny_checkpoint, tiny_folder


@pytest.mark.parametrize("method", ["fedcmc", "fedatt", "public_only"])
def test_processes_give_the_model_of_the_plain_loop(method: str, tmp_path: Path) -> None:
    given = {
        "method": method,
        "encoder": str(tiny_folder()),
        "silos": "4",
        "rounds": "2",
        "epochs": "1",
    }
    given |= {
        "batch": "16",
        "lr": "0.01",
        "corpus": "sentence:sentences=100,dev=20,test=20",
        "out": str(tmp_path),
    }
    done = sottovoce(
        "simulate", *(f"{k.upper()}={v}" for k, v in given.items()), "--set", "max_length=64"
    )
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


def test_a_silo_with_another_encoder_is_refused_by_name(consortium: Consortium) -> None:
    same, other = consortium.path / "elsewhere", consortium.path / "other"
    shutil.copytree(tiny_folder(), same)
    shutil.copytree(tiny_folder(), other)
    _with_another_weight(other)
    consortium.study(
        method="fedatt", rounds=1, corpus="sentence:sentences=100,dev=20,test=20", batch=16
    )
    with (consortium.path / "study.toml").open("a") as file:
        file.write("[options]\nmax_length = 64\n")
    port, study = consortium.hub("--encoder", str(tiny_folder()))
    mine = tiny_checkpoint().sha256[:12]
    # Whoever compares before dialling sees another hash, and nothing is sent.
    early = consortium.silo("east", port, study, encoder=other)
    assert early.wait(180) == 2 and "--accept names another study" in consortium.log("east")
    # Whoever agreed to its own version of it is told by the coordinator which part differs.
    theirs = re.search(r"Study hash +(\w+)", consortium.said("east"))
    assert theirs is not None
    refused = consortium.silo("east", port, theirs[1], encoder=other)
    consortium.silo("north", port, study, encoder=same)
    assert refused.wait(180) == 2
    said = " ".join(consortium.log("east").split())
    assert "did not let east in: it has another encoder and another model than this study" in said
    assert f"encoder {mine}" in said and "Traceback" not in said
    events = consortium.run / "events.jsonl"
    wait_for(lambda: "silo-000" in [e.get("silo") for e in lines(events) if e["event"] == "hello"])
    assert [e["silo"] for e in lines(events) if e["event"] == "refused"] == ["silo-001"]
    # the same weights in another folder: it is in, and waits
    assert consortium.processes["north"].poll() is None
    # A study file that names the hash refuses it here, before anybody else hears of it.
    with (consortium.path / "study.toml").open("a") as file:
        file.write(f'[hashes]\nencoder = "{tiny_checkpoint().sha256}"\n')
    assert consortium.silo("south", port, study, encoder=other).wait(180) == 2
    assert "The encoder on this machine" in consortium.log("south")


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
    # same weights, but two pieces are swapped
    words[first], words[second] = words[second], words[first]
    vocabulary.write_text(json.dumps(table), "utf-8")
    assert hash_of(folder) != tiny_checkpoint().sha256


@pytest.mark.parametrize("method", [m for m in METHODS if "sentence" in tasks_of(m)])
def test_every_method_runs_from_its_name(method: str, tmp_path: Path) -> None:
    """Settings as `make simulate METHOD=…` makes them, defaults and all, but for a small corpus and
    encoder.
    """
    words = {
        "method": method,
        "corpus": "sentence:sentences=100,dev=20,test=20",
        "encoder": str(tiny_folder()),
    }
    words |= {"rounds": "1", "silos": "4", "out": str(tmp_path), "options.max_length": "64"}
    study = prepare(load(None, words))
    assert run_inprocess(tmp_path, study) == 0
    summary = json.loads((tmp_path / "summary.json").read_text("utf-8"))
    assert summary["method"] == method
    assert summary["task"] == "sentence"
