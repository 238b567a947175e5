"""Lazy MIL under DP=record: what one bag, or one sentence, can change of what leaves a silo."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from config.load import load
from methods.base import Folded, Heard, SiloView, State
from methods.lazymil_private import bucket_values, buckets_of, kept_buckets, scoring_rounds
from privacy.events import DpSgd, Event, RoundedGaussian
from study.prepare import prepare
from tests.methods.test_coverage import CORPORA

WORDS = {
    "method": "lazymil",
    "corpus": CORPORA["distant"][0],
    "silos": "3",
    "rounds": "4",
    "batch": "16",
}
KNOBS = {
    "epochs": "1",
    "dp": "record",
    "noise": "1e-6",
    "options.warmup": "0.25",
    "options.buckets": "16",
}


def test_when_it_scores() -> None:
    assert scoring_rounds(20, 8, 1) == {8}
    assert scoring_rounds(20, 8, 3) == {8, 12, 16}
    assert scoring_rounds(4, 4, 2) == frozenset()


def test_one_bag_moves_one_bucket_by_one_at_most_also_where_it_is_displaced() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        n = int(rng.integers(1, 12))
        best, bucket = rng.random(n), rng.integers(0, 4, n)
        whole = bucket_values(best, bucket, 4)
        assert whole.shape == (4,)  # whatever the silo has
        for gone in range(n):
            rest = np.delete(np.arange(n), gone)
            apart = whole - bucket_values(best[rest], bucket[rest], 4)
            assert (apart >= 0).all() and (apart > 0).sum() <= 1 and np.linalg.norm(apart) <= 1.0


def test_a_value_that_is_no_number_is_no_value() -> None:
    assert bucket_values(np.array([np.nan, 0.5, np.nan]), np.array([0, 0, 1]), 2).tolist() == [
        0.5,
        0.0,
    ]


def test_buckets_are_keyed_and_the_same_for_all_silos() -> None:
    names = [str(i).encode() for i in range(500)]
    one, again, other = (buckets_of(key, names, 64) for key in (b"secret", b"secret", b"x"))
    assert np.array_equal(one, again) and not np.array_equal(one, other)
    assert len(np.unique(one)) == 64


def test_only_who_is_clearly_beaten_loses_a_bucket() -> None:
    """Deviation 0.1: two deviations of a difference are 0.283."""
    said = {4: np.array([0.9, 0.5, 0.0, np.nan]), 7: np.array([0.5, 0.3, 0.1, 0.2])}
    kept = kept_buckets(said, 0.1)
    assert kept[4].tolist() == [0, 1, 2] and kept[7].tolist() == [1, 2, 3]
    exact = kept_buckets(said, 0.0)
    assert exact[4].tolist() == [0, 1] and exact[7].tolist() == [2, 3]
    rng = np.random.default_rng(0)  # noise far above the values: hardly anybody loses by chance
    noise = {i: rng.normal(0, 7, 4096) for i in range(4)}
    assert all(len(k) > 0.85 * 4096 for k in kept_buckets(noise, 7.0).values())


@pytest.fixture(scope="module")
def study() -> Any:
    return prepare(load(None, WORDS | KNOBS))


def _views(study: Any, spent: list[tuple[str, Event]]) -> list[SiloView]:
    return [
        SiloView(
            i,
            study.task,
            study.task.subset(ix),
            study.settings,
            b"s",
            spend=lambda *x: spent.append(x),
            privacy=study.method.privacy,
        )
        for i, ix in enumerate(study.partition.indices)
    ]


def test_a_round_of_it(study: Any) -> None:
    """Without noise to speak of: every bucket goes to the silo with the best sentence in it, and
    each silo trains on its own bags there, at a rate that does not tell how many these are.
    """
    score, learn = study.method.exchanges
    spent: list[tuple[str, Event]] = []
    views = _views(study, spent)
    state: State = study.method.init(0)
    nothing = [score.answer(v, Heard(0, (0, 1, 2), state.model)).sealed["values"] for v in views]
    # a warm round: nothing is scored or sent
    assert [len(x) for x in nothing] == [0, 0, 0] and not spent
    answers = [score.answer(v, Heard(1, (0, 1, 2), state.model)) for v in views]
    assert [what for what, _ in spent] == ["bucket values"] * 3 and isinstance(
        spent[0][1], RoundedGaussian
    )
    values = np.stack([a.sealed["values"] for a in answers])
    assert values.shape == (3, 16)
    folded = Folded(1, (0, 1, 2), {}, {i: a.sealed for i, a in enumerate(answers)})
    state = score.fold(state, folded)
    won = [state.memory[f"winners/{i}"] for i in range(3)]
    assert set(np.concatenate(won).tolist()) == set(range(16))
    for i in range(3):
        beaten = np.setdiff1d(np.arange(16), won[i])
        assert len(beaten) and (values[i][beaten] < values.max(axis=0)[beaten]).all()
        assert (values[i][won[i]] >= values.max(axis=0)[won[i]] - 1e-5).all()
    said = learn.broadcast(state, 1, (0, 1, 2))
    spent.clear()
    for i, v in enumerate(views):
        carried = replace(v, carry=answers[i].carry)
        learn.answer(carried, Heard(1, (0, 1, 2), said.common, said.private[i]))
        bags = len(study.task.bags(v.data))
        nominal = max(1, round(bags * len(won[i]) / 16))
        what, event = spent[-1]
        assert what == "training" and isinstance(event, DpSgd)
        assert event.rate == pytest.approx(min(1.0, 16 / nominal), rel=0.02)
    assert "names" not in score.sealed
