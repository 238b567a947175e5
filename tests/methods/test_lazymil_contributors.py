"""When a silo of Lazy MIL says that others can hide behind it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given as given_
from hypothesis import strategies as st

from config.errors import UserError
from methods import build
from methods.base import Answer, Arrays, Contradiction, Heard, SiloView
from methods.common.contribution import (
    STEPS,
    enough,
    level_of,
    quantise,
    weights,
    with_ties,
    within,
)
from methods.common.training import parameters
from methods.lazymil import Silo, train_on_all, train_on_winners
from methods.lazymil_private import kept_buckets, kept_enough
from methods.tasks.distant_bags import Rows
from tests.methods.plain import SECRET, resolved
from tests.methods.small_distant import twelve

BAGS = np.array([3, 0, 2, 1])
VALUES = np.full(4, STEPS + 1 - 100)  #: each bag weighs 100
LEVEL = {"level": np.array([400])}


def _view(rows: range = range(4, 8), memory: Arrays | None = None) -> Silo:
    task = twelve()
    carry = {"model": parameters(task.new_model(0)), "best": BAGS, "values": VALUES}
    view = SiloView(1, task, task.subset(np.array(rows, dtype=int)), resolved(), SECRET)
    return replace(view, carry=carry, memory=memory or {})


def _told(*winners: int) -> Heard:
    return Heard(9, (0, 1, 2), LEVEL, {"winners": np.array(winners, np.uint32)})


@pytest.mark.parametrize(
    ("winners", "floor", "contributes"),
    [
        ((), 0.25, False),
        ((), 0.0, False),  # of nothing nobody is hidden, whatever the floor
        ((2,), 0.25, True),
        ((2,), 0.26, False),
        ((2,), 0.0, True),
        ((2, 2, 2, 2), 0.5, False),  # one bag, however often it is said
        ((0, 1, 2, 3), 1.0, True),
    ],
)
def test_a_share_of_its_own_bags(winners: tuple[int, ...], floor: float, contributes: bool) -> None:
    assert train_on_winners(_view(), _told(*winners), floor).contributes is contributes


def test_bags_that_the_model_knows_are_not_enough() -> None:
    """Half of the bags, and nearly nothing of what another silo trains on."""
    values = np.array([STEPS, STEPS, STEPS + 1 - 200, STEPS + 1 - 198], np.uint16)
    view = replace(_view(), carry={**_view().carry, "values": values})
    assert not train_on_winners(view, _told(0, 1), 0.25).contributes  # 2 of 400
    assert train_on_winners(view, _told(0, 2), 0.5).contributes  # 201 of 400
    assert not train_on_winners(view, _told(2), 0.5).contributes  # as much, and too few bags


@pytest.mark.parametrize(
    ("doubts", "level"),
    [
        ([100, 100, 100, 101], 400),  # one bag too many
        ([1, 1, 1, 101], 100),
        ([100, 100, 100, 100], 99),  # not even one of those that weigh the same
        ([1, 100, 100, 101], 201),
        ([1, 100, 100, 100], 100),  # the sure one fits, and none of the others beside it
    ],
)
def test_more_than_anyone_is_said_to_train_on_is_a_lie(doubts: list[int], level: int) -> None:
    view = _doubtful(doubts)
    low = replace(_told(0, 1, 2, 3), common={"level": np.array([level])})
    with pytest.raises(Contradiction, match="more than all silos are told"):
        train_on_winners(view, low)
    whole = np.array([sum(doubts)])
    assert train_on_winners(view, replace(low, common={"level": whole})).contributes


def _doubtful(doubts: list[int]) -> Silo:
    """A silo whose bags weigh so much."""
    values = (STEPS + 1 - np.array(doubts)).astype(np.uint16)
    return replace(_view(), carry={**_view().carry, "values": values})


@pytest.mark.parametrize("level", [199, 300, 399, 400])
def test_of_bags_that_weigh_the_same_a_silo_keeps_the_first_that_fit(
    level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its own order, and never more than the level: the coordinator knows no order that is the
    same in every run.
    """
    trained: list[list[int]] = []

    def note(silo: Silo, round: int, data: Rows, contributes: bool) -> Answer:
        trained.append(data.indices.tolist())
        return Answer(contributes=contributes)

    monkeypatch.setattr("methods.lazymil._local_training", note)
    fit = level // 100
    for order in itertools.permutations(range(4)):
        view = replace(_view(), carry={**_view().carry, "best": np.array(order)})
        heard = replace(_told(0, 1, 2, 3), common={"level": np.array([level])})
        assert train_on_winners(view, heard, 0.25).contributes
        assert trained[-1] == [4, 5, 6, 7][:fit]


