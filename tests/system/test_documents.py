"""Documents for officers: a silo's own and the consortium's, over one real study. Every figure that
both have is the same, and a changed figure is found.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from report.units import clock, exact, human_bytes
from silo.operator_page import SiloPage
from silo.studies import Studies
from tests.browser.chromium import chromium, needs_chromium
from tests.conftest import sottovoce
from tests.consortium import Consortium
from tests.documents import beyond, compared, different

KINDS = ("report", "communication-cost", "privacy-budget")
PAPER = 680  #: CSS pixels that A4 has between its margins: 180 mm
#: what reaches beyond the right edge
CUT = """edge => [...document.querySelectorAll("body *")].filter(
    e => e.getBoundingClientRect().right > edge + 0.5).map(e => e.outerHTML.slice(0, 99))"""
#: words in tables that go on in the next line
BROKEN = """() => [...document.querySelectorAll("td, th")].flatMap(cell => {
    const walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), found = [];
    for (let n; (n = walk.nextNode());) for (const m of n.data.matchAll(/(?<!\\w)[a-z]+(?!\\w)/gi)) {
        const range = document.createRange();
        range.setStart(n, m.index); range.setEnd(n, m.index + m[0].length);
        if (new Set([...range.getClientRects()].map(r => r.top)).size > 1) found.push(m[0]);
    }
    return found;
})"""
#: text whose contrast with what is behind it is below what WCAG asks for
FAINT = """() => {
    const parts = c => c.match(/[\\d.]+/g).map(Number);
    const linear = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    const behind = e => {
        for (; e; e = e.parentElement) {
            const c = parts(getComputedStyle(e).backgroundColor);
            if (c.length === 3 || c[3] > 0.5) return c;
        }
        return [255, 255, 255];
    };
    return [...document.querySelectorAll("body *")].filter(e => e.checkVisibility() &&
        !e.closest("script, style") && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())
    ).filter(e => {
        const style = getComputedStyle(e), ink = e.closest("svg") ? style.fill : style.color;
        if (ink === "none") return false;
        const [a, b] = [light(parts(ink)), light(behind(e))].sort((x, y) => y - x);
        return (a + 0.05) / (b + 0.05) < 4.5;
    }).map(e => e.outerHTML.slice(0, 99));
}"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consortium]:
    made = Consortium(tmp_path_factory.mktemp("documents"))
    made.study(
        title="Adverse drug events",
        method="fedavg",
        corpus="distant:sentences=300",
        rounds=2,
        dp="record",
        epsilon=8.0,
        seed=3,
    )
    try:
        port, study = made.hub()
        for name in made.names:
            made.silo(name, port, study)
        for process in made.processes.values():
            assert process.wait(200) == 0, made.everything()
        yield made
    finally:
        made.close()


def _hash(c: Consortium) -> str:
    return str(json.loads((c.run / "study.json").read_text())["study_hash"])


def _own(c: Consortium, name: str) -> dict[str, dict[str, Any]]:
    """As the silo's own program left them when the study was over."""
    folder = c.path / name / "records" / _hash(c)[:12]
    return {k: json.loads((folder / f"{k}.json").read_text()) for k in KINDS}


@pytest.mark.slow
def test_a_silos_figures_are_the_coordinators(finished: Consortium) -> None:
    whole = {k: json.loads((finished.run / f"{k}.json").read_text()) for k in KINDS}
    for name in finished.names:
        own = _own(finished, name)
        for kind in KINDS:
            assert whole[kind]["signed_by"] == "hub" and own[kind]["signed_by"] == name
        assert different(own, whole) == [] and beyond(own, whole, name, False) == []
        assert own["report"]["not_counted"] == whole["report"]["not_counted"] == []
        seen = [at for at, _, _ in compared(own, whole)]
        for path in (
            "report.about.study_hash",
            f"report.silos.{name}.rounds",
            f"report.silos.{name}.epsilon",
            f"communication-cost.silos.{name}.by_kind.up, upload, masked",
            f"communication-cost.silos.{name}.by_round",
            f"communication-cost.silos.{name}.bytes_up",
            f"privacy-budget.silos.{name}.by_round",
            f"privacy-budget.silos.{name}.epsilon_rdp",
            f"privacy-budget.silos.{name}.charged",
            "privacy-budget.disclosed",
        ):
            assert path in seen, seen
        assert own["report"]["silos"][name]["rounds"] == [0, 1]
        assert 0 < own["privacy-budget"]["silos"][name]["epsilon"] <= 8


