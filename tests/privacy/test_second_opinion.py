"""Opacus's accountant beside ours: they agree on real ledgers, and a figure that does not fit ends a
run.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

import privacy.second_opinion
from bench.simulation.inprocess import run_inprocess
from bench.simulation.run import simulate
from config.load import load
from crypto.numbers.encoding import steps_of
from privacy.accountant import Total, merged, moved, total
from privacy.events import DpSgd, Event, Free, NonPrivate, RoundedGaussian, Unit
from privacy.second_opinion import Disagreement, compared, second_opinion
from privacy.sum_noise import choose
from silo.ledger import Budget, Ledger
from study.prepare import prepare
from tests.conftest import summary
from tests.methods.small_private import PRIVATE, WORDS


@pytest.mark.parametrize(
    ("events", "unit"),
    [
        ([DpSgd(1.5, 0.04, 2250)], "record"),
        (
            [
                DpSgd(1.1, 0.02, 300),
                DpSgd(0.9, 0.05, 40),
                RoundedGaussian(2.0, 1e-20),
                Free("public"),
            ],
            "record",
        ),
        ([DpSgd(60.0, 0.05, 12)], "record"),
        ([DpSgd(0.5, 0.2, 300)], "record"),
        ([RoundedGaussian(30.0, 1e-20)] * 12, "record"),
        # sums of 32 and of 16 bits: the grid of the second is coarse
        ([choose(1.0, 1.9, 4, steps_of(32, 10)).event(160_000, 10)] * 10, "silo"),
        ([choose(1.0, 1.905, 4, steps_of(16, 10)).event(160_000, 10)] * 10, "silo"),
    ],
)
def test_two_accountants_agree(events: list[Event], unit: Unit) -> None:
    """Noise from far too little to far too much: ours lies within what Opacus states."""
    theirs = compared(events, 1e-5, unit)
    away = moved(merged(events))  # what discrete noise adds, which Opacus does not know
    assert theirs is not None and theirs.most - theirs.least < 0.04 + away
    assert theirs.epsilon + away == pytest.approx(total(events, 1e-5, unit).epsilon, abs=6e-3)


def test_of_few_silos_and_bits_the_renyi_figure_fits_too() -> None:
    """Noise so far from a Gaussian that the other accountant's bound is the smaller one."""
    noise = choose(1.0, 3.0, 2, steps_of(12, 3))
    events = [noise.event(10_000_000, 3)] * 10
    ours = total(events, 1e-5, "silo")
    assert ours.epsilon == ours.rdp
    theirs = compared(events, 1e-5, "silo")
    assert theirs is not None and theirs.least <= ours.epsilon <= theirs.most


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


def test_a_disagreement_loses_nothing_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model, the figures and the report are written; all of them say it first, and so does the
    program's end.
    """
    words = WORDS | PRIVATE | {"rounds": "1", "out": str(tmp_path)}
    _wrong(0.9, monkeypatch)
    with pytest.raises(Disagreement) as said:
        simulate(load(None, words), Console(quiet=True))
    run = tmp_path / "latest"
    s = summary(run)
    assert s["disagreement"] == str(said.value) and s["epsilon_opacus"] is None
    assert s["value"] >= 0 and list((run / "model").glob("*.safetensors"))
    for name in ("report.html", "report.md", "privacy-budget.html"):
        assert str(said.value) in (run / name).read_text("utf-8"), name
