"""The page of every method, from a run small enough to be made here, in a real browser."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.planning.plan import write_plan
from bench.simulation.inprocess import run_inprocess
from config.load import dump, load
from methods import names, tasks_of
from report.units import exact
from report.write import write_report
from study.prepare import Study, prepare, write_partition
from tests.browser.chromium import Tab, chromium, needs_chromium
from tests.browser.page import opened, quiet, table, tile
from tests.conftest import summary
from tests.methods import small_document as document
from tests.methods import small_sentence as sentence
from tests.methods.small_distant import twelve

pytestmark = needs_chromium


def study(method: str) -> Study:
    task = tasks_of(method)[0]
    if task == "distant":
        return sentence.tiny_study(method, [range(5), range(5, 8), range(8, 12)], twelve())
    if task == "sentence":
        return sentence.tiny_study(
            method, [range(24), range(24, 36), range(36, 45)], sentence.tiny_task("feded")
        )
    if task == "document":
        return document.tiny_study(method, [range(8), range(8, 14), range(14, 18)])
    few = {
        "method": method,
        "corpus": "ner:sentences=30,dev=12,test=12",
        "rounds": "1",
        "runner": "inprocess",
    }
    return prepare(load(None, few))


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with chromium() as tab:
        yield tab


@pytest.mark.parametrize("method", names())
def test_page_of_every_method_opens_and_has_its_answer(tab: Tab, method: str) -> None:
    folder, s = Path(tempfile.mkdtemp(prefix="sottovoce-test-page-")), study(method)
    assert run_inprocess(folder, s) == 0
    (folder / "config.toml").write_text(
        dump(s.settings, {"command": f"made by hand for {method}"}), "utf-8"
    )
    write_partition(folder, s)
    write_plan(folder, s, measured=False)
    tab.requests.clear()
    page = write_report(folder)
    opened(tab, page)
    figures = summary(folder)
    assert tile(tab, "metric")[0] == str(figures["value"])
    assert float(tile(tab, "bytes")[0]) == figures["arrays_up_per_silo_round"]
    # Planned without training, in the same figures: also of the two references, which have no wire.
    plan = json.loads((folder / "plan.json").read_text("utf-8"))
    for figure in ("arrays_up_per_silo_round", "arrays_down_per_silo_round"):
        assert plan[figure] == pytest.approx(figures[figure], rel=0.02), figure
    rows = {row[0]: row[1:3] for row in table(tab, "#planned")}
    assert rows["of them arrays up, as coded"] == [
        exact(x["arrays_up_per_silo_round"], "bytes") for x in (plan, figures)
    ]
    sent = json.loads((folder / "disclosures.json").read_text("utf-8"))["each_silo_sends"]
    shown = tab.run(
        "[...document.querySelectorAll('#disclosures tbody th')].map(c => c.textContent)"
    )
    assert shown == [d["name"] for d in sent]
    warned = tab.run("document.querySelector('header').textContent")
    assert figures["reference"] in warned and "in one process" in warned
    # A reference is no federation, and its page must not say what only a federation can.
    claims = tab.run("document.body.innerText.includes('never leave a silo')")
    assert claims is not bool(figures["reference"])
    assert ("stayed where they were" in warned) is not bool(figures["reference"])
    quiet(tab, page)
