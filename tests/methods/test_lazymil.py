"""Lazy MIL against an outcome worked out on paper, and the properties the paper's released code
lacks.
"""

from __future__ import annotations

import hmac
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from config.errors import UserError
from methods import build
from methods.base import Answer, Arrays, Folded, Heard, SiloView, State
from methods.common.bag_names import keyed_names
from methods.common.training import parameters
from methods.lazymil import (
    Options,
    best_of_bags,
    naming_of,
    score,
    train_on_winners,
    winners,
)
from methods.tasks.distant import DistantTask
from methods.tasks.distant_bags import Bags, Rows
from tests.methods.naming import named
from tests.methods.plain import SECRET, resolved, run
from tests.methods.small_distant import TWELVE, twelve


class ByWord(nn.Module):
    """A model worked out by hand: p(r | s) depends on the verb alone.

    verb    NA    treats  causes
    cures   1/8   3/4     1/8
    harms   1/8   1/8     3/4
    near    1/2   1/4     1/4
    """

    table = {
        "cures": (0.125, 0.75, 0.125),
        "harms": (0.125, 0.125, 0.75),
        "near": (0.5, 0.25, 0.25),
    }

    def __init__(self, task: DistantTask) -> None:
        super().__init__()
        self.verbs = {
            task.word_number(v): torch.log(torch.tensor(p)) for v, p in self.table.items()
        }

    def forward(
        self,
        words: torch.Tensor,
        lengths: torch.Tensor,
        head_at: torch.Tensor,
        tail_at: torch.Tensor,
    ) -> torch.Tensor:
        return torch.stack(
            [next(self.verbs[w] for w in row.tolist() if w in self.verbs) for row in words]
        )


NAMING = naming_of(resolved(silos=3), Options(warmup=0.0))
HAVE = {"names/committee": np.array([0, 1], np.int32)}  #: what a silo with names is told
LEVEL = {"level": np.array([1 << 20])}

Federation = tuple[DistantTask, list[SiloView[DistantTask, Rows]]]


@pytest.fixture
def federation(monkeypatch: pytest.MonkeyPatch) -> Federation:
    task = twelve()
    monkeypatch.setattr(type(task), "new_model", lambda self, seed: ByWord(self))
    parts = [np.flatnonzero([s == k for s, *_ in TWELVE]) for k in range(3)]
    s = resolved(silos=3)
    views = [SiloView(k, task, task.subset(parts[k]), s, SECRET) for k in range(3)]
    return task, named(NAMING, views)


def test_twelve_sentences_give_the_winners_worked_out_on_paper(federation: Federation) -> None:
    """Bags and values by hand (silo: row of its own with the best value):

    aspra-treats-febra: 0: row 0 (3/4); 1: row 0 (1/4); 2: row 2 (1/4)  -> silo 0, row 0
    aspra-treats-gripa: 0: row 2 (3/4); 1: row 1 (3/4)                  -> a tie: silo 0, row 2
    dolox-NA-gripa:     0: row 3 (1/2); 1: row 3 (1/2); 2: row 3 (1/2)  -> a tie: silo 0, row 3
    dolox-causes-febra: 1: row 2 (3/4); 2: rows 0 and 1 (1/4)           -> silo 1, row 2
    """
    task, silos = federation
    answers = {v.index: score(v, Heard(0, (0, 1, 2), {}, HAVE), NAMING) for v in silos}
    assert {k: sorted(a.sealed["values"].tolist()) for k, a in answers.items()} == {
        0: [32768, 49151, 49151],
        1: [16384, 32768, 49151, 49151],
        2: [16384, 16384, 32768],
    }
    won = winners({k: a.sealed for k, a in answers.items()})
    rows = {k: sorted(answers[k].carry["best"][won[k]].tolist()) for k in won}
    assert rows == {0: [0, 2, 3], 1: [2], 2: []}