def test_the_coordinator_does_not_choose_among_bags_that_weigh_the_same() -> None:
    assert with_ties(np.array([5, 1, 5, 9]), 10).tolist() == [0, 1, 2]
    assert with_ties(np.array([5, 1, 5, 9]), 11).tolist() == [0, 1, 2]
    assert with_ties(np.array([5, 1, 5, 9]), 5).tolist() == [1]  # of the fives none fits
    assert with_ties(np.array([5, 5]), 4).tolist() == []
    assert with_ties(np.zeros(0, np.int64), 4).tolist() == []


@given_(st.lists(st.integers(1, 4), max_size=9), st.integers(0, 20), st.randoms())
def test_what_is_trained_on_does_not_hang_on_the_order_of_names(
    doubts: list[int], level: int, random: Random
) -> None:
    """The weights of a silo's winners in its own order, and in the order of two runs' names."""
    own, kept = np.array(doubts, np.int64), []
    for _ in range(2):
        names = np.array(random.sample(range(len(own)), len(own)), np.int64)
        told = np.sort(names[with_ties(own[names], level)])  # as the silo puts them
        assert len(with_ties(own[told], level)) == len(told)  # it refuses none of an honest list
        kept.append(told[within(own[told], level)].tolist())
    assert kept[0] == kept[1] == within(own, level).tolist()


def test_weights_count_steps_to_certainty_and_one() -> None:
    assert weights(np.array([STEPS, STEPS - 1, 0], np.uint16)).tolist() == [1, 2, STEPS + 1]


def test_a_level_leaves_the_least_certain_out() -> None:
    assert within(np.array([5, 1, 9, 1]), 7).tolist() == [0, 1, 3]
    assert within(np.array([5, 1, 9, 1]), 16).tolist() == [0, 1, 2, 3]
    assert within(np.array([5, 1, 9, 1]), 0).tolist() == []


def _given(*silos: list[int]) -> dict[int, np.ndarray]:
    return {i: np.array(w, dtype=np.int64) for i, w in enumerate(silos)}


def test_the_level_is_what_the_silo_with_most_has_where_that_leaves_enough() -> None:
    given, bags = _given([40, 60], [30], [25], [1]), dict.fromkeys(range(4), 2)
    assert level_of(given, bags, 3, 0.25) == 100
    # three have a quarter of 100, the fourth of 4: the others are then to leave bags out
    assert level_of(_given([2, 98], [2, 28], [2, 23], [1]), bags, 4, 0.25) == 4
    # one with too few of its bags does not count, whatever they weigh
    assert level_of(given, {**bags, 2: 9}, 3, 0.25) == 100
    assert level_of(_given([100], [100], []), dict.fromkeys(range(3), 1), 3, 0.25) == 100
    assert level_of(_given([], []), {0: 0, 1: 3}, 2, 0.25) == 0


@given_(
    st.lists(st.lists(st.integers(1, STEPS + 1), max_size=8), min_size=1, max_size=6), st.data()
)
def test_at_the_level_as_many_contribute_as_must_or_it_is_everybodys(
    won: list[list[int]], data: st.DataObject
) -> None:
    given, floor = _given(*won), data.draw(st.floats(0.0, 1.0))
    needed = data.draw(st.integers(0, len(won)))
    bags = {s: len(w) + data.draw(st.integers(0, 3)) for s, w in given.items()}
    level = level_of(given, bags, needed, floor)
    kept = {s: w[within(w, level)] for s, w in given.items()}
    assert all(w.sum() <= level for w in kept.values())
    there = sum(
        enough(len(w), bags[s], floor) and enough(w.sum(), level, floor) for s, w in kept.items()
    )
    assert there >= needed or level == max(w.sum() for w in given.values())


def test_a_bag_said_twice_is_trained_on_once() -> None:
    one, many = (train_on_winners(_view(), _told(*w)) for w in ((2,), (2, 2, 2)))
    assert all(np.array_equal(many.masked[name], a) for name, a in one.masked.items())


