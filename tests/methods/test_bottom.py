"""With TRAIN=top:K and TRAIN=head batches hold what the frozen part made of each text: the network
computes the same from it as from the text, but for bfloat16.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from config.errors import UserError
from config.load import load
from config.part import Part
from methods.tasks.load import load_task
from models.halves import lower_half, upper_half
from study.prepare import prepare

SMALL = {
    "sentence": {"method": "feded", "corpus": "sentence:sentences=60,dev=20,test=20"},
    "document": {
        "method": "fedlcc",
        "corpus": "document:documents=12,dev=10,test=10",
        "options.window": "96",
    },
    "tagger": {"method": "tagger", "corpus": "ner:sentences=30,dev=12,test=12"},
}


@pytest.mark.parametrize("task", SMALL)
@pytest.mark.parametrize("train", ["top:1", "top:2", "head"])
def test_from_features_as_from_the_text(task: str, train: str, tmp_path: Path) -> None:
    whole: Any = load_task(load(None, SMALL[task] | {"train": "all"}))
    cut: Any = load_task(load(None, SMALL[task] | {"train": train}))
    chosen = np.arange(12)
    data = cut.subset(chosen)
    if task == "document":
        assert any(data.lengths > cut.window)  # documents in two windows too
    one: Any = whole.new_model(3).eval()
    two: Any = cut.new_model(3).eval()

    if task == "sentence" and train == "head":  # which standardises what it reads
        one.standard = two.standard

    def out(t: Any, model: Any) -> torch.Tensor:
        batch = t.batch(t.subset(chosen), chosen)
        if task == "sentence":
            return model(*batch.inputs)
        if task == "document":
            return model(batch[0])
        return model(batch.inputs.ids, batch.inputs.real)[batch.inputs.real]

    with torch.no_grad():
        a, b = out(whole, one), out(cut, two)
        assert a.shape == b.shape and not torch.equal(a, b)  # rounded, so features were used
        torch.testing.assert_close(a, b, rtol=0.03, atol=0.03 * float(a.abs().max()))
    cut.keep_features_in(tmp_path / "kept")
    with torch.no_grad():
        assert torch.equal(out(cut, two), b)  # from disk as from memory
    (kept,) = (tmp_path / "kept").glob("*.bf16")
    before = kept.stat().st_mtime_ns
    cut.evaluate(two, "dev")
    with torch.no_grad():
        assert torch.equal(out(cut, two), b)
    assert kept.stat().st_mtime_ns > before  # held-out texts are kept in the same file
    cut.forget_features()
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("task", SMALL)
def test_the_trained_part_has_the_gradient_of_the_whole_network(task: str) -> None:
    """Features in the network's own precision: everything else is exact."""
    cut: Any = load_task(load(None, SMALL[task] | {"train": "top:1"}))
    whole: Any = load_task(load(None, SMALL[task] | {"train": "all"}))
    chosen = np.arange(6)
    one, two = whole.new_model(3).eval(), cut.new_model(3).eval()
    batches = [t.batch(t.subset(chosen), chosen) for t in (whole, cut)]
    lower = lower_half(one.backbone, Part("top", 1))
    with torch.no_grad():  # as `Bottom` makes it, but not rounded
        if task == "document":
            b = batches[0][0]
            below = lower(input_ids=b.ids, attention_mask=b.real.long()).last_hidden_state
            object.__setattr__(batches[1][0], "below", below)
        else:
            b = batches[0] if task == "sentence" else batches[0].inputs
            below = lower(input_ids=b.ids, attention_mask=b.real.long()).last_hidden_state
            object.__setattr__(
                batches[1] if task == "sentence" else batches[1].inputs, "ids", below
            )
    losses = [t.loss(m, b) for t, m, b in zip((whole, cut), (one, two), batches)]
    for loss in losses:
        loss.backward()
    torch.testing.assert_close(*losses)
    wanted = dict(one.named_parameters())
    trained = {n: p for n, p in two.named_parameters() if p.requires_grad}
    assert any(n.startswith("backbone.") for n in trained)
    for name, p in trained.items():
        torch.testing.assert_close(p.grad, wanted[name].grad, rtol=1e-4, atol=1e-6)
    assert all(p.grad is None for n, p in two.named_parameters() if n not in trained)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(
    "kind", ["bert", "roberta", "camembert", "xlm-roberta", "electra", "mpnet", "distilbert"]
)
def test_two_halves_are_the_encoder(kind: str, layers: int) -> None:
    from transformers import AutoConfig, AutoModel

    small: dict[str, Any] = {"vocab_size": 50, "max_position_embeddings": 40}
    if kind == "distilbert":
        small |= {"dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 32}
    else:
        small |= {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
        small |= {"intermediate_size": 32}
    if kind == "electra":
        small |= {"embedding_size": 8}
    torch.manual_seed(0)
    model: Any = AutoModel.from_config(AutoConfig.for_model(kind, **small)).eval()
    ids, real = torch.randint(3, 50, (2, 9)), torch.ones(2, 9, dtype=torch.long)
    real[1, 6:] = 0
    part, names = Part("top", layers), [n for n, _ in model.named_parameters()]
    with torch.no_grad():
        below = lower_half(model, part)(input_ids=ids, attention_mask=real).last_hidden_state
        both = upper_half(model, part)(inputs_embeds=below, attention_mask=real).last_hidden_state
        whole = model(input_ids=ids, attention_mask=real).last_hidden_state
    assert torch.equal(both[real.bool()], whole[real.bool()])
    assert [n for n, _ in model.named_parameters()] == names  # the encoder itself is as it was


def test_features_that_last_are_read_by_the_next_run(tmp_path: Path) -> None:
    asked = SMALL["sentence"] | {"train": "head"}
    first: Any = load_task(load(None, asked))
    first.keep_features_in(tmp_path / "kept", lasting=True)
    rows = np.arange(6)
    made = first.batch(first.subset(rows), rows).ids
    first.forget_features()
    second: Any = load_task(load(None, asked))
    second.keep_features_in(tmp_path / "kept", lasting=True)

    def nothing(*_: object) -> torch.Tensor:
        raise AssertionError("computed again")

    second.bottom.compute = nothing
    assert torch.equal(second.batch(second.subset(rows), rows).ids, made)


@pytest.mark.parametrize("task", SMALL)
def test_two_checkpoints_have_features_of_their_own_in_one_folder(
    task: str, tmp_path: Path
) -> None:
    asked = SMALL[task] | {"train": "top:1"}
    one, two, alone = (load_task(load(None, asked)) for _ in range(3))
    rows = np.arange(4)

    def inputs(t: Any) -> torch.Tensor:
        batch = t.batch(t.subset(rows), rows)
        if task == "document":
            below: torch.Tensor = batch[0].below
            return below
        made: torch.Tensor = batch.ids if task == "sentence" else batch.inputs.ids
        return made

    one.keep_features_in(tmp_path)
    first = inputs(one)
    for t in (two, alone):
        other: Any = t
        backbone = copy.deepcopy(other.checkpoint.backbone)
        with torch.no_grad():
            backbone.embeddings.word_embeddings.weight.mul_(1.5)
        other.use_checkpoint(replace(other.checkpoint, backbone=backbone, sha256="another"))
    two.keep_features_in(tmp_path)
    assert torch.equal(inputs(two), inputs(alone))
    assert not torch.equal(inputs(two), first)
    assert len(list(tmp_path.glob("*.bf16"))) == 2


def test_heads_share_an_encoder_that_is_not_the_one_of_the_features() -> None:
    """A model in training drops numbers out; features never do."""
    task: Any = load_task(load(None, SMALL["sentence"] | {"train": "head"}))
    one, two = task.new_model(1), task.new_model(2)
    assert one.backbone is two.backbone and one.backbone is not task.checkpoint.backbone
    assert not torch.equal(one.classifier.weight, two.classifier.weight)
    one.train()
    assert not task.checkpoint.backbone.training
    alone: Any = load_task(load(None, SMALL["sentence"] | {"train": "all"}))
    assert alone.new_model(1).backbone is not alone.new_model(1).backbone


def test_features_for_many_runs_are_for_a_simulation_in_one_process(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="FEATURES .* needs RUNNER=inprocess"):
        load(None, {"features": "kept"})
    asked = SMALL["sentence"] | {"features": str(tmp_path), "runner": "inprocess"}
    with pytest.raises(UserError, match="FEATURES means nothing with TRAIN=all"):
        prepare(load(None, asked))
