"""The plan against the run: bytes of every method over real sockets, what a slow line carries,
epsilon, the command.
"""

from __future__ import annotations

import io
import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from bench.planning import blanks
from bench.planning.calibrate import _apart
from bench.planning.plan import make_plan
from bench.simulation.inprocess import run_inprocess
from bench.simulation.launch import run_processes
from config.errors import UserError
from config.load import load
from coordinator import rundir
from crypto.errors import Refusal
from crypto.identity.keys import Identity
from crypto.numbers.encoding import Encoding
from crypto.sum.coordinator import OpenSum
from crypto.sum.params import policy_for
from crypto.sum.records import Proposal, SumHeader, UnmaskRequest
from methods import names
from methods.base import silo_name
from report.progress import Follower
from study.prepare import Study, prepare, warm
from tests.browser.test_methods import study as tiny
from tests.conftest import lines, sottovoce, summary

pytestmark = pytest.mark.slow

# those two are one process by definition
WIRED = [n for n in names() if n not in ("local", "centralised")]


def measured(run: Path, study: Study) -> None:
    """Coordinator and silos as real processes, forked from this one, which is warm as the
    launcher's is.
    """
    warm(study)
    secret = rundir.shared_secret(study.settings)
    rundir.make_keys(rundir.coordinator_home(run), run / "silos", study.settings.silos, secret)
    outcome = run_processes(
        run, study, Follower(run, Console(file=io.StringIO()), study.settings.rounds, "")
    )
    assert outcome.status == 0, outcome.sentence


def by_silo(traffic: list[dict], silo: str, direction: str) -> int:
    return sum(
        t["wire_bytes"] for t in traffic if t["silo"] == silo and t["direction"] == direction
    )


@pytest.mark.parametrize("method", WIRED)
def test_bytes_of_every_method_are_within_two_percent(tmp_path: Path, method: str) -> None:
    small = tiny(method)
    study = replace(small, settings=replace(small.settings, runner="processes"))
    plan = make_plan(study, measured=False)
    measured(tmp_path, study)
    fact, traffic = summary(tmp_path), lines(tmp_path / "traffic.jsonl")
    for figure in (
        "bytes_up_per_silo_round",
        "bytes_down_per_silo_round",
        "bytes_up_total",
        "bytes_down_total",
    ):
        assert plan[figure] == pytest.approx(fact[figure], rel=0.02), figure
    for figure in ("arrays_up_per_silo_round", "arrays_down_per_silo_round"):
        assert plan[figure] == pytest.approx(fact[figure], rel=0.02), figure
    for i in range(study.settings.silos):
        planned = plan["by_silo"][silo_name(i)]
        for direction in ("up", "down"):
            # Shares that come after enough others are not waited for: on a busy machine one silo's
            # may be missing.
            told = by_silo(traffic, silo_name(i), direction)
            assert planned[direction] == pytest.approx(told, rel=0.02, abs=600)


@pytest.mark.parametrize(
    "words",
    [
        # lazymil: a round of warm-up, two of bags
        {"silos": "6", "fraction": "0.5", "bits": "16", "rounds": "3"},
        {"silos": "4", "secagg": "off", "method": "fedavg"},
    ],
)
def test_bytes_with_cohorts_lanes_and_without_masks(tmp_path: Path, words: dict[str, str]) -> None:
    common = {"corpus": "distant:sentences=300", "rounds": "2", "epochs": "1"}
    study = prepare(load(None, common | words))
    plan = make_plan(study, measured=False)
    measured(tmp_path, study)
    fact = summary(tmp_path)
    for figure in (
        "bytes_up_per_silo_round",
        "bytes_down_per_silo_round",
        "arrays_up_per_silo_round",
    ):
        assert plan[figure] == pytest.approx(fact[figure], rel=0.02), figure
    for planned, line in zip(plan["by_round"], lines(tmp_path / "rounds.jsonl"), strict=True):
        assert planned["up"] == pytest.approx(line["bytes_up"], rel=0.02)


