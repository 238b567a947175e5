"""PCNN and the bag rules against slow references, one sentence and one bag at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from models.bags import RULES, bag_logits, bag_scores
from models.pcnn import MAX_LENGTH, PCNN, pieces, positions
from models.pcnn_step import written_gradient


def _slow_encode(model: PCNN, words: list[int], head: int, tail: int) -> torch.Tensor:
    """One sentence, token by token, as docs/methods.md, "Lazy MIL" spells it."""
    words = words[:MAX_LENGTH]
    head, tail = min(head, MAX_LENGTH - 1), min(tail, MAX_LENGTH - 1)
    x = torch.stack(
        [
            torch.cat(
                [
                    model.word.weight[w],
                    model.head_position.weight[min(i - head + 128, 255)],
                    model.tail_position.weight[min(i - tail + 128, 255)],
                ]
            )
            for i, w in enumerate(words)
        ]
    )
    # filters, inputs, width
    kernel = model.convolution.weight.view(-1, 3, x.shape[1]).transpose(1, 2)
    h = F.conv1d(x.T.unsqueeze(0), kernel, model.convolution.bias, padding=1)[0].T
    first, second = min(head, tail), max(head, tail)
    piece = [1 if i <= first else 2 if i <= second else 3 for i in range(len(words))]
    pooled = []
    for p in (1, 2, 3):
        masked = torch.stack(
            [h[i] if piece[i] == p else torch.full_like(h[i], -100.0) for i in range(len(words))]
        )
        pooled.append(torch.relu(masked).max(dim=0).values)
    return torch.cat(pooled)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_encode_equals_the_slow_reference(data: st.DataObject) -> None:
    torch.manual_seed(0)
    model = PCNN(words=20, relations=3, word_dim=6, filters=5)
    sentences = []
    for _ in range(data.draw(st.integers(1, 4))):
        length = data.draw(st.sampled_from([1, 2, 3, 7, 12, 128]))
        words = data.draw(st.lists(st.integers(1, 19), min_size=length, max_size=length))
        ends = data.draw(st.tuples(st.integers(0, length - 1), st.integers(0, length - 1)))
        sentences.append((words, *ends))
    longest = max(len(w) for w, _, _ in sentences)
    padded = torch.tensor([w + [0] * (longest - len(w)) for w, _, _ in sentences])
    lengths = torch.tensor([len(w) for w, _, _ in sentences])
    heads, tails = (
        torch.tensor([h for _, h, _ in sentences]),
        torch.tensor([t for _, _, t in sentences]),
    )
    fast = model.encode(padded, lengths, heads, tails)
    slow = torch.stack([_slow_encode(model, *s) for s in sentences])
    torch.testing.assert_close(fast, slow, atol=1e-5, rtol=1e-5)
    weights = [
        model.word.weight,
        model.head_position.weight,
        model.convolution.weight,
        model.convolution.bias,
    ]
    for got, want in zip(
        torch.autograd.grad(fast.square().sum(), weights),
        torch.autograd.grad(slow.square().sum(), weights),
    ):
        torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)


def _by_autograd(
    model: PCNN, words: torch.Tensor, lengths: torch.Tensor, *ends: torch.Tensor
) -> torch.Tensor:
    """`encode` in torch's own operations, one after another."""
    longest = words.shape[1]
    real = torch.arange(longest) < lengths.unsqueeze(1)
    head, tail = (at.clamp(max=MAX_LENGTH - 1) for at in ends)
    tables = (model.head_position, model.tail_position)
    at = [t(positions(longest, s) * real) for t, s in zip(tables, (head, tail))]
    padded = F.pad(torch.cat([model.word(words), *at], dim=-1), (0, 0, 1, 1))
    window = torch.cat([padded[:, :-2], padded[:, 1:-1], padded[:, 2:]], dim=-1)
    piece = pieces(longest, torch.minimum(head, tail), torch.maximum(head, tail))
    inside = F.one_hot(piece, 3).float() * real.unsqueeze(-1)
    features = model.convolution(window)
    tops = [(features * inside[:, :, p : p + 1]).amax(dim=1) for p in range(3)]
    return torch.stack(tops, dim=1).relu().flatten(1)


def _random_batch(seed: int, rows: int = 7, longest: int = 31) -> tuple[torch.Tensor, ...]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, rows)
    words = np.where(np.arange(lengths.max()) < lengths[:, None], 1, 0)
    words = words * rng.integers(1, 40, words.shape)
    ends = [rng.integers(0, lengths) for _ in range(2)]
    return tuple(torch.from_numpy(a) for a in (words, lengths, *ends))


@pytest.mark.parametrize("seed", range(5))
def test_the_written_gradients_are_autograds_to_the_bit(seed: int) -> None:
    torch.manual_seed(seed)
    model, batch = PCNN(words=40, relations=5), _random_batch(seed)
    own = [p for n, p in model.named_parameters() if not n.startswith("out.")]
    fast, slow = model.encode(*batch), _by_autograd(model, *batch)
    assert torch.equal(fast, slow)
    upstream = torch.randn_like(slow)
    got, want = (torch.autograd.grad(x, own, upstream) for x in (fast, slow))
    assert all(torch.equal(a, b) for a, b in zip(got, want))


