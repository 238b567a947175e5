"""An encoder's size decides the defaults of training: not the user, who would have to know."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from config.load import load
from config.settings import FULL_SIZE
from methods.tasks.words import computing_line, full_size_line, training_line
from models.backbone import PRETRAINED
from study.prepare import Study, prepare
from study.public_start import _public


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
    assert training_line(s, study.task) == (
        "adamw, learning rate 0.001; weight decay 0.01; a fresh optimizer each round; "
        "batches of 8, 1 epoch a round"
    )


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_run_says_what_computes_in_which_numbers(precision: str) -> None:
    """What lies below the trained part is computed once, in float32 whatever PRECISION is."""
    said, rows = {}, np.arange(6)
    for part in ("all", "top:1", "head"):
        study = _prepared("fedavg", train=part, precision=precision)
        task, losses = study.task, set()
        said[part] = computing_line(study.settings, task)
        in_line = said[part] in training_line(study.settings, task)
        assert in_line == (part != "all" or precision == "bfloat16")
        for now in (precision, "float32"):
            task.compute_in(now)
            batch = task.batch(task.subset(rows), rows)
            losses.add(float(task.loss(task.new_model(0).eval(), batch).detach()))
        assert len(losses) == 1 + (precision == "bfloat16" and part != "head")
    frozen = "what is frozen of the encoder is computed in float32 and kept in bfloat16"
    assert said == {
        "all": f"the encoder computes in {precision}",
        "top:1": f"{frozen}, its trained layers compute in {precision}",
        "head": frozen,
    }


def test_public_text_is_trained_on_in_the_runs_precision() -> None:
    public = {"public": "sentence:sentences=24", "train": "head"}
    for precision, words in (("bfloat16", ", on public text all of it computes"), ("float32", "")):
        study = _prepared("fedavg", None, precision=precision, **public)
        assert words in computing_line(study.settings, study.task)
        sibling, _ = _public(study.settings, study.task)
        halves = [m for m in sibling.new_model(0).modules() if getattr(m, "in_bfloat16", False)]
        assert bool(halves) == bool(words)
        assert ("public" in computing_line(study.settings, study.task)) == bool(words)


def test_what_is_kept_is_computed_in_float32_whatever_the_precision() -> None:
    kept = []
    for precision in ("float32", "bfloat16"):
        task, rows = _prepared("fedavg", train="top:1", precision=precision).task, np.arange(6)
        kept.append(task.batch(task.subset(rows), rows).ids)
        task.compute_in("float32")
    assert torch.equal(*kept)


def test_a_full_size_encoder_is_found_by_its_size(encoder: Path) -> None:
    study = _prepared("fedavg", encoder, precision="float32")
    assert study.task.encoder_size > FULL_SIZE
    s = study.settings
    assert (s.lr, s.warmup, s.schedule, s.clip_norm) == (5e-5, 0.1, "linear", 1.0)
    assert training_line(s, study.task) == (
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
