"""A run's page in use: on small screens, with many silos, with odd names, from a damaged run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from config.errors import UserError
from report.files import read_run
from report.write import write_report
from tests.browser.chromium import Tab, needs_chromium
from tests.browser.page import column, opened, plotted, quiet, table, tile
from tests.conftest import lines, summary

pytestmark = needs_chromium


def test_page_can_be_used(tab: Tab, run: Path) -> None:
    """A table unfolds, the legend hides a series, Ctrl and the wheel zoom in, the colours are the
    reader's.
    """
    opened(tab, run / "report.html")
    assert tab.run("document.querySelector('#metric-by-round table').checkVisibility()") is False
    tab.click("#metric-by-round summary")
    assert tab.run("document.querySelector('#metric-by-round table').checkVisibility()") is True
    chart = "echarts.getInstanceByDom(document.querySelector('#bytes-up .plot'))"
    tab.run("document.querySelector('#bytes-up .plot').scrollIntoView({block: 'center'})")
    at = tab.run(
        "(e => [e.x + e.width / 2, e.y + e.height / 2])([...document.querySelectorAll('#bytes-up text')]"
        ".find(t => t.textContent === 'masked update').getBoundingClientRect())"
    )
    tab.click_at(*at)
    hidden = "(chosen => Object.keys(chosen).filter(n => !chosen[n]))"
    assert tab.run(f"{hidden}({chart}.getOption().legend[0].selected)") == ["masked update"]
    box = "document.querySelector('#bytes-up svg').getBoundingClientRect()"
    where = tab.run(f"(b => ({{x: b.x + b.width / 2, y: b.y + 150}}))({box})")
    tab.call(
        "Input.dispatchMouseEvent", type="mouseWheel", **where, deltaX=0, deltaY=-240, modifiers=2
    )
    tab.until(f"(z => z.end - z.start < 100)({chart}.getOption().dataZoom[0])")
    light = tab.run("getComputedStyle(document.body).backgroundColor")
    ink = "document.querySelector('#metric-by-round svg text').getAttribute('fill')"
    before = tab.run(ink)
    tab.dark(True)
    tab.until(f"{ink} !== {json.dumps(before)}")
    assert tab.run("getComputedStyle(document.body).backgroundColor") != light
    tab.dark(False)
    # No table is cut off at the side, but the silos' classes, of which there may be any number.
    cut = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1)"
    tab.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert tab.run(f"{cut}.map(e => e.querySelector('table').id)") in ([], ["partition"])
    tab.size(390, 800, mobile=True)
    tab.until("document.querySelector('#bytes-up svg').getBoundingClientRect().width <= 390")
    assert tab.run("document.documentElement.scrollWidth") <= 390
    assert tab.run(f"{cut}.map(e => e.querySelector('table').id)") in ([], ["partition"])
    # The legend is whole: its names within the picture, below the tools and above the bars.
    for chart in ("bytes-up", "bytes-up-rest", "silo-seconds"):
        within = f"document.querySelector('#{chart} svg').getBoundingClientRect()"
        every = f"[...document.querySelectorAll('#{chart} svg text')]"
        names = f"{every}.map(e => [e.textContent, e.getBoundingClientRect()])"
        wanted = list(plotted(tab, chart))
        boxes = tab.run(
            f"{names}.map(([t, b]) => [t, b.left - {within}.left, b.right - {within}.right, b.bottom])"
        )
        shown = {t: (left, right) for t, left, right, _ in boxes}
        assert all(shown[name][0] >= 0 and shown[name][1] <= 0 for name in wanted), (chart, shown)
    tab.size(1000, 800)
    assert tab.pdf().startswith(b"%PDF")
    quiet(tab, run / "report.html")


def test_every_chart_has_words_and_every_control_a_name(tab: Tab, run: Path) -> None:
    opened(tab, run / "report.html")
    figures = tab.run(
        "[...document.querySelectorAll('figure.chart')].map(f => [f.querySelector('.plot').getAttribute('role'), "
        "f.querySelector('.plot').getAttribute('aria-label'), f.querySelectorAll('details table tbody tr').length])"
    )
    assert len(figures) >= 8
    assert all(role == "img" and len(label) > 20 and rows for role, label, rows in figures)
    assert tab.run("document.documentElement.lang") == "en"
    assert tab.run(
        "[...document.querySelectorAll('table')].every(t => t.querySelector('th[scope=col]'))"
    )
    assert tab.run(
        "(ids => ids.length === new Set(ids).size)([...document.querySelectorAll('[id]')].map(e => e.id))"
    )


def test_a_run_of_a_hundred_silos_and_fifty_rounds_stays_small(
    tab: Tab, run: Path, tmp_path: Path
) -> None:
    """The real run's lines, once for each of a hundred silos and fifty rounds."""
    big = tmp_path / "big"
    shutil.copytree(run, big, ignore=shutil.ignore_patterns("silos", "keys", "model", "checkpoint"))
    names = [f"silo-{i:03d}" for i in range(100)]
    first = lines(run / "rounds.jsonl")[0] | {"participants": names, "survivors": names}

    def write(file: str, content: list[dict[str, Any]]) -> None:
        (big / file).write_text("".join(json.dumps(x) + "\n" for x in content))

    write("rounds.jsonl", [first | {"round": t} for t in range(50)])
    for file in ("traffic.jsonl", "privacy.jsonl"):
        mine = [x for x in lines(run / file) if x["silo"] == "silo-000" and x["round"] == 0]
        write(file, [x | {"silo": n, "round": t} for t in range(50) for n in names for x in mine])
    p = json.loads((run / "partition.json").read_text())
    p |= {k: [p[k][0]] * 100 for k in ("sizes", "label_counts")}
    (big / "partition.json").write_text(json.dumps(p))
    page = write_report(big)
    assert page.stat().st_size < 5_000_000
    opened(tab, page)
    assert len(column(tab, "bytes-up", "masked update")) == 50
    assert len(table(tab, "#each-silo")) == 100
    quiet(tab, page)


