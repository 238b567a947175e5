"""The operators' pages in a real browser: studies are looked at, accepted, declined, proposed, paused
and stopped with the mouse, and what is on the disk then is what the commands would have left. And what
their server refuses.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.board import Board, Wanted
from coordinator.operator_page import CoordinatorPage
from report.local_server import TOKEN_HEADER
from report.operator import OperatorPage
from silo.operator_page import SiloPage
from silo.studies import Studies
from study.machine import Machine
from study.presence import Presence
from tests.browser.chromium import Tab, needs_chromium
from tests.consortium import Consortium

TEXT = 'title = "Sleep"\nmethod = "fedavg"\ncorpus = "distant:sentences=200"\nrounds = 2\n'
HASH = "5e" * 32


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Consortium:
    return Consortium(tmp_path_factory.mktemp("operators"))


@pytest.fixture
def silo(parties: Consortium) -> Iterator[OperatorPage]:
    """East's page, with a study to decide."""
    home = parties.path / "east"
    look = {"title": "Sleep", "hash": HASH, "page": "What a silo may send: <b>update</b>"}
    Studies(home).looked_at("abcabcabcabc", {**look, "facts": {"method": "fedavg", "rounds": 2}})
    (home / "studies" / "abcabcabcabc" / "decision.json").unlink(missing_ok=True)
    page = OperatorPage(SiloPage(home, "east", parties.roster))
    yield page
    page.close()


@pytest.fixture
def hub(parties: Consortium) -> Iterator[OperatorPage]:
    machine = Machine(parties.path / "hub", out=str(parties.path))
    page = OperatorPage(CoordinatorPage(machine, parties.roster))
    yield page
    page.close()


def _opened(tab: Tab, page: OperatorPage, width: int = 1000, dark: bool = False) -> None:
    tab.dark(dark)
    tab.size(width, 900, mobile=width < 500)
    tab.open(page.address)
    tab.until("document.documentElement.dataset.ready")


def _decision(parties: Consortium) -> dict[str, Any]:
    return dict(Studies(parties.path / "east").decision("abcabcabcabc"))


@needs_chromium
def test_a_silos_operator_reads_declines_and_accepts(
    tab: Tab, silo: OperatorPage, parties: Consortium
) -> None:
    _opened(tab, silo)
    assert "does not run" in tab.run("document.querySelector('#missing').textContent")
    presence = Presence(parties.path / "east")
    presence.heard("hub")
    presence.beat({})
    tab.until("document.querySelector('#missing').hidden")
    card = "#study-abcabcabcabc"
    # what the coordinator wrote is text and nothing else
    assert "<b>update</b>" in tab.run(f"document.querySelector('{card} pre').textContent")
    tab.click(f"{card} [data-do=accept]")
    tab.until("document.querySelector('#ask').open")
    assert HASH in tab.run("document.querySelector('#ask-words').textContent")
    tab.click("#ask-no")
    assert _decision(parties) == {}
    tab.click(f"{card} [data-do=decline]")
    tab.until("document.querySelector('#ask').open")
    tab.run("document.querySelector('#ask-why').value = 'no time'")
    tab.click("#ask-yes")
    tab.until("(document.documentElement.dataset.said || '').includes('is declined')")
    assert _decision(parties)["word"] == "decline" and _decision(parties)["why"] == "no time"
    tab.until(f"!document.querySelector('{card} [data-do=decline]')")
    tab.click(f"{card} [data-do=accept]")
    tab.until("document.querySelector('#ask').open")
    tab.click("#ask-yes")
    tab.until("(document.documentElement.dataset.said || '').includes('is accepted')")
    assert _decision(parties)["word"] == "accept" and _decision(parties)["hash"] == HASH
    assert tab.complaints == []


@needs_chromium
def test_the_coordinators_operator_proposes_pauses_and_stops(
    tab: Tab, hub: OperatorPage, parties: Consortium
) -> None:
    at = time.time()
    presence = Presence(parties.path / "hub", clock=lambda: at)
    for name in ("north", "east"):
        presence.heard(name)
    presence.beat({})
    _opened(tab, hub)
    said = tab.run("[...document.querySelectorAll('#parties li')].map(e => e.textContent)")
    assert said[2] == "south: never heard of" and said[0].startswith("north: heard ")
    board = Board(parties.path / "hub", parties.roster)
    tab.run("document.querySelector('#text').value = 'title = 5'")
    tab.click("#propose button")
    tab.until("document.querySelector('#status').classList.contains('warning')")
    assert "study.toml" in tab.run("document.querySelector('#status').textContent")
    assert board.all() == []
    tab.run(f"document.querySelector('#text').value = {json.dumps(TEXT)}")
    tab.click("#propose button")
    tab.until("document.querySelector('#ask').open")
    assert "What a silo may send" in tab.run("document.querySelector('#ask-text').textContent")
    tab.click("#ask-yes")
    tab.until("(document.documentElement.dataset.said || '').startsWith('proposed as')")
    (posted,) = board.all()
    assert posted.text == TEXT and posted.enough == 3 and posted.title == "Sleep"
    board.answer("south", posted.id, {"word": "decline", "why": "no time"})
    card = f"#study-{posted.id}"
    tab.until(f"(e => e && e.textContent.includes('no time'))(document.querySelector('{card}'))")
    tab.click(f"{card} [data-do=pause]")
    tab.until(f"document.querySelector('{card} [data-do=resume]')")
    assert board[posted.id].wanted is Wanted.PAUSE
    tab.click(f"{card} [data-do=resume]")
    tab.until(f"document.querySelector('{card} [data-do=pause]')")
    tab.click(f"{card} [data-do=stop]")
    tab.until("document.querySelector('#ask').open")
    assert board[posted.id].wanted is Wanted.RUN
    tab.click("#ask-yes")
    tab.until(f"!document.querySelector('{card} [data-do=stop]')")
    assert board[posted.id].wanted is Wanted.STOP
    (only,) = tab.complaints  # of the study file that was none
    assert "409" in only


