"""The registry, FedAvg, the bag baselines and the two references, in a plain loop without
crypto.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import methods
from config.errors import UserError
from config.settings import Settings
from methods.base import Answer, Folded, Heard, SiloView, State
from methods.common.training import parameters, train
from methods.common.weighted import weighted_mean
from methods.local import one_round_alone
from methods.tasks.distant import DistantTask, Knobs
from methods.tasks.load import load_task, task_name
from tests.methods.plain import SECRET, resolved, run
from tests.methods.small_distant import twelve

DISTANT = ("lazymil", "fedavg", "one", "ave", "att", "att_ra", "centralised", "local")
SMALL = "distant:sentences=400,dev=60,test=80"


@pytest.mark.parametrize("name", DISTANT)
def test_every_method_runs_and_sends_exactly_what_it_declares(name: str) -> None:
    def watch(exchange: str, view: SiloView, heard: Heard, answer: Answer) -> None:
        declared = next(e for e in built.exchanges if e.name == exchange)
        for sent, specs in ((answer.masked, declared.masked), (answer.sealed, declared.sealed)):
            assert set(sent) == set(specs)
            for key, array in sent.items():
                spec = specs[key]
                assert str(array.dtype) == spec.dtype and array.ndim == len(spec.shape)
                assert all(
                    want is None or want == got for want, got in zip(spec.shape, array.shape)
                )
        covered = {d.name for d in declared.disclosures}
        assert {key.split("/")[0] for key in (*answer.masked, *answer.sealed)} <= covered

    s = methods.adjusted(resolved(method=name, corpus=SMALL, silos=3, rounds=1, epochs=1))
    task = load_task(s)
    built = methods.build(name, task, s)
    _, method, state = run(s, task, watch=watch)
    start = method.init(s.seed).model
    assert any((state.model[k] != start[k]).any() for k in start)
    if method.evaluate is not None:
        assert 0.0 <= method.evaluate(state.model, "test").value <= 1.0


def test_two_runs_of_one_seed_agree_bit_for_bit() -> None:
    s = resolved(method="lazymil", corpus=SMALL, silos=3, rounds=2, epochs=1)
    first, second = (run(s)[2].model for _ in range(2))
    assert all((first[k] == second[k]).all() for k in first)


def test_fedavg_weighs_by_size_up_to_the_cap() -> None:
    task = twelve()
    s = resolved(method="fedavg", silos=2, epochs=1, options={"weight_cap": 4})
    method = methods.build("fedavg", task, s)
    state = method.init(0)
    parts = [np.arange(2), np.arange(2, 12)]
    answers = []
    for k in (0, 1):
        view = SiloView(k, task, task.subset(parts[k]), s, SECRET)
        answers.append(method.exchanges[0].answer(view, Heard(0, (0, 1), state.model)).masked)
    assert [a["weight"].tolist() for a in answers] == [[0.5], [1.0]]
    total = {k: answers[0][k].astype(np.float64) + answers[1][k] for k in answers[0]}
    after = weighted_mean(state, Folded(0, (0, 1), total))
    for name, value in state.model.items():
        own = [a[f"update/{name}"] / a["weight"][0] for a in answers]
        np.testing.assert_allclose(
            after.model[name], value + (0.5 * own[0] + own[1]) / 1.5, atol=1e-6
        )


@pytest.mark.parametrize("clip_norm", [0.0, 0.5])
def test_training_with_the_written_step_is_training_with_autograd(clip_norm: float) -> None:
    """To the bit, dropout and the clipped norm included."""
    small = twelve()
    task = DistantTask(small.corpus, Knobs(dropout=0.2))
    s = resolved(method="fedavg", silos=1, epochs=4, batch=5, clip_norm=clip_norm)
    view = SiloView(0, task, task.subset(np.arange(12)), s, SECRET)
    ends = []
    ways: tuple[dict[str, Any], ...] = (
        {},
        {"loss": task.loss},
        {"drift": lambda _: torch.zeros(())},
    )
    for how in ways:
        model = task.new_model(0)
        notes = train(view, model, 0, **how)
        ends.append((notes, parameters(model)))
    for notes, found in ends[1:]:
        assert notes == ends[0][0]
        assert all(np.array_equal(v, ends[0][1][k]) for k, v in found.items())


def test_fedavg_of_empty_silos_changes_nothing() -> None:
    task = twelve()
    s = resolved(method="fedavg", silos=2)
    method = methods.build("fedavg", task, s)
    state = method.init(0)
    view = SiloView(0, task, task.subset(np.zeros(0, int)), s, SECRET)
    answer = method.exchanges[0].answer(view, Heard(0, (0,), state.model)).masked
    assert answer["weight"].tolist() == [0.0] and not any(v.any() for v in answer.values())
    assert (
        weighted_mean(state, Folded(0, (0,), {k: v.astype(float) for k, v in answer.items()}))
        is state
    )


def test_local_is_the_inner_method_in_a_federation_of_one() -> None:
    """A round of `local` at silo k equals a run of Lazy MIL in which silo k is the only one."""
    task = twelve()
    s = resolved(method="local", silos=3, epochs=1)
    inner = methods.build("lazymil", task, s)
    start = inner.init(0)
    view = SiloView(1, task, task.subset(np.arange(4, 8)), s, SECRET)
    alone = one_round_alone(inner, view, State(start.model), 0)
    method = methods.build("local", task, s)
    state = method.init(0)
    said = method.exchanges[0].broadcast(state, 0, (0, 1, 2))
    answer = method.exchanges[0].answer(view, Heard(0, (0, 1, 2), said.common, said.private[1]))
    after = method.exchanges[0].fold(state, Folded(0, (1,), {}, {1: answer.sealed}))
    for name, value in alone.model.items():
        assert (after.model[f"1/{name}"] == value).all() and (
            after.model[f"0/{name}"] == start.model[name]
        ).all()


def test_references_say_what_they_are_and_what_they_override() -> None:
    s = methods.adjusted(
        Settings(method="centralised", silos=10, fraction=0.1, partition="dirichlet:0.1")
    )
    assert (s.silos, s.fraction, s.partition, s.secagg, s.runner) == (
        1,
        1.0,
        "iid",
        False,
        "inprocess",
    )
    assert "not a federation" in methods.describe("local").reference
    assert not methods.describe("lazymil").reference
    assert methods.adjusted(Settings()) == Settings()
    with pytest.raises(UserError, match='"lazymil"'):
        methods.build(
            "centralised", twelve(), Settings(method="centralised", options={"of": "lazymill"})
        )
    task = load_task(resolved(method="centralised", corpus=SMALL, options={"of": "att"}))
    assert isinstance(task, DistantTask) and task.bag_rule == "att"


def test_every_method_describes_itself() -> None:
    for name in methods.names():
        about = methods.describe(name)
        assert about.summary.endswith((".", "?")) and about.citation and about.tasks


@pytest.mark.parametrize(
    ("method", "options", "says"),
    [
        ("fedavg", {"weight_capp": 3}, '"weight_cap"'),
        ("fedavg", {"weight_cap": 3.5}, "whole number"),
        ("fedavg", {"weight_cap": True}, "whole number"),
        ("lazymil", {"droput": 0.1}, '"dropout"'),
        ("lazymil", {"dropout": "much"}, "a number"),
    ],
)
def test_a_wrong_option_is_one_clear_sentence(
    method: str, options: dict[str, object], says: str
) -> None:
    with pytest.raises(UserError) as e:
        methods.build(method, twelve(), Settings(method=method, options=options))
    assert says in str(e.value) and "\n" not in str(e.value)


def test_unknown_names() -> None:
    with pytest.raises(UserError, match='Did you mean "lazymil"'):
        methods.find("lazymill")
    with pytest.raises(UserError, match="neither built in"):
        task_name(Settings(method="lazymil", corpus="/nowhere/at/all"))
    assert task_name(Settings()) == "distant" and methods.default_corpus("lazymil") == "distant"


def test_the_task_cuts_pads_and_groups() -> None:
    task = twelve()
    data = task.subset(np.arange(12))
    batch = task.batch(data, np.array([0, 3]))
    assert (
        batch.words.shape == (2, 4)
        and batch.lengths.tolist() == [4, 4]
        and batch.relation.tolist() == [1, 0]
    )
    assert task.triples(data, np.array([0])) == [b"aspra\x1ftreats\x1ffebra"]
    bags = task.bags(data)
    assert sorted(bags.sizes.tolist()) == [2, 3, 3, 4] and len(task.bags(data, by_label=False)) == 4
    seen = [r for b in task.batches(data, 5, np.random.default_rng(0)) for r in b.relation.tolist()]
    # nobody lost, the last batch kept
    assert sorted(seen) == sorted(task.corpus.train.relation.tolist())
    assert list(task.batches(task.subset(np.zeros(0, int)), 5, np.random.default_rng(0))) == []


def test_batches_looked_up_together_are_those_looked_up_one_by_one() -> None:
    task = load_task(resolved(corpus=SMALL))
    data = task.subset(np.random.default_rng(1).permutation(200))
    # The same draws, from which one batch after another is put together.
    rng = np.random.default_rng(5)
    order, lengths = rng.permutation(200), data.sentences.lengths[data.indices]
    blocks = [order[g : g + 48] for g in range(0, 200, 48)]
    cuts = [
        b[np.argsort(lengths[b], kind="stable")][c : c + 3]
        for b in blocks
        for c in range(0, len(b), 3)
    ]
    expected = [task.batch(data, cuts[c]) for c in rng.permutation(len(cuts))]
    found = list(task.batches(data, 3, np.random.default_rng(5)))
    assert len(found) == len(expected) > 64  # more than two blocks of 32
    for a, b in zip(found, expected, strict=True):
        assert all(
            torch.equal(x, y)
            for x, y in zip((*a.inputs, a.relation), (*b.inputs, b.relation), strict=True)
        )


def test_a_hashed_vocabulary_is_the_same_everywhere_and_asks_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = twelve()
    hashed = type(task)(
        replace(task.corpus, meta={**task.corpus.meta, "public_words": False}), task.knobs
    )
    assert hashed.vocabulary_kind == "hashed" and 2 <= hashed.word_number(
        "Febra"
    ) == hashed.word_number("febra")
    assert "vocabulary.txt" not in hashed.model_files()
    given = type(task)(
        task.corpus, task.knobs, vectors=(("febra", "cures"), np.ones((2, 7), np.float32))
    )
    assert given.word_number("cures") == 3 and given.word_number("unheard") == 1
    assert parameters(given.new_model(0))["word.weight"].shape == (4, 7)
