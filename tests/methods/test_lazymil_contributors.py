"""When a silo of Lazy MIL says that others can hide behind it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from config.errors import UserError
from methods import build
from methods.base import Answer, Arrays, Heard, SiloView
from methods.common.contribution import enough
from methods.common.training import parameters
from methods.lazymil import Silo, train_on_all, train_on_winners
from methods.lazymil_private import kept_buckets, kept_enough
from tests.methods.plain import SECRET, resolved
from tests.methods.small_distant import twelve

BAGS = np.array([3, 0, 2, 1])


def _view(rows: range = range(4, 8), memory: Arrays | None = None) -> Silo:
    task = twelve()
    carry = {"model": parameters(task.new_model(0)), "best": BAGS}
    view = SiloView(1, task, task.subset(np.array(rows, dtype=int)), resolved(), SECRET)
    return replace(view, carry=carry, memory=memory or {})


def _told(*winners: int) -> Heard:
    return Heard(9, (0, 1, 2), {}, {"winners": np.array(winners, np.uint32)})


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


def test_a_bag_said_twice_is_trained_on_once() -> None:
    one, many = (train_on_winners(_view(), _told(*w)) for w in ((2,), (2, 2, 2)))
    assert all(np.array_equal(many.masked[name], a) for name, a in one.masked.items())


def test_without_a_winner_told_it_does_not_contribute() -> None:
    assert not train_on_winners(_view(), Heard(9, (0, 1, 2), {})).contributes


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