@needs_chromium
@pytest.mark.parametrize("width", [1000, 400])
@pytest.mark.parametrize("dark", [False, True])
def test_both_pages_fit_the_screen(
    tab: Tab, silo: OperatorPage, hub: OperatorPage, width: int, dark: bool
) -> None:
    for page in (silo, hub):
        _opened(tab, page, width, dark)
        assert tab.run("document.documentElement.scrollWidth") <= width
        ink, paper = tab.run("(s => [s.color, s.backgroundColor])(getComputedStyle(document.body))")
        assert (_light(ink) > _light(paper)) == dark
        assert {r for r in tab.requests if not r.startswith(("data:", page.address))} == set()
        tab.requests.clear()


def _light(colour: str) -> int:
    return sum(int(part) for part in colour.strip("rgb()").split(","))


def _ask(page: OperatorPage, method: str, path: str, body: bytes, **headers: str) -> int:
    place, _, token = page.address.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(place, timeout=10)
    known = {"Content-Type": "application/json", TOKEN_HEADER: token.rstrip("/")}
    told = {k: v for k, v in {**known, **headers}.items() if v}
    try:
        connection.request(method, path.replace("TOKEN", token.rstrip("/")), body, told)
        return connection.getresponse().status
    finally:
        connection.close()


def test_nobody_else_can_act_through_the_page(silo: OperatorPage, parties: Consortium) -> None:
    """Another site in the same browser, another program without the token, another host name."""
    body = json.dumps({"study": "abcabcabcabc", "hash": HASH}).encode()
    do = "/TOKEN/do/accept"
    assert _ask(silo, "POST", "/wrong/do/accept", body) == 404
    assert _ask(silo, "POST", do, body, **{TOKEN_HEADER: ""}) == 404
    assert _ask(silo, "POST", do, body, **{TOKEN_HEADER: "x" * 32}) == 404
    assert _ask(silo, "POST", do, body, **{"Content-Type": "text/plain"}) == 404
    assert _ask(silo, "POST", do, body, Origin="http://evil.example") == 404
    assert _ask(silo, "POST", do, body, Origin="null") == 404
    assert _ask(silo, "POST", do, body, Host="evil.example") == 404
    assert _ask(silo, "OPTIONS", do, b"") == 405
    assert _ask(silo, "PUT", do, body) == 405
    assert _ask(silo, "POST", do, b"", **{"Content-Length": str((1 << 20) + 1)}) == 413
    assert _ask(silo, "POST", do, b"[]") == 400
    other = json.dumps({"study": "abcabcabcabc", "hash": "00" * 32}).encode()
    assert _ask(silo, "POST", do, other) == 409  # not the study that was shown
    assert _ask(silo, "POST", "/TOKEN/do/explode", body) == 409
    for path in ("/", "/TOKEN", "/TOKEN/documents/../../keys/identity", "/TOKEN/keys/card.json"):
        assert _ask(silo, "GET", path.replace("TOKEN", "wrong"), b"") == 404
    for path in ("documents/abcabcabcabc/identity", "documents/../keys/card.json", "do/accept"):
        assert _ask(silo, "GET", f"/TOKEN/{path}", b"") == 404
    assert _decision(parties) == {}
    assert _ask(silo, "POST", do, body) == 200
    assert _decision(parties)["word"] == "accept"


def test_presence_survives_a_restart_and_a_damaged_file_is_told(tmp_path: Path) -> None:
    now = [1000.0]
    first = Presence(tmp_path, clock=lambda: now[0])
    first.heard("north")
    first.beat({"abc": 5556})
    now[0] = 5000.0
    again = Presence(tmp_path, clock=lambda: now[0])
    again.beat({})
    seen = Presence(tmp_path, clock=lambda: now[0]).seen
    assert seen.heard == {"north": 1000.0} and again.seen.running == {}
    assert again.seen.alive(5059.0) and not again.seen.alive(5061.0)
