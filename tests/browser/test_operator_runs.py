"""The operators' pages while a study runs: losses, waits and returns with names, rounds, traffic, and who
has been missing since when. On a desk and on a telephone, light and dark.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.board import Board
from coordinator.operator_page import CoordinatorPage
from report import events
from report.event_file import to_line
from report.operator import OperatorPage
from report.units import clock, human_bytes
from silo.operator_page import SiloPage
from silo.studies import Studies
from study.machine import Machine
from study.presence import Presence
from tests.browser.chromium import Tab, needs_chromium
from tests.consortium import Consortium

TEXT = 'title = "Sleep"\nmethod = "fedavg"\ncorpus = "distant:sentences=200"\nrounds = 3\n'
HASH = "5e" * 32
NUMBER = {"north": "silo-000", "east": "silo-001", "south": "silo-002"}
AT = 1_790_000_000.0
EVERYBODY = tuple(NUMBER.values())
#: silo 2 is lost in the second round, waited for, and comes back
ROUND = [
    events.Listening(time=AT, port=5556, round=0),
    *(events.Hello(time=AT + i, silo=silo) for i, silo in enumerate(EVERYBODY)),
    events.Enrolled(time=AT + 3, silos=3, seconds=0.5),
    events.Round(time=AT + 4, round=0, rounds=3, cohort=EVERYBODY),
    events.RoundDone(time=AT + 9, round=0, dev=0.25, seconds=5.0, bytes_up=3_000_000, missed=()),
    events.Round(time=AT + 10, round=1, rounds=3, cohort=EVERYBODY),
    events.Computing(time=AT + 11, silo="silo-001", round=1, exchange="train"),
    events.Lost(time=AT + 12, silo="silo-001", round=1),
]
WAITS = events.Waiting(
    time=AT + 42, round=1, silos=("silo-001",), here=2, needed=3, until=AT + 3600
)
RETURNS = [
    events.Hello(time=AT + 90, silo="silo-001"),
    events.Gathered(time=AT + 90, round=1, silos=3),
]
SCREENS = [(width, dark) for width in (1000, 400) for dark in (False, True)]


class Stage:
    """A consortium of which east is lost while a study runs."""

    def __init__(self, path: Path) -> None:
        self.parties = Consortium(path)
        board = Board(path / "hub", self.parties.roster)
        self.id = board.post(title="Sleep", text=TEXT, hash=HASH, enough=3).id
        self.run = path / f"study-{HASH[:12]}"
        self.run.mkdir()
        (self.run / "config.toml").write_text(
            'method = "fedavg"\ncorpus = ""\nsecagg = true\nsilos = 3\nrounds = 3\n'
        )
        (self.run / "members.json").write_text(
            json.dumps({number: name for name, number in NUMBER.items()})
        )
        line = {"round": 0, "metric": "mrr", "dev": 0.25, "seconds": 5.0}
        line |= {"participants": EVERYBODY, "survivors": EVERYBODY}
        line |= {"bytes_up": 3_000_000, "bytes_down": 7_000_000}
        (self.run / "rounds.jsonl").write_text(json.dumps(line) + "\n")
        self.happens(*ROUND)
        self.gone = time.time() - 3600
        for name, heard in (("north", time.time()), ("east", self.gone)):
            presence = Presence(path / "hub", clock=lambda heard=heard: heard)  # type: ignore[misc]
            presence.heard(name)
            presence.beat({})
        Presence(path / "hub").beat({self.id: 5556})

    def happens(self, *what: events.Event) -> None:
        with (self.run / "events.jsonl").open("a") as file:
            file.writelines(json.dumps(to_line(event)) + "\n" for event in what)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
def hub(stage: Stage) -> Iterator[OperatorPage]:
    machine = Machine(stage.parties.path / "hub", out=str(stage.parties.path))
    page = OperatorPage(CoordinatorPage(machine, stage.parties.roster))
    yield page
    page.close()


@pytest.fixture
def silo(stage: Stage) -> Iterator[OperatorPage]:
    """East's page: it left in two rounds, was cut off between them, and declined once."""
    home = stage.parties.path / "east"
    shown = {"title": "Sleep", "hash": HASH, "page": "What a silo may send", "facts": {}}
    Studies(home).looked_at(stage.id, shown)
    record = home / "records" / HASH[:12]
    record.mkdir(parents=True)
    left: list[dict[str, Any]] = [{"what": "connected"}, *_left(0), {"what": "connection lost"}]
    declined = {"what": "declined", "name": "rules", "detail": "outside of its hours"}
    left += [{"what": "connected"}, *_left(1), declined]
    stamped = [{"time": AT + i, "round": 0, **line} for i, line in enumerate(left)]
    (record / "left.jsonl").write_text("".join(json.dumps(x) + "\n" for x in stamped))
    (record / "traffic.jsonl").write_text(
        "".join(json.dumps(x) + "\n" for r in (0, 1) for x in _traffic(r))
    )
    page = OperatorPage(SiloPage(home, "east", stage.parties.roster))
    yield page
    page.close()


def _left(round: int) -> list[dict[str, Any]]:
    at = {"round": round, "exchange": "train"}
    opened = {"what": "sum opened", **at, "silos": ["north", "east", "south"]}
    return [{"what": "left", **at, "name": "update", "channel": "masked"}, opened]