def test_within_a_silo_the_first_of_equal_sentences_wins(federation: Federation) -> None:
    _, silos = federation
    alone = score(silos[2], Heard(0, (2,), {}, HAVE), NAMING)
    won = winners({2: alone.sealed})[2]
    # Rows 0 and 1 are the same sentence of the same bag: row 0 stands for it.
    assert sorted(alone.carry["best"][won].tolist()) == [0, 2, 3]


def test_metrics_of_the_twelve_sentence_corpus(federation: Federation) -> None:
    """Ranked facts by hand, best first (equal scores in the order head, tail, relation, as first
    seen):

    aspra-tussa treats 3/4 (true), dolox-tussa causes 3/4 (true), febra-gripa treats 3/4 (false),
    then 1/4 and 1/8: five more, none true. Entities are numbered aspra 0, febra 1, gripa 2, dolox
    3, tussa 4, so the order among the three is aspra-tussa, febra-gripa, dolox-tussa: hits 1, 0, 1.
    """
    task, _ = federation
    # softmax(log p) is p but for a last bit
    scores = np.round(task.bag_scores(ByWord(task), *_test_bags(task)), 6)
    assert scores[:, 1:].tolist() == [[0.75, 0.25], [0.75, 0.125], [0.25, 0.25], [0.125, 0.75]]
    from corpora.distant.scores import curve

    gold = np.array([[1, 0], [0, 0], [0, 0], [0, 1]], bool)
    c = curve(scores[:, 1:].ravel(), gold.ravel(), 2)
    assert c.precision[:3].tolist() == [1.0, 0.5, 2 / 3]
    assert c.recall[:3].tolist() == [0.5, 0.5, 1.0]
    # From the third point on recall stays 1: area = (1 - 1/2) * (1/2 + 2/3) / 2.
    assert c.auc() == pytest.approx(0.5 * (0.5 + 2 / 3) / 2)


def _test_bags(task: DistantTask) -> tuple[Rows, Bags]:
    data = Rows(task.corpus.test, np.arange(len(task.corpus.test)))
    return data, task.bags(data, by_label=False)


def test_every_silo_trains_on_own_sentences_and_once_per_bag() -> None:
    """The released code trains every silo on the union of all winners; here D*_i is a subset of
    D_i, always.
    """
    seen: list[tuple[int, int, np.ndarray]] = []

    def watch(exchange: str, view: SiloView, heard: Heard, answer: Answer) -> None:
        if exchange == "score":
            assert set(answer.sealed) == {"names", "values"} and not answer.masked
            assert set(answer.carry["best"]) <= set(range(len(view.data.indices)))
        elif exchange == "train":
            assert set(heard.private) == {"winners"} and set(heard.common) == {"level"}
            own = view.data.indices[view.carry["best"][heard.private["winners"].astype(int)]]
            assert set(own) <= set(view.data.indices)
            assert answer.masked and not answer.sealed
            seen.append((heard.round, view.index, own))

    s = resolved(
        method="lazymil", corpus="distant:sentences=600,dev=60,test=60", silos=4, rounds=2, epochs=1
    )
    task, _, _ = run(s, watch=watch)
    assert isinstance(task, DistantTask)
    t = task.corpus.train
    every = len(set(zip(t.head.tolist(), t.tail.tolist(), t.relation.tolist())))
    for round in range(2):
        rows = np.concatenate([own for r, _, own in seen if r == round])
        bags = set(zip(t.head[rows].tolist(), t.tail[rows].tolist(), t.relation[rows].tolist()))
        assert len(rows) == len(bags) == every


