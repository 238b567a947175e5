"""A saved model: its encoder is one that `transformers` loads, its files can all be read by the
same people, and models saved before that layout still open.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from transformers import AutoModel, AutoTokenizer, DistilBertConfig, DistilBertModel

from bench.simulation.inprocess import run_inprocess
from config.errors import UserError
from coordinator.checkpoint import save_model
from extract.pairs import open_extractor
from methods.common.arrays import model_sha256
from methods.common.training import parameters
from methods.tasks.sentence import Knobs, SentenceTask, style_of
from models import document_encoder, sentence_encoder
from models.backbone import load_checkpoint
from models.marking import MARKERS
from models.saved import read_weights
from tests.methods import small_document, small_ner, small_sentence
from tests.methods.small_distant import twelve


def _distilbert(folder: Path) -> SentenceTask:
    """A sentence task on a checkpoint that a user might name, of another type and in half
    precision.
    """
    config = DistilBertConfig(
        vocab_size=300, dim=8, n_layers=1, n_heads=2, hidden_dim=16, max_position_embeddings=64
    )
    DistilBertModel(config).half().save_pretrained(folder)
    small_sentence.tiny_checkpoint().tokenizer.save_pretrained(folder)
    knobs = Knobs(model="fedcmc", max_length=64)
    corpus = small_sentence.corpus_of(small_sentence.tiny_content())
    checkpoint = load_checkpoint(str(folder), "bert", MARKERS)
    return SentenceTask(corpus, knobs, style_of(knobs, "fedcmc"), checkpoint)


TASKS: dict[str, Callable[[Path], Any]] = {
    "sentence": lambda _: small_sentence.tiny_task("feded"),
    "distilbert": _distilbert,
    "document": lambda _: small_document.tiny_task(),
    "tagger": lambda _: small_ner.tiny_task(network="tagger"),
    "pointer": lambda _: small_ner.tiny_task(),
    "distant": lambda _: twelve(),
}
ENCODERS = ("sentence", "distilbert", "document", "tagger")


def _saved(name: str, tmp_path: Path) -> tuple[Any, Any, Path]:
    task = TASKS[name](tmp_path / "source")
    model, folder = task.new_model(7).eval(), tmp_path / "run" / "model"
    with torch.no_grad():  # no parameter is what the checkpoint had
        for p in model.parameters():
            if p.requires_grad:
                p.add_(0.01)
    save_model(folder, {**task.frozen(), **parameters(model)}, task.model_files())
    return task, model, folder


@pytest.mark.parametrize("name", ENCODERS)
def test_transformers_loads_the_encoder_and_it_reads_a_sentence_as_the_network_does(
    name: str, tmp_path: Path
) -> None:
    task, model, folder = _saved(name, tmp_path)
    encoder = AutoModel.from_pretrained(folder / "encoder")
    tokenizer = AutoTokenizer.from_pretrained(folder / "encoder")
    text = "aspirin was given for the fever , and it helped"
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    assert (
        ids.tolist() == task.checkpoint.tokenizer(text, return_tensors="pt")["input_ids"].tolist()
    )
    with torch.no_grad():
        theirs, ours = (net(input_ids=ids).last_hidden_state for net in (encoder, model.backbone))
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-6)
    assert theirs.dtype == torch.float32 and not torch.equal(
        ours, task.checkpoint.backbone.eval()(input_ids=ids).last_hidden_state
    )


@pytest.mark.parametrize("name", ENCODERS)
def test_no_weight_is_saved_twice_and_the_names_are_those_of_the_network(
    name: str, tmp_path: Path
) -> None:
    task, model, folder = _saved(name, tmp_path)
    assert {str(p.relative_to(folder)) for p in folder.rglob("*.safetensors")} == {
        "encoder/model.safetensors",
        "head.safetensors",
    }
    with safe_open(folder / "encoder" / "model.safetensors", framework="numpy") as file:
        assert file.metadata() == {"format": "pt"}  # older versions of transformers insist on it
    body = set(load_file(folder / "encoder" / "model.safetensors"))
    head = set(load_file(folder / "head.safetensors"))
    assert body == {n for n, _ in model.backbone.named_parameters()}
    assert head == {n for n, _ in model.named_parameters() if not n.startswith("backbone.")}
    # what the summary's hash is taken over comes back, number for number
    assert model_sha256(read_weights(folder)) == model_sha256(parameters(model))
    assert "backbone" not in json.loads((folder / "config.json").read_text("utf-8"))


@pytest.mark.parametrize(
    ("name", "opened"),
    [("sentence", sentence_encoder.open_model), ("document", document_encoder.open_model)],
)
def test_a_model_that_lacks_a_weight_is_not_opened(
    name: str, opened: Callable[[Path], object], tmp_path: Path
) -> None:
    _, _, folder = _saved(name, tmp_path)
    opened(folder)
    head = load_file(folder / "head.safetensors")
    lacking = sorted(head)[0]
    del head[lacking]
    save_file(head, folder / "head.safetensors")
    with pytest.raises(UserError, match=f"{lacking} does not fit"):
        opened(folder)


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
@pytest.mark.parametrize("name", ["sentence", "pointer", "distant"])
def test_all_files_of_a_model_have_the_mode_that_the_umask_gives(
    name: str, mask: int, tmp_path: Path
) -> None:
    before = os.umask(mask)
    try:
        _, _, folder = _saved(name, tmp_path)
    finally:
        os.umask(before)
    files = [p for p in folder.rglob("*") if p.is_file()]
    assert len(files) >= 2
    assert {p.stat().st_mode & 0o777 for p in files} == {0o666 & ~mask}


def test_a_model_for_each_silo_has_no_encoder_of_its_own(tmp_path: Path) -> None:
    study = small_sentence.tiny_study("local", [range(8), range(8, 16), range(16, 24)])
    assert run_inprocess(tmp_path, study) == 0
    folder = tmp_path / "model"
    assert {p.name for p in folder.iterdir()} == {"config.json", "model.safetensors"}
    assert "0/backbone.embeddings.word_embeddings.weight" in read_weights(folder)
    with pytest.raises(UserError, match="a model for each silo"):
        open_extractor(folder)


# Models saved before


def _as_before(task: Any, model: Any, folder: Path) -> None:
    """The layout of earlier runs: one weight file, the encoder's config within config.json, the
    tokenizer beside.
    """
    folder.mkdir()
    about = json.loads(task.model_files()["config.json"])
    if "encoder" in about:
        about["backbone"] = task.checkpoint.backbone.config.to_dict()
    (folder / "config.json").write_text(json.dumps(about, default=str), "utf-8")
    task.checkpoint.tokenizer.save_pretrained(folder)
    weights = {**task.frozen(), **parameters(model)}
    save_file(
        {k: np.ascontiguousarray(v) for k, v in weights.items()}, folder / "model.safetensors"
    )


@pytest.mark.parametrize("name", [*ENCODERS, "pointer"])
def test_the_layout_of_earlier_runs_is_read(name: str, tmp_path: Path) -> None:
    task, model, folder = _saved(name, tmp_path)
    before = tmp_path / "before"
    _as_before(task, model, before)
    new, old = read_weights(folder), read_weights(before)
    assert set(new) == set(old) and all(np.array_equal(new[k], old[k]) for k in new)
    opened: Any = open_extractor(before)
    for key, p in opened._model.named_parameters():
        assert torch.equal(p, dict(model.named_parameters())[key]), key
    assert opened._tokenizer.get_vocab() == task.checkpoint.tokenizer.get_vocab()
    assert opened._tokenizer.get_vocab() == open_extractor(folder)._tokenizer.get_vocab()  # type: ignore[union-attr]


def test_a_run_that_is_finished_after_an_update_leaves_one_layout(tmp_path: Path) -> None:
    task, model, folder = _saved("sentence", tmp_path)
    (folder / "model.safetensors").write_bytes(b"of the attempt before the update")
    save_model(folder, parameters(model), task.model_files())
    assert not (folder / "model.safetensors").exists()
    open_extractor(folder)


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("encoder/config.json", "not whole: encoder/config.json is missing"),
        ("encoder/model.safetensors", 'model.safetensors" is missing'),
        ("head.safetensors", 'head.safetensors" is missing'),
    ],
)
def test_a_file_that_is_missing_or_damaged_is_named(
    file: str, sentence: str, tmp_path: Path
) -> None:
    _, _, folder = _saved("sentence", tmp_path)
    (folder / file).unlink()
    with pytest.raises(UserError, match=sentence):
        open_extractor(folder)
    if file.endswith(".safetensors"):
        (folder / file).write_bytes(b"\xff" * 100)
        with pytest.raises(UserError, match=f'{Path(file).name}" is damaged'):
            open_extractor(folder)