def _traffic(round: int) -> list[dict[str, Any]]:
    sizes = {"messages": 1, "payload_bytes": 1000 * (round + 1), "wire_bytes": 1100 * (round + 1)}
    ways = (("chunk", "masked", "up"), ("chunk", "broadcast", "down"))
    return [
        {"silo": "silo-001", "round": round, "kind": k, "channel": c, "direction": d, **sizes}
        for k, c, d in ways
    ]


def _facts(tab: Tab, card: str) -> dict[str, str]:
    script = (
        f"[...document.querySelectorAll('{card} dt')].map("
        "e => [e.textContent, e.nextElementSibling.textContent])"
    )
    return dict(tab.run(script))


def _rows(tab: Tab, card: str) -> list[list[str]]:
    script = (
        f"[...document.querySelectorAll('{card} tbody tr')].map("
        "r => [...r.children].map(e => e.textContent))"
    )
    return [list(row) for row in tab.run(script)]


def _text(tab: Tab, selector: str) -> str:
    return str(tab.run(f"document.querySelector('{selector}').textContent"))


def _opened(tab: Tab, page: OperatorPage, width: int, dark: bool) -> None:
    tab.dark(dark)
    tab.size(width, 900, mobile=width < 500)
    tab.open(page.address)
    tab.until("document.documentElement.dataset.ready")
    # also what can be opened is open
    tab.run("document.querySelectorAll('details').forEach(e => e.open = true)")


def _cut_off(tab: Tab, width: int) -> list[str]:
    """What reaches out of the page, unless it scrolls in a box of its own."""
    script = (
        "[...document.querySelectorAll('body *')].filter(e => "
        f"e.getBoundingClientRect().right > {width} + 0.5 && "
        "!e.closest('.scroll, pre, .table')).map(e => e.outerHTML.slice(0, 80))"
    )
    assert tab.run("document.documentElement.scrollWidth") <= width
    return [str(x) for x in tab.run(script)]


def _told_apart(tab: Tab, dark: bool) -> bool:
    """Whether ink and paper are as they should be, in everything that says something."""
    script = (
        "[...document.querySelectorAll('#studies dd, #studies td, #studies li, #parties li')].map("
        "e => getComputedStyle(e).color)"
    )
    ink = [sum(int(p) for p in c.strip("rgba()").split(",")[:3]) for c in set(tab.run(script))]
    return bool(ink) and all((light > 300) == dark for light in ink)


@needs_chromium
@pytest.mark.parametrize(("width", "dark"), SCREENS)
def test_the_coordinators_page_tells_a_loss_a_wait_and_a_return(
    tab: Tab, hub: OperatorPage, stage: Stage, width: int, dark: bool
) -> None:
    stage.happens(WAITS)
    _opened(tab, hub, width, dark)
    card = f"#study-{stage.id}"
    parties = tab.run("[...document.querySelectorAll('#parties li')].map(e => e.textContent)")
    assert parties[1] == f"east: missing since {clock(stage.gone)}"
    assert parties[2] == "south: never heard of" and parties[0].startswith("north: heard ")
    facts = _facts(tab, card)
    assert facts["waiting for"] == (
        f"east, since {clock(WAITS.time)}, until {clock(WAITS.until)}: 2 silos are here, 3 are needed"
    )
    assert facts["silos"] == "north waiting, east waited for, south waiting"
    assert facts["rounds"] == "1 of 3 are done"
    assert facts["traffic"] == f"{human_bytes(3_000_000)} up, {human_bytes(7_000_000)} down"
    up, down = human_bytes(3_000_000), human_bytes(7_000_000)
    assert _rows(tab, card) == [["1", "0.2500", "3 of 3", up, down, "5.0"]]
    said = _text(tab, card)
    assert "east was lost in round 2" in said and "waiting for east: 2 silos are here" in said
    assert "silo-00" not in said
    assert _cut_off(tab, width) == [] and _told_apart(tab, dark)
    stage.happens(*RETURNS)
    tab.until(f"document.querySelector('{card}').textContent.includes('east is back')")
    facts = _facts(tab, card)
    assert "waiting for" not in facts
    assert facts["silos"] == "north waiting, east enrolled, south waiting"
    assert "3 silos are here; the run goes on" in _text(tab, card)
    assert _cut_off(tab, width) == [] and tab.complaints == []


@needs_chromium
@pytest.mark.parametrize(("width", "dark"), SCREENS)
def test_a_silos_page_tells_its_losses_and_returns(
    tab: Tab, silo: OperatorPage, stage: Stage, width: int, dark: bool
) -> None:
    _opened(tab, silo, width, dark)
    card = f"#study-{stage.id}"
    sums = "north, east, south"
    assert _rows(tab, card) == [
        ["2", "update", sums, human_bytes(2200), human_bytes(2200), "–"],
        ["1", "update", sums, human_bytes(1100), human_bytes(1100), "–"],
    ]
    said = _text(tab, card)
    order = [
        f"{clock(AT + 7)}",
        "declined (rules): outside of its hours",
        "back: connected again",
        "the connection was lost",
        "connected to the coordinator",
    ]
    places = [said.find(words) for words in order]
    assert -1 not in places and places == sorted(places), said
    assert _cut_off(tab, width) == [] and _told_apart(tab, dark)
    assert tab.complaints == []
