"""FedNER by hand (pseudo-complete annotation, gradients, weights), its ablations and baselines, and
odd silos.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from config.errors import UserError
from config.settings import Settings
from methods import build
from methods.base import Heard, SiloView
from methods.common.adversarial import reverse
from methods.common.pseudo import pseudo_complete, transferred
from methods.common.training import parameters
from methods.fadv_peng import entropy
from methods.fedner import new_weights, prompt_gradients
from models.pointer_targets import Origin
from tests.methods.small_ner import by_hand, natural, run, tiny_study, tiny_task

KNOWN = np.array([True, False, False])


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


def _two_types() -> tuple:
    content = by_hand(
        ("headache and fever", ((0, 1, "A"), (2, 3, "B"))),
        ("no fever", ((1, 2, "B"),)),
        ("resting comfortably", ()),
        ("nausea , cough", ((0, 1, "A"), (2, 3, "A"))),
    )
    task = tiny_task(content, tags="A+B")
    task.divided((np.arange(4),))
    return task, content


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
    task, _ = _two_types()
    monkeypatch.setattr(task, "predict", lambda *_: pytest.fail("decoded"))
    data = task.subset(np.arange(4))
    assert pseudo_complete(task, task.new_model(0), data) is data


# Gradients and weights


def _mixed() -> tuple:
    task, _ = _two_types()
    pseudo = ([(1, 2, 1)], [], [(0, 1, 1), (1, 2, 0)], [(1, 2, 1)])
    return task, replace(task.subset(np.arange(4)), pseudo=pseudo)


def test_gradients_of_a_chunk_are_those_of_sentences_one_at_a_time() -> None:
    task, data = _mixed()
    model = task.new_model(3)
    together, summed = prompt_gradients(task, model, data)
    mean = summed / len(data.indices)
    alone, targets = [], []
    for i in range(4):
        batch = task.batch(data, np.array([i]))
        source, target, _ = task.network.parts(model, batch)  # through the trained q itself
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
                                  np.float32([0.3, 1, 1, 1]))  # fmt: skip
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
    w = np.float32([0.5, 2.0, 3.0, 0.0])
    batch = task.batch(replace(data, weights=w), np.arange(4))
    source, target, end = task.network.parts(model, batch)
    assert torch.allclose(task.loss(model, batch), (torch.tensor(w) * source + target + end).mean())
    assert float(target.detach().sum()) > 0 and float(end.detach().sum()) > 0


# Rounds


def test_one_round_of_fedner_by_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Round 1 through the method's own halves, with a global model that finds everything: masked
    target gradients, and instance weights from the sum of the others'.
    """
    task = tiny_task()
    monkeypatch.setattr(
        task, "predict", lambda model, data: [data.rows.spans(int(i)) for i in data.indices]
    )
    study = tiny_study("fedner", task, natural(task), rounds=2)
    first, second = study.method.exchanges
    state = study.method.init(7)
    told = first.broadcast(state, 1, (0, 1, 2)).common
    views, sent = [], []
    for k, ix in enumerate(study.partition.indices):
        view = SiloView(k, task, task.subset(ix), study.settings, b"")
        a = first.answer(view, Heard(1, (0, 1, 2), told))
        assert set(a.masked) == {"target"} and not a.sealed
        sent.append(a.masked["target"])
        views.append(replace(view, carry=a.carry))
    total = np.sum(sent, axis=0)
    # else a silo that forgot to subtract its own would pass
    assert all(np.abs(g).max() > 0 for g in sent)
    answers = [second.answer(v, Heard(1, (0, 1, 2), {"target": total})) for v in views]
    for v, a, own in zip(views, answers, sent):
        w = a.memory["last/instance_weights"]  # type: ignore[index]
        expected = new_weights(
            np.ones(len(w), np.float32), v.carry["source"], total - own, 0.9, "safe"
        )
        np.testing.assert_array_equal(w, expected)
        assert set(a.masked) == {f"update/{n}" for n in parameters(task.new_model(0))}
        assert {"weight_min", "weight_mean", "weight_max"} <= set(a.notes)


