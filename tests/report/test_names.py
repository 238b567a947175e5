"""Silos of a consortium have names, and people read these: in the live view, in the terminal, in
reports.
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from config.errors import UserError
from config.logs import JsonLines
from config.names import with_names
from report.event_file import to_line
from report.events import Event, Failed, Lost, Out, Refused
from report.files import RunFiles, silo_names
from report.live import LiveRun
from report.pages.silos import silos
from report.watch import run_watch
from report.write import _missed

NAMES = {"silo-000": "north", "silo-001": "east", "silo-002": "south"}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "config.toml").write_text(
        'method = "fedavg"\ncorpus = ""\nsilos = 3\nrounds = 2\nsecagg = true\n', "utf-8"
    )
    return tmp_path


def happens(run: Path, *events: Event) -> None:
    with (run / "events.jsonl").open("a") as f:
        f.writelines(json.dumps(to_line(replace(e, time=1.0))) + "\n" for e in events)


def name(run: Path) -> None:
    (run / "members.json").write_text(json.dumps(NAMES), "utf-8")


LOST = Lost(silo="silo-001", round=0)
FALSE = Refused(silo="silo-002", attack="bad-share", detail="a share of silo-000, and of silo-009")


def test_the_live_view_calls_silos_by_their_names(run: Path) -> None:
    live = LiveRun(run)
    live.catch_up()
    name(run)  # the coordinator has it a moment later
    happens(run, LOST, FALSE, Failed(why="Only silo-000 is here."))
    assert live.catch_up() == [
        "east was lost in round 1",
        "refused (bad-share): south: a share of north, and of silo-009",
        "the run failed: Only north is here.",
    ]
    shown = live.snapshot()
    assert shown["silos"][:2] == [
        {"silo": "silo-000", "name": "north", "state": "not here yet"},
        {"silo": "silo-001", "name": "east", "state": "lost"},
    ]
    assert [n["text"] for n in shown["notes"]][0] == "east was lost in round 1"
    assert shown["why"] == "Only north is here."


def test_a_simulation_has_numbers(run: Path) -> None:
    live = LiveRun(run)
    happens(run, LOST)
    assert live.catch_up() == ["silo-001 was lost in round 1"]
    assert live.snapshot()["silos"][1]["name"] == "silo-001"


@pytest.mark.parametrize("terminal", [True, False])
def test_watch_calls_silos_by_their_names(run: Path, terminal: bool) -> None:
    name(run)
    happens(run, LOST, Failed(why="Only silo-000 is here."))
    out = io.StringIO()
    run_watch(run, Console(file=out, width=200, force_terminal=terminal))
    assert "east" in out.getvalue() and "silo-00" not in out.getvalue()


def _files(**changes: Any) -> RunFiles:
    three = sorted(NAMES)
    fields: dict[str, Any] = {
        "path": Path("."),
        "summary": {"missed": {"silo-001": [0]}},
        "rounds": [{"participants": three, "survivors": [three[0], three[2]]}],
        "traffic": [],
        "privacy": [],
        "events": [Out(silo="silo-001", round=0, why="silo-002 says so", stage="ready")],
        "disclosures": {},
        "curve": {},
        "config": {},
        "config_text": "",
        "partition": None,
        "plan": None,
        "members": NAMES,
    }
    return RunFiles(**(fields | changes))


@pytest.mark.parametrize("page", [lambda run: str(silos(run)), _missed], ids=["html", "markdown"])
def test_reports_call_silos_by_their_names(page: Callable[[RunFiles], str]) -> None:
    text = page(_files())
    assert "east" in text and "silo-001" not in text.replace("east (silo-001)", "")
    assert "silo-001" in page(_files(members={})) and "east" not in page(_files(members={}))


def test_the_page_says_which_number_a_name_has_in_the_logs() -> None:
    text = str(silos(_files()))
    assert all(f"{called} ({silo})" in text for silo, called in NAMES.items())
    assert "south says so (while ready)" in text


def test_logs_call_silos_by_their_names() -> None:
    """In the sentence and in the fields of an event; whoever has no name keeps its number."""
    record = logging.LogRecord("coordinator", logging.INFO, "", 0, "lost %s", ("silo-001",), None)
    record.fields = {"silo": "silo-001", "cohort": ["silo-000", "silo-009"], "round": 3}
    line = json.loads(JsonLines(NAMES).format(record))
    assert line["message"] == "lost east" and line["silo"] == "east" and line["round"] == 3
    assert line["cohort"] == ["north", "silo-009"]
    assert json.loads(JsonLines({}).format(record))["message"] == "lost silo-001"


def test_numbers_within_words_stay() -> None:
    assert with_names("silo-000, silo-0001 and a-silo-001x", NAMES) == (
        "north, silo-0001 and a-silo-001x"
    )


@pytest.mark.parametrize("text", ["{", "[1]", '{"silo-000": 7}'])
def test_a_damaged_list_of_names_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "members.json").write_text(text)
    with pytest.raises(UserError, match="members.json"):
        silo_names(tmp_path)
