"""The document encoder against a slow reference, by property; its heads by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from config.errors import UserError
from models import document_encoder
from models import document_heads as heads
from models.backbone import load_checkpoint
from models.document_encoder import DocumentEncoder, open_model
from models.document_pieces import STAR, assemble, tokenise
from tests.methods.small import run
from tests.methods.small_document import tiny_checkpoint, tiny_content, tiny_study, tiny_task
from tests.models.document_reference import read_document

Spans = list[list[tuple[int, int]]]
Drawn = tuple[str, Spans, list[tuple[int, int]]]
WORDS = ("rats", "renal", "failure", "vomiting", "abxq", "caused", "the", ".", "dose")
ONE_MENTION: Drawn = ("renal dose", [[(0, 5)], [(6, 10)]], [(0, 1)])
SHARED: Drawn = (
    "renal failure dose",
    [[(0, 13), (0, 5)], [(0, 5)], [(6, 18)]],
    [(0, 1), (1, 0), (1, 2), (2, 0)],
)
#: A mention in the first window, one in both, one in the second.
TWO_WINDOWS: Drawn = (
    " ".join(["dose"] * 14),
    [[(0, 4), (35, 39), (65, 69)], [(60, 64)]],
    [(0, 1), (1, 0)],
)


@st.composite
def documents(draw: st.DrawFn) -> Drawn:
    """Short to long; entities with one or many mentions, nested, overlapping, shared; any ordered
    pairs of them.
    """
    words = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=60))
    starts = np.concatenate([[0], np.cumsum([len(w) + 1 for w in words])])
    text = " ".join(words)

    def span() -> tuple[int, int]:
        a = draw(st.integers(0, len(words) - 1))
        b = draw(st.integers(a, min(a + 3, len(words) - 1)))
        return int(starts[a]), int(starts[b]) + len(words[b])

    count = draw(st.integers(2, 4))
    entities = [[span() for _ in range(draw(st.integers(1, 5)))] for _ in range(count)]
    possible = [(h, t) for h in range(count) for t in range(count) if h != t]
    return text, entities, draw(st.lists(st.sampled_from(possible), unique=True, max_size=6))


def _model(outputs: int) -> DocumentEncoder:
    torch.manual_seed(3)
    model = DocumentEncoder(tiny_checkpoint().backbone, outputs, block=8).eval()
    with torch.no_grad():  # stars that all look alike would hide a wrong place
        model.backbone.embeddings.position_embeddings.weight.normal_(std=0.5)
        for layer in model.backbone.encoder.layer:
            for part in (layer.attention.self.query, layer.attention.self.key):
                part.weight.normal_(std=0.3)
    return model


@settings(max_examples=60)
@example([ONE_MENTION], 16, 30, 2)
@example([SHARED, ONE_MENTION], 16, 30, 9)
@example([TWO_WINDOWS], 16, 30, 2)
# cut off
@example(
    [(" ".join(["dose"] * 50), [[(0, 4)], [(240, 244)]], [(0, 1), (1, 0)]), ONE_MENTION], 16, 30, 2
)
@given(
    drawn=st.lists(documents(), min_size=1, max_size=3),
    window=st.sampled_from([16, 24, 64]),
    limit=st.integers(12, 130),
    outputs=st.integers(1, 9),
)
def test_pooling_equals_the_slow_reference(
    drawn: list[Drawn], window: int, limit: int, outputs: int
) -> None:
    model, tokenizer = _model(outputs), tiny_checkpoint().tokenizer
    limit = min(limit, 2 * window - 2)
    pieces = tokenise(drawn, tokenizer, limit)
    ids = (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id)
    batch = assemble(pieces, np.arange(len(drawn)), window, *ids)
    with torch.no_grad():
        hidden, attention = model.encode(batch)
        reading = model.classify(batch, hidden, attention)
        looks = document_encoder._entity_attention(
            batch, document_encoder._joined(batch, hidden, attention)[1]
        )
        slow = [read_document(model, tokenizer, *d, window=window, limit=limit) for d in drawn]
    contexts, logits, slow_looks = ([x for d in slow for x in d[part]] for part in range(3))
    assert len(reading.context) == len(contexts) == len(batch.pair_rows)
    for fast_c, fast_x, c, x in zip(reading.context, reading.logits, contexts, logits):
        torch.testing.assert_close(fast_c, c, atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(fast_x, x, atol=2e-5, rtol=1e-4)
    # c hardly shows how attention is scaled, since a is normalised: it is compared itself.
    assert len(looks) == len(slow_looks)
    for fast_a, a in zip(looks, slow_looks):
        torch.testing.assert_close(fast_a[:, : a.shape[1]], a, atol=1e-6, rtol=1e-4)
        assert not fast_a[:, a.shape[1] :].any()


def test_the_examples_are_of_the_kinds_they_are_said_to_be() -> None:
    tokenizer = tiny_checkpoint().tokenizer
    cut = tokenise([(" ".join(["dose"] * 50), [[(0, 4)], [(240, 244)]], [(0, 1)])], tokenizer, 30)
    assert (cut.shortened, cut.lost, len(cut.star), cut.lengths[0]) == (1, 1, 1, 30)
    two = tokenise([TWO_WINDOWS], tokenizer, 30)
    assert (two.shortened, two.lost, two.lengths.tolist()) == (0, 0, [24])
    own = two.star[two.entity == 0]
    assert [(bool(at < 15), bool(at >= 24 - 15)) for at in own] == [
        (True, False),
        (True, True),
        (False, True),
    ]
    assert assemble(two, np.arange(1), 16, 2, 3, 0).slots == 2
    assert assemble(two, np.arange(1), 64, 2, 3, 0).slots == 1


def test_gradients_reach_every_weight_also_in_two_windows() -> None:
    task = tiny_task(window=24)
    assert (task.data("train").split.pieces.lengths > 24).any()
    model = task.new_model(0)
    task.loss(
        model, next(iter(task.batches(task.data("train"), 6, np.random.default_rng(0))))
    ).backward()
    without = [
        n for n, p in model.named_parameters() if p.grad is None or not torch.isfinite(p.grad).all()
    ]
    assert without == []


def test_a_document_without_pairs_gives_a_loss_of_zero_that_can_be_trained_on() -> None:
    model, tokenizer = _model(2), tiny_checkpoint().tokenizer
    batch = assemble(tokenise([("rats .", [], [])], tokenizer, 30), np.arange(1), 16, 2, 3, 0)
    value = heads.loss("softmax2", model(batch), torch.zeros(0, 1))
    value.backward()
    assert value.item() == 0.0


def test_a_batch_gives_what_its_documents_give_alone() -> None:
    task = tiny_task(window=40)
    model, data = task.new_model(1).eval(), task.data("train")
    together = task.batch(data, np.arange(8))[0]
    assert together.slots == 2
    with torch.no_grad():
        alone = torch.cat([model(task.batch(data, np.array([i]))[0]) for i in range(8)])
        torch.testing.assert_close(model(together), alone, atol=1e-5, rtol=1e-4)
        everything = task.read_all(model, data, lambda r: r.logits)
    torch.testing.assert_close(everything[: len(alone)], alone, atol=1e-5, rtol=1e-4)


def test_heads_by_hand() -> None:
    labels = torch.tensor([[1, 0], [0, 0]])
    softmax = heads.loss("softmax2", torch.tensor([[0.0, math.log(3)], [0.0, 0.0]]), labels[:, :1])
    assert float(softmax) == pytest.approx((-math.log(3 / 4) - math.log(1 / 2)) / 2)
    bce = heads.loss("bce", torch.tensor([[0.0, math.log(3)], [0.0, 0.0]]), labels)
    # summed over relations
    assert float(bce) == pytest.approx((math.log(2) + math.log(4) + 2 * math.log(2)) / 2)
    # TH, r1, r2 with e^l = 1, 2, 5: of the first pair r1 holds; of the second nothing does.
    atl = heads.loss("atl", torch.log(torch.tensor([[1.0, 2.0, 5.0], [1.0, 2.0, 5.0]])), labels)
    assert float(atl) == pytest.approx((-math.log(2 / 3) - math.log(1 / 6) - math.log(1 / 8)) / 2)
    scores = torch.tensor([[0.5, 1.0, 0.2, 2.0]])
    assert heads.predict("atl", scores).tolist() == [[True, False, True]]
    assert heads.predict("atl", scores, most=1).tolist() == [[False, False, True]]
    assert heads.predict("bce", torch.tensor([[0.1, -0.1]])).tolist() == [[True, False]]
    assert heads.predict("softmax2", torch.tensor([[0.1, -0.1], [0.0, 1.0]])).tolist() == [
        [False],
        [True],
    ]
    assert [heads.outputs(h, 3) for h in heads.HEADS] == [2, 3, 4]


def test_a_saved_model_is_opened_and_reads_alike() -> None:
    task = tiny_task(tiny_content(3), head="atl")
    study = tiny_study("fedavg", [range(6), range(6, 12), range(12, 18)], task)
    model, folder = run(study)
    opened, tokenizer, about = open_model(folder / "model")
    assert about["relations"] == ["causes", "treats", "relieves"] and about["outputs"] == 4
    batch = task.batch(task.data("test"), np.arange(5))[0]
    ours = task.new_model(0).eval()
    ours.load_state_dict({k: torch.from_numpy(v) for k, v in model.items()}, strict=False)
    with torch.no_grad():
        torch.testing.assert_close(opened(batch), ours(batch))
    assert tokenizer.convert_tokens_to_ids(
        "*"
    ) == tiny_checkpoint().tokenizer.convert_tokens_to_ids("*")


@pytest.mark.parametrize(
    ("knobs", "says"),
    [
        ({"head": "x"}, "softmax2, bce, atl"),
        ({"window": 65}, "between 16 and 64"),
        ({"block": 7}, "16 dimensions"),
    ],
)
def test_wrong_options_are_refused_by_name(knobs: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=f"{next(iter(knobs))}.*{says}"):
        tiny_task(**knobs)


def test_softmax2_is_for_one_relation(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has 3"):
        tiny_task(tiny_content(3), head="softmax2")


def test_documents_have_a_checkpoint_of_their_own() -> None:
    sentences, documents = (load_checkpoint("", kind, (STAR,)) for kind in ("bert", "document"))
    assert sentences.sha256 != documents.sha256
    assert (
        documents.tokenizer.get_vocab()[STAR]
        < 6000
        == documents.backbone.get_input_embeddings().num_embeddings
    )
    assert documents.note == "encoder: the small built-in one, pretrained on synthetic text"
    # What pretraining reached has moved away from where positions start, normal with deviation
    # 0.02.
    for reached, checkpoint in ((False, sentences), (True, documents)):
        places = checkpoint.backbone.embeddings.position_embeddings.weight.detach().norm(dim=1)
        assert (float(places[64:128].mean()) > 1.5 * 0.02 * 128**0.5) is reached