def test_a_round_that_is_asked_for_again_gives_the_same_weights() -> None:
    """After a crash of the coordinator: the silo has finished the round, and its memory says so."""
    task = tiny_task()
    study = tiny_study("fedner", task, natural(task), rounds=2)
    first, second = study.method.exchanges
    told = Heard(4, (0, 1, 2), first.broadcast(study.method.init(7), 4, (0, 1, 2)).common)
    others = Heard(4, (0, 1, 2), {"target": np.ones((3, 16), np.float32)})
    kept = {
        "last/instance_weights": np.linspace(0.2, 1.0, 12, dtype=np.float32),
        "round": np.array([3]),
    }
    view = SiloView(
        0, task, task.subset(study.partition.indices[0]), study.settings, b"", memory=kept
    )
    view = replace(view, carry=first.answer(view, told).carry)
    once = second.answer(view, others)
    again = second.answer(replace(view, memory=once.memory or {}), others)
    assert (once.memory["last/instance_weights"] != kept["last/instance_weights"]).any()  # type: ignore[index]
    for name, value in (once.memory or {}).items():
        np.testing.assert_array_equal(value, again.memory[name])  # type: ignore[index]
    for name, value in once.masked.items():
        np.testing.assert_array_equal(value, again.masked[name])


@pytest.mark.parametrize("channel", ["masked", "sealed"])
def test_sealed_and_masked_target_gradients_train_the_same(channel: str) -> None:
    task = tiny_task()
    model, folder = run(
        tiny_study("fedner", task, natural(task), rounds=2, options={"channel": channel})
    )
    other, _ = run(
        tiny_study("fedner", tiny_task(), natural(task), rounds=2, options={"channel": "sealed"})
    )
    for name, value in model.items():
        np.testing.assert_allclose(value, other[name], atol=2e-4, err_msg=name)
    kept = load_file(folder / "silos" / "silo-001" / "memory.safetensors")
    assert set(kept) == {"last/instance_weights", "before/instance_weights", "round"}
    assert kept["last/instance_weights"].shape == (12,)
    told = json.loads((folder / "disclosures.json").read_text("utf-8"))["each_silo_sends"]
    assert {(d["name"], d["channel"]) for d in told} == {("target", channel), ("update", "masked")}


