"""Which silos are counted on when not all take part in a round, and what a silo pins of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.simulation.inprocess import InProcessCarrier
from config.errors import UserError
from config.load import load
from config.settings import Settings
from coordinator.cohorts import cohort_of, draws, least_in_a_session, select
from coordinator.runlog import RunLog
from crypto.sum.graph import draw_cohort
from crypto.sum.params import (
    Policy,
    cohort_floor,
    least_honest,
    least_survivors,
    parameters,
    policy_for,
    tail,
)
from methods.base import silo_name
from study.agreement import cohort_source
from study.prepare import prepare
from tests.faults.world import tiny


@pytest.mark.parametrize(("silos", "least"), [(3, 3), (5, 3), (10, 5), (30, 11), (100, 35)])
def test_the_roster_is_counted_wherever_a_round_outnumbers_the_corrupt(
    silos: int, least: int
) -> None:
    """Ten silos, three corrupt: from five on, whoever a coordinator names."""
    for cohort in range(1, silos + 1):
        policy = policy_for(cohort / silos, silos)
        assert policy.corrupt_among == ("roster" if cohort >= least else "cohort")
        if cohort >= least:
            assert least_honest(cohort, policy, silos) >= 2 and cohort_floor(cohort, policy) == 0


def test_a_smaller_round_has_its_size_pinned() -> None:
    weaker = Policy(corrupt_among="cohort")
    assert [cohort_floor(n, weaker) for n in (3, 4, 9, 10, 20)] == [3, 3, 8, 9, 18]


@pytest.mark.parametrize("silos", [3, 5, 10, 30, 100])
def test_the_fewest_survivors_are_told_as_they_are(silos: int) -> None:
    """Of all sums that a coordinator can have begun with silos of a roster, or of a round."""
    for cohort in range(3, silos + 1):
        policy = policy_for(cohort / silos, silos)
        least = silos + 1
        for alive in range(max(3, cohort_floor(cohort, policy)), cohort + 1):
            try:
                least = min(least, parameters(alive, policy, silos, ring=False).n_min)
            except ValueError:
                assert policy.corrupt_among == "roster"
        assert least_survivors(cohort, policy, silos) == least


@pytest.mark.parametrize(
    ("silos", "corrupt", "cohort", "often", "at_worst", "in_twenty"),
    [(30, 9, 9, 6, 10, 87), (100, 33, 10, 20, 28, 99.8), (10, 3, 3, 18, 23, 99)],
)
def test_how_often_a_draw_falls_on_enough_colluders(
    silos: int, corrupt: int, cohort: int, often: float, at_worst: float, in_twenty: float
) -> None:
    """The figures of docs/secagg.md, "How far that goes": all survivors of a sum but one collude. At
    worst a tenth of the roster is left out of the session.
    """
    enough = least_survivors(cohort, Policy(corrupt_among="cohort"), silos) - 1
    members = silos - silos // 10
    for drawn_from, said in ((silos, often), (members, at_worst)):
        assert 100 * tail(drawn_from, corrupt, cohort, enough) == pytest.approx(said, abs=0.5)
    once = float(tail(members, corrupt, cohort, enough))
    assert 100 * (1 - (1 - once) ** 20) == pytest.approx(in_twenty, abs=0.5)


def _words(**more: str) -> dict[str, str]:
    corpus = "sentence:sentences=90,dev=40,test=40"
    return {"method": "fedavg", "corpus": corpus, "dp": "silo", "epsilon": "8", **more}


def test_thin_noise_is_refused() -> None:
    """Thirty silos, nine corrupt, nine in a round: the promised 7.98 would be 19.5."""
    with pytest.raises(UserError, match=r"needs 11 silos in every round: FRACTION=0.367 or more"):
        prepare(load(None, _words(silos="30", fraction="0.3")))
    prepare(load(None, _words(silos="30", fraction="0.367")))
    prepare(load(None, _words(silos="10", fraction="0.5")))


def _drawn_in(path: Path, **changes: Any) -> tuple[Settings, InProcessCarrier]:
    study = tiny("fedavg", silos=10, **{"fraction": 0.3, **changes})
    path.mkdir()
    return study.settings, InProcessCarrier(study, RunLog(path))


def test_small_cohorts_are_drawn_for_every_round_and_others_from_the_seed(tmp_path: Path) -> None:
    settings, carrier = _drawn_in(tmp_path / "small")
    cohorts = [cohort_of(settings, round, carrier) for round in range(40)]
    names = [silo_name(i) for i in range(10)]
    for round, cohort in enumerate(cohorts):
        chosen = draw_cohort(cohort_source(settings), names, round, 3)
        assert tuple(map(silo_name, cohort)) == chosen
    assert {i for cohort in cohorts for i in cohort} == set(range(10))
    nonces = [select(settings, round, range(10), b"n" * 32) for round in range(40)]
    assert nonces != cohorts
    # where the roster is counted, nothing has changed: a permutation from the seed
    large, others = _drawn_in(tmp_path / "large", fraction=0.5)
    assert not draws(large) and [cohort_of(large, r, others) for r in (0, 1)] == [
        (0, 3, 6, 7, 8),
        (0, 6, 7, 8, 9),
    ]


def test_nobody_stands_in_for_a_silo_that_was_drawn_and_is_gone(tmp_path: Path) -> None:
    """Three are needed: the round draws anew among those who are here. Of nine one may be gone,
    and the others go on without it.
    """
    settings, carrier = _drawn_in(tmp_path / "three")
    first = cohort_of(settings, 0, carrier)
    carrier._gone = {first[0]}
    again = cohort_of(settings, 0, carrier)
    assert first[0] not in again and again == select(settings, 0, carrier.present())
    assert carrier.session() == carrier.present()

    nine, many = _drawn_in(tmp_path / "nine")
    many_settings = replace(nine, silos=30)
    many._session, many._settings = tuple(range(30)), many_settings
    drawn = cohort_of(many_settings, 0, many)
    many._gone = {drawn[0]}
    assert len(drawn) == 9 and cohort_of(many_settings, 0, many) == drawn
    many._gone = set(drawn[:2])
    assert not many._gone & set(cohort_of(many_settings, 0, many))


def test_a_draw_is_among_nine_tenths_of_the_roster() -> None:
    drawn = Settings(silos=30, fraction=0.3)
    assert least_in_a_session(drawn) == 27
    assert least_in_a_session(replace(drawn, fraction=0.5)) == 3
    assert least_in_a_session(replace(drawn, secagg=False)) == 1
