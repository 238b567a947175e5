"""FedNER by hand: pseudo-complete annotation, gradients with respect to the prompts, instance
weights, the loss.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from methods.common.instance_weights import Source, instance_gradients
from methods.common.instance_weights import new_weights as _new_weights
from methods.common.pseudo import pseudo_complete, transferred
from methods.tasks.ner import Data, NerTask
from methods.tasks.ner_networks import PointerNetwork, TaggerNetwork
from models.pointer import PointerNer
from models.pointer_targets import Origin, Span
from models.tagger import Tagger
from tests.methods.small_ner import by_hand, tiny_task

KNOWN = np.array([True, False, False])


def new_weights(
    w: np.ndarray, rows: np.ndarray, target: np.ndarray, alpha: float, mode: str
) -> np.ndarray:
    """With every g_i as a row."""
    return _new_weights(w, Source.of_rows(rows), target, alpha, mode)


def test_pseudo_annotation_by_hand() -> None:
    gold = [(0, 2, 0)]
    predicted = [(4, 5, 1), (5, 6, 0), (1, 3, 2), (2, 3, 2), (4, 6, 2), (7, 8, 1)]
    # (5,6,0) is of a type that is annotated here: the annotator did not find it. (1,3,2) overlaps
    # gold; (2,3,2) only touches it. (4,6,2) overlaps (4,5,1), which was written first.
    assert transferred(predicted, gold, KNOWN) == [(4, 5, 1), (2, 3, 2), (7, 8, 1)]
    assert transferred([], gold, KNOWN) == []


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3), st.integers(0, 2)), max_size=8),
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3)), max_size=3),
)
def test_pseudo_annotation_never_overlaps_and_never_has_a_known_type(
    some: list[tuple[int, int, int]], marked: list[tuple[int, int]]
) -> None:
    gold = [(a, a + n, 0) for a, n in marked]
    kept = transferred([(a, a + n, t) for a, n, t in some], gold, KNOWN)
    assert all(not KNOWN[t] for *_, t in kept)
    for i, (a, b, _) in enumerate(kept):
        assert all(b <= c or d <= a for c, d, _ in (*gold, *kept[:i]))


def _two_types(network: str = "pointer") -> NerTask:
    content = by_hand(
        ("headache and fever", ((0, 1, "A"), (2, 3, "B"))),
        ("no fever", ((1, 2, "B"),)),
        ("resting comfortably", ()),
        ("nausea , cough", ((0, 1, "A"), (2, 3, "A"))),
    )
    task = tiny_task(content, network, tags="A+B")
    task.divided((np.arange(4),))
    return task


def test_a_silo_sees_the_entities_of_its_own_types_only() -> None:
    content = by_hand(
        ("headache and fever", ((0, 1, "A"), (2, 3, "B"))), ("no fever", ((1, 2, "B"),))
    )
    task = tiny_task(content, tags="A/B")
    task.divided((np.array([0]), np.array([1])))
    first, second = task.subset(np.array([0])), task.subset(np.array([1]))
    assert first.gold(0) == [(0, 1, 0)] and second.gold(0) == [(1, 2, 1)]
    # Sentence 1 in the hands of the silo that annotates A: only unlabelled types, so nothing to
    # see.
    swapped = tiny_task(content, tags="A/B")
    swapped.divided((np.array([1]), np.array([0])))
    assert swapped.subset(np.array([1])).gold(0) == []
    assert swapped.batch(swapped.subset(np.array([1])), np.array([0])).tokens.tolist() == [[1]]


def test_pseudo_complete_merges_by_position_and_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    content = by_hand(("headache and fever", ((2, 3, "A"),)), ("no fever", ()))
    task = tiny_task(content, tags="A/B")
    task.divided((np.arange(2), np.array([], dtype=np.int64)))
    data = task.subset(np.arange(2))
    monkeypatch.setattr(
        task, "predict", lambda model, data: [[(0, 1, 1), (2, 3, 1), (1, 2, 0)], [(1, 2, 1)]]
    )
    done = pseudo_complete(task, task.new_model(0), data)
    assert done.pseudo == ([(0, 1, 1)], [(1, 2, 1)])
    batch = task.batch(done, np.arange(2))
    first = data.pieces.first_piece(0)
    assert batch.tokens[0].tolist() == [
        4 + first[0],
        4 + first[0],
        3,
        4 + first[2],
        4 + first[2],
        2,
        1,
    ]
    assert batch.origins[0].tolist() == [Origin.TARGET] * 3 + [Origin.SOURCE] * 3 + [Origin.END]
    assert batch.origins[1].tolist()[:4] == [Origin.TARGET] * 3 + [Origin.END]


def test_where_all_types_are_annotated_nothing_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    task = _two_types()
    monkeypatch.setattr(task, "predict", lambda *_: pytest.fail("decoded"))
    data = task.subset(np.arange(4))
    assert pseudo_complete(task, task.new_model(0), data) is data


def _mixed(network: str = "pointer") -> tuple[NerTask, Data]:
    task = _two_types(network)
    pseudo: list[list[Span]] = [[(1, 2, 1)], [], [(0, 1, 1), (1, 2, 0)], [(1, 2, 1)]]
    return task, replace(task.subset(np.arange(4)), pseudo=pseudo)


def _rows(source: Source) -> np.ndarray:
    """g_i of every sentence, written out."""
    out = np.zeros((len(source), source.left.shape[1] * source.right.shape[1]))
    for i, left, right in zip(source.sentence, source.left, source.right):
        out[i] += np.outer(left, right).ravel()
    np.testing.assert_allclose(np.linalg.norm(out, axis=1), source.norms, atol=1e-5)
    return out


def test_gradients_of_a_chunk_are_those_of_sentences_one_at_a_time() -> None:
    task, data = _mixed()
    model, network = task.new_model(3), task.network
    assert isinstance(model, PointerNer) and isinstance(network, PointerNetwork)
    source_of_all, summed = instance_gradients(task, model, data)
    together = _rows(source_of_all)
    mean = summed / len(data.indices)
    alone: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    for i in range(4):
        batch = task.batch(data, np.array([i]))
        source, target, _ = network.parts(model, batch)  # through the trained q itself
        for loss, into in ((source, alone), (target, targets)):
            model.zero_grad()
            if loss.grad_fn is not None:
                loss.sum().backward(retain_graph=True)
            g = model.prompts.q.weight.grad
            into.append(
                np.zeros(model.prompts.q.weight.numel())
                if g is None
                else g.flatten().numpy().copy()
            )
    np.testing.assert_allclose(together, np.stack(alone), atol=1e-5)
    np.testing.assert_allclose(mean.ravel(), np.mean(targets, axis=0), atol=1e-5)
    # sentence 2 has no entity of its own
    assert np.abs(together[2]).max() == 0 and np.abs(together[0]).max() > 0
    assert all(p.requires_grad for n, p in model.named_parameters() if "backbone" not in n)


def test_weights_by_hand() -> None:
    source = np.array([[3.0, 4.0], [0.0, -2.0], [0.0, 0.0], [5.0, 0.0]])
    target = np.array([[0.0, 1.0]])
    # Cosines 0.8, -1, undefined, 0.
    w = new_weights(np.array([1.0, 1.0, 0.5, 0.2]), source, target, 0.9, "paper")
    np.testing.assert_allclose(w, [0.98, 0.8, 0.5, 0.18], rtol=1e-6)
    np.testing.assert_array_equal(new_weights(np.array([0.3, 1.0, 1.0, 1.0]), source, target * 0, 0.9, "paper"),
                                  np.array([0.3, 1, 1, 1], np.float32))  # fmt: skip
    w = new_weights(np.array([1.0, 1.0, 0.5, 0.2]), source, target, 0.9, "shifted")
    np.testing.assert_allclose(w, [1.08, 0.9, 0.5, 0.28], rtol=1e-6)
    alone = new_weights(np.array([1.0]), source[:1], target, 0.9, "shifted")
    assert alone[0] == w[0]  # no other sentence has a say, which DP=record stands on
    kept = new_weights(
        np.array([1.0, 1.0, 0.5, 0.2]), source, np.array([[0.0, np.inf]]), 0.9, "shifted"
    )
    # a target that is no number would spoil them for good
    np.testing.assert_allclose(kept, [1.0, 1.0, 0.5, 0.2])


def test_raw_weights_shrink_to_the_cosine_and_safe_ones_keep_their_mean() -> None:
    """With cosine 0.2 every raw weight is 0.26 after 25 rounds: the source loss fades."""
    g, t = np.array([[0.2, np.sqrt(0.96)]]), np.array([1.0, 0.0])
    w = np.ones(1)
    for _ in range(25):
        w = new_weights(w, g, t, 0.9, "paper")
    assert w[0] == pytest.approx(0.2 + 0.8 * 0.9**25, abs=1e-5) and 0.25 < w[0] < 0.27
    both = np.array([[1.0, 0.0], [-1.0, 0.0]])
    w = np.array([1.0, 0.05])
    w = new_weights(w, both, t, 0.9, "safe")
    np.testing.assert_allclose(w, [2.0, 0.0])  # 1.0 and -0.055, clipped, scaled to mean one
    np.testing.assert_allclose(
        new_weights(np.zeros(2), -both[:1].repeat(2, 0), t, 0.9, "safe"), [1.0, 1.0]
    )
    assert len(new_weights(np.zeros(0), np.zeros((0, 2)), t, 0.9, "safe")) == 0
    # Cosines 0 and 0.2 beside a sentence without a source gradient: 0.9 and 0.92 to mean one; the
    # third has no say.
    three = np.array([[0.0, 1.0], g[0], [0.0, 0.0]])
    w = new_weights(np.ones(3), three, t, 0.9, "safe")
    np.testing.assert_allclose(w, [0.9 / 0.91, 0.92 / 0.91, 1.0], rtol=1e-6)


def test_the_loss_weighs_the_source_alone() -> None:
    task, data = _mixed()
    model = task.new_model(1).eval()
    w = np.array([0.5, 2.0, 3.0, 0.0], np.float32)
    batch = task.batch(replace(data, weights=w), np.arange(4))
    assert isinstance(task.network, PointerNetwork)
    source, target, end = task.network.parts(model, batch)
    assert torch.allclose(task.loss(model, batch), (torch.tensor(w) * source + target + end).mean())
    assert float(target.detach().sum()) > 0 and float(end.detach().sum()) > 0


def test_a_taggers_words_have_the_origin_of_their_entity() -> None:
    task, data = _mixed("tagger")
    batch = task.batch(data, np.array([0]))
    # "headache and fever": A and B are the annotator's, "and" the model's B.
    first = data.pieces.first_piece(0)
    assert [batch.tokens[0, f].item() for f in first] == [1, 3, 3]
    origins = [batch.origins[0, f].item() for f in first]
    assert origins == [Origin.SOURCE, Origin.TARGET, Origin.SOURCE]
    # "no fever": a word that is in no entity is in neither loss
    batch = task.batch(data, np.array([1]))
    assert [batch.origins[0, f].item() for f in data.pieces.first_piece(1)] == [
        Origin.END,
        Origin.SOURCE,
    ]
    assert (batch.origins == Origin.PADDING).equal(batch.tokens == -100)


def test_a_taggers_gradients_are_those_of_autograd() -> None:
    task, data = _mixed("tagger")
    model, network = task.new_model(3).eval(), task.network
    assert isinstance(model, Tagger) and isinstance(network, TaggerNetwork)
    source, summed = instance_gradients(task, model, data)
    together = _rows(source)
    assert summed.shape == (5, 8)
    targets = np.zeros_like(summed)
    for i in range(4):
        batch = task.batch(data, np.array([i]))
        scores = model(batch.inputs.ids, batch.inputs.real)[0, : batch.tokens.shape[1]]
        for origin in (Origin.SOURCE, Origin.TARGET):
            here = batch.origins[0] == origin
            loss = torch.nn.functional.cross_entropy(
                scores[here], batch.tokens[0, here], reduction="sum"
            )
            (g,) = torch.autograd.grad(loss, model.classifier.weight, retain_graph=True)
            if origin == Origin.SOURCE:
                np.testing.assert_allclose(together[i], g.flatten().numpy(), atol=1e-5)
            else:
                targets += g.numpy()
    np.testing.assert_allclose(summed, targets, atol=1e-5)
    assert source.norms[2] == 0 and (source.norms[[0, 1, 3]] > 0).all()
    along = together @ targets.ravel()
    np.testing.assert_allclose(source.along(targets), along, rtol=1e-6, atol=1e-6)


def test_a_taggers_loss_weighs_the_source_alone() -> None:
    task, data = _mixed("tagger")
    model = task.new_model(1).eval()
    w = np.array([0.5, 2.0, 3.0, 0.0], np.float32)
    batch = task.batch(replace(data, weights=w), np.arange(4))
    scores = model(batch.inputs.ids, batch.inputs.real)[:, : batch.tokens.shape[1]]
    minus_log = -scores.log_softmax(dim=-1)
    total, words, by_sentence = 0.0, 0, []
    for i in range(4):
        own = 0.0
        first = data.pieces.first_piece(i)
        for f in first:
            value = float(minus_log[i, f, batch.tokens[i, f]].detach())
            own += value * (float(w[i]) if batch.origins[i, f] == Origin.SOURCE else 1.0)
        by_sentence.append(own / len(first))
        total, words = total + own, words + len(first)
    assert float(task.loss(model, batch).detach()) == pytest.approx(total / words, rel=1e-5)
    each = task.record_losses(model, batch).detach()
    np.testing.assert_allclose(each.numpy(), by_sentence, rtol=1e-5)
