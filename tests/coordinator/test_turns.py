"""Whose turn it is to compute: so many in all, and on each card no more than its share."""

from __future__ import annotations

import pytest

import coordinator.process
from config.settings import Settings
from coordinator.exchange import Phases
from coordinator.stages import Stage, Stages
from coordinator.turns import Slots, Turns
from methods.base import silo_name


def _computing(slots: Slots, stages: Stages, away: tuple[str, ...] = ()) -> list[str]:
    """All who get a turn now, one after another."""
    turns, begun = Turns(stages, slots, None), list[str]()
    while (silo := turns.compute(away)) is not None:
        stages.move(silo, Stage.COMPUTING)
        begun.append(silo)
    return begun


def _stages(*silos: int) -> Stages:
    return Stages(map(silo_name, silos), Phases())


def test_on_a_processor_only_their_number_counts() -> None:
    stages = _stages(0, 2, 4, 5, 6)
    assert _computing(Slots(3), stages) == ["silo-000", "silo-002", "silo-004"]
    stages.move("silo-002", Stage.READY)  # it has computed, and still holds its model
    assert _computing(Slots(3), stages) == []
    stages.move("silo-002", Stage.DONE)
    assert _computing(Slots(3), stages, away=("silo-005",)) == ["silo-006"]


def test_a_card_computes_for_no_more_silos_than_its_share() -> None:
    """A cohort of which most are on one card leaves them to wait for it, though slots are free."""
    stages = _stages(0, 2, 4, 5, 7)
    assert _computing(Slots(2, cards=2), stages) == ["silo-000", "silo-005"]
    stages.move("silo-005", Stage.DONE)
    assert _computing(Slots(2, cards=2), stages) == ["silo-007"]
    stages.move("silo-007", Stage.DONE)
    assert _computing(Slots(2, cards=2), stages) == []
    stages.move("silo-000", Stage.OUT)
    assert _computing(Slots(2, cards=2), stages) == ["silo-002"]
    # SLOTS=3 on two cards: two of them at once on a card, if the other has one or none
    assert _computing(Slots(3, cards=2), _stages(1, 3, 5, 2, 4)) == [
        *("silo-001", "silo-003", "silo-002"),
    ]
    assert len(_computing(Slots(5, cards=2), _stages(*range(1000, 1010)))) == 5


@pytest.mark.parametrize(("launcher", "spread"), [("local", 4), ("ray", 1)])
def test_a_simulations_silos_are_spread_over_this_machines_cards(
    launcher: str, spread: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator.process, "cards", lambda: 4)
    monkeypatch.setattr(coordinator.process, "slots_of", lambda said: said or 4)
    assert coordinator.process._slots(Settings(launcher=launcher)) == Slots(4, spread)
    assert coordinator.process._slots(Settings(launcher=launcher, slots=8)) == Slots(8, spread)
