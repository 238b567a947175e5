"""events.jsonl: every kind of line as the program has always written it, and what is read of it."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.runlog import RunLog
from report import events
from report.event_file import KINDS, BadEvent, EventFile, read_event, to_line
from report.events import Event, Unknown

#: One of each kind, as the program wrote them before they were records.
OLD = """
{"time":1.5,"event":"listening","port":47613,"round":0}
{"time":1.5,"event":"hello","silo":"silo-000"}
{"time":1.5,"event":"back","silo":"silo-000"}
{"time":1.5,"event":"absent","silos":["silo-003","silo-004"]}
{"time":1.5,"event":"enrolled","silos":3,"seconds":0.25}
{"time":1.5,"event":"waiting","round":1,"silos":["silo-001"],"here":2,"needed":3,"until":0.0}
{"time":1.5,"event":"waiting","round":1,"silos":["silo-001"],"here":2,"needed":3,"until":0.0,"why":"its hours"}
{"time":1.5,"event":"gathered","round":1,"silos":3}
{"time":1.5,"event":"round","round":0,"rounds":2,"cohort":["silo-000","silo-001"]}
{"time":1.5,"event":"computing","silo":"silo-000","round":0,"exchange":"train"}
{"time":1.5,"event":"answered","silo":"silo-000","round":0,"exchange":"train"}
{"time":1.5,"event":"lost","silo":"silo-001","round":0}
{"time":1.5,"event":"out","silo":"silo-001","round":0,"why":"its connection closed","stage":"computing"}
{"time":1.5,"event":"refused","silo":"silo-001","attack":"replay","detail":"an upload again"}
{"time":1.5,"event":"refused-by-silo","silo":"silo-002","attack":"disk","detail":"it is full"}
{"time":1.5,"event":"refused-by-silo","silo":"silo-002","round":1,"attack":"budget-spent","detail":"none is left"}
{"time":1.5,"event":"sum-failed","round":0,"attempt":1,"why":"too few silos signed"}
{"time":1.5,"event":"reopening","round":0,"exchange":1}
{"time":1.5,"event":"reopened","round":0,"exchange":1,"ok":true}
{"time":1.5,"event":"round-again","round":0,"why":"no silo answered"}
{"time":1.5,"event":"round-spent","round":0,"why":"2 silos released shares for it"}
{"time":1.5,"event":"budgets-spent","round":1,"silos":["silo-002"],"why":"1 silos are left"}
{"time":1.5,"event":"round-done","round":0,"dev":0.5,"seconds":2.0,"bytes_up":1234,"missed":["silo-001"]}
{"time":1.5,"event":"finished"}
{"time":1.5,"event":"still-connected","silos":["silo-001"]}
{"time":1.5,"event":"interrupted"}
{"time":1.5,"event":"failed","why":"Only 1 silos are here."}
""".strip().splitlines()

VALUES: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(),
    int: st.integers(),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    tuple[str, ...]: st.lists(st.text()).map(tuple),
    int | None: st.none() | st.integers(),
    float | None: st.none() | st.floats(allow_nan=False),
    str | None: st.none() | st.text(),
}


def any_of(record: type[Event]) -> st.SearchStrategy[Event]:
    hints = get_type_hints(record)
    return st.builds(record, **{f.name: VALUES[hints[f.name]] for f in fields(record)})


def dumped(line: dict[str, Any]) -> str:
    return json.dumps(line, separators=(",", ":"))


def test_there_is_an_old_line_of_every_kind() -> None:
    assert {json.loads(line)["event"] for line in OLD} == set(KINDS) and len(KINDS) == 25


@pytest.mark.parametrize("line", OLD, ids=lambda line: json.loads(line)["event"])
def test_old_lines_are_read_and_written_letter_for_letter(line: str) -> None:
    event, table = read_event(line), json.loads(line)
    assert type(event) is KINDS[table["event"]]
    for key, value in table.items():
        if key != "event":
            assert getattr(event, key) == (tuple(value) if isinstance(value, list) else value)
    assert dumped(to_line(event)) == line
    assert read_event(table) == read_event(line.encode()) == event


@given(st.one_of([any_of(record) for record in KINDS.values()]))
def test_every_record_comes_back_as_it_went(event: Event) -> None:
    assert read_event(dumped(to_line(event))) == event


def test_what_a_newer_version_says_is_kept() -> None:
    line = '{"time":2.0,"event":"moonrise","silo":"silo-000","bright":[1,2]}'
    event = read_event(line)
    assert event == Unknown(
        time=2.0, name="moonrise", details={"silo": "silo-000", "bright": [1, 2]}
    )
    assert dumped(to_line(event)) == line
    more = '{"time":2.0,"event":"lost","silo":"silo-000","round":1,"moon":"full"}'
    assert read_event(more) == events.Lost(time=2.0, silo="silo-000", round=1)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "is no event"),
        ("[1]", "is no event"),
        ('{"event":"lost","silo":"silo-000","round":1}', "is no event"),
        ('{"time":1.0,"event":"lost","silo":"silo-000"}', '"lost" .* lacks a proper "round"'),
        ('{"time":1.0,"event":"lost","silo":7,"round":1}', 'lacks a proper "silo"'),
        ('{"time":1.0,"event":"lost","silo":"silo-000","round":true}', 'a proper "round"'),
        ('{"time":1.0,"event":"absent","silos":"silo-000"}', 'a proper "silos"'),
        ('{"time":"now","event":"finished"}', 'a proper "time"'),
    ],
)
def test_a_damaged_line_is_named(line: str, says: str) -> None:
    with pytest.raises(BadEvent, match=says):
        read_event(line)


def test_the_run_log_writes_what_it_always_did(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    log.event(events.Lost(silo="silo-001", round=0))
    log.event(events.RefusedBySilo(silo="silo-002", attack="disk", detail="it is full"))
    first, second = (tmp_path / "events.jsonl").read_text().splitlines()
    time = json.loads(first)["time"]
    assert first == f'{{"time":{time},"event":"lost","silo":"silo-001","round":0}}'
    assert second.endswith(
        '"event":"refused-by-silo","silo":"silo-002","attack":"disk","detail":"it is full"}'
    )


def test_a_file_is_read_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    whole = EventFile(path)
    assert whole.new() == []
    path.write_text(OLD[0] + "\n" + OLD[1][:20])
    assert whole.new() == [read_event(OLD[0])]
    with path.open("a") as file:
        file.write(OLD[1][20:] + "\n")
    late = EventFile(path, from_end=True)
    assert whole.new() == [read_event(OLD[1])] and whole.new() == []
    with path.open("a") as file:
        file.write(OLD[3] + "\n")
    assert late.new() == [read_event(OLD[3])]
    path.write_text(OLD[2] + "\n")  # begun anew
    assert whole.new() == [read_event(OLD[2])]