@pytest.mark.slow
def test_a_silos_documents_say_what_only_it_knows(finished: Consortium) -> None:
    own = _own(finished, "north")
    report, budget = own["report"], own["privacy-budget"]
    assert [(x["round"], x["silos"]) for x in report["sums"]] == [
        (0, ["north", "east", "south"]),
        (1, ["north", "east", "south"]),
    ]
    assert [x["name"] for x in report["times_left"]] == ["update", "weight"] * 2
    ((what, where),) = [(x["what"], x["computes_on"]) for x in report["connections"]]
    assert (what, where) == ("connected", "cpu")
    assert report["about"]["consent"]["how"] == "--accept"
    content = (finished.path / "north" / "ledger.jsonl").read_bytes()
    ledger = budget["ledger"]
    assert ledger["lines"] == content.count(b"\n") == 6
    assert ledger["sha256"] == hashlib.sha256(content).hexdigest()
    assert [(x["title"], x["lines"]) for x in ledger["studies"]] == [("Adverse drug events", 6)]
    # one study is in the ledger: alone and all together are the same, by both accountants
    (alone,) = ledger["studies"]
    assert alone["epsilon"] == ledger["epsilon"] == budget["silos"]["north"]["epsilon"]
    assert alone["epsilon_rdp"] == ledger["epsilon_rdp"] > ledger["epsilon"]
    assert ledger["remains"] == pytest.approx(8 - ledger["epsilon"], abs=1e-12)


@pytest.mark.slow
def test_a_signature_and_every_figure_can_be_checked(finished: Consortium, tmp_path: Path) -> None:
    own = finished.path / "east"
    folder = own / "records" / _hash(finished)[:12]

    def verify(file: Path, party: str, *more: str) -> tuple[int, str]:
        home = str(finished.path / party)
        done = sottovoce("verify", "document", str(file), "--home", home, *more)
        return done.returncode, done.stdout + done.stderr

    for kind in KINDS:
        status, said = verify(folder / f"{kind}.json", "north", "--logs", str(own))
        assert status == 0 and "signed by east" in said and "every figure is that of" in said, said
        assert "the page that was signed" in said
    status, said = verify(folder / "report.html", "north")  # what an officer has in hand
    assert status == 0 and "report.json: signed by east" in said
    status, said = verify(tmp_path / "report.json", "north")
    assert status == 2 and "There is no file" in said
    shutil.copy(folder / "report.json", tmp_path / "alone.json")
    status, said = verify(tmp_path / "alone.json", "north")
    assert status == 0 and "no page stands beside" in said
    status, said = verify(finished.run / "report.json", "south", "--logs", str(finished.run))
    assert status == 0 and "signed by hub" in said, said
    # a figure, and the page
    file = folder / "privacy-budget.json"
    table = json.loads(file.read_text())
    table["silos"]["east"]["epsilon"] = 0.1
    (tmp_path / "changed.json").write_text(json.dumps(table))
    status, said = verify(tmp_path / "changed.json", "north")
    assert status == 2 and "not on this content" in said
    shutil.copy(file, tmp_path / "privacy-budget.json")
    page = file.with_suffix(".html").read_text()
    (tmp_path / "privacy-budget.html").write_text(page.replace("epsilon", "Epsilon"))
    status, said = verify(tmp_path / "privacy-budget.json", "north")
    assert status == 2 and "not the page that east signed" in said
    # signed, and yet not what the logs say
    status, said = verify(file, "east", "--logs", str(finished.run))
    assert status == 2 and "other figures" in said
    # the ledger goes on: what was signed is still what its first lines say; a changed line is found
    ledger = own / "ledger.jsonl"
    text = ledger.read_text()
    try:
        ledger.write_text(text + text.splitlines(keepends=True)[0])
        assert verify(file, "east", "--logs", str(own))[0] == 0
        ledger.write_text(text.replace('"steps":', '"steps":1', 1))
        status, said = verify(file, "east", "--logs", str(own))
        assert status == 2 and "ledger" in said
    finally:
        ledger.write_text(text)


@pytest.mark.slow
def test_the_pages_answer_an_officers_four_questions(finished: Consortium) -> None:
    own = finished.path / "south" / "records" / _hash(finished)[:12]
    pages = [folder / f"{kind}.html" for folder in (own, finished.run) for kind in KINDS]
    pages.remove(finished.run / "report.html")
    for path in pages:
        page = path.read_text()
        for said in (
            "What left?",
            "Who could read it?",
            "What does the budget say?",
            "What is not protected?",
            "Adverse drug events",
            "north, east, south",
            _hash(finished),
        ):
            assert said in page, (path, said)
    report = (finished.run / "report.html").read_text()
    about = json.loads((finished.run / "report.json").read_text())["about"]
    assert 0 < about["ended"] - about["began"] < 600
    shown = dict(re.findall(r"<dt>(\w+)</dt><dd>([^<]*)</dd>", report))
    assert (shown["began"], shown["ended"]) == (clock(about["began"]), clock(about["ended"]))
    for said in (
        "What left a silo, and who could read it.",
        "Privacy budget.",
        "What is not protected.",
        "Adverse drug events",
        "version 1",
        _hash(finished),
        "A study is run once",
    ):
        assert said in report, said
    assert "un it again" not in report and "silo-001 " not in report


