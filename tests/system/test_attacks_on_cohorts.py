"""A coordinator that wants to say who is in a round, over real sockets: refused by name, and seen to
succeed undefended.

Under a policy that counts the corrupt in each cohort, nothing but the cohort's size and the draw
stands in the way.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import silo.process
from crypto.sum.graph import draw_cohort
from crypto.sum.params import Policy
from crypto.sum.silo_limits import Limits
from tests.system.attacks import gains, refuses
from tests.system.liar import Liar, refused, same

Make = Callable[..., Liar]
Patch = pytest.MonkeyPatch
Log = pytest.LogCaptureFixture


@refuses("hand-picked-cohort")
@gains("hand-picked-cohort")
def test_hand_picked_cohort_of_the_right_size(make: Make, monkeypatch: Patch, caplog: Log) -> None:
    """Five of eleven silos in every round: four friends and a victim are five, and not the five that
    were drawn. Nor may a friend stand in for one who was drawn and is said to be gone.
    """
    pinned = [5]
    monkeypatch.setattr(
        silo.process, "Limits", lambda **named: Limits(**{**named, "cohort": pinned[0]})
    )
    liar = make(11, policy=Policy(corrupt_among="cohort")).enrol()
    drawn = draw_cohort(liar.setup.beacon, liar.names, 0, 5)
    others = sorted(set(liar.names) - set(drawn))
    victim, friends = drawn[0], others[:4]
    alive = tuple(sorted((victim, *friends)))
    for picked in (alive, tuple(sorted((*drawn[:4], friends[0])))):
        with refused("hand-picked-cohort", caplog):
            liar.ask(victim, liar.header(alive=picked))
    liar.gather(liar.header(alive=drawn))
    liar.gather(liar.header(alive=drawn[:4]))  # one of them may be gone
    pinned[0] = 0
    total = liar.enrol().sum(liar.gather(liar.header(alive=alive)))
    assert same(total - sum(liar.stage.data[friend] for friend in friends), liar.stage.data[victim])


@refuses("sybil-majority")
def test_sybil_majority_among_those_who_are_drawn_from(make: Make, caplog: Log) -> None:
    """A draw among half of the silos, with all friends in it, falls on friends: where cohorts are
    drawn, nine tenths of the roster are in a session.
    """
    liar = make(6, 10, policy=Policy(corrupt_among="cohort"))
    with refused("sybil-majority", caplog):
        liar.enrol()


@refuses("hand-picked-cohort")
@gains("hand-picked-cohort")
def test_hand_picked_cohort(make: Make, monkeypatch: Patch, caplog: Log) -> None:
    """Nine silos of thirty in every round: two friends and a victim are no round of nine.

    Under a policy that counts the corrupt in each cohort, two of three would be too many; but the
    coordinator says what the cohort is. So the study's own number of silos is held to.
    """
    pinned = [9]
    monkeypatch.setattr(
        silo.process, "Limits", lambda **named: Limits(**{**named, "cohort": pinned[0]})
    )
    liar = make(9, policy=Policy(corrupt_among="cohort")).enrol()
    victim, *friends = liar.names[:3]
    for alive in (liar.names[:3], liar.names[:7]):
        with refused("hand-picked-cohort", caplog):
            liar.ask(victim, liar.header(alive=alive))
    liar.gather(liar.header(alive=liar.names[:8]))  # one in ten may be missing
    pinned[0] = 0
    total = liar.enrol().sum(liar.gather(liar.header(alive=liar.names[:3])))
    assert same(total - sum(liar.stage.data[friend] for friend in friends), liar.stage.data[victim])
