"""Opacus's accountant beside ours: they agree on real ledgers, and a figure that does not fit ends a
run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import privacy.second_opinion
from bench.simulation.inprocess import run_inprocess
from config.load import load
from privacy.accountant import Total, total
from privacy.events import DpSgd, Event, Free, NonPrivate, RoundedGaussian
from privacy.second_opinion import Disagreement, compared, second_opinion
from silo.ledger import Budget, Ledger
from study.prepare import prepare
from tests.conftest import summary
from tests.methods.small_private import PRIVATE, WORDS


@pytest.mark.parametrize(
    "events",
    [
        [DpSgd(1.5, 0.04, 2250)],
        [DpSgd(1.1, 0.02, 300), DpSgd(0.9, 0.05, 40), RoundedGaussian(2.0, 1e-20), Free("public")],
        [DpSgd(60.0, 0.05, 12)],
        [DpSgd(0.5, 0.2, 300)],
        [RoundedGaussian(30.0, 1e-20)] * 12,
    ],
)
def test_two_accountants_agree(events: list[Event]) -> None:
    """Noise from far too little to far too much: ours lies within what Opacus states."""
    theirs = compared(events, 1e-5)
    assert theirs is not None and theirs.most - theirs.least < 0.04
    assert theirs.epsilon == pytest.approx(total(events, 1e-5).epsilon, abs=6e-3)


def test_there_is_no_opinion_on_what_opacus_does_not_compose() -> None:
    assert second_opinion([], 1e-5) is None
    assert second_opinion([DpSgd(1.0, 0.1, 5), NonPrivate()], 1e-5) is None
    assert compared([DpSgd(1.0, 0.1, 5), NonPrivate()], 1e-5) is None
    assert compared([DpSgd(0.25, 1.0, 30)], 1e-5) is None  # epsilon beyond all use


def _wrong(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def figure(events: list[Event], delta: float, unit: str = "record") -> Total:
        right = total(events, delta)
        return Total(factor * right.epsilon, right.rdp, delta)

    monkeypatch.setattr(privacy.second_opinion, "total", figure)


@pytest.mark.parametrize("factor", [0.98, 1.02])
def test_a_figure_that_does_not_fit_is_an_error(
    factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(None, Budget(8.0))
    ledger.charge(0, "train", "training", DpSgd(1.5, 0.04, 500))
    ledger.settle()
    _wrong(factor, monkeypatch)
    with pytest.raises(Disagreement, match="^Two accountants disagree: epsilon is"):
        ledger.settle()


def test_a_run_whose_accountants_disagree_ends_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = prepare(load(None, WORDS | PRIVATE | {"rounds": "1"}))
    assert run_inprocess(tmp_path / "fine", study) == 0
    s = summary(tmp_path / "fine")
    assert s["epsilon"] <= s["epsilon_opacus"] + 0.002 and s["epsilon_opacus"] < s["epsilon_rdp"]
    _wrong(0.9, monkeypatch)
    with pytest.raises(Disagreement):
        run_inprocess(tmp_path / "wrong", study)
