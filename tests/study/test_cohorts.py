"""Which silos are counted on when not all take part in a round, and what a silo pins of it."""

from __future__ import annotations

import pytest

from config.errors import UserError
from config.load import load
from crypto.sum.params import Policy, cohort_floor, least_honest, policy_for
from study.prepare import prepare


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


def _words(**more: str) -> dict[str, str]:
    corpus = "sentence:sentences=90,dev=40,test=40"
    return {"method": "fedavg", "corpus": corpus, "dp": "silo", "epsilon": "8", **more}


def test_thin_noise_is_refused() -> None:
    """Thirty silos, nine corrupt, nine in a round: the promised 7.98 would be 19.5."""
    with pytest.raises(UserError, match=r"needs 11 silos in every round: FRACTION=0.367 or more"):
        prepare(load(None, _words(silos="30", fraction="0.3")))
    prepare(load(None, _words(silos="30", fraction="0.367")))
    prepare(load(None, _words(silos="10", fraction="0.5")))