def test_what_a_silo_trains_on_is_exactly_its_winners(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[np.ndarray] = []

    def note(
        silo: SiloView, model: nn.Module, round: int, data: Rows, **how: object
    ) -> dict[str, float]:
        trained.append(data.indices)
        return {}

    monkeypatch.setattr("methods.common.training.train", note)
    task = twelve()
    view = SiloView(1, task, task.subset(np.arange(4, 8)), resolved(), SECRET)
    start = parameters(task.new_model(0))
    carry = {"model": start, "best": np.array([3, 0, 2]), "values": np.zeros(3, np.uint16)}
    private = {"winners": np.array([2, 0], np.uint32)}
    train_on_winners(replace(view, carry=carry), Heard(0, (0, 1), LEVEL, private))
    assert trained[0].tolist() == [6, 7]


def test_a_silo_without_winners_sends_zeros_and_still_counts() -> None:
    task = twelve()
    s = resolved(silos=3)
    method = build("lazymil", task, s)
    start = method.init(0)
    view = SiloView(2, task, task.subset(np.arange(8, 12)), s, SECRET)
    carry = {"model": start.model, "best": np.array([0, 2, 3]), "values": np.zeros(3, np.uint16)}
    view, private = replace(view, carry=carry), {"winners": np.zeros(0, np.uint32)}
    nothing = train_on_winners(view, Heard(0, (0, 1, 2), LEVEL, private))
    assert all(not v.any() for v in nothing.masked.values())
    ones = {name: np.ones(v.shape) for name, v in nothing.masked.items()}
    total = {name: ones[name] + v for name, v in nothing.masked.items()}
    after = method.exchanges[-1].fold(start, Folded(0, (0, 2), total, {}))
    # one of the two survivors moved by one: the mean moves by a half
    for name, value in start.model.items():
        np.testing.assert_allclose(after.model[name] - value, 0.5, atol=1e-6)


def test_warm_up_rounds_name_no_bag_and_train_on_everything_like_fedavg() -> None:
    """rounds=5, warmup=0.4: rounds 0 and 1 are warm. Silos are equal, so the uniform mean is also
    FedAvg's.
    """
    corpus = "distant:sentences=600,dev=60,test=60"
    s = resolved(
        method="lazymil", corpus=corpus, silos=4, rounds=5, epochs=1, options={"warmup": 0.4}
    )
    sent: dict[int, list[int]] = {}
    trained: dict[int, float] = {}
    models: dict[str, list[Arrays]] = {"lazymil": [], "fedavg": []}

    def watch(exchange: str, view: SiloView, heard: Heard, answer: Answer) -> None:
        if exchange == "score":
            sent.setdefault(heard.round, []).append(
                len(answer.sealed["names"]) + len(answer.sealed["values"])
            )
        elif exchange == "train":
            trained[heard.round] = trained.get(heard.round, 0) + answer.notes["examples"]

    run(s, watch=watch, after=lambda r, state: models["lazymil"].append(state.model))
    run(
        replace(s, method="fedavg", options={}, rounds=2),
        after=lambda r, state: models["fedavg"].append(state.model),
    )
    assert sent[0] == sent[1] == [0, 0, 0, 0] and all(n > 0 for r in (2, 3, 4) for n in sent[r])
    assert trained[0] == trained[1] == 600 and all(trained[r] < 600 for r in (2, 3, 4))
    for round in (0, 1):
        for name, value in models["fedavg"][round].items():
            np.testing.assert_allclose(models["lazymil"][round][name], value, atol=1e-6)


def test_in_a_warm_up_round_the_coordinator_cannot_choose_what_a_silo_trains_on() -> None:
    task = twelve()
    s = resolved(silos=3, rounds=5)  # the default: two fifths, so rounds 0 and 1
    method = build("lazymil", task, s)
    view = SiloView(1, task, task.subset(np.arange(4, 8)), s, SECRET)
    *_, asked, train_exchange = method.exchanges
    first = asked.answer(view, Heard(1, (0, 1, 2), method.init(0).model))
    view = replace(view, carry=first.carry)
    lie = Heard(1, (0, 1, 2), {}, {"winners": np.array([0], np.uint32)})
    assert train_exchange.answer(view, lie).notes["examples"] == 4


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_warm_up_that_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(UserError, match="warmup"):
        build("lazymil", twelve(), resolved(options={"warmup": share}))


def test_an_empty_silo_takes_part() -> None:
    task = twelve()
    s = resolved(silos=3)
    view = SiloView(0, task, task.subset(np.zeros(0, int)), s, SECRET)
    answer = score(view, Heard(0, (0,), parameters(task.new_model(0))), NAMING)
    assert answer.sealed["names"].shape == (0, 16) and answer.sealed["values"].shape == (0,)
    assert winners({0: answer.sealed})[0].size == 0
    after = train_on_winners(replace(view, carry=answer.carry), Heard(0, (0,), LEVEL, {}))
    assert all(not v.any() for v in after.masked.values())


def test_names_are_keyed_change_every_round_and_agree_between_silos() -> None:
    a = keyed_names(b"k", 3, [b"x", b"y"])
    assert not (a == keyed_names(b"k", 4, [b"x", b"y"])).all(axis=1).any()
    assert not (a == keyed_names(b"l", 3, [b"x", b"y"])).all(axis=1).any()


@pytest.mark.parametrize("secret", [b"", b"k", b"s" * 64, b"long" * 40])
def test_names_are_what_hmac_gives(secret: bytes) -> None:
    said = [b"", b"a\x1fr\x1fb", b"z" * 200]
    prefix = b"sottovoce lazymil bag\x00" + (7).to_bytes(8, "big")
    expected = [hmac.digest(secret, prefix + t, "sha256")[:16] for t in said]
    assert [bytes(n) for n in keyed_names(secret, 7, said)] == expected


def test_the_coordinator_keeps_only_winners_and_each_silo_hears_only_its_own() -> None:
    task = twelve()
    method = build("lazymil", task, resolved(silos=3))
    parts = [np.arange(4 * k, 4 * k + 4) for k in range(3)]
    start = method.init(0)
    sealed = {}
    for k in range(3):
        view = SiloView(k, task, task.subset(parts[k]), resolved(silos=3), SECRET)
        sealed[k] = score(view, Heard(0, (0, 1, 2), start.model), NAMING).sealed
    state = method.exchanges[-2].fold(start, Folded(0, (0, 1, 2), {}, sealed))
    kinds = ("winners", "weights", "bags")
    assert set(state.memory) == {f"{kind}/{k}" for kind in kinds for k in range(3)}
    said = method.exchanges[-1].broadcast(state, 0, (0, 1, 2))
    assert {k: v.size for k, v in said.common.items()} == {"level": 1}
    for k in range(3):
        assert set(said.private[k]) == {"winners"}
        assert (said.private[k]["winners"] < len(sealed[k]["values"])).all()
    assert isinstance(method.exchanges[-1].fold(state, Folded(0, (), {}, {})), State)


def test_a_message_of_unequal_lengths_is_taken_as_empty() -> None:
    good = {"names": keyed_names(b"k", 0, [b"a"]), "values": np.array([7], np.uint16)}
    bad = {"names": keyed_names(b"k", 0, [b"a", b"b"]), "values": np.array([9], np.uint16)}
    won = winners({0: good, 1: bad})
    assert won[0].tolist() == [0] and won[1].size == 0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=8),
        min_size=1,
        max_size=4,
    )
)
def test_the_two_halves_choose_as_one_rule_over_all_sentences(
    silos: list[list[tuple[int, int]]],
) -> None:
    """Slow truth: of all sentences of a bag the highest value, then the lowest silo, then the
    lowest row.
    """
    truth: dict[int, tuple[int, int, int]] = {}
    for k, rows in enumerate(silos):
        for i, (bag, value) in enumerate(rows):
            truth[bag] = min(truth.get(bag, (1, 0, 0)), (-value, k, i))
    scored, best_rows = {}, {}
    for k, rows in enumerate(silos):
        bags = np.array([b for b, _ in rows], dtype=int)
        values = np.array([v for _, v in rows], dtype=np.uint16)
        order = np.argsort(bags, kind="stable")
        changed = (
            np.flatnonzero(np.diff(bags[order], prepend=-1)) if len(rows) else np.zeros(0, int)
        )
        best = best_of_bags(values, order, np.append(changed, len(rows)))
        names = keyed_names(b"k", 0, [bytes([bags[i]]) for i in best])
        scored[k], best_rows[k] = {"names": names, "values": values[best]}, best
    won = winners(scored)
    chosen = {(k, int(best_rows[k][p])) for k in won for p in won[k]}
    assert chosen == {(k, i) for _, k, i in truth.values()}
