"""The prompted pointer model on every family of language models that it takes: tiny random ones,
against `transformers`, and through a whole run.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from config.errors import UserError
from coordinator.checkpoint import save_model
from methods.common.training import parameters
from methods.tasks.ner import Knobs, NerTask
from methods.tasks.ner_networks import PointerNetwork
from models.backbone import Checkpoint, load_checkpoint
from models.pieces import to_pieces
from models.pointer import Inputs, PointerNer, open_model
from models.pointer_targets import END
from models.prompted_t5 import output_scale
from tests.methods.small import made, run
from tests.methods.small_ner import TINY, corpus_of, natural, tiny_content, tiny_study

FAMILIES = ["bart", "marian", "t5"]


def _tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(made(TINY))


def _config(kind: str, words: int) -> Any:
    import transformers

    t, configs = _tokenizer(), cast(Any, transformers)
    special = {"pad_token_id": t.pad_token_id, "eos_token_id": 3}
    if kind == "t5":
        # heads whose dimensions do not add up to the width
        return configs.T5Config(
            vocab_size=words,
            d_model=16,
            d_kv=4,
            d_ff=24,
            num_layers=2,
            num_decoder_layers=3,
            num_heads=2,
            decoder_start_token_id=t.pad_token_id,
            tie_word_embeddings=True,
            **special,
        )
    of = configs.BartConfig if kind == "bart" else configs.MarianConfig
    return of(
        vocab_size=words,
        d_model=16,
        encoder_layers=2,
        decoder_layers=3,
        encoder_attention_heads=2,
        decoder_attention_heads=4,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_position_embeddings=80,
        bos_token_id=2,
        decoder_start_token_id=t.pad_token_id,
        scale_embedding=kind == "marian",
        **special,
    )


@functools.cache
def _backbone(kind: str) -> Any:
    from transformers import AutoModel

    torch.manual_seed(0)
    model = AutoModel.from_config(_config(kind, len(_tokenizer()))).eval()
    with torch.no_grad():  # states that differ more than fresh ones do
        for p in model.parameters():
            if p.dim() == 2 and p.requires_grad:
                p.mul_(3.0 if kind != "t5" else 1.0)
    return model


def model_folder(kind: str, at: Path) -> Path:
    _backbone(kind).save_pretrained(at)
    _tokenizer().save_pretrained(at)
    return at


def _inputs(rows: int, seed: int) -> Inputs:
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, 15, (rows, 1), generator=g)
    ids = torch.randint(5, 30, (rows, 14), generator=g)
    real = torch.arange(14) < lengths
    first = real & (torch.rand(rows, 14, generator=g) < 0.6)
    first[:, 1] = True
    return Inputs(ids.masked_fill(~real, 0), real, first)


def _model(kind: str, seed: int = 0) -> PointerNer:
    torch.manual_seed(seed)
    model = PointerNer(_backbone(kind), [[7], [8, 9], [10]], length=3, hidden=8, dropout=0.0)
    with torch.no_grad():
        model.label_weights.normal_()
        model.prompts.q.weight.mul_(2.0)
    return model.eval()


@pytest.mark.parametrize("kind", FAMILIES)
def test_without_prompts_it_is_the_model_of_transformers(kind: str) -> None:
    backbone, inputs = _backbone(kind), _inputs(4, 1)
    family = _model(kind).family
    read = torch.randint(5, 30, (4, 6), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        theirs = backbone(
            input_ids=inputs.ids, attention_mask=inputs.real.long(), decoder_input_ids=read
        )
        source = family.encode(backbone, inputs.ids, inputs.real, None)
        states, _ = family.decode(backbone, backbone.shared.weight[read], source, None, None)
    real = inputs.real
    torch.testing.assert_close(
        source.hidden[real], theirs.encoder_last_hidden_state[real], atol=1e-5, rtol=1e-4
    )
    scale = output_scale(backbone.config) if kind == "t5" else 1.0
    assert kind != "t5" or scale == 0.25  # 16 dimensions, one table of word vectors
    torch.testing.assert_close(states / scale, theirs.last_hidden_state, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", FAMILIES)
def test_prompts_reach_every_layer_of_every_attention(kind: str) -> None:
    model, inputs = _model(kind), _inputs(2, 3)
    tokens = torch.tensor([[6, 7, 3, END], [END, END, END, END]])
    q = model.prompts.q.weight.detach()[None].requires_grad_()
    projected = model.prompts(q)
    families = (projected.encoder, projected.decoder, projected.cross)
    every = [x for part in families for kv in part for x in kv]
    assert len(every) == 2 * (2 + 3 + 3)
    source = model.family.encode(model.backbone, inputs.ids, inputs.real, projected)
    read = model._read(tokens, inputs)
    states, _ = model.family.decode(model.backbone, read, source, projected, None)
    for g in torch.autograd.grad(states.square().sum(), every):
        assert float(g.abs().max()) > 0


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("grammar", [False, True])
def test_decoding_that_keeps_and_drops_is_decoding_that_does_neither(
    kind: str, grammar: bool
) -> None:
    """Sentences end at different steps: each is written as if it stood alone and nothing were
    kept.
    """
    lengths = set()
    for seed in range(3):
        model, inputs = _model(kind, seed), _inputs(7, seed)
        together = model.write(inputs, grammar=grammar)
        lengths |= {len(w) for w in together}
        for i in range(7):
            n = int(inputs.real[i].sum())
            alone = Inputs(*(x[i : i + 1, :n] for x in (inputs.ids, inputs.real, inputs.first)))
            assert model.write(alone, grammar=grammar, cached=False) == [together[i]]
            assert len(together[i]) <= max(1, 3 * int(inputs.first[i].sum()))
    assert len(lengths) > 2


@pytest.mark.parametrize("kind", ["marian", "t5"])
def test_fedner_runs_on_it_and_its_model_opens_again(kind: str, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(str(model_folder(kind, tmp_path / "model")), "bart")
    task = _task(checkpoint)
    # no piece stands before a sentence, and its end is there
    row = task.subset(np.arange(1)).pieces
    assert row.first_piece(0)[0] == 0 and row.row(0)[-1] == 3
    study = tiny_study("fedner", task, natural(task), rounds=2, lr=0.01)
    model, folder = run(study)
    start = parameters(task.new_model(0))
    assert set(model) == set(start) and all(np.isfinite(v).all() for v in model.values())
    assert not any(n.startswith("backbone") for n in model)
    save_model(tmp_path / "saved", model, task.model_files())
    opened, _, types = open_model(tmp_path / "saved")
    assert types == task.labels
    batch = task.batch(task.subset(np.arange(4)), np.arange(4))
    network: Any = task.new_model(1)
    with torch.no_grad():
        for name, p in network.named_parameters():
            if name in model:
                p.copy_(torch.from_numpy(model[name]))
        torch.testing.assert_close(
            opened.logits(batch.inputs, batch.tokens),
            network.eval().logits(batch.inputs, batch.tokens),
        )


def test_an_adversary_reads_every_encoder_layer_of_a_t5(tmp_path: Path) -> None:
    task = _task(load_checkpoint(str(model_folder("t5", tmp_path)), "bart"))
    model, _ = run(tiny_study("fadv_ganin", task, natural(task), rounds=1))
    assert all(np.isfinite(v).all() for v in model.values())
    names = tiny_study("fadv_ganin", task, natural(task)).method.exchanges[0].masked
    assert len([n for n in names if "adversary" in n]) == 2  # of its layers


def _task(checkpoint: Checkpoint) -> NerTask:
    knobs = Knobs(max_length=64, prompts=3, hidden=8, dropout=0.0)
    corpus = corpus_of(tiny_content())
    return NerTask(corpus, knobs, PointerNetwork(checkpoint, corpus.types, knobs), 0)


def test_what_cannot_be_prompted_is_refused() -> None:
    config = _config("marian", 40)
    config.share_encoder_decoder_embeddings = False
    with pytest.raises(UserError, match="other word vectors in its decoder"):
        PointerNer(
            type("Model", (), {"config": config, "requires_grad_": lambda *_: None})(), [[7]]
        )


def test_pieces_without_a_begin_start_at_the_first_word() -> None:
    found = to_pieces([["headache", "and", "fever"]], _tokenizer(), None, 3, 60)
    assert found.first_piece(0)[0] == 0 and found.row(0)[-1] == 3
    with_one = to_pieces([["headache", "and", "fever"]], _tokenizer(), 2, 3, 60)
    assert with_one.row(0)[1:].tolist() == found.row(0).tolist()


def test_a_marian_without_its_tokenizers_package_says_which_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _backbone("marian").save_pretrained(tmp_path)  # and no tokenizer that could be read without it
    monkeypatch.setattr("models.backbone.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"is a Marian, whose tokenizer needs sentencepiece: pip"):
        load_checkpoint(str(tmp_path), "bart")


def test_a_checkpoint_without_its_tokenizers_files_says_which(tmp_path: Path) -> None:
    """transformers makes a tokenizer of nothing, to which every word is unknown."""
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    BertModel(config).save_pretrained(tmp_path / "bert")
    with pytest.raises(UserError, match=r"has no tokenizer: vocab.txt, or tokenizer.json must be"):
        load_checkpoint(str(tmp_path / "bert"))
    pytest.importorskip("sentencepiece")
    _backbone("marian").save_pretrained(tmp_path / "marian")
    with pytest.raises(UserError, match=r"^SEQ2SEQ .*: source.spm and target.spm and vocab.json "):
        load_checkpoint(str(tmp_path / "marian"), "bart")
