"""What a serving silo accepts without asking: up to what its policy says, and nothing beyond."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import silo.serving
from config.site import Policy
from tests.system.serving import Acted, Told

POLICY = Policy(methods=("fedavg", "fedatt"), maximum_rounds=20, maximum_epsilon=2.0)
STUDY = {"method": "fedavg", "rounds": 20, "dp": "record", "epsilon": 2.0, "delta": 1e-5}
OPEN = {"dp": "off", "epsilon": 0.0}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, ""),
        ({"method": "fedatt"}, ""),
        ({"method": "fedprox"}, "its method is fedprox"),
        ({"method": "fed"}, "its method is fed"),
        ({"rounds": 21}, "it has 21 rounds"),
        ({"epsilon": 2.0001}, "its epsilon is 2.0001"),
        ({"epsilon": 0.0}, "its epsilon is not stated"),  # as much as its noise gives
        ({"epsilon": -1.0}, "its epsilon is -1.0"),
        ({"dp": "silo"}, ""),
        ({"dp": "silo", "epsilon": 2.0001}, "its epsilon is 2.0001"),
        (OPEN, "it has no privacy budget"),
    ],
)
def test_each_limit_of_a_policy_holds_to_its_very_edge(changed: dict[str, Any], why: str) -> None:
    assert POLICY.refuses({**STUDY, **changed}) == why


def test_a_policy_accepts_only_what_it_names() -> None:
    silent = "this silo accepts no study without being told"
    assert Policy().refuses(STUDY) == silent
    assert Policy(without_noise=True, maximum_epsilon=9.0).refuses({**STUDY, **OPEN}) == silent
    # no number of rounds: none is too long; no epsilon: none is small enough
    assert Policy(methods=("fedavg",), maximum_epsilon=2.0).refuses({**STUDY, "rounds": 9999}) == ""
    assert Policy(methods=("fedavg",)).refuses({**STUDY, "epsilon": 0.1}) == "its epsilon is 0.1"
    noiseless = Policy(methods=("fedavg",), maximum_rounds=20, without_noise=True)
    assert noiseless.refuses({**STUDY, **OPEN}) == ""
    assert noiseless.refuses({**STUDY, **OPEN, "rounds": 21}) == "it has 21 rounds"
    assert noiseless.refuses(STUDY) == "its epsilon is 2.0"  # with a budget, another limit holds


_ACCEPT = '[accept]\nmethods = ["fedavg"]\nmaximum_rounds = 20\nmaximum_epsilon = 2.0\n'


@pytest.mark.parametrize(
    ("hour", "minute", "word"),
    [(7, 59, ""), (8, 0, "accept"), (17, 59, "accept"), (18, 0, ""), (23, 0, "")],
)
def test_a_policy_accepts_at_its_hours(
    tmp_path: Path,
    acted: list[Acted],
    monkeypatch: pytest.MonkeyPatch,
    hour: int,
    minute: int,
    word: str,
) -> None:
    told = Told(tmp_path, monkeypatch, more=_ACCEPT + 'hours = "08:00-18:00"\n')
    now = time.struct_time((2026, 11, 19, hour, minute, 0, 3, 323, 0))
    clock = SimpleNamespace(localtime=lambda: now, monotonic=time.monotonic)
    monkeypatch.setattr(silo.serving, "time", clock)
    id_ = told.looked_at("a", **STUDY)["id"]
    told.server.step()
    known = told.server.studies[id_]
    assert (known.word, known.how) == (word, "policy" if word else "")


def test_what_a_policy_does_not_accept_waits_for_the_operator(
    tmp_path: Path,
    acted: list[Acted],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = Told(tmp_path, monkeypatch, more=_ACCEPT)
    id_ = told.looked_at("a", **{**STUDY, "rounds": 21})["id"]
    with caplog.at_level("INFO", "silo"):
        told.server.step()
    assert told.server.studies[id_].word == ""
    said = f"study {id_} (a) waits for its operator (it has 21 rounds): sottovoce study accept"
    assert said in caplog.text


def test_a_policy_accepts_nothing_that_the_ledger_may_not_pay_any_more(
    tmp_path: Path, acted: list[Acted], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the decision another study was charged: it looks again, and once."""
    told = Told(tmp_path, monkeypatch, more=_ACCEPT)
    studies = told.server.studies

    def looked_at(title: str, hours_ago: float) -> str:
        id_ = str(told.looked_at(title, **STUDY)["id"])
        at = time.time() - 3600 * hours_ago
        os.utime(studies.folder(id_) / "look.json", (at, at))
        return id_

    ledger = tmp_path / "north" / "ledger.jsonl"
    old = looked_at("old", 2.0)
    ledger.write_text("{}\n")  # charged now
    told.server.step()
    assert studies[old].word == "" and not acted
    told.server.step()
    (look,) = acted
    Path(look.said("--look")).write_text('{"refused": "The privacy ledger leaves no room."}')
    look.status = 0
    for _ in range(3):
        told.server.step()
    assert studies[old].word == "" and "no room" in studies[old].refused and len(acted) == 1
    # looked at after the last charge; or a moment ago, while another study is charged all the time
    at = time.time() - 3600
    os.utime(ledger, (at, at))
    late, now = looked_at("late", 0.5), looked_at("now", 0.0)
    told.server.step()
    assert studies[late].word == "accept"
    os.utime(ledger)
    told.server.step()
    assert studies[now].word == "accept" and len(acted) == 1
