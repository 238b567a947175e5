"""Every method, references too, on every one of its tasks, from public text to its last round: each
round is folded, over all silos, and moves the model. A run whose rounds are all given up ends as well.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.simulation.inprocess import run_inprocess
from config.errors import UserError
from config.load import load
from methods import METHODS, describe, tasks_of
from methods.common.arrays import model_sha256
from methods.common.public_start import EXCHANGE
from study.prepare import Study, prepare
from study.public_start import made_public_start
from tests.conftest import lines
from tests.methods import small_document, small_ner, small_sentence
from tests.methods.small import kept_in

pytestmark = pytest.mark.slow  # a minute of small runs

SILOS, ROUNDS = 3, 2
WORDS = {
    "distant": {
        "corpus": "distant:sentences=90,dev=40,test=40,entities=40,filler=60",
        "public": "distant:sentences=40,dev=20,test=20,entities=40,filler=60",
    },
    "sentence": {
        "corpus": "sentence:sentences=60,dev=20,test=20",
        "public": "sentence:sentences=30",
        "options.max_length": "64",
    },
    "document": {
        "corpus": "document:documents=15,dev=10,test=10",
        "public": "document:documents=10,dev=10,test=10",
        "options.block": "8",
    },
    "ner": {
        "corpus": "ner:sentences=30,dev=12,test=12",
        "public": "ner:sentences=12,dev=12,test=12",
        "options.max_length": "64",
    },
}
FOLDERS = {
    "sentence": ("encoder", small_sentence.tiny_folder),
    "document": ("encoder", small_document.tiny_folder),
    "ner": ("seq2seq", small_ner.tiny_folder),
    "tagger": ("encoder", small_sentence.tiny_folder),
}
HOW = {
    "all": {},  # what the method trains by default: nearly always everything
    "part": {"train": "top:1"},  # the rest is told to each silo once, and kept by it
    "record": {"dp": "record", "epsilon": "8"},  # the same, of a head
}
CASES = [
    (method, task, how)
    for method in METHODS
    for task in tasks_of(method)
    for how in HOW
    if how != "part" or task == tasks_of(method)[0]
]
#: of a run in which no round is given up, begun again or short of silos
ORDINARY = {"listening", "round", "computing", "answered", "round-done", "finished"}


def study(method: str, task: str, **more: str) -> Study:
    words = {"method": method, "silos": str(SILOS), "rounds": str(ROUNDS), "epochs": "1"}
    words |= {"batch": "8", "partition": "iid", "runner": "inprocess", "public_epochs": "1"}
    words |= WORDS[task]
    if task != "distant":
        key, folder = FOLDERS["tagger" if method == "tagger" else task]
        words[key] = str(folder())
    return prepare(load(None, words | more))


@pytest.mark.parametrize(("method", "task", "how"), CASES)
def test_every_round_from_public_text_is_folded(
    method: str, task: str, how: str, tmp_path: Path
) -> None:
    if describe(method).reference and how == "record":
        with pytest.raises(UserError, match="does not run with DP=record"):
            study(method, task, **HOW[how])
        return
    prompted = task == "ner" and method != "tagger"
    of = study(method, task, **(HOW[how] if not prompted or how != "part" else {"train": "bias"}))
    held = [e.name for e in of.method.exchanges[:1]] == [EXCHANGE]
    assert held == bool(of.task.not_trained()) and held >= (how != "all")
    bare = of.method.init(of.settings.seed).model
    assert run_inprocess(tmp_path, of) == 0
    rounds, happened = lines(tmp_path / "rounds.jsonl"), lines(tmp_path / "events.jsonl")
    everybody = [f"silo-{i:03d}" for i in range(of.settings.silos)]
    assert [r["participants"] for r in rounds] == [everybody] * ROUNDS
    assert [r["survivors"] for r in rounds] == [everybody] * ROUNDS
    assert {e["event"] for e in happened} <= ORDINARY
    # the first begins with what public text gave, and each moves the model
    public = made_public_start(tmp_path, of.settings, of.task)
    start = of.method.init(of.settings.seed).model
    # a model for each silo: "2/encoder.weight"
    own = {k: k.partition("/")[2] if method == "local" else k for k in start}
    begun = [k for k, name in own.items() if name in public]
    assert begun and all(np.array_equal(start[k], public[own[k]]) for k in begun)
    assert any(not np.array_equal(start[k], bare[k]) for k in begun)
    hashes = [model_sha256(start), *(r["model_sha256"] for r in rounds)]
    assert len(set(hashes)) == 1 + ROUNDS
    assert all(np.isfinite(v).all() for v in kept_in(tmp_path, "model").values())
