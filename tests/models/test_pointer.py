"""The pointer model: targets and outputs by hand, prompts against `transformers`, the cache against
no cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from config.part import ALL
from models import prompted_bart as bart
from models.pieces import label_pieces, label_words, to_pieces
from models.pointer import Inputs, PointerNer, losses_of, split_losses, trainable_share
from models.pointer_targets import BEGIN, END, Origin, parse, target
from models.prompted import with_prompt
from models.tagger import spans_of, tags_of
from tests.methods.small_ner import by_hand, tiny_bart, tiny_task

# Three words that begin at pieces 1, 2 and 4 (the second has two pieces); two types: 2 and 3;
# positions from 4 on.
FIRST = [1, 2, 4]


def test_targets_by_hand() -> None:
    made = target([(1, 3, 0)], [(0, 1, 1)], FIRST, types=2)
    # ordered by position, not by origin; the end is inclusive
    assert made.tokens == (5, 5, 3, 6, 8, 2, END)
    assert made.origins == (*[Origin.TARGET] * 3, *[Origin.SOURCE] * 3, Origin.END)


def test_a_sentence_without_entities_has_its_end_alone() -> None:
    assert target([], [], FIRST, 2).tokens == (END,)


def test_entities_beyond_the_window_are_not_trained_on() -> None:
    assert target([(0, 1, 0), (2, 4, 1)], [(3, 4, 0)], FIRST, 2).tokens == (5, 5, 2, END)


@pytest.mark.parametrize(
    ("tokens", "entities"),
    [
        ([5, 5, 3, 6, 8, 2], [(0, 1, 1), (1, 3, 0)]),
        ([5, 5, 3, 3], [(0, 1, 1)]),  # a type without a span (the paper's figure 2)
        ([5, 3], []),  # one pointer
        ([5, 6, 8, 3], []),  # three pointers
        ([8, 5, 3], []),  # the end before the start
        ([5, 5, 3, 5, 5, 3], [(0, 1, 1)]),  # the same twice
        ([5, 5, 2, 5, 5, 3], [(0, 1, 0), (0, 1, 1)]),  # one span of two types
        ([5, 6, 2, 6, 8, 3], [(0, 2, 0), (1, 3, 1)]),  # overlapping
        ([5, 5, END, 6, 6, 2], []),  # nothing counts after the end
        ([5, 7, 2], []),  # 7 is the second piece of a word
        ([5, 99, 2], []),  # outside the sentence
        ([], []),
    ],
)
def test_outputs_by_hand(tokens: list[int], entities: list[tuple[int, int, int]]) -> None:
    assert parse(tokens, FIRST, types=2) == entities


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3), st.integers(0, 2)), max_size=5))
def test_what_is_written_is_read_again(some: list[tuple[int, int, int]]) -> None:
    spans = sorted({(a, min(6, a + n), t) for a, n, t in some})
    first = [1, 2, 4, 5, 8, 9]
    assert parse(target(spans, [], first, 3).tokens, first, 3) == spans


def test_label_words_and_pieces() -> None:
    names = ("Simple_chemical", "ADE", "Regulon-operon", "adverseEffect", "DNA2")
    assert [label_words(n) for n in names] == [
        "simple chemical",
        "ade",
        "regulon operon",
        "adverse effect",
        "dna 2",
    ]
    assert all(label_pieces(["Drug", "Simple_chemical"], tiny_bart().tokenizer))


def test_a_sentence_longer_than_the_window_keeps_the_words_that_fit_whole() -> None:
    tokenizer = tiny_bart().tokenizer
    words = ["headache", "and", "qqqqqq", "fever"]
    whole = to_pieces([words], tokenizer, 2, 3, 60)
    assert whole.shortened == 0 and len(whole.first_piece(0)) == 4
    # no room for the last piece of the third word
    cut = to_pieces([words], tokenizer, 2, 3, whole.first_piece(0)[3])
    assert cut.shortened == 1 and cut.first_piece(0) == whole.first_piece(0)[:2]
    assert cut.row(0)[0] == 2 and cut.row(0)[-1] == 3
    # nothing is left of it but a piece
    assert to_pieces([["\u200b"]], tokenizer, 2, 3, 60).first_piece(0) == [1]


def _inputs(rows: int, seed: int) -> Inputs:
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, 300, (rows, 11), generator=g)
    lengths = torch.randint(4, 12, (rows,), generator=g)
    lengths[0] = 11
    at = torch.arange(11)
    real = at < lengths[:, None]
    first = real & (at > 0) & (at < lengths[:, None] - 1) & (at % 3 != 0)
    return Inputs(ids.masked_fill(~real, 0), real, first)


def _model(seed: int = 0, **more: Any) -> PointerNer:
    torch.manual_seed(seed)
    checkpoint = tiny_bart()
    model = PointerNer(
        checkpoint.backbone.eval(), [[7], [8, 9], [10]], length=3, hidden=8, dropout=0.0, **more
    )
    with torch.no_grad():
        model.label_weights.normal_()
    return model.eval()


def test_without_prompts_it_is_the_bart_of_transformers() -> None:
    backbone = tiny_bart().backbone.eval()
    inputs = _inputs(4, 1)
    read = torch.randint(5, 300, (4, 6), generator=torch.Generator().manual_seed(2))
    theirs = backbone(
        input_ids=inputs.ids, attention_mask=inputs.real.long(), decoder_input_ids=read
    )
    with torch.no_grad():
        source = bart.encode(backbone, inputs.ids, inputs.real, None)
        states, _ = bart.decode(backbone, backbone.shared.weight[read], source, None)
    torch.testing.assert_close(states, theirs.last_hidden_state, atol=1e-5, rtol=1e-4)
    real = inputs.real
    torch.testing.assert_close(
        source.hidden[real], theirs.encoder_last_hidden_state[real], atol=1e-5, rtol=1e-4
    )


def test_prompts_are_rows_of_keys_and_values_that_every_position_sees() -> None:
    """By hand for one attention: softmax(q [P_K; K]^T / sqrt(head dim)) [P_V; V]."""
    model = _model()
    inputs = _inputs(1, 3)
    layer, projected = model.backbone.encoder.layers[0].self_attn, model.prompts()
    x = bart.embed(model.backbone.encoder, model.backbone.shared.weight[inputs.ids])[0]
    heads = []
    for h in range(2):
        at = slice(8 * h, 8 * h + 8)
        q, k, v = (getattr(layer, f"{n}_proj")(x)[:, at] for n in "qkv")
        keys, values = (
            torch.cat([projected.encoder[0][0][0, h], k]),
            torch.cat([projected.encoder[0][1][0, h], v]),
        )
        heads.append((q @ keys.T / 8**0.5).softmax(dim=-1) @ values)
    by_hand_ = layer.out_proj(torch.cat(heads, dim=-1))
    kv = with_prompt(projected.encoder[0], bart._key_values(layer, x[None]))
    torch.testing.assert_close(
        bart._attend(layer, x[None], kv, None)[0], by_hand_, atol=1e-6, rtol=1e-5
    )


def test_projections_by_hand() -> None:
    """[Phi_K; Phi_V] = W2 tanh(W1 q), keys before values."""
    prompts: Any = _model().prompts
    w1, w2 = prompts.cross[0], prompts.cross[2]
    both = torch.tanh(prompts.q.weight @ w1.weight.T + w1.bias) @ w2.weight.T + w2.bias
    key, value = prompts().cross[0]
    torch.testing.assert_close(key[0].transpose(0, 1).flatten(1), both[:, :16])
    torch.testing.assert_close(value[0].transpose(0, 1).flatten(1), both[:, 16:])


def test_scores_by_hand() -> None:
    model, inputs = _model(), _inputs(2, 4)
    tokens = torch.tensor([[6, 7, 3, 1], [1, 1, 1, 1]])
    states, source = model.states(inputs, tokens)
    scores = model.score(inputs, states, source)
    words, u = model.backbone.shared.weight, states[0, 2]
    a = model.label_weights[1].softmax(dim=-1)
    piece = int(inputs.first[0].nonzero()[0])
    assert scores[0, 2, END].item() == pytest.approx((u @ words[model.eos]).item(), abs=1e-4)
    assert scores[0, 2, 3].item() == pytest.approx(
        (u @ (a[0] * words[8] + a[1] * words[9])).item(), abs=1e-4
    )
    pointed = (source.hidden[0, piece] + words[inputs.ids[0, piece]]) / 2
    assert scores[0, 2, 5 + piece].item() == pytest.approx((u @ pointed).item(), abs=1e-4)
    possible = torch.isfinite(scores[0, 2])
    assert not possible[BEGIN] and possible[1:5].all()
    assert (possible[5:] == inputs.first[0]).all()


def test_label_pieces_that_are_padding_weigh_nothing() -> None:
    model = _model()
    torch.testing.assert_close(model.type_vectors()[0], model.backbone.shared.weight[7])


@pytest.mark.parametrize("grammar", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_decoding_with_the_cache_equals_decoding_without(seed: int, grammar: bool) -> None:
    model, inputs = _model(seed), _inputs(7, seed)
    with torch.no_grad():
        model.prompts.q.weight.mul_(2.0)  # outputs that are not all alike
    fast, slow = (model.write(inputs, grammar=grammar, cached=c) for c in (True, False))
    assert fast == slow and any(fast)


@pytest.mark.parametrize("grammar", [False, True])
def test_a_sentence_is_decoded_alike_alone_and_in_a_batch(grammar: bool) -> None:
    model, inputs = _model(1), _inputs(6, 9)
    together = model.write(inputs, grammar=grammar)
    for i in range(6):
        n = int(inputs.real[i].sum())
        alone = Inputs(
            inputs.ids[i : i + 1, :n], inputs.real[i : i + 1, :n], inputs.first[i : i + 1, :n]
        )
        assert model.write(alone, grammar=grammar) == [together[i]]


def test_outputs_are_no_longer_than_the_limit_and_greedy() -> None:
    model, inputs = _model(2), _inputs(5, 2)
    written = model.write(inputs)
    for i, row in enumerate(written):
        limit = min(int(10 + 0.6 * int(inputs.real[i].sum())), 3 * int(inputs.first[i].sum()))
        assert len(row) <= limit
        # Teacher forcing on what was written gives the same choices.
        one = Inputs(inputs.ids[i : i + 1], inputs.real[i : i + 1], inputs.first[i : i + 1])
        tokens = torch.tensor([[*row, END][:limit]])
        assert model.logits(one, tokens)[0].argmax(dim=-1).tolist() == tokens[0].tolist()


@pytest.mark.parametrize("seed", range(4))
def test_the_grammar_allows_entities_only(seed: int) -> None:
    model, inputs = _model(seed), _inputs(6, seed)
    for i, row in enumerate(model.write(inputs, grammar=True)):
        whole = row[: len(row) - len(row) % 3]  # the limit may cut an entity short
        for start, end, kind in zip(whole[::3], whole[1::3], whole[2::3]):
            assert (
                5 <= start <= end
                and 2 <= kind < 5
                and inputs.first[i, start - 5]
                and inputs.first[i, end - 5]
            )


def test_losses_are_split_by_origin() -> None:
    losses = torch.tensor([[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0]])
    o = torch.tensor([[1, 1, 1, 2, 2, 2, 3, 0]])
    assert [float(x) for x in split_losses(losses, o)] == [7.0, 56.0, 64.0]


def test_only_prompts_and_label_weights_are_trained_and_one_language_model_serves_all() -> None:
    backbone = tiny_bart().backbone
    first, second = (PointerNer(backbone, [[7]], length=3, hidden=8) for _ in range(2))
    assert first.backbone is second.backbone is backbone
    trained = {n for n, p in first.named_parameters() if p.requires_grad}
    assert all(n.startswith("prompts.") or n == "label_weights" for n in trained)
    # q 3x16; three times (16x8 + 8) and (8x32 + 32); one label weight
    assert trainable_share(first)[0] == 48 + 3 * (136 + 288) + 1
    whole = PointerNer(backbone, [[7]], length=3, hidden=8, part=ALL)
    assert whole.backbone is not backbone and trainable_share(whole)[0] == trainable_share(whole)[1]
    assert not any(p.requires_grad for p in backbone.parameters())


def test_the_frozen_model_can_learn_to_point() -> None:
    """Prompts alone bring the loss of two sentences down."""
    content = by_hand(
        ("headache and fever", ((0, 1, "A"), (2, 3, "B"))), ("no fever", ((1, 2, "B"),))
    )
    task = tiny_task(content, tags="all", prompts=8, hidden=32)
    model, data = task.new_model(0), task.subset(np.arange(2))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.02, weight_decay=0.01)
    network: Any = model
    batch = task.batch(data, np.arange(2))
    first = task.loss(model, batch).item()
    for _ in range(60):
        optimizer.zero_grad()
        task.loss(model, batch).backward()
        optimizer.step()
    assert task.loss(model, batch).item() < first / 2
    assert torch.isfinite(losses_of(network.logits(batch.inputs, batch.tokens), batch.tokens)).all()


# The tagger


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(0, 2)), max_size=5))
def test_tags_give_back_the_spans(some: list[tuple[int, int, int]]) -> None:
    spans, at = [], 0
    for gap, length, kind in some:
        spans.append((at + gap, at + gap + length, kind))
        at += gap + length
    assert spans_of(tags_of(spans, at + 1)) == spans


def test_tags_of_spans_that_overlap_or_do_not_fit() -> None:
    assert tags_of([(0, 1, 0), (0, 3, 1), (3, 5, 0)], 4) == [3, 4, 4, 0]
    assert spans_of([2, 2, 4]) == [(0, 2, 0), (2, 3, 1)]  # an I that continues nothing begins
