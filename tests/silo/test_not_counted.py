"""What a silo's own documents say of figures that the coordinator may count otherwise."""

from __future__ import annotations

import json
from pathlib import Path

from report.documents import _not_counted as the_coordinator_says
from report.events import Event, Lost, StillConnected
from report.files import RunFiles
from silo.papers import own_documents
from silo.record import Record
from tests.faults.world import tiny
from wire import messages as m

HELLO = m.Hello("1", b"", {})
ABOUT = {
    "title": "t",
    "consortium": "c",
    "coordinator": "hub",
    "silo": "north",
    "silos": ["north"],
    "roster_version": 1,
    "roster_fingerprint": "f",
    "study_hash": "ab" * 32,
    "program": "1",
    "method": "fedavg",
    "method_summary": "s",
    "rounds": 1,
    "dp": "off",
    "unit": "record",
    "epsilon_budget": None,
    "own_limit": None,
    "delta": 1e-5,
    "masks_hold_if": "",
    "each_silo_sends": [],
}
NOT_TOLD = "north was not told that the study is over. What the coordinator sent it last may be"
TWICE = "north dialled the coordinator 2 times."


def _record(home: Path) -> Record:
    folder = home / "records" / ("ab" * 6)
    made = Record(folder, "silo-000", tiny("fedavg").method, {"silo-000": "north"})
    (folder / "about.json").write_text(json.dumps(ABOUT))
    return made


def _dial(record: Record, heard: m.Message | None = None) -> None:
    record.dialled()
    record.sending(HELLO, None)
    if heard is not None:
        record.heard(heard, None)


def _said(home: Path) -> list[str]:
    made = own_documents(home, home / "records" / ("ab" * 6), 0.0)
    said = {kind: made[kind]["not_counted"] for kind in made}
    assert said["report"] == said["communication-cost"] == said["privacy-budget"]
    return [str(x) for x in said["report"]]


def test_a_silo_that_was_told_to_stop_has_nothing_to_explain(tmp_path: Path) -> None:
    record = _record(tmp_path)
    _dial(record)
    record.cut(stood=False)  # the coordinator did not listen yet
    _dial(record, m.Welcome(b"r", 0))
    record.heard(m.Stop(m.OVER), None)
    assert _said(tmp_path) == []
    # started again after the end, it finds nobody
    record = _record(tmp_path)
    for _ in range(2):
        _dial(record)
        record.cut(stood=False)
    assert _said(tmp_path) == []


def test_a_silo_that_was_killed_before_the_last_words_says_so(tmp_path: Path) -> None:
    _dial(_record(tmp_path), m.RoundOver(0))
    (said,) = _said(tmp_path)
    assert said.startswith(NOT_TOLD)


def test_every_dial_counts_also_one_that_was_killed_before_it_heard_a_word(tmp_path: Path) -> None:
    _dial(_record(tmp_path))
    record = _record(tmp_path)
    _dial(record, m.Welcome(b"r", 0))
    record.heard(m.Stop(m.OVER), None)
    (said,) = _said(tmp_path)
    assert said.startswith(TWICE)
    # paused, it heard a stop; the connection after that ended without one
    _dial(_record(tmp_path), m.Welcome(b"r", 0))
    assert [x.startswith(NOT_TOLD) for x in _said(tmp_path)] == [False, True]


def test_the_coordinators_say_who_was_lost_and_who_had_not_hung_up(tmp_path: Path) -> None:
    def says(*happened: Event) -> list[str]:
        names = {"silo-000": "north", "silo-001": "east"}
        made = RunFiles(
            path=tmp_path,
            summary={},
            rounds=[],
            traffic=[],
            privacy=[],
            disclosures={},
            curve={},
            config={},
            events=list(happened),
            config_text="",
            partition=None,
            plan=None,
            members=names,
        )
        return the_coordinator_says(made)

    assert says() == []
    lost, left = says(
        Lost(silo="silo-000", round=1), StillConnected(silos=("silo-001", "silo-000"))
    )
    assert lost.startswith("Connections were lost (times: north 1).")
    assert left.startswith(
        "Still connected when the coordinator ended: east, north. What they sent"
    )