def test_names_from_a_corpus_are_text_and_not_markup(tab: Tab, run: Path, tmp_path: Path) -> None:
    """A corpus is somebody else's: its names must not become elements, attributes or code of the
    page.
    """
    odd = tmp_path / "odd"
    shutil.copytree(run, odd, ignore=shutil.ignore_patterns("silos", "keys", "model", "checkpoint"))
    evil = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">\"'&"
    s = summary(odd)
    s |= {"corpus": evil, "per_class": {evil: 0.5, "other": 0.25}, "citation": evil}
    (odd / "summary.json").write_text(json.dumps(s))
    p = json.loads((odd / "partition.json").read_text())
    (odd / "partition.json").write_text(
        json.dumps(p | {"labels": [evil] * len(p["labels"]), "note": evil})
    )
    opened(tab, write_report(odd))
    assert tab.run("document.querySelector('h1').textContent") == f"lazymil on {evil}"
    assert "taken" not in (tab.run("document.title").replace(evil, ""))
    assert tab.run("document.querySelectorAll('img').length") == 0
    chart = "document.querySelector('#per-class .plot')"
    tab.run(f"{chart}.scrollIntoView({{block: 'center'}})")
    x, y = tab.run(
        f"(b => [b.x + b.width / 2, b.y + b.height / 2])({chart}.getBoundingClientRect())"
    )
    # the tooltip is made of markup
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    assert tab.run("document.querySelectorAll('img').length") == 0
    quiet(tab, odd / "report.html")


def test_budget_by_round_is_drawn_from_the_ledger(tab: Tab, run: Path, tmp_path: Path) -> None:
    private = tmp_path / "private"
    shutil.copytree(
        run, private, ignore=shutil.ignore_patterns("silos", "keys", "model", "checkpoint")
    )
    (private / "summary.json").write_text(
        json.dumps(summary(run) | {"epsilon": 1.75, "delta": 1e-5})
    )
    ledger = [("silo-000", 0, 0.1), ("silo-000", 0, 0.5), ("silo-001", 0, 0.25)]
    ledger += [("silo-000", 1, 1.75), ("silo-001", 1, 1.0)]
    (private / "privacy.jsonl").write_text(
        "".join(
            json.dumps({"silo": s, "round": t, "epsilon_after": e, "delta": 1e-5}) + "\n"
            for s, t, e in ledger
        )
    )
    opened(tab, write_report(private))
    most, least = "the silo that spent most", "the silo that spent least"
    assert plotted(tab, "epsilon") == {most: [0.5, 1.75], least: [0.25, 1.0]}
    assert tile(tab, "epsilon") == ("1.75", "1.7500")
    assert "1e-05" in tab.run("document.querySelector('#answer-epsilon').textContent")
    noisy = summary(run) | {"epsilon": "inf", "dp": "record"}
    (private / "summary.json").write_text(json.dumps(noisy))
    write_report(private)
    for page in ("report.html", "report.md"):
        text = (private / page).read_text("utf-8")
        assert "noise was added, but" in text and "no noise" not in text


def test_a_damaged_run_is_named_in_a_sentence(run: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn"
    shutil.copytree(
        run, torn, ignore=shutil.ignore_patterns("silos", "keys", "model", "checkpoint")
    )
    (torn / "curve.json").unlink()
    with pytest.raises(UserError, match="curve.json"):
        read_run(torn)
    (torn / "summary.json").unlink()
    with pytest.raises(UserError, match="not a finished run"):
        read_run(torn)
