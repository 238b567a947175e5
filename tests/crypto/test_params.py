"""The parameters: against brute force, against simulation, and the properties the proofs need."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import pytest

from crypto.errors import Refusal
from crypto.sum.graph import draw_cohort, topology
from crypto.sum.params import Parameters, Policy, parameters, tail


def test_small_numbers_by_hand() -> None:
    # n: (m, t, n_min)
    known = {
        3: (0, 2, 3),
        4: (1, 3, 3),
        5: (1, 4, 4),
        6: (1, 4, 4),
        7: (2, 5, 5),
        10: (3, 7, 7),
        64: (21, 43, 43),
    }
    for n, (m, t, n_min) in known.items():
        p = parameters(n)
        assert (p.corrupt, p.threshold, p.n_min, p.complete, p.holders) == (m, t, n_min, True, n)
    with pytest.raises(ValueError):
        parameters(2)


@pytest.mark.parametrize("n", [*range(3, 70), 100, 128, 200, 256, 257, 300, 500, 1000])
def test_what_the_proofs_need(n: int) -> None:
    p = parameters(n)
    assert 2 * p.threshold > p.holders + p.corrupt  # one certified set
    assert p.corrupt < p.threshold <= p.holders  # the corrupt alone rebuild nothing
    assert p.n_min >= 3 and p.n_min >= p.threshold
    assert p.n_min - (math.ceil(n / 3) - 1) >= 2  # two honest silos in every sum
    if n <= 256:
        assert 3 * p.corrupt < n <= 3 * (p.corrupt + 1)
    assert p.complete == (n <= 64)
    if not p.complete:
        assert p.degree % 2 == 0 and p.degree < n - 1


def test_dropouts_tolerated_at_ten() -> None:
    p = parameters(10)
    assert 10 - p.n_min == 3


def test_fewer_alive_need_more_of_them() -> None:
    """All corrupt silos of the roster may be among those alive: t does not shrink as a third of the
    few.
    """
    assert [parameters(a, Policy(), 10, False).threshold for a in range(5, 11)] == [
        5,
        5,
        6,
        6,
        7,
        7,
    ]
    for a in (3, 4):
        with pytest.raises(ValueError, match="at least 5 are needed"):
            parameters(a, Policy(), 10, False)
    assert parameters(4, Policy(corrupt_among="cohort"), 10, False).threshold == 3


def test_tail_by_brute_force() -> None:
    for n, marked, drawn in ((6, 2, 3), (7, 3, 4), (8, 5, 3)):
        for least in range(drawn + 2):
            hits = [
                sum(i < marked for i in pick) >= least
                for pick in itertools.combinations(range(n), drawn)
            ]
            assert tail(n, marked, drawn, least) == Fraction(sum(hits), len(hits))


def test_a_ring_meets_both_bounds_and_no_smaller_one_does() -> None:
    policy = Policy()
    for n in (65, 100, 200, 500):
        p = parameters(n)
        w, gap = p.stretch, p.gap
        bad, dead = n // 5, n // 10
        pairs = n * (n - 1) // 2
        assert pairs * tail(n, bad, w, gap) ** 2 <= Fraction(1, 2**policy.security)
        assert n * tail(n, dead, w, w - gap + 1) <= Fraction(1, 2**policy.correctness)
        shorter = w - 1
        for g in range(1, shorter + 1):
            private = pairs * tail(n, bad, shorter, g) ** 2 <= Fraction(1, 2**policy.security)
            works = n * tail(n, dead, shorter, shorter - g + 1) <= Fraction(
                1, 2**policy.correctness
            )
            assert not (private and works)


def connected(made_neighbours: dict[str, tuple[str, ...]], among: set[str]) -> bool:
    start = next(iter(among))
    seen, todo = {start}, [start]
    while todo:
        for v in made_neighbours[todo.pop()]:
            if v in among and v not in seen:
                seen.add(v)
                todo.append(v)
    return seen == among


def test_the_gap_check_is_what_keeps_honest_survivors_connected() -> None:
    """Random rings, random corruption, survivors chosen to hurt: whenever the check passes and no
    stretch holds `gap` corrupt silos, the honest survivors are one component.
    """
    rng = random.Random(0)
    policy = Policy(complete_up_to=5, security=4, correctness=2, ring_corrupt=0.1, dropout=0.1)
    names = [f"s{i:02d}" for i in range(30)]
    passed = fell = 0
    for trial in range(400):
        made = topology(bytes([trial % 256]) * 32, names, tuple(names), policy, 30)
        assert not made.parameters.complete
        w, gap = made.parameters.stretch, made.parameters.gap
        ring = made.ring
        around = {name: made.neighbours(name) for name in names}
        corrupt = set(rng.sample(names, rng.randint(0, 12)))
        # Drop honest silos around two random cuts.
        survivors = set(names)
        for _ in range(2):
            at = rng.randrange(30)
            for step in range(rng.randint(1, w + 1)):
                if ring[(at + step) % 30] not in corrupt:
                    survivors.discard(ring[(at + step) % 30])
        crowded = any(
            sum(ring[(at + i) % 30] in corrupt for i in range(w)) >= gap for at in range(30)
        )
        honest = survivors - corrupt
        if made.thinnest(survivors) >= gap and not crowded:
            passed += 1
            assert connected(around, honest)
        elif honest and not connected(around, honest):
            fell += 1
    assert passed > 10 and fell > 10  # the check is neither always nor never what decides


def test_graph_is_symmetric_regular_and_the_same_for_all() -> None:
    policy = Policy(complete_up_to=5, security=4, correctness=2, ring_corrupt=0.1, dropout=0.2)
    names = [f"s{i:02d}" for i in range(30)]
    made = topology(b"b" * 32, names, tuple(names), policy, 30)
    for u in names:
        assert len(made.neighbours(u)) == made.parameters.degree
        assert u not in made.neighbours(u)
        for v in made.neighbours(u):
            assert u in made.neighbours(v)
    again = topology(b"b" * 32, list(reversed(names)), tuple(names), policy, 30)
    assert again.ring == made.ring and again.holders == made.holders
    assert topology(b"c" * 32, names, tuple(names), policy, 30).ring != made.ring


def test_naming_fewer_alive_brings_nobody_closer() -> None:
    policy = Policy(complete_up_to=5, security=4, correctness=2, ring_corrupt=0.1, dropout=0.2)
    names = [f"s{i:02d}" for i in range(30)]
    full = topology(b"b" * 32, names, tuple(names), policy, 30)
    victim = full.ring[0]
    for missing in (full.ring[3:5], full.ring[10:12]):
        alive = tuple(name for name in names if name not in missing)
        made = topology(b"b" * 32, names, alive, policy, 30)
        assert set(made.neighbours(victim)) == set(full.neighbours(victim)) - set(missing)
        assert made.holders == full.holders
    # Emptying the victim's surroundings gives no new neighbours of the coordinator's choice, but
    # all of them.
    emptied = tuple(name for name in names if name not in full.neighbours(victim))
    made = topology(b"b" * 32, names, emptied, policy, 30)
    assert made.parameters.complete and len(made.neighbours(victim)) == len(emptied) - 1


def test_survivor_sets_that_are_refused() -> None:
    names = tuple(f"s{i}" for i in range(10))
    made = topology(b"b" * 32, names, names, Policy(), 10)
    made.check_survivors(names[:7], 3)
    for survivors, attack in (
        (names[:6], "tiny-sum"),
        (names[::-1], "split-view"),
        ((*names[:7], names[6]), "split-view"),
        ((*names[:8], "sx"), "split-view"),
    ):
        with pytest.raises(Refusal) as caught:
            made.check_survivors(survivors, 3)
        assert caught.value.attack == attack
    with pytest.raises(Refusal):
        made.check_survivors(names[:8], 9)


def test_cohorts_are_drawn_evenly() -> None:
    names = [f"s{i:02d}" for i in range(20)]
    counts = dict.fromkeys(names, 0)
    for round in range(400):
        drawn = draw_cohort(b"b" * 32, names, round, 5)
        assert len(set(drawn)) == 5 and tuple(sorted(drawn)) == drawn
        for name in drawn:
            counts[name] += 1
    # 400 draws of a quarter: 100 each, standard deviation 8.7.
    assert all(60 < count < 140 for count in counts.values())


@pytest.mark.parametrize(
    "wrong",
    [{"corrupt": 0}, {"corrupt": 0.6}, {"dropout": 1.0}, {"security": 0}, {"complete_up_to": 2},
     {"corrupt_among": "nobody"}],
)  # fmt: skip
def test_impossible_policies(wrong: dict) -> None:
    with pytest.raises(ValueError):
        Policy(**wrong)


def test_policies_that_differ_have_different_digests() -> None:
    changes: tuple[dict, ...] = (
        {},
        {"corrupt": 0.25},
        {"dropout": 0.3},
        {"corrupt_among": "cohort"},
        {"security": 41},
    )
    variants = [Policy(**change) for change in changes]
    assert len({policy.digest for policy in variants}) == len(variants)


def test_the_table_prints(capsys: pytest.CaptureFixture[str]) -> None:
    from crypto.sum.params import _table

    _table()
    out = capsys.readouterr().out
    assert "   10     9       10    3    7      7" in out
    assert isinstance(parameters(10), Parameters)