def test_ablations_send_less_and_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a global model that finds everything."""
    task = tiny_task()
    monkeypatch.setattr(
        task, "predict", lambda model, data: [data.rows.spans(int(i)) for i in data.indices]
    )
    seen = {}
    for ablation in ("none", "no_weight", "no_distill"):
        study = tiny_study(
            "fedner", task, natural(task), rounds=3, lr=0.05, options={"ablation": ablation}
        )
        assert [e.name for e in study.method.exchanges] == (
            ["target"] if ablation == "none" else []
        ) + ["train"]
        seen[ablation], folder = run(study)
        assert (folder / "silos" / "silo-000" / "memory.safetensors").exists() == (
            ablation == "none"
        )
    for a, b in (("none", "no_weight"), ("none", "no_distill"), ("no_weight", "no_distill")):
        assert any((seen[a][n] != seen[b][n]).any() for n in seen[a]), (a, b)


def test_the_first_round_uses_gold_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    task = tiny_task()
    study = tiny_study("fedner", task, natural(task), options={"ablation": "no_weight"})
    (train,) = study.method.exchanges
    view = SiloView(0, task, task.subset(study.partition.indices[0]), study.settings, b"")
    asked: list[int] = []
    monkeypatch.setattr(
        task, "predict", lambda model, data: asked.append(1) or [[] for _ in data.indices]
    )
    model = parameters(task.new_model(0))
    train.answer(view, Heard(0, (0, 1, 2), model))
    assert not asked
    train.answer(view, Heard(1, (0, 1, 2), model))
    assert asked == [1]


@pytest.mark.parametrize(
    "method", ["fedner", "fadv_ganin", "fadv_peng", "fadv_hong", "tagger", "fedavg"]
)
def test_every_method_survives_odd_silos_and_a_lost_one(method: str) -> None:
    """An empty silo, a silo of one sentence without entities, and one that is lost in the second
    round.
    """
    task = tiny_task(network="tagger" if method == "tagger" else "pointer")
    rows = task.corpus.splits["train"]
    bare = next(i for i in range(len(rows)) if not rows.spans(i))
    rest = [i for i in range(36) if i != bare]
    silos = [rest[:15], [bare], [], rest[15:]]
    task.knobs = replace(task.knobs, tags="disjoint")
    study = tiny_study(method, task, silos, rounds=3)
    gone = {(1, len(study.method.exchanges) - 1): frozenset({3})}
    model, folder = run(study, gone)
    assert all(np.isfinite(v).all() for v in model.values())
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    assert summary["missed"] == {"silo-003": [1, 2]}


def test_discriminators_travel_with_the_prompts_and_stay_out_of_the_model() -> None:
    task = tiny_task()
    study = tiny_study("fadv_ganin", task, natural(task), rounds=1)
    masked = study.method.exchanges[0].masked
    (extra,) = [n for n in masked if "adversary" in n]
    assert masked[extra].shape == (3, 16)  # K x d, one encoder layer
    state = study.method.init(0)
    assert set(state.model) == set(parameters(task.new_model(0)))
    _, folder = run(study)
    kept = load_file(folder / "checkpoint" / "state.safetensors")
    assert np.abs(kept["memory:adversary.discriminators.0"]).max() > 0  # trained, and averaged


def test_a_reversed_gradient_and_an_entropy_by_hand() -> None:
    x = torch.tensor([2.0], requires_grad=True)
    (reverse(x) ** 2).backward()
    assert float(x.grad) == -4.0  # type: ignore[arg-type]
    scores = torch.tensor([[0.0, 0.0, float("-inf"), 0.0, 0.0]], requires_grad=True)
    value = entropy(scores)
    assert float(value.detach()) == pytest.approx(np.log(4))
    value.sum().backward()
    assert torch.isfinite(scores.grad).all()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"ablation": "no_weights"}, "none, no_weight, no_distill"),
        ({"weights": "raw"}, "safe, shifted, paper"),
        ({"channel": "plain"}, "masked, sealed"),
        ({"alpha": 1.5}, "between 0 and 1"),
        ({"alfa": 0.5}, 'Did you mean "alpha"'),
    ],
)
def test_options_are_checked(options: dict[str, object], why: str) -> None:
    with pytest.raises(UserError, match=why):
        build("fedner", tiny_task(), replace(Settings(), method="fedner", silos=3, options=options))


def test_a_fedner_of_taggers_is_refused() -> None:
    with pytest.raises(UserError, match="needs the pointer network"):
        build("fedner", tiny_task(network="tagger"), replace(Settings(), method="fedner", silos=3))


def test_evaluation_has_domains_types_and_what_is_trained() -> None:
    task = tiny_task()
    e = task.evaluate(task.new_model(0).eval(), "dev")
    assert {"f1 report", "f1 forum", "f1 note", "precision", "recall", "micro_f1"} <= set(e.figures)
    assert 0 < e.figures["share_trained"] < 0.5
    assert set(e.per_class) <= set(task.labels)


def test_the_tag_sets_of_silos_that_share_a_domain() -> None:
    task = tiny_task()
    domain = np.asarray(task.corpus.splits["train"].domain)
    halves = [half for ix in natural(task) for half in np.array_split(np.array(ix), 2)]
    task.divided(halves)
    assert task.platforms == 3 and (task.platform == domain).all()
    assert (task.known[halves[0]] == task.known[halves[1]][:1]).all()
    assert task.declared_union() == task.labels
    counts = sum(task.label_counts(ix) for ix in halves)
    rows = task.corpus.splits["train"]
    assert counts.sum() == sum(int(task.known[i, t]) for i in range(36) for *_, t in rows.spans(i))


def test_the_saved_model_opens_again(tmp_path: Path) -> None:
    from coordinator.checkpoint import save_model
    from models.pointer import open_model

    task = tiny_task()
    model = task.new_model(5).eval()
    save_model(tmp_path, parameters(model), task.model_files())
    opened, tokenizer, types = open_model(tmp_path)
    assert types == task.labels
    batch = task.batch(task.subset(np.arange(5)), np.arange(5))
    torch.testing.assert_close(
        opened.logits(batch.inputs, batch.tokens), model.logits(batch.inputs, batch.tokens)
    )
    about = json.loads((tmp_path / "config.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text(
        json.dumps({**about, "seq2seq_sha256": "0" * 64}), "utf-8"
    )
    with pytest.raises(UserError, match="another language model"):
        open_model(tmp_path)


@pytest.mark.parametrize("bits", [32, 16])
def test_weights_do_not_follow_rounding(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first silo has types to be taught, so nobody else has a target gradient: what is left
    of the sum without its own part must be nothing, and its weights must stay one.
    """
    task = tiny_task()
    every = "+".join(task.corpus.types)
    task.knobs = replace(task.knobs, tags=f"{task.corpus.types[0]}/{every}/{every}")
    study = tiny_study(
        "fedner", task, natural(task), rounds=4, bits=bits, options={"weights": "paper"}
    )
    unknown = len(task.corpus.types) - 1
    monkeypatch.setattr(
        task, "predict", lambda model, data: [[(0, 1, unknown)] for _ in data.indices]
    )
    _, folder = run(study)
    memory = load_file(folder / "silos" / "silo-000" / "memory.safetensors")
    weights = memory["last/instance_weights"]
    assert len(weights) > 5 and weights.tolist() == [1.0] * len(weights)