def test_blank_records_of_a_ring_have_the_form_that_a_real_sum_asks_for() -> None:
    """Beyond 64 silos the graph is a ring. The coordinator's own check finds nothing missing but
    the signature.
    """
    everybody, policy = tuple(silo_name(i) for i in range(70)), policy_for(1.0, 70)
    identities = dict.fromkeys(everybody, Identity.generate().public)
    setup: Any = SimpleNamespace(
        sid=bytes(32), beacon=bytes(32), members=everybody, policy=policy, roster=identities
    )
    header = SumHeader(
        sid=bytes(32),
        round=0,
        exchange="train",
        number=1,
        broadcast=bytes(32),
        alive=everybody,
        encoding=Encoding(32, 70, (4,), (1.0,)),
        weight_cap=1.0,
    )
    opened = OpenSum(header, setup)
    assert not opened.topology.parameters.complete
    blank = blanks.upload(opened.topology, "silo-000", everybody)
    with pytest.raises(Refusal, match="not signed"):
        opened.begin_upload(replace(blank, h=header.h))
    proposal, request = (
        blanks.proposals(opened.topology, everybody)["silo-001"],
        blanks.request(opened.topology, everybody),
    )
    assert Proposal.from_record(proposal.to_record()) == proposal and len(proposal.blobs) == 69
    assert (
        UnmaskRequest.from_record(request.to_record()) == request
        and len(request.endorsements) == opened.needed
    )


def test_command_prints_all_costs_and_warns_of_a_slow_line() -> None:
    small = ("CORPUS=distant:sentences=300", "ROUNDS=2", "SILOS=3", "EPOCHS=1")
    done = sottovoce("plan", *small, "BANDWIDTH=1000")
    assert done.returncode == 0, done.stderr
    for words in (
        "up per silo and round",
        "epsilon",
        "memory, coordinator",
        "time",
        "A round does not fit",
    ):
        assert words in done.stdout
    wrong = sottovoce("plan", *small, "BANDWIDTH=fast")
    assert wrong.returncode == 2 and wrong.stderr.count("\n") == 1 and "BANDWIDTH" in wrong.stderr


def test_what_goes_wrong_while_calibrating_is_a_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    """In a child, so that nothing of it is on the terminal but what the parent then says."""

    def mistaken() -> dict[str, Any]:
        raise UserError("EPSILON is too small.")

    def killed() -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGKILL)
        return {}

    with pytest.raises(UserError, match="calibration cannot be made: EPSILON is too small"):
        _apart(mistaken)
    with pytest.raises(UserError, match="signal 9: this machine has not enough free memory"):
        _apart(killed)
    # ours, not the user's: with its trace, once
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        _apart(lambda: {"never": 1 // 0})
    assert _apart(lambda: {"seconds": 1.5}) == {"seconds": 1.5}
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("method", ["fedavg", "lazymil"])
def test_a_plan_with_a_budget_is_calibrated_too(method: str) -> None:
    """A silo's half of a round under DP-SGD needs what the method declares of its privacy."""
    words = {"method": method, "corpus": "distant:sentences=300", "silos": "3", "rounds": "2"}
    study = prepare(load(None, words | {"dp": "record", "epsilon": "8"}))
    plan = make_plan(study, measured=True)
    assert plan["wall_seconds"] > 0 and 0 < plan["epsilon"] <= 8


def test_a_plan_of_noisy_sums_has_the_epsilon_that_the_run_then_has(tmp_path: Path) -> None:
    words = {"method": "fedavg", "corpus": "distant:sentences=90,dev=20,test=20", "silos": "10"}
    words |= {"rounds": "2", "epochs": "1", "dp": "silo", "epsilon": "8", "runner": "inprocess"}
    study = prepare(load(None, words))
    plan = make_plan(study, measured=False)
    assert plan["epsilon"] <= 8 and not plan["warnings"]
    assert run_inprocess(tmp_path, study) == 0
    assert summary(tmp_path)["epsilon"] == pytest.approx(plan["epsilon"], abs=1e-9)