@pytest.mark.slow
@needs_chromium
def test_the_pages_fit_screen_phone_and_paper(finished: Consortium) -> None:
    """The four answers are on the first screen; nothing is cut off at 400 pixels or on A4."""
    own = finished.path / "south" / "records" / _hash(finished)[:12]
    pages = [folder / f"{kind}.html" for folder in (own, finished.run) for kind in KINDS]
    with chromium() as tab:
        for path in pages:
            tab.size(1000, 800)
            tab.open(path.as_uri())
            tab.until("document.documentElement.dataset.drawn")
            first = "#plain" if path == finished.run / "report.html" else "#questions"
            script = f"document.querySelector('{first}').getBoundingClientRect().bottom"
            assert tab.run(script) < 800, path
            tab.size(400, 800, mobile=True)
            tab.until("document.documentElement.scrollWidth <= 400")  # charts are drawn again
            assert set(tab.requests) == {path.as_uri()} and tab.complaints == []
            tab.requests.clear()
            paper = tab.call("Page.printToPDF", preferCSSPageSize=True)["data"]
            box = re.search(rb"/MediaBox ?\[0 0 ([\d.]+) ([\d.]+)", base64.b64decode(paper))
            assert box is not None
            assert [round(float(x)) for x in box.groups()] == [595, 842]  # A4 in points


@pytest.mark.slow
@needs_chromium
def test_on_paper_nothing_is_cut_off_and_in_the_dark_all_can_be_read(finished: Consortium) -> None:
    own = finished.path / "south" / "records" / _hash(finished)[:12]
    light = {"name": "prefers-color-scheme", "value": "light"}
    with chromium() as tab:
        for path in [folder / f"{kind}.html" for folder in (own, finished.run) for kind in KINDS]:
            tab.size(PAPER, 960)
            tab.call("Emulation.setEmulatedMedia", media="print", features=[light])
            tab.open(path.as_uri())
            tab.until("document.documentElement.dataset.drawn")
            tab.run("dispatchEvent(new Event('beforeprint'))")
            assert tab.run(f"({CUT})({PAPER})") == [], path
            assert tab.run(f"({BROKEN})()") == [], path
            tab.call("Emulation.setEmulatedMedia", media="screen")
            for width in (1000, 400):
                tab.size(width, 800, mobile=width < 500)
                for dark in (False, True):
                    tab.dark(dark)
                    tab.open(path.as_uri())
                    tab.until("document.documentElement.dataset.drawn")
                    assert tab.run(f"({FAINT})()") == [], (path, width, dark)


@pytest.mark.slow
def test_the_silos_page_shows_its_rounds(finished: Consortium) -> None:
    home, study = finished.path / "east", _hash(finished)
    Studies(home).looked_at("aaaaaaaaaaaa", {"title": "Adverse drug events", "hash": study})
    page = SiloPage(home, "east", finished.roster)
    (shown,) = page.state()["studies"]
    own = _own(finished, "east")
    up = {r["round"]: r["up"] for r in own["communication-cost"]["silos"]["east"]["by_round"]}
    assert [(row[0], row[1], row[2], row[3]) for row in shown["table"]["rows"]] == [
        (str(r + 1), "update, weight", "north, east, south", human_bytes(up[r])) for r in (1, 0)
    ]
    spent = own["privacy-budget"]["silos"]["east"]["epsilon"]
    tiles = {name: value for name, value, _ in page.state()["tiles"]}
    assert tiles["epsilon spent"] == exact(spent, "epsilon")
    assert shown["documents"] == list(KINDS)
    assert (page.folder("aaaaaaaaaaaa") / "report.html").is_file()


@pytest.mark.slow
def test_the_ledger_says_what_was_spent_and_that_a_study_runs_once(
    finished: Consortium,
) -> None:
    home = ("--home", str(finished.path / "south"))
    own = _own(finished, "south")["privacy-budget"]
    spent = own["silos"]["south"]["epsilon"]
    done = sottovoce("ledger", "show", *home)
    assert f"epsilon {spent:.4g} at delta 1e-05, for a record" in done.stdout, done.stderr
    done = sottovoce("ledger", "forecast", "--config", str(finished.path / "south.toml"))
    assert done.returncode == 0, done.stderr
    lines = dict(
        line.strip().split("  epsilon ") for line in done.stdout.splitlines() if "  epsilon" in line
    )
    figures = {key.strip(): float(value) for key, value in lines.items()}
    assert figures["spent so far"] == float(f"{spent:.4g}")
    # the study that ran is the one that is forecast: alone, it costs what it did cost
    assert figures["this study alone"] == figures["spent so far"]
    # and it runs once
    assert "with this study" not in figures
    assert "nothing more is added: a study runs once" in done.stdout
    assert "6 lines of this study are in the ledger already" in done.stdout
    ledger = finished.path / "south" / "ledger.jsonl"
    text = ledger.read_text()
    try:
        ledger.write_text("no line\n" + text)
        done = sottovoce("ledger", "check", *home)
        assert done.returncode == 2 and "line 1" in done.stderr
    finally:
        ledger.write_text(text)
    assert sottovoce("ledger", "check", *home).returncode == 0
