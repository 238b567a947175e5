"""Real processes: the plain loop's model bit for bit, a language model that never travels, a silo
with another one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from bench.pretrain import make as pretrain
from bench.simulation.inprocess import run_inprocess
from config.errors import UserError
from config.load import load
from models.backbone import PRETRAINED
from study.prepare import prepare
from tests.conftest import ROOT, lines, sottovoce, summary
from tests.consortium import Consortium
from tests.methods.small_ner import tiny_bart, tiny_folder

GIVEN = {
    "method": "fedner",
    "rounds": "2",
    "batch": "8",
    "corpus": "ner:sentences=30,dev=12,test=12",
}
KNOBS = {"max_length": "64", "prompts": "3", "hidden": "8"}


def test_processes_give_the_model_of_the_plain_loop_and_the_language_model_stays_home(
    tmp_path: Path,
) -> None:
    given = {**GIVEN, "seq2seq": str(tiny_folder()), "out": str(tmp_path)}
    knobs = [w for k, v in KNOBS.items() for w in ("--set", f"{k}={v}")]
    done = sottovoce("simulate", *(f"{k.upper()}={v}" for k, v in given.items()), *knobs)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (p for p in tmp_path.iterdir() if p.is_dir() and not p.is_symlink())
    by_processes = json.loads((run / "summary.json").read_text("utf-8"))
    assert by_processes["silos"] == 3 and by_processes["partition"] == "domain"
    plain = tmp_path / "plain"
    plain.mkdir()
    study = prepare(load(None, {**given, **{f"options.{k}": v for k, v in KNOBS.items()}}))
    assert run_inprocess(plain, study) == 0
    by_loop = json.loads((plain / "summary.json").read_text("utf-8"))
    assert by_processes["model_sha256"] == by_loop["model_sha256"]
    assert by_processes["value"] == by_loop["value"]

    # Whatever crossed the wire in a round, in either direction and to or from any silo, is far less
    # than the language model, which is larger than the prompts; and the masked upload is the
    # prompts, to the number.
    frozen = sum(p.numel() for p in tiny_bart().backbone.parameters()) * 4
    trained = int(by_processes["figures"]["parameters_trained"])
    assert trained * 4 < frozen / 3
    traffic = [t for t in lines(run / "traffic.jsonl") if t["round"] >= 0]
    for silo in {t["silo"] for t in traffic}:
        for direction in ("up", "down"):
            for round in (0, 1):
                sent = [
                    t["wire_bytes"]
                    for t in traffic
                    if (t["silo"], t["direction"], t["round"]) == (silo, direction, round)
                ]
                assert 4 * trained <= sum(sent) < frozen / 2, (silo, direction, round)
    names = set(load_file(run / "model" / "model.safetensors"))
    assert names and all(n.startswith("prompts.") or n == "label_weights" for n in names)


@pytest.mark.timeout(280)
def test_a_silo_with_another_language_model_is_not_let_in(consortium: Consortium) -> None:
    other, same = consortium.path / "other", tiny_folder()
    shutil.copytree(same, other)
    weights = load_file(other / "model.safetensors")
    weights["encoder.layers.0.fc1.bias"] = weights["encoder.layers.0.fc1.bias"] + 1
    save_file(weights, other / "model.safetensors", metadata={"format": "pt"})
    settings = load(None, GIVEN)
    consortium.study(
        **{k: getattr(settings, k) for k in GIVEN if k not in ("silos", "seq2seq", "out")}
    )
    with (consortium.path / "study.toml").open("a") as file:
        file.write("[options]\n" + "".join(f"{k} = {v}\n" for k, v in KNOBS.items()))
    port, study = consortium.hub("--seq2seq", str(same))
    assert consortium.silo("east", port, study, seq2seq=other).wait(200) == 2
    theirs = re.search(r"Study hash +(\w+)", consortium.said("east"))
    assert theirs is not None and theirs[1] != study
    assert consortium.silo("east", port, theirs[1], seq2seq=other).wait(200) == 2
    mine = tiny_bart().sha256[:12]
    said = " ".join(consortium.log("east").split())
    assert "did not let east in: it has another language model than this study" in said
    assert f"(language model {mine}" in said and "Traceback" not in said


# The language model that is shipped


def test_pretraining_gives_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from bench.pretrain.make import make; from tests.methods.small_ner import TINY;"
        f"print(make(TINY, Path({str(tmp_path)!r})))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    other = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    here = json.loads((tiny_folder() / "manifest.json").read_text("utf-8"))["sha256"]
    assert other.stdout.strip() == here


def test_the_shipped_language_model_is_the_one_of_its_manifest_its_plan_and_todays_text() -> None:
    """If the language changes, it must be made again: sottovoce pretrain bart."""
    folder = PRETRAINED / "bart"
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    assert pretrain._sha256(folder) == manifest["sha256"]
    assert pretrain.Plan(**manifest["plan"]) == pretrain.PLANS["bart"]
    text = "\n".join(pretrain.text_of(pretrain.PLANS["bart"]))
    assert hashlib.sha256(text.encode()).hexdigest() == manifest["text_sha256"]
    assert sum(p.stat().st_size for p in folder.iterdir()) < 5_000_000
    assert not [p for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pkl")]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"options.tags": "disjont"}, 'Did you mean "disjoint"'),
        ({"options.network": "lstm"}, "pointer or tagger"),
        ({"train": "some"}, "all, top:K, head, lora:R, bias or prompts"),
        ({"train": "head"}, "it can train all, lora, bias or prompts"),
        ({"options.max_length": "1000"}, "between 16 and 256"),
        ({"seq2seq": "./nowhere/at/all"}, 'SEQ2SEQ "./nowhere/at/all" is not a folder'),
        ({"seq2seq": str(PRETRAINED / "bert")}, "needs a BART, a Marian or a T5"),
        ({"silos": "3", "partition": "pair"}, "which this task does not have"),
        ({"corpus": "distant"}, "is for ner"),
    ],
)
def test_mistakes_are_told_in_a_sentence(words: dict[str, str], why: str) -> None:
    with pytest.raises(UserError, match=why):
        prepare(load(None, {**GIVEN, **words}))


def test_fedners_weights_are_the_same_where_nothing_is_masked(tmp_path: Path) -> None:
    """SECAGG=off rounds as a sum does, and a silo takes its own part out as it was rounded."""
    words = ("METHOD=fedner", "CORPUS=ner:sentences=60,dev=20,test=20", "SILOS=3", "ROUNDS=3")
    seen = set()
    for runner in ("processes", "inprocess"):
        out = tmp_path / runner
        told = sottovoce(
            "simulate",
            *words,
            "SECAGG=off",
            "BITS=16",
            "EPOCHS=1",
            f"RUNNER={runner}",
            f"OUT={out}",
        )
        assert told.returncode == 0, told.stderr
        seen.add(summary(out / "latest")["model_sha256"])
    assert len(seen) == 1
