"""An encoder's size decides the defaults of training: not the user, who would have to know."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from transformers import BertConfig, BertModel

from config.load import load
from config.settings import FULL_SIZE
from methods.tasks.words import full_size_line, training_line
from models.backbone import PRETRAINED
from study.prepare import Study, prepare


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nothing but large: a wide table of word vectors, and hardly a network."""
    folder = tmp_path_factory.mktemp("encoder")
    config = BertConfig(
        vocab_size=FULL_SIZE // 64,
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
    )
    BertModel(config).save_pretrained(folder)
    for file in (PRETRAINED / "bert").glob("*token*"):
        (folder / file.name).write_bytes(file.read_bytes())
    for file in (PRETRAINED / "bert").glob("vocab*"):
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def _prepared(method: str, encoder: Path | None = None, **words: str) -> Study:
    corpus = {"corpus": "sentence:sentences=200,dev=20,test=20"}
    named = {"encoder": str(encoder)} if encoder is not None else {}
    return prepare(load(None, {"method": method, **corpus, **named, **words}))


def test_a_small_encoder_has_the_tasks_defaults() -> None:
    study = _prepared("fedavg")
    assert 0 < study.task.encoder_size < FULL_SIZE
    s = study.settings
    assert (s.lr, s.optimizer, s.warmup, s.schedule) == (1e-3, "adamw", 0.0, "constant")
    assert full_size_line(s, study.task) == ""
    assert training_line(s) == (
        "adamw, learning rate 0.001; weight decay 0.01; a fresh optimizer each round; "
        "batches of 8, 1 epoch a round"
    )


def test_a_full_size_encoder_is_found_by_its_size(encoder: Path) -> None:
    study = _prepared("fedavg", encoder, precision="float32")
    assert study.task.encoder_size > FULL_SIZE
    s = study.settings
    assert (s.lr, s.warmup, s.schedule, s.clip_norm) == (5e-5, 0.1, "linear", 1.0)
    assert training_line(s) == (
        "adamw, learning rate 5e-05, rising over the first 10 % of the steps, then falling linearly "
        "to zero; weight decay 0.01; gradients cut to norm 1; a fresh optimizer each round; "
        "batches of 8, 1 epoch a round"
    )
    said = full_size_line(s, study.task)
    assert f"{study.task.encoder_size:,} parameters and is full-size: LR, WARMUP, SCHEDULE" in said
    # what is said in the report after a run was gone on with is the same
    assert full_size_line(replace(s, seed=1), study.task) == said


def test_a_method_has_its_papers_own_and_the_users_word_wins(encoder: Path) -> None:
    feded = _prepared("feded", encoder)
    s = feded.settings
    assert (s.lr, s.batch, s.epochs, s.schedule) == (2.5e-5, 4, 2, "constant")
    assert "as by default for its method's paper" in full_size_line(s, feded.task)
    own = _prepared("feded", encoder, lr="0.001", schedule="cosine", epochs="3").settings
    assert (own.lr, own.batch, own.epochs, own.schedule) == (1e-3, 4, 3, "cosine")
    assert (_prepared("fedcmc", encoder).settings.optimizer) == "sgd"
    # a reference trains as what it runs
    same = _prepared("centralised", encoder, **{"options.of": "fedcmc"}).settings
    assert (same.lr, same.optimizer) == (0.05, "sgd")


def test_a_part_of_it_takes_a_larger_rate_than_all_of_it(encoder: Path) -> None:
    assert _prepared("fedavg", encoder, train="bias").settings.lr == 1e-3
    assert _prepared("fedavg", encoder, train="lora:4").settings.lr == 5e-4
    assert _prepared("fedavg", encoder, train="top:1").settings.lr == 5e-5
    assert _prepared("fedcmc", encoder, train="head").settings.lr == 0.05  # by SGD


def test_with_a_budget_batches_stay_large(encoder: Path) -> None:
    s = _prepared("fedavg", encoder, dp="record", epsilon="8", train="bias").settings
    assert (s.batch, s.lr) == (256, 5e-3)
    head = _prepared("fedavg", encoder, dp="record", epsilon="8").settings
    assert (head.train, head.batch, head.lr) == ("head", 4096, 8.0)