def test_without_a_winner_told_it_does_not_contribute() -> None:
    assert not train_on_winners(_view(), Heard(9, (0, 1, 2), LEVEL)).contributes


def test_in_the_warm_start_whoever_has_a_sentence_contributes() -> None:
    assert train_on_all(_view(), _told()).contributes
    assert not train_on_all(_view(range(0)), _told()).contributes


@pytest.mark.parametrize("floor", [-0.1, 1.1, float("nan")])
def test_a_floor_that_is_no_share(floor: float) -> None:
    with pytest.raises(UserError, match='Option "floor" of lazymil'):
        build("lazymil", twelve(), resolved(options={"floor": floor}))


@pytest.mark.parametrize("dp", ["off", "record"])
def test_it_is_declared(dp: str) -> None:
    noise = {"dp": "record", "noise": 2.0} if dp == "record" else {}
    method = build("lazymil", twelve(), resolved(**noise, options={"floor": 0.3}))
    *_, scoring, training = method.exchanges
    assert training.contributors and not scoring.contributors
    (word,) = (d for d in training.disclosures if d.channel == "signed")
    assert word.name == "contributes" and "30%" in word.shape
    assert word.readable_by == "the coordinator and the silos of the sum"
    assert not any(d.unless for d in training.disclosures)


# With DP=record: by the noisy values that it sent, and by nothing else of its own

BUCKETS = 64


def _learned(winners: list[int], **memory: np.ndarray) -> Answer:
    s = resolved(dp="record", noise=2.0, rounds=10, options={"buckets": BUCKETS, "warmup": 0.0})
    method = build("lazymil", twelve(), s)
    view = replace(_view(memory=memory), settings=s, privacy=method.privacy)
    return method.exchanges[1].answer(
        view, replace(_told(), private={"winners": np.array(winners)})
    )


def _half() -> np.ndarray:
    """A value in every second bucket."""
    return np.tile(np.array([1.0, 0.0], np.float32), BUCKETS // 2)


def test_with_noise_it_is_the_share_of_the_values_sent() -> None:
    quarter = list(range(0, BUCKETS, 8))
    assert _learned(quarter, values=_half()).contributes
    assert not _learned(quarter[1:], values=_half()).contributes
    # as many buckets as there are, but those in which it has nothing
    assert not _learned(list(range(1, BUCKETS, 2)), values=_half()).contributes
    # one said often, and some that are no buckets
    assert not _learned([0] * BUCKETS, values=_half()).contributes
    assert not _learned([0, *range(BUCKETS, 9 * BUCKETS)], values=_half()).contributes


def test_with_noise_a_silo_that_sent_no_values_is_nobodys_cover() -> None:
    assert not _learned(list(range(BUCKETS))).contributes


def test_noise_beyond_all_values_does_not_let_a_few_buckets_pass() -> None:
    """Values are taken as from 0 to 1: no single noisy one outweighs the others."""
    said = np.random.default_rng(0).normal(0, 50, 4096)
    best = np.argsort(said)[::-1]
    assert not kept_enough(said, best[:400], 0.25)
    assert kept_enough(said, best[:1200], 0.25)
    assert not kept_enough(np.zeros(8), np.arange(8), 0.25)
    assert not kept_enough(np.full(8, np.nan), np.arange(8), 0.0)


@pytest.mark.parametrize("deviation", [0.001, 0.3, 3.0])
def test_honest_winners_are_enough_at_every_noise(deviation: float) -> None:
    rng = np.random.default_rng(1)
    exact = np.where(rng.random((10, 4096)) < 0.22, rng.random((10, 4096)), 0.0)
    said = dict(enumerate(exact + rng.normal(0, deviation, exact.shape)))
    kept = kept_buckets(said, deviation)
    assert sum(kept_enough(said[s], kept[s].astype(int), 0.25) for s in said) == 10


def test_enough() -> None:
    assert enough(1, 4, 0.25) and not enough(0.99, 4, 0.25) and not enough(0, 0, 0.25)


def test_quantise_is_monotonous_and_spans_the_range() -> None:
    p = np.array([0.0, 1e-9, 0.25, 0.5, 0.99999, 1.0, 1.0000001], np.float32)
    q = quantise(p)
    assert (
        q.dtype == np.uint16
        and q[0] == 0
        and q[-1] == 65535
        and (np.diff(q.astype(int)) >= 0).all()
    )
