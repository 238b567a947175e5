"""Rounds of FedNER, of its ablations and of its baselines, odd silos, and the task's own promises."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

from config.errors import UserError
from config.settings import Settings
from methods import build
from methods.base import Heard, SiloView
from methods.common.adversarial import reverse
from methods.common.instance_weights import new_weights
from methods.common.training import parameters
from methods.fadv_peng import entropy
from methods.tasks.ner import Data
from models.pointer import PointerNer
from models.pointer_targets import Span
from tests.methods.small import run
from tests.methods.small_ner import natural, tiny_study, tiny_task


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

    def predict(model: nn.Module, data: Data) -> list[list[Span]]:
        asked.append(1)
        return [[] for _ in data.indices]

    monkeypatch.setattr(task, "predict", predict)
    model = parameters(task.new_model(0))
    train.answer(view, Heard(0, (0, 1, 2), model))
    assert not asked
    train.answer(view, Heard(1, (0, 1, 2), model))
    assert asked == [1]


@pytest.mark.parametrize(
    ("method", "network"),
    [
        ("fedner", "pointer"),
        ("fedner", "tagger"),
        ("fadv_ganin", "pointer"),
        ("fadv_peng", "pointer"),
        ("fadv_hong", "pointer"),
        ("tagger", "tagger"),
        ("fedavg", "pointer"),
    ],
)
def test_every_method_survives_odd_silos_and_a_lost_one(method: str, network: str) -> None:
    """An empty silo, a silo of one sentence without entities, and one that is lost in the second
    round.
    """
    task = tiny_task(network=network)
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
    assert x.grad is not None and float(x.grad) == -4.0
    scores = torch.tensor([[0.0, 0.0, float("-inf"), 0.0, 0.0]], requires_grad=True)
    value = entropy(scores)
    assert float(value.detach()) == pytest.approx(np.log(4))
    value.sum().backward()
    assert scores.grad is not None and torch.isfinite(scores.grad).all()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"ablation": "no_weights"},
            'none, no_weight or no_distill, not "no_weights". Did you mean "no_weight"',
        ),
        ({"weights": "raw"}, "safe, shifted or paper"),
        ({"channel": "plain"}, "masked or sealed"),
        ({"alpha": 1.5}, "between 0 and 1"),
        ({"alfa": 0.5}, 'Did you mean "alpha"'),
    ],
)
def test_options_are_checked(options: dict[str, object], why: str) -> None:
    with pytest.raises(UserError, match=why):
        build("fedner", tiny_task(), replace(Settings(), method="fedner", silos=3, options=options))


def test_a_fedner_of_taggers_sends_the_gradient_of_its_classifier_and_learns_what_others_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a global model that finds everything, and silos that annotate different types."""
    task = tiny_task(network="tagger")
    monkeypatch.setattr(
        task, "predict", lambda model, data: [data.rows.spans(int(i)) for i in data.indices]
    )
    study = tiny_study("fedner", task, natural(task), rounds=3, lr=0.01)
    target, _ = study.method.exchanges
    tags = 1 + 2 * len(task.labels)
    assert target.masked["target"].shape == (tags, 8)
    assert "classifier" in target.disclosures[0].shape
    _, folder = run(study)
    kept = load_file(folder / "silos" / "silo-000" / "memory.safetensors")
    weights = kept["last/instance_weights"]
    known = [bool(task.subset(np.array([i])).gold(0)) for i in study.partition.indices[0]]
    moved = weights != 1.0
    # only sentences with an entity of the silo's own have a gradient that could move their weight
    assert moved.any() and not (moved & ~np.array(known)).any()
    assert weights[known].mean() == pytest.approx(1.0, abs=1e-5)


def test_evaluation_has_domains_types_and_what_is_trained() -> None:
    task = tiny_task()
    e = task.evaluate(task.new_model(0).eval(), "dev")
    assert {"f1 report", "f1 forum", "f1 note", "precision", "recall", "micro_f1"} <= set(e.figures)
    assert 0 < e.figures["share_trained"] < 0.5
    assert set(e.per_class) <= set(task.labels)


def test_dev_can_be_scored_on_a_sample_and_the_report_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = tiny_task(dev_sample=6)
    model = task.new_model(0).eval()
    seen: list[int] = []

    def predict(model: nn.Module, data: Data) -> list[list[Span]]:
        seen.extend(data.indices.tolist())
        return [data.rows.spans(int(i)) for i in data.indices]

    monkeypatch.setattr(task, "predict", predict)
    assert task.evaluate(model, "dev").value == 1.0 and len(seen) == 6
    assert task.held_out("dev")["sentences"] == 6
    assert "scored on 6 of 12 dev sentences" in task.corpus_note
    seen.clear()
    task.evaluate(model, "test")
    assert len(seen) == task.held_out("test")["sentences"] == 12


def test_the_tag_sets_of_silos_that_share_a_domain() -> None:
    task = tiny_task()
    domain = np.asarray(task.corpus.splits["train"].domain)
    halves = [half for ix in natural(task) for half in np.array_split(np.array(ix), 2)]
    task.divided(halves)
    assert task.platforms == 3 and (task.platform == domain).all()
    assert (task.known[halves[0]] == task.known[halves[1]][:1]).all()
    assert task.tag_sets.any(axis=0).all()  # every type is declared by somebody
    counts = np.sum([task.label_counts(ix) for ix in halves], axis=0)
    rows = task.corpus.splits["train"]
    assert counts.sum() == sum(int(task.known[i, t]) for i in range(36) for *_, t in rows.spans(i))


def test_the_saved_model_opens_again(tmp_path: Path) -> None:
    from coordinator.checkpoint import save_model
    from models.pointer import open_model

    task = tiny_task()
    model = task.new_model(5).eval()
    assert isinstance(model, PointerNer)
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


@pytest.mark.parametrize(("bits", "network"), [(32, "pointer"), (16, "pointer"), (16, "tagger")])
def test_weights_do_not_follow_rounding(
    bits: int, network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first silo has types to be taught, so nobody else has a target gradient: what is left
    of the sum without its own part must be nothing, and its weights must stay one.
    """
    task = tiny_task(network=network)
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
