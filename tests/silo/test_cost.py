"""What a study would cost a silo's privacy budget, before anybody agrees to it: by hand, against what
the study then charges, and refused where it cannot be paid for.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from bench.simulation.inprocess import run_inprocess
from cli.main import main
from config.errors import UserError
from config.site import read_site
from coordinator.exchange import NothingToSpend
from privacy.events import DpSgd, NonPrivate
from report.files import read_lines
from silo.cost import Planned, cost_of, read_ledger
from silo.forecast import planned_for
from silo.home import Home
from silo.ledger import Budget, Ledger
from silo.program import look_at, rules_of, silo_study
from silo.studies import Studies
from study.agreement import Agreed
from tests.consortium import Consortium

CORPUS = "distant:sentences=60,dev=20,test=20,entities=20,filler=20"

#: Without a word that a default could change: each round is one release with noise of 2.
PRIVATE = {
    "method": "fedavg",
    "corpus": CORPUS,
    "rounds": 12,
    "epochs": 1,
    "batch": 1000,
    "dp": "record",
    "noise": 2.0,
    "epsilon": 8.0,
}


def gaussian_epsilon(noise: float, delta: float) -> float:
    """Of one Gaussian release, in closed form (Balle and Wang 2018, equation 6)."""

    def excess(epsilon: float) -> float:
        a, b = 1 / (2 * noise), epsilon * noise
        return float(norm.cdf(a - b) - math.exp(epsilon) * norm.cdf(-a - b) - delta)

    return float(brentq(excess, 0, 50))


def _ledger(path: Path, *events: Any, study: str = "") -> Path:
    ledger = Ledger(path, Budget(), study=study)
    for event in events:
        ledger.charge(0, "train", "update", event)
    ledger.close()
    return path


def _consortium(path: Path, more: str = "", **settings: Any) -> Consortium:
    made = Consortium(path)
    settings = {"method": "fedavg", "corpus": CORPUS, "rounds": 4, "epochs": 1, **settings}
    made.study(**settings)
    made.site("north", 5555, more)
    return made


def _agreed(made: Consortium) -> tuple[Agreed, int]:
    site = read_site(made.path / "north.toml")
    home = Home(site.home, "")
    return silo_study(site, home, rules_of(site.limits)), home.index


def test_four_rounds_on_all_records_are_one_gaussian_release(tmp_path: Path) -> None:
    """With a batch above the records, a step takes all of them; four steps of noise 2 are one of
    noise 1.
    """
    made = _consortium(tmp_path, dp="record", noise=2.0, epsilon=20.0, batch=1000)
    planned = planned_for(*_agreed(made), own_limit=12.0)
    assert planned.events == [DpSgd(2.0, 1.0, 1)] * 4 and planned.allowed == 12.0
    cost = cost_of(planned, tmp_path / "none.jsonl")
    by_hand = gaussian_epsilon(1.0, 1e-5)
    assert by_hand == pytest.approx(4.3772, abs=1e-4)  # the known figure
    assert by_hand <= cost.alone.epsilon <= by_hand + 0.01  # an upper bound, and a tight one
    assert (cost.now.epsilon, cost.after, cost.unpayable) == (0.0, cost.alone, "")
    # on top of a release of noise 1: together one of noise 1 / sqrt(2)
    more = cost_of(planned, _ledger(tmp_path / "ledger.jsonl", DpSgd(1.0, 1.0, 1)))
    both = gaussian_epsilon(math.sqrt(0.5), 1e-5)
    assert both <= more.after.epsilon <= both + 0.01
    assert by_hand <= more.now.epsilon <= by_hand + 0.01
    assert f"epsilon {12 - more.after.epsilon:.4g} would be left" in more.lines[-1]
    # what stands in look.json is the same plan
    again = Planned.from_record(json.loads(json.dumps(planned.to_record())))
    assert cost_of(again, tmp_path / "ledger.jsonl") == more


@pytest.mark.parametrize(
    "privacy",
    [
        {"dp": "record", "epsilon": 8.0, "batch": 8},
        {"dp": "silo", "epsilon": 8.0, "delta": 1e-5, "batch": 8},
    ],
    ids=["record", "silo"],
)
def test_a_study_then_costs_what_was_forecast(tmp_path: Path, privacy: dict[str, Any]) -> None:
    made = _consortium(tmp_path, rounds=2, **privacy)
    of, index = _agreed(made)
    forecast = cost_of(planned_for(of, index, math.inf), tmp_path / "none.jsonl")
    (tmp_path / "run").mkdir()
    assert run_inprocess(tmp_path / "run", of.prepared) == 0
    charged = [
        line
        for line in read_lines(tmp_path / "run" / "privacy.jsonl")
        if line["silo"] == f"silo-{index:03d}"
    ]
    last = (charged[-1]["epsilon_after"], charged[-1]["rdp_epsilon_after"])
    assert last == pytest.approx((forecast.alone.epsilon, forecast.alone.rdp), rel=1e-9)
    assert 0 < forecast.alone.epsilon <= 8.0


def test_without_noise_nothing_is_left_and_a_budget_can_never_be_kept_again(tmp_path: Path) -> None:
    made = _consortium(tmp_path)
    cost = cost_of(planned_for(*_agreed(made), own_limit=math.inf), tmp_path / "none.jsonl")
    assert math.isinf(cost.alone.epsilon) and not cost.unpayable
    assert "no limit is set" in cost.lines[-1]
    made.study(**PRIVATE)
    planned = planned_for(*_agreed(made), own_limit=math.inf)
    after = cost_of(planned, _ledger(tmp_path / "ledger.jsonl", NonPrivate()))
    assert "released without noise before" in after.unpayable
    # a ledger that has no room for one more round
    full = Planned(planned.events, 1e-5, "record", allowed=4.4)
    spent = cost_of(full, _ledger(tmp_path / "full.jsonl", DpSgd(1.0, 1.0, 1)))
    assert "stands at epsilon 4.37" in spent.unpayable and "no room" in spent.unpayable
    # room for one round, and not for all: it is told, and may be accepted
    some = cost_of(Planned([*planned.events] * 9, 1e-5, "record", 4.4), tmp_path / "none.jsonl")
    assert not some.unpayable and "stop before its end" in some.lines[-1]


def test_what_cannot_be_paid_for_is_refused_before_anybody_agrees(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = _consortium(tmp_path, dp="record", noise=2.0, epsilon=8.0, batch=1000)
    ledger, look = tmp_path / "north" / "ledger.jsonl", tmp_path / "look.json"
    studies = Studies(tmp_path / "north")
    look_at(tmp_path / "north.toml", look)
    studies.looked_at("aaaaaaaaaaaa", json.loads(look.read_text()))
    assert studies["aaaaaaaaaaaa"].refused == ""
    # at the coordinator, a run that nobody can pay for ends at once, and does not wait for silos
    of, _ = _agreed(made)
    for i in range(3):
        _ledger(tmp_path / "run" / "silos" / f"silo-{i:03d}" / "ledger.jsonl", NonPrivate())
    with pytest.raises(NothingToSpend, match="budgets are spent"):
        run_inprocess(tmp_path / "run", of.prepared)
    # between the proposal and the decision, something left without noise
    _ledger(ledger, NonPrivate())
    with pytest.raises(SystemExit):
        main(["study", "accept", "aaaaaaaaaaaa", "--home", str(tmp_path / "north")])
    shown = " ".join(capsys.readouterr().out.split())
    assert "spent so far epsilon infinite" in shown
    with pytest.raises(UserError, match="released without noise before"):
        studies.accept("aaaaaaaaaaaa", "asked")
    assert studies["aaaaaaaaaaaa"].word == ""
    # proposed now, it is refused at once, and the coordinator is told
    look_at(tmp_path / "north.toml", look)
    studies.looked_at("bbbbbbbbbbbb", json.loads(look.read_text()))
    assert "cannot be kept" in studies["bbbbbbbbbbbb"].refused


def test_a_study_is_not_counted_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = _consortium(tmp_path, dp="record", noise=2.0, epsilon=8.0, batch=1000)
    of, index = _agreed(made)
    planned, ledger = planned_for(of, index, math.inf), tmp_path / "north" / "ledger.jsonl"
    alone = cost_of(planned, tmp_path / "none.jsonl", of.hash.hex()).after.epsilon
    # halfway: what is to come is added to what was charged, and comes to the same
    half = _ledger(tmp_path / "half.jsonl", *planned.events[:2], study=of.hash.hex())
    cost = cost_of(planned, half, of.hash.hex())
    assert cost.after.epsilon == pytest.approx(alone, rel=1e-9)
    assert "charged already 2 of its 4 releases" in " ".join(" ".join(cost.lines).split())
    assert cost_of(planned, half, "00" * 32).after.epsilon > alone  # another study's charges
    # finished
    _ledger(ledger, *planned.events, study=of.hash.hex())
    cost = cost_of(planned, ledger, of.hash.hex())
    assert cost.now == cost.after and not cost.unpayable
    status, said = _forecast(capsys, "--config", str(tmp_path / "north.toml"))
    assert status == 0 and "nothing more is added: a study runs once" in said
    assert "would be left" not in said and "stop before its end" not in said


def _forecast(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = 0
    try:
        main(["ledger", "forecast", *words])
    except SystemExit as e:
        status = int(e.code or 0)
    told = capsys.readouterr()
    return status, " ".join((told.out + told.err).split())


def test_the_command_names_the_study_and_refuses_what_it_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = _consortium(tmp_path, "[limits]\nmaximum_epsilon = 6\n", dp="record", epsilon=8.0)
    made.study(**PRIVATE)
    site = tmp_path / "north.toml"
    status, said = _forecast(capsys, "--config", str(site))
    assert status == 0 and "DP=record, 12 rounds" in said and "of 6 allowed" in said
    # a study that was proposed, by its name; the file itself names none
    folder = Studies(tmp_path / "north").folder("cccccccccccc")
    folder.mkdir(parents=True)
    (folder / "study.toml").write_text((tmp_path / "study.toml").read_text())
    made.site("east", 5555)
    own = site.read_text().replace('study = "study.toml"\n', "")
    (tmp_path / "own.toml").write_text(own)
    by_name = _forecast(capsys, "--config", str(tmp_path / "own.toml"), "--study", "cccccccccccc")
    assert by_name == (status, said)
    status, said = _forecast(capsys, "--config", str(tmp_path / "own.toml"), "--study", "dddd")
    assert status == 2 and 'knows no study "dddd"' in said
    status, said = _forecast(capsys, "--config", str(tmp_path / "own.toml"))
    assert status == 2 and "names no study" in said
    status, said = _forecast(capsys, "--config", str(tmp_path / "nothing.toml"))
    assert status == 2 and re.search(r"there is no file .*nothing\.toml", said)
    _ledger(tmp_path / "north" / "ledger.jsonl", DpSgd(1.0, 1.0, 1))
    ledger = tmp_path / "north" / "ledger.jsonl"
    ledger.write_text(ledger.read_text() + '{"event": {"kind": "magic"}}\n')
    status, said = _forecast(capsys, "--config", str(site))
    assert status == 2 and "ledger.jsonl, line 2" in said
    # a line that is still being written was never acted on
    ledger.write_text(ledger.read_text().splitlines()[0] + '\n{"event": {"ki')
    assert len(read_ledger(ledger)) == 1
    assert _forecast(capsys, "--config", str(site))[0] == 0