@pytest.mark.parametrize("seed", range(5))
def test_the_written_step_is_autograds_to_the_bit(seed: int) -> None:
    torch.manual_seed(seed)
    model, batch = PCNN(words=40, relations=5).train(), _random_batch(seed)
    labels = torch.randint(5, (len(batch[0]),))
    quick = written_gradient(model)
    assert quick is not None

    torch.manual_seed(seed)
    slow = F.cross_entropy(model(*batch), labels)
    slow.backward()
    want = [p.grad for p in model.parameters()]
    after = torch.get_rng_state()
    torch.manual_seed(seed)
    fast = quick(SimpleNamespace(inputs=batch, relation=labels))
    assert torch.equal(fast, slow.detach()) and not fast.requires_grad
    assert torch.equal(torch.get_rng_state(), after)
    for p, g in zip(model.parameters(), want):
        assert g is not None and p.grad is not None and p.grad is not g
        assert torch.equal(p.grad, g)


def test_only_a_whole_plain_pcnn_has_a_written_step() -> None:
    def made(**how: Any) -> PCNN:
        return PCNN(words=9, relations=2, word_dim=4, filters=3, **how)

    assert written_gradient(made()) is not None
    assert written_gradient(nn.Linear(2, 2)) is None
    assert written_gradient(made(dropout=0.0)) is None
    assert written_gradient(made(sums=True)) is None
    frozen, hooked, other = made(), made(), made()
    frozen.word.weight.requires_grad_(False)
    hooked.convolution.register_forward_hook(lambda *_: None)
    other.out = nn.Sequential(other.out)  # type: ignore[assignment]
    for model in (frozen, hooked, other):
        assert written_gradient(model) is None


def test_an_empty_piece_is_zeros_and_padding_belongs_to_none() -> None:
    model = PCNN(words=9, relations=2, word_dim=4, filters=3)
    # The second entity is the last word: nothing is left for the third piece, whatever the padding
    # would give.
    v = model.encode(
        torch.tensor([[3, 4, 5, 0, 0]]), torch.tensor([3]), torch.tensor([0]), torch.tensor([2])
    )
    assert v[0, 6:].tolist() == [0.0, 0.0, 0.0]


def test_positions_and_pieces_by_hand() -> None:
    assert positions(4, torch.tensor([2])).tolist() == [[126, 127, 128, 129]]
    assert positions(128, torch.tensor([0])).max() == 255
    assert positions(128, torch.tensor([127])).min() == 1  # 0 is for padding alone
    assert pieces(5, torch.tensor([1]), torch.tensor([3])).tolist() == [[0, 0, 1, 1, 2]]


def test_padding_changes_nothing_and_learns_nothing() -> None:
    model = PCNN(words=9, relations=2, word_dim=4, filters=3, dropout=0.0)
    short = model(
        torch.tensor([[3, 4, 5]]), torch.tensor([3]), torch.tensor([0]), torch.tensor([1])
    )
    padded = torch.tensor([[3, 4, 5, 0, 0, 0]])
    long = model(padded, torch.tensor([3]), torch.tensor([0]), torch.tensor([1]))
    torch.testing.assert_close(short, long)
    long.sum().backward()
    for table in (model.word, model.head_position):
        assert table.weight.grad is not None and not table.weight.grad[0].any()


def _slow_bag(
    rule: str, out: torch.nn.Linear, vectors: torch.Tensor, label: int | None
) -> torch.Tensor:
    """One bag. With a label its training logits, without one its test probabilities."""

    def attend(r: int) -> torch.Tensor:
        return torch.softmax(vectors @ out.weight[r], dim=0) @ vectors

    relations = range(out.out_features)
    if rule == "one":
        p = torch.softmax(out(vectors), dim=1)
        return p.max(dim=0).values if label is None else out(vectors[p[:, label].argmax()])
    if rule == "ave":
        logits = out(vectors.mean(dim=0))
        return torch.softmax(logits, 0) if label is None else logits
    if rule == "att":
        if label is None:
            return torch.stack([torch.softmax(out(attend(r)), 0)[r] for r in relations])
        return out(attend(label))
    logits = torch.stack([out.weight[r] @ attend(r) + out.bias[r] for r in relations])
    return torch.softmax(logits, 0) if label is None else logits


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=5), seed=st.integers(0, 1000))
def test_bag_rules_equal_one_bag_at_a_time(rule: str, sizes: list[int], seed: int) -> None:
    """For ONE this fails if labels are indexed by sentence instead of by bag, as OpenNRE does."""
    torch.manual_seed(seed)
    out = torch.nn.Linear(6, 4)
    vectors = torch.randn(sum(sizes), 6, requires_grad=True)
    bag = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes))
    labels = torch.randint(0, 4, (len(sizes),))
    fast = bag_logits(rule, out, torch.nn.Identity(), vectors, bag, labels)
    slow = torch.stack(
        [_slow_bag(rule, out, v, int(y)) for v, y in zip(vectors.split(sizes), labels)]
    )
    torch.testing.assert_close(fast, slow)
    got = torch.autograd.grad(fast.square().sum(), vectors)[0]
    torch.testing.assert_close(got, torch.autograd.grad(slow.square().sum(), vectors)[0])
    tested = bag_scores(rule, out, vectors, bag, len(sizes))
    torch.testing.assert_close(
        tested, torch.stack([_slow_bag(rule, out, v, None) for v in vectors.split(sizes)])
    )


def test_one_chooses_by_the_label_of_the_bag_not_of_the_sentence_number() -> None:
    out = torch.nn.Linear(2, 2, bias=False)
    out.weight.data = torch.eye(2)
    # Bag 0: one sentence. Bag 1, label 1: its second sentence fits. Indexing labels by sentence
    # would read label 0 for that bag's first sentence and choose it.
    vectors = torch.tensor([[5.0, 0.0], [4.0, 0.0], [0.0, 3.0]])
    logits = bag_logits(
        "one", out, torch.nn.Identity(), vectors, torch.tensor([0, 1, 1]), torch.tensor([0, 1])
    )
    assert logits.tolist() == [[5.0, 0.0], [0.0, 3.0]]
