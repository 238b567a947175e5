"""Few parameters are trained under DP-SGD: which, that only they travel, and that a saved model is
whole.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.simulation.inprocess import run_inprocess
from config.errors import UserError
from config.load import load, with_task_defaults
from extract.texts import NerExtractor, TaggerExtractor
from methods.common.instance_weights import prompt_gradients
from methods.common.training import load as put
from methods.common.training import parameters
from methods.dp.releases import Grid
from methods.tasks.load import load_task
from models import document_encoder
from models import sentence_encoder as encoder
from models.pcnn import PCNN
from models.saved import loaded, read_weights
from models.tuning import rows_are_records, tuning
from study.prepare import prepare

pytestmark = pytest.mark.slow

SMALL = {
    "distant": {"method": "fedavg", "corpus": "distant:sentences=300"},
    "sentence": {"method": "feded", "corpus": "sentence:sentences=200,dev=40,test=40"},
    "document": {"method": "fedlcc", "corpus": "document:documents=24,dev=10,test=10"},
    "ner": {"method": "fedner", "corpus": "ner:sentences=30,dev=12,test=12"},
    "tagger": {"method": "tagger", "corpus": "ner:sentences=30,dev=12,test=12"},
}


def _task(task: str, **words: str) -> Any:
    return load_task(load(None, SMALL[task] | words))


def test_dp_by_record_is_light_unless_the_user_says_otherwise() -> None:
    assert (tuning("", True), tuning("", False)) == ("light", "full")
    assert (tuning("full", True), tuning("light", False)) == ("full", "light")
    with pytest.raises(UserError, match='"tune" must be full or light, not "lite"'):
        _task("sentence", **{"options.tune": "lite"})
    assert _task("sentence", dp="record", epsilon="8").knobs.tune == "light"
    assert (
        _task("sentence").knobs.tune
        == _task("sentence", dp="silo", epsilon="8").knobs.tune
        == "full"
    )


def test_dp_by_record_has_batches_and_rates_of_its_own_and_the_user_wins() -> None:
    def filled(**words: str) -> Any:
        return with_task_defaults(load(None, {"method": "fedavg"} | words), "distant")

    plain, silo = filled(), filled(dp="silo", epsilon="8")
    assert (
        (plain.batch, plain.lr, plain.rounds) == (silo.batch, silo.lr, silo.rounds) == (16, 0.2, 20)
    )
    private = filled(dp="record", epsilon="8", lr="0.5", rounds="3")
    assert (private.batch, private.lr, private.rounds, private.decay) == (300, 0.5, 3, plain.decay)


@pytest.mark.parametrize("task", ["sentence", "document"])
def test_an_encoder_trains_biases_scales_and_what_stands_on_it(task: str) -> None:
    model = _task(task, **{"options.tune": "light"}).new_model(3)
    trained = set(parameters(model))
    for name, _ in model.named_parameters():
        inside = name.startswith("backbone.")
        projection = task == "document" and name in ("subject.weight", "object.weight")
        assert (name in trained) == (
            not projection and (not inside or name.endswith("bias") or "LayerNorm" in name)
        )
    if task == "document":  # what is not trained is the same whatever the run's seed
        again = _task(task, **{"options.tune": "light"}).new_model(4)
        assert torch.equal(model.subject.weight, again.subject.weight) and model.block == 16
        assert not torch.equal(model.subject.weight, model.object.weight)
        assert not torch.equal(model.bilinear.weight, again.bilinear.weight)
    everything = sum(p.numel() for p in model.parameters())
    assert (
        sum(a.size for n, a in parameters(model).items() if n.startswith("backbone."))
        < 0.01 * everything
    )


def test_networks_that_share_layers_are_clipped_one_by_one() -> None:
    from types import SimpleNamespace as Stub

    def rows(kind: str, tune: str) -> bool:
        return rows_are_records(Stub(config=Stub(model_type=kind)), tune)

    assert rows("bert", "full") and rows("bert", "light") and rows("roberta", "light")
    assert (
        not rows("roberta", "full")
        and not rows("albert", "light")
        and not rows("deberta-v2", "light")
    )


def test_a_prompted_model_trains_q_and_biases_and_what_is_fixed_is_everybodys() -> None:
    task = _task("ner", dp="record", epsilon="8")
    one, two = task.new_model(1), task.new_model(2)
    trained = set(parameters(one))
    for name, p in one.named_parameters():
        scale = "layer_norm" in name or "layernorm" in name
        assert (name in trained) == (name == "prompts.q.weight" or name.endswith("bias") or scale)
        if name not in trained:
            assert torch.equal(p, dict(two.named_parameters())[name])
    usual = parameters(_task("ner").new_model(0))
    assert sum(a.size for a in parameters(one).values()) < 0.1 * sum(a.size for a in usual.values())


def test_a_target_gradient_that_is_no_number_counts_nothing() -> None:
    """FedNER's release, beside training: what a made model did to it must not be seen in it."""
    task = _task("ner", dp="record", epsilon="8")
    model = task.new_model(0)
    with torch.no_grad():
        model.prompts.q.weight.fill_(float("nan"))
    grid = Grid(step=0.01, reach=100, noise=1.0)
    source, target = prompt_gradients(task, model, task.subset(np.arange(4)), grid.clipped)
    assert not source.any() and not target.any()


def test_fixed_word_vectors_are_the_same_for_every_seed_and_padding_is_zero() -> None:
    task = _task("distant", **{"options.tune": "light"})
    one, two = task.new_model(1), task.new_model(2)
    assert torch.equal(one.word.weight, two.word.weight) and not torch.equal(
        one.out.weight, two.out.weight
    )
    assert not one.word.weight[0].any() and "word.weight" not in parameters(one)
    assert set(task.frozen()) == {"word.weight"} and not _task("distant").frozen()


@pytest.mark.parametrize("task", list(SMALL))
def test_only_the_trained_travel_and_the_saved_model_is_whole(task: str, tmp_path: Path) -> None:
    words = {
        "silos": "3",
        "rounds": "1",
        "epochs": "1",
        "batch": "8",
        "dp": "record",
        "epsilon": "8",
    }
    study = prepare(load(None, SMALL[task] | words | {"runner": "inprocess"}))
    task_: Any = study.task
    assert run_inprocess(tmp_path, study) == 0
    sent = {
        n.partition("/")[2]
        for e in study.method.exchanges
        for n in e.masked
        if n.startswith("update/")
    }
    assert sent <= set(parameters(task_.new_model(0)))
    whole = read_weights(tmp_path / "model")
    ours = put(
        task_.new_model(0),
        {k: v for k, v in whole.items() if k in dict(task_.new_model(0).named_parameters())},
    )
    # its frozen language model has a name and a hash
    by_name = "backbone." if task == "ner" else "nothing."
    assert set(whole) == {
        n for n, p in ours.named_parameters() if p.requires_grad or not n.startswith(by_name)
    }
    assert all(np.array_equal(whole[k], v) for k, v in task_.frozen().items())
    if task == "sentence":
        read: Any = encoder.open_model(tmp_path / "model")[0]
    elif task == "document":
        read = document_encoder.open_model(tmp_path / "model")[0]
    elif task in ("ner", "tagger"):
        about = json.loads((tmp_path / "model" / "config.json").read_text("utf-8"))
        extractor: Any = NerExtractor if task == "ner" else TaggerExtractor
        read = extractor(tmp_path / "model", about)._model
    else:
        read = loaded(PCNN(len(whole["word.weight"]), len(task_.labels)), tmp_path / "model")
    for name, p in ours.named_parameters():
        assert torch.equal(p, dict(read.named_parameters())[name])
