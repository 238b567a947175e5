"""Every method on every one of its tasks: under DP=record it runs within its budget, or refuses
with a sentence.

What its silos' ledgers hold afterwards is composed again, by code that shares nothing with the
accountant's.
"""

from __future__ import annotations

import json
import math
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from dp_accounting.dp_event import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation
from opacus.accountants import PRVAccountant, RDPAccountant

from bench.simulation.inprocess import run_inprocess
from config.errors import UserError
from config.load import load
from methods import METHODS, tasks_of
from methods.dp.coverage import unit_of
from methods.dp.releases import record_privacy
from privacy.accountant import INTERVAL
from privacy.events import DpSgd
from study.prepare import prepare
from tests.conftest import lines, summary
from tests.privacy.test_accountant import by_hand

pytestmark = pytest.mark.slow

CORPORA = {
    "distant": ("distant:sentences=90,dev=40,test=40,entities=40,filler=60", "16"),
    "sentence": ("sentence:sentences=90,dev=40,test=40", "12"),
    "document": ("document:documents=15,dev=10,test=10", "3"),
    "ner": ("ner:sentences=30,dev=12,test=12", "5"),
}
PAIRS = [(m, t) for m in METHODS for t in tasks_of(m)]
REFERENCES = {"centralised", "local", "public_only"}
BAGS = {"lazymil", "one", "ave", "att", "att_ra"}
UNITS = {"distant": "sentence", "sentence": "sentence", "document": "document", "ner": "sentence"}


def _words(method: str, task: str) -> dict[str, str]:
    corpus, batch = CORPORA[task]
    words = {
        "method": method,
        "corpus": corpus,
        "batch": batch,
        "silos": "3",
        "rounds": "2",
        "epochs": "1",
    }
    return words | {"partition": "iid", "runner": "inprocess", "dp": "record", "epsilon": "8"}


@lru_cache(maxsize=64)
def _by_others(history: tuple[tuple[float, float, int], ...], delta: float) -> tuple[float, float]:
    """Epsilon by our own Fourier composition, and by Opacus's Renyi accountant (whole orders: the
    others are slow).
    """
    other = RDPAccountant()
    other.history = list(history)
    renyi = other.get_epsilon(delta, alphas=[float(a) for a in range(2, 64)])
    return by_hand([DpSgd(*h) for h in history], delta), float(renyi)


@lru_cache(maxsize=64)
def _stated(history: tuple[tuple[float, float, int], ...], delta: float) -> tuple[float, float]:
    """Epsilon by the accountants themselves: Opacus's PRV, which is at most 0.02 above the truth as
    it says, and dp-accounting's PLD on a fine grid, which is above it by less than ours.
    """
    theirs = PRVAccountant()
    theirs.history = list(history)
    with np.errstate(divide="ignore"):  # where everybody is sampled
        opacus = float(theirs.get_epsilon(delta, eps_error=0.01))
    google = PLDAccountant(
        NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=5e-4
    )
    for noise, rate, steps in history:
        google.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), steps)
    return opacus, float(google.get_epsilon(delta))


@pytest.mark.parametrize(("method", "task"), PAIRS)
def test_it_runs_within_its_budget_or_says_why_not(method: str, task: str, tmp_path: Path) -> None:
    if method in REFERENCES:
        with pytest.raises(
            UserError, match=f'^The method "{method}" does not run with DP=record: [^.]*\\.$'
        ):
            prepare(load(None, _words(method, task)))
        return
    study = prepare(load(None, _words(method, task)))
    unit = unit_of(study.settings, study.task, study.method)
    assert unit == ("bag" if method in BAGS else UNITS[task])
    assert run_inprocess(tmp_path, study) == 0
    assert len(lines(tmp_path / "rounds.jsonl")) == 2
    s = summary(tmp_path)
    assert 0 < s["epsilon"] <= 8.0 and s["delta"] == 1e-5
    assert math.isfinite(s["value"])
    ledger = [
        json.loads(x) for x in (tmp_path / "silos/silo-000/ledger.jsonl").read_text().splitlines()
    ]
    events = [x["event"] for x in ledger]
    assert {e["kind"] for e in events} <= {"dp-sgd", "rounded-gaussian", "free"}
    charged = {x["disclosure"] for x in ledger if x["event"]["kind"] == "free"}
    declared = record_privacy(study.method.privacy)
    assert charged == {d.name for d in study.method.disclosures} <= set(declared.free)
    history = [(e["noise"], e["rate"], e["steps"]) for e in events if e["kind"] == "dp-sgd"]
    history += [(e["noise"], 1.0, 1) for e in events if e["kind"] == "rounded-gaussian"]
    tight, renyi = _by_others(tuple(sorted(history)), 1e-5)
    assert ledger[-1]["epsilon_after"] == pytest.approx(tight, rel=0.01)
    opacus, google = _stated(tuple(sorted(history)), 1e-5)
    assert opacus - 0.021 <= ledger[-1]["epsilon_after"] <= opacus + INTERVAL
    assert google - 1e-6 <= ledger[-1]["epsilon_after"] <= google + 2 * INTERVAL
    last = [x for x in lines(tmp_path / "privacy.jsonl") if x["silo"] == "silo-000"][-1]
    assert last["rdp_epsilon_after"] == pytest.approx(renyi, rel=0.02)
    # and the run compared them by itself
    assert s["epsilon"] - INTERVAL <= s["epsilon_opacus"] <= s["epsilon"] + 0.021
