"""Few parameters are trained under DP-SGD: which, that only they travel, and that a saved model is
whole.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from bench.simulation.inprocess import run_inprocess
from config.errors import UserError
from config.load import load, with_task_defaults
from config.part import Part, parse_part
from extract.texts import NerExtractor, TaggerExtractor
from methods.common.instance_weights import instance_gradients
from methods.common.training import load as load_weights
from methods.common.training import parameters
from methods.dp.releases import Grid
from methods.tasks.load import load_task
from models import document_encoder
from models import sentence_encoder as encoder
from models.backbone import PRETRAINED
from models.pcnn import PCNN
from models.saved import loaded, read_weights
from models.tuning import check_part, rows_are_records
from study.prepare import prepare

pytestmark = pytest.mark.slow

SMALL = {
    "distant": {"method": "fedavg", "corpus": "distant:sentences=300"},
    "sentence": {"method": "feded", "corpus": "sentence:sentences=200,dev=40,test=40"},
    "document": {"method": "fedlcc", "corpus": "document:documents=24,dev=10,test=10"},
    "ner": {"method": "fedner", "corpus": "ner:sentences=30,dev=12,test=12"},
    "tagger": {"method": "tagger", "corpus": "ner:sentences=30,dev=12,test=12"},
}


#: What DP=record trains by itself.
PRIVATE_PARTS = {
    "distant": "head",
    "sentence": "head",
    "document": "head",
    "ner": "head",
    "tagger": "head",
}


def _task(task: str, **words: str) -> Any:
    return load_task(load(None, SMALL[task] | words))


def test_dp_by_record_trains_few_unless_the_user_says_otherwise() -> None:
    private = {"dp": "record", "epsilon": "8"}
    for task, few in PRIVATE_PARTS.items():
        usual = "prompts" if task == "ner" else "all"
        assert str(_task(task).part) == usual
        assert str(_task(task, dp="silo", epsilon="8").part) == usual
        assert str(_task(task, **private).part) == few
        assert str(_task(task, **private, train="all").part) == "all"
    study = prepare(load(None, SMALL["sentence"] | private | {"silos": "3"}))
    assert study.settings.train == PRIVATE_PARTS["sentence"]  # what the run's files say


@pytest.mark.parametrize(
    ("task", "train", "why"),
    [
        ("sentence", "some", 'all, top:K, head, lora:R, bias or prompts, not "some"'),
        ("sentence", "top", 'not "top"'),
        ("sentence", "head:2", 'not "head:2"'),
        ("sentence", "top:0", 'a number of layers from 1 to 1024, not "0"'),
        ("sentence", "lora:x", 'a rank from 1 to 1024, not "x"'),
        ("sentence", "top:3", "an encoder of 2 layers has no 3 to train"),
        ("sentence", "prompts", "an encoder can do; it can train all, top, head, lora or bias"),
        ("distant", "lora:8", "a PCNN can do; it can train all, top or head"),
        ("distant", "top:2", "a PCNN of 1 layers has no 2"),
        ("ner", "head", "a prompted pointer network can do"),
        ("tagger", "prompts", "an encoder can do"),
    ],
)
def test_what_a_network_cannot_do_is_refused_in_a_sentence(task: str, train: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        _task(task, train=train)


def test_the_layers_of_a_network_that_nobody_described_are_not_guessed() -> None:
    from types import SimpleNamespace as Stub

    stub = Stub(config=Stub(model_type="deberta-v2"))
    with pytest.raises(UserError, match='of type "deberta-v2"; take head'):
        check_part(Part("top", 1), "an encoder", stub)
    assert check_part(Part("head"), "an encoder", stub) == Part("head")


@pytest.mark.parametrize("task", ["sentence", "document", "tagger"])
@pytest.mark.parametrize("train", ["top:1", "head", "lora:4"])
def test_of_an_encoder_the_named_part_is_trained_and_what_stands_on_it(
    task: str, train: str
) -> None:
    model = _task(task, train=train).new_model(3)
    inside = {n for n in parameters(model) if n.startswith("backbone.")}
    outside = {
        n for n, _ in model.named_parameters() if not n.startswith(("backbone.", "standard."))
    }
    assert outside and outside <= set(parameters(model))
    wanted = {"top:1": "backbone.encoder.layer.1.", "head": "no", "lora:4": "lora_"}[train]
    whole = {n for n, _ in model.named_parameters() if wanted in n}
    assert inside == whole and bool(inside) == (train != "head")
    again = dict(_task(task, train=train).new_model(4).named_parameters())
    for name, p in model.named_parameters():
        if name not in parameters(model):
            assert torch.equal(p, again[name])  # whatever the seed


def test_the_head_of_a_pcnn_stands_on_numbers_that_are_everybodys() -> None:
    one, two = (_task("distant", train="head").new_model(seed) for seed in (1, 2))
    assert set(parameters(one)) == {"out.weight", "out.bias"}
    for name, p in one.named_parameters():
        if not name.startswith("out."):
            assert torch.equal(p, dict(two.named_parameters())[name])
    assert not one.head_position.weight[0].any()


def test_adapters_begin_at_the_checkpoint_itself_and_a_prompted_model_can_have_them_too() -> None:
    plain, adapted = (_task("sentence", train=t) for t in ("all", "lora:4"))
    batch = plain.batch(plain.subset(np.arange(4)), np.arange(4))
    with torch.no_grad():
        one, two = (t.new_model(0).eval().encode(*batch.inputs) for t in (plain, adapted))
    assert torch.equal(one, two)
    trained = set(parameters(_task("ner", train="lora:4").new_model(0)))
    assert {"prompts.q.weight", "label_weights"} <= trained
    assert all(n.startswith("prompts.") or n == "label_weights" or ".lora_" in n for n in trained)
    assert any("decoder" in n and ".lora_" in n for n in trained)


@pytest.mark.parametrize("task", ["sentence", "ner"])
def test_saved_adapters_are_what_peft_loads(task: str, tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModel

    words = {"silos": "3", "rounds": "1", "epochs": "1", "lr": "0.01", "train": "lora:4"}
    words |= {"method": "fedcmc"} if task == "sentence" else {}
    study = prepare(load(None, SMALL[task] | words | {"runner": "inprocess"}))
    assert run_inprocess(tmp_path, study) == 0
    saved, task_ = tmp_path / "model", cast(Any, study.task)
    encoder = saved / "encoder" if task == "sentence" else PRETRAINED / "bart"
    theirs = PeftModel.from_pretrained(
        AutoModel.from_pretrained(encoder, dtype=torch.float32), saved / "adapter"
    )
    ours: Any = load_weights(task_.new_model(0), read_weights(saved)).eval()
    ids = torch.arange(10, 22).reshape(2, 6)
    with torch.no_grad():
        a, b = (m.eval()(input_ids=ids).last_hidden_state for m in (theirs, ours.backbone))
        first = task_.checkpoint.backbone.eval()(input_ids=ids).last_hidden_state
    torch.testing.assert_close(a, b, rtol=0, atol=1e-6)
    assert (a - first).abs().max() > 1e-4  # it was trained
    sent = {n.partition("/")[2] for e in study.method.exchanges for n in e.masked}
    assert any(".lora_A." in n for n in sent) and not any("base_layer" in n for n in sent)


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
    model = _task(task, train="bias").new_model(3)
    trained = set(parameters(model))
    for name, _ in model.named_parameters():
        inside = name.startswith("backbone.")
        projection = task == "document" and name in ("subject.weight", "object.weight")
        assert (name in trained) == (
            not projection and (not inside or name.endswith("bias") or "LayerNorm" in name)
        )
    if task == "document":  # what is not trained is the same whatever the run's seed
        again = _task(task, train="bias").new_model(4)
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

    def rows(kind: str, train: str) -> bool:
        return rows_are_records(Stub(config=Stub(model_type=kind)), parse_part(train))

    assert rows("bert", "all") and rows("bert", "bias") and rows("roberta", "bias")
    assert rows("albert", "head") and rows("mpnet", "top:2") and rows("roberta", "lora:8")
    assert (
        not rows("roberta", "all")
        and not rows("albert", "bias")
        and not rows("deberta-v2", "lora:8")
    )


def test_a_head_reads_features_that_public_sentences_have_standardised(tmp_path: Path) -> None:
    """Whatever the method's own network: [CLS; e1; e2] of blinded sentences. With a public set its
    sentences decide, without one some that are built in, and never a silo's.
    """
    words = {"train": "head", "method": "fedcmc"}
    task = _task("sentence", **words)
    assert task.style.cls and task.style.blinding and not task.style.bias
    model = task.new_model(0)
    other = _task("sentence", **words, corpus="sentence:sentences=300,dev=40,test=40").new_model(1)
    assert torch.equal(model.standard.mean, other.standard.mean)  # no silo's data are in it
    batch = task.batch(task.subset(np.arange(100)), np.arange(100))
    h = model.eval().encode(*batch.inputs)
    assert float(h.mean().abs()) < 0.2 and 0.7 < float(h.std()) < 1.4
    asked = _task("sentence", **words, **{"options.pooling": "entities", "options.blinding": "no"})
    assert not asked.style.cls and not asked.style.blinding
    public = _task(
        "sentence",
        train="head",
        method="feded",
        corpus="sentence:sentences=2200,dev=40,test=40",
    )
    assert len(public.public.indices) >= 400
    everything = public.batch(public.public, np.arange(len(public.public.indices)))
    standard = public.new_model(0).standard(everything.ids)
    torch.testing.assert_close(standard.mean(0), torch.zeros(384), rtol=0, atol=1e-3)


def test_a_private_head_takes_plain_steps_over_all_records() -> None:
    study = prepare(load(None, SMALL["sentence"] | {"dp": "record", "epsilon": "8", "silos": "3"}))
    s = study.settings
    assert (s.train, s.batch, s.lr, s.epochs) == ("head", 4096, 8.0, 1)
    assert (s.optimizer, s.weight_decay, s.schedule) == ("sgd", 0.0, "constant")
    bias = prepare(
        load(
            None,
            SMALL["sentence"] | {"dp": "record", "epsilon": "8", "silos": "3", "train": "bias"},
        )
    ).settings
    assert (bias.batch, bias.lr, bias.optimizer) == (256, 0.01, "adamw")


def test_a_prompted_model_trains_q_and_biases_and_what_is_fixed_is_everybodys() -> None:
    task = _task("ner", train="bias")
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
    task = _task("ner", dp="record", epsilon="8", train="bias")
    model = task.new_model(0)
    with torch.no_grad():
        model.prompts.q.weight.fill_(float("nan"))
    grid = Grid(step=0.01, reach=100, noise=1.0)
    source, target = instance_gradients(task, model, task.subset(np.arange(4)), grid.clipped)
    assert not source.norms.any() and not source.right.any() and not target.any()


def test_fixed_word_vectors_are_the_same_for_every_seed_and_padding_is_zero() -> None:
    task = _task("distant", train="top:1")
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
        **({"train": "bias"} if task == "ner" else {}),  # of the pointer network; else a tagger
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
    ours = load_weights(
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
        words, width = whole["word.weight"].shape
        network = PCNN(words, len(task_.labels), word_dim=width, sums=True)
        read = loaded(network, tmp_path / "model")
    for name, p in ours.named_parameters():
        assert torch.equal(p, dict(read.named_parameters())[name])
