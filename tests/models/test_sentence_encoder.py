"""Marking, the moving window, packing and pooling."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import UserError
from methods.tasks.sentence import Knobs, style_of
from models.backbone import load_checkpoint
from models.marking import HEAD, MARKERS, TAIL, Mention, mark, tokenise, window
from models.saved import read_weights
from models.sentence_encoder import FEDCMC, FEDED, SentenceEncoder, Style, open_model
from tests.methods.small import run
from tests.methods.small_sentence import tiny_checkpoint, tiny_folder, tiny_study, tiny_task

TEXT = "aspirin relieved the headache today"
ASPIRIN, HEADACHE = (0, 7), (21, 29)


def _said(mention: Mention, blinding: bool) -> str:
    return " ".join(" ".join(text for text, _ in mark(mention, blinding)).split())


def test_marking_with_and_without_blinding() -> None:
    plain: Mention = (TEXT, ASPIRIN, HEADACHE, "drug", "problem")
    assert _said(plain, False) == "<e1> aspirin </e1> relieved the <e2> headache </e2> today"
    assert _said(plain, True) == "<e1> drug </e1> relieved the <e2> problem </e2> today"
    turned: Mention = (TEXT, HEADACHE, ASPIRIN, "problem", "drug")  # the head may come second
    assert _said(turned, True) == "<e2> drug </e2> relieved the <e1> problem </e1> today"


def test_overlapping_mentions() -> None:
    nested: Mention = ("severe lung cancer stage", (0, 18), (7, 11), "problem", "site")
    assert _said(nested, False) == "<e1> severe <e2> lung </e2> cancer </e1> stage"
    assert _said(nested, True) == "<e1> problem </e1> <e2> site </e2> stage"
    flags = dict(mark(nested, False))
    assert flags["lung"] == HEAD | TAIL
    assert flags["severe "] == HEAD
    same: Mention = ("the cancer", (4, 10), (4, 10), "problem", "problem")
    assert _said(same, False) == "the <e1> <e2> cancer </e2> </e1>"
    assert _said(same, True) == "the <e1> problem </e1> <e2> problem </e2>"
    crossing: Mention = ("a b c", (0, 3), (2, 5), "x", "y")
    assert [t for t, _ in mark(crossing, False)] == [
        "<e1>",
        "a ",
        "<e2>",
        "b",
        "</e1>",
        " c",
        "</e2>",
    ]


def test_adjacent_mentions_close_before_they_open() -> None:
    assert _said(("ab", (0, 1), (1, 2), "x", "y"), False) == "<e1> a </e1> <e2> b </e2>"


@given(st.data())
def test_window_keeps_every_piece_of_both_entities(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 300))
    a, b = sorted(data.draw(st.lists(st.integers(0, n - 1), min_size=2, max_size=2)))
    needed = np.zeros(n, bool)
    needed[a : a + data.draw(st.integers(1, 12))] = True
    needed[b : b + data.draw(st.integers(1, 12))] = True
    room = data.draw(st.integers(4, 320))
    keep = window(needed, room)
    assert len(keep) == min(n, room) or needed.sum() > room
    assert len(keep) <= room
    assert (np.diff(keep) > 0).all()
    if needed.sum() <= room:
        assert set(np.flatnonzero(needed)) <= set(keep.tolist())


def test_window_moves_to_the_entities_and_keeps_their_surroundings() -> None:
    needed = np.zeros(20, bool)
    needed[15:17] = True
    assert window(needed, 6).tolist() == [13, 14, 15, 16, 17, 18]
    needed[1] = True  # too far apart for the window: what lies between is left out in the middle
    assert window(needed, 7).tolist() == [0, 1, 2, 14, 15, 16, 17]


def test_an_entity_longer_than_the_window_keeps_its_markers_and_first_pieces() -> None:
    needed = np.ones(30, bool)
    needed[20:22] = False
    keep = window(needed, 12)
    assert len(keep) == 12
    assert {0, 19, 22, 29} <= set(keep.tolist())


@settings(max_examples=25)
@given(
    before=st.integers(0, 60),
    between=st.integers(0, 60),
    after=st.integers(0, 60),
    length=st.integers(16, 64),
)
def test_tokenised_sentences_hold_both_entities_whole(
    before: int, between: int, after: int, length: int
) -> None:
    tokenizer = tiny_checkpoint().tokenizer
    head, tail = "qx", "zv"
    text = f"{'a ' * before}{head} {'b ' * between}{tail}{' c' * after}"
    at = text.index(tail)
    spans = ((2 * before, 2 * before + 2), (at, at + 2))
    packed = tokenise([(text, *spans, "x", "y")], tokenizer, False, length)
    assert packed.lengths[0] <= length
    assert packed.shortened == (packed.lengths[0] < before + between + after + 4 + 4 + 2)
    for bit, name in ((HEAD, head), (TAIL, tail)):
        own = packed.ids[(packed.flags & bit) > 0]
        assert own.tolist() == tokenizer(name, add_special_tokens=False)["input_ids"]
    for marker in MARKERS:  # every marker is there, and in none of the pools
        place = np.flatnonzero(packed.ids == tokenizer.convert_tokens_to_ids(marker))
        assert len(place) == 1
        assert packed.flags[place[0]] == 0
    assert (packed.ids[0], packed.ids[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)


@pytest.mark.parametrize("style", [FEDED, FEDCMC], ids=["feded", "fedcmc"])
def test_pooling_is_the_sum_over_an_entitys_pieces(style: Style) -> None:
    torch.manual_seed(0)
    model = SentenceEncoder(tiny_checkpoint().backbone, 3, style).eval()
    packed = tokenise(
        [("qxw zv is", (0, 3), (4, 6), "drug", "problem")],
        tiny_checkpoint().tokenizer,
        style.blinding,
        64,
    )
    ids, flags = (torch.from_numpy(a.astype(np.int64))[None] for a in (packed.ids, packed.flags))
    real = torch.ones_like(ids, dtype=torch.bool)
    with torch.no_grad():
        h = model.encode(ids, real, flags)[0]
        hidden = model.backbone(input_ids=ids).last_hidden_state[0]
        logits = model(ids, real, flags)[0]
    parts = [hidden[0]] if style.cls else []
    for bit in (HEAD, TAIL):
        members = [i for i, f in enumerate(packed.flags) if f & bit]
        parts.append(sum(hidden[i] for i in members))
    if not style.blinding:
        assert sum(bool(f & HEAD) for f in packed.flags) > 1  # a sum, not a single piece
    expected = torch.cat(parts)
    assert torch.allclose(h, expected, atol=1e-5)
    assert h.shape == ((3 if style.cls else 2) * 8,)
    by_hand = model.classifier.weight @ expected + (model.classifier.bias if style.bias else 0)
    assert torch.allclose(logits, by_hand, atol=1e-5)
    assert (model.classifier.bias is not None) == style.bias


def test_padding_changes_nothing() -> None:
    task = tiny_task()
    model = task.new_model(0).eval()
    data = task.subset(np.arange(12))
    with torch.no_grad():
        together = model(*task.batch(data, np.arange(12)).inputs)
        apart = torch.cat([model(*task.batch(data, np.array([i])).inputs) for i in range(12)])
    assert len(set(data.packed.lengths[:12].tolist())) > 1
    assert torch.allclose(together, apart, atol=1e-5)


def test_models_come_from_the_seed_and_leave_the_checkpoint_alone() -> None:
    task = tiny_task()
    a, b, c = task.new_model(1), task.new_model(1), task.new_model(2)
    assert torch.equal(a.classifier.weight, b.classifier.weight)
    assert not torch.equal(a.classifier.weight, c.classifier.weight)
    with torch.no_grad():
        next(a.backbone.parameters()).zero_()
    assert next(task.checkpoint.backbone.parameters()).abs().sum() > 0
    assert not any("pooler" in n for n, _ in a.named_parameters())


def test_a_distilbert_folder_works(tmp_path: Path) -> None:
    from transformers import DistilBertConfig, DistilBertModel

    config = DistilBertConfig(
        vocab_size=300, dim=8, n_layers=1, n_heads=2, hidden_dim=16, max_position_embeddings=64
    )
    DistilBertModel(config).save_pretrained(tmp_path)
    tiny_checkpoint().tokenizer.save_pretrained(tmp_path)
    checkpoint = load_checkpoint(str(tmp_path), "bert", MARKERS)
    model = SentenceEncoder(checkpoint.backbone, 3, FEDCMC)
    ids = torch.tensor([[2, 5, 6, 3]])
    assert model(ids, torch.ones_like(ids) > 0, torch.tensor([[0, 1, 2, 0]])).shape == (1, 3)


def test_added_markers_have_vectors_of_their_own() -> None:
    checkpoint = tiny_checkpoint()
    ids = checkpoint.tokenizer.convert_tokens_to_ids(list(MARKERS))
    assert len(set(ids)) == 4
    assert checkpoint.tokenizer.unk_token_id not in ids
    rows = checkpoint.backbone.get_input_embeddings().weight[ids]
    assert len({tuple(r.tolist()) for r in rows}) == 4
    assert load_checkpoint(str(tiny_folder()), "bert", MARKERS).sha256 == checkpoint.sha256


@pytest.mark.parametrize("name", ["./no/such/folder", "/no/such", "two words"])
def test_a_checkpoint_that_is_not_there(name: str) -> None:
    with pytest.raises(UserError, match="ENCODER"):
        load_checkpoint(name, "bert")


def test_knobs_choose_and_change_the_model() -> None:
    assert style_of(Knobs(), "feded") == FEDED
    assert style_of(Knobs(model="fedcmc"), "feded") == FEDCMC
    assert style_of(Knobs(blinding="no", pooling="entities", bias="no"), "feded") == FEDCMC
    assert style_of(Knobs(projection=256), "fedcmc").projection == 256
    with pytest.raises(UserError, match="blinding"):
        style_of(Knobs(blinding="maybe"), "feded")
    with pytest.raises(UserError, match="feded"):
        style_of(Knobs(model="fedad"), "feded")


def test_the_projection_head_stands_between_pooling_and_classifier() -> None:
    model = SentenceEncoder(tiny_checkpoint().backbone, 3, Style(False, False, False, projection=5))
    assert model.classifier.in_features == 5
    ids = torch.tensor([[2, 5, 6, 3]])
    assert model.encode(ids, ids > 0, torch.tensor([[0, 1, 2, 0]])).shape == (1, 5)


def test_a_finished_run_leaves_a_model_that_opens() -> None:
    study = tiny_study("fedcmc", [list(range(20)), list(range(20, 40)), list(range(40, 60))])
    _, folder = run(study)
    model, tokenizer, relations = open_model(folder / "model")
    assert relations == study.task.labels
    assert tokenizer.convert_tokens_to_ids(
        "<e1>"
    ) == tiny_checkpoint().tokenizer.convert_tokens_to_ids("<e1>")
    kept = read_weights(folder / "model")
    for name, value in model.named_parameters():
        assert np.array_equal(value.detach().numpy(), kept[name]), name
