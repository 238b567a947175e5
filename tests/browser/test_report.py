"""A run's page in a real browser: it opens, asks nobody for anything, can be used, and says what
the logs say.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from report.files import read_run
from report.units import human_bytes
from report.write import write_report
from tests.browser.chromium import Tab, chromium, needs_chromium
from tests.conftest import ROOT, SMALL, Running, command, lines, summary, wait_for

pytestmark = needs_chromium

#: The kinds of message that have a name of their own in the byte charts.
KINDS = {
    ("chunk", "masked"): "masked update",
    ("upload", "masked"): "shares beside it",
    ("chunk", "sealed"): "sealed values",
    ("sum", "control"): "keys, signatures, released shares",
    ("chunk", "broadcast"): "model and other broadcast arrays",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four real silos, one of which is killed while it trains."""
    out = tmp_path_factory.mktemp("runs")
    words = ("SILOS=4", "METHOD=lazymil", "TARGET=0.01", *SMALL)
    process = subprocess.Popen(
        command("simulate", f"OUT={out}", *words),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    running = Running(process, out)
    try:
        wait_for(lambda: running.computing("silo-003", 1, "score"))
        os.kill(running.pids()["silos"]["silo-003"], signal.SIGKILL)
        status, text = running.finish()
    finally:
        process.kill()
        process.wait()
    assert status == 0, text
    assert f"report: {running.run / 'report.html'}" in text
    return running.run


@pytest.fixture(scope="module")
def browser() -> Iterator[Tab]:
    with chromium() as tab:
        tab.size(1000, 800)
        yield tab


@pytest.fixture
def tab(browser: Tab) -> Tab:
    browser.requests.clear()
    browser.complaints.clear()
    return browser


def opened(tab: Tab, page: Path) -> Tab:
    tab.open(page.as_uri())
    drawn = tab.until("document.documentElement.dataset.drawn")
    assert int(drawn) == tab.run("document.querySelectorAll('figure.chart svg').length") > 0
    return tab


def quiet(tab: Tab, page: Path) -> None:
    """Nothing but the file itself was asked for, and nobody complained."""
    assert set(tab.requests) == {page.as_uri()}
    assert tab.complaints == []


def table(tab: Tab, selector: str) -> list[list[str]]:
    """A table's rows as the reader sees them, without its head. A folded one is read too."""
    script = "[...document.querySelectorAll(%s)].map(r => [...r.cells].map(c => c.textContent))"
    found: list[list[str]] = tab.run(script % json.dumps(f"{selector} tbody tr"))
    return found


def column(tab: Tab, chart: str, name: str) -> list[float]:
    """One column of the table behind a chart."""
    head = tab.run(f"[...document.querySelectorAll('#{chart} thead th')].map(c => c.textContent)")
    return [float(row[head.index(name)].replace(",", "")) for row in table(tab, f"#{chart}")]


def plotted(tab: Tab, chart: str) -> dict[str, list[Any]]:
    """What the library was given to draw."""
    option = f"echarts.getInstanceByDom(document.querySelector('#{chart} .plot')).getOption()"
    return dict(tab.run(f"{option}.series.map(s => [s.name, s.data])"))


def colours(tab: Tab, chart: str) -> dict[str, str]:
    option = f"echarts.getInstanceByDom(document.querySelector('#{chart} .plot')).getOption()"
    return dict(tab.run(f"{option}.series.map(s => [s.name, s.color])"))


def tile(tab: Tab, name: str) -> tuple[str, str]:
    value, shown = tab.run(
        f"(e => [e.value, e.textContent])(document.querySelector('#answer-{name} data'))"
    )
    return value, shown


def test_page_leads_with_the_figures_of_the_logs(tab: Tab, run: Path) -> None:
    opened(tab, run / "report.html")
    s, rounds = summary(run), lines(run / "rounds.jsonl")
    assert tile(tab, "metric") == (str(s["value"]), f"{s['value']:.4f}")
    sent = sum(
        t["wire_bytes"]
        for t in lines(run / "traffic.jsonl")
        if t["direction"] == "up" and t["round"] >= 0
    )
    asked = sum(len(r["participants"]) for r in rounds)
    assert float(tile(tab, "bytes")[0]) == pytest.approx(sent / asked, rel=1e-12)
    assert tile(tab, "bytes")[1] == f"{sent / asked / 1000:.1f} kB"
    good, left, budget = tab.run(
        "[...document.querySelectorAll('#plain > li')].map(e => e.textContent)"
    )
    assert (
        f"scores {s['value']:.4f} in area under" in good
        and f"a silo sent {sent / asked / 1000:.1f} kB" in left
    )
    assert f"Before the first round the same model scored {s['before_value']:.4f} there." in good
    assert f"before the first round {s['before_value']:.4f}" in tab.run(
        "document.querySelector('#answer-metric').innerText"
    )
    assert (
        "the coordinator can read it and nobody else: names (16 bytes per bag of the silo) and values"
        in left
    )
    assert (
        "only the sum over the silos can be read" in left
        and ": update (one number per model parameter)." in left
    )
    assert "No bound: no noise was added, so epsilon is infinite." in budget
    figures = tab.run(
        "[...document.querySelectorAll('#facts data')].map(e => [e.value, e.textContent])"
    )
    examples = sum(json.loads((run / "partition.json").read_text())["sizes"])
    assert figures == [
        [str(n), f"{n:,}"] for n in (s["parameters"], *s["test_size"].values(), examples)
    ]
    assert tile(tab, "epsilon") == ("inf", "infinite")
    assert "no noise was added" in tab.run("document.querySelector('#answer-epsilon').textContent")
    assert {x["epsilon_after"] for x in lines(run / "privacy.jsonl")} == {"inf"}
    assert tile(tab, "survivors")[1] == "7 of 8"
    assert float(tile(tab, "wall")[0]) == s["wall_seconds"]
    # The answer stands before anything that must be scrolled to.
    assert tab.run("document.querySelector('#answer-wall').getBoundingClientRect().bottom") < 800
    quiet(tab, run / "report.html")


def test_every_chart_and_the_table_behind_it_have_the_logs_numbers(tab: Tab, run: Path) -> None:
    opened(tab, run / "report.html")
    s, rounds, traffic = summary(run), lines(run / "rounds.jsonl"), lines(run / "traffic.jsonl")
    dev = [r["dev"] for r in rounds]
    assert plotted(tab, "metric-by-round") == {"dev auc": dev, "target": [0.01, 0.01]}
    assert column(tab, "metric-by-round", "dev auc") == pytest.approx(dev, abs=5.1e-5)
    assert plotted(tab, "per-class") == {"test": list(s["per_class"].values())}
    assert plotted(tab, "curve") == {"test": json.loads((run / "curve.json").read_text())["points"]}
    for direction in ("up", "down"):
        drawn = plotted(tab, f"bytes-{direction}")
        reference = drawn.pop("plain FedAvg, float32")
        assert reference == [s["model_float32_bytes"] * len(r["participants"]) for r in rounds]
        own = [t for t in traffic if t["direction"] == direction]
        sums = [sum(t["wire_bytes"] for t in own if t["round"] == k) for k in range(-1, 2)]
        assert [sum(x) for x in zip(*drawn.values())] == sums[1:]
        assert sum(sums) == s[f"bytes_{direction}_total"]
        by_kind: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for t in own:
            if t["round"] >= 0:
                by_kind[KINDS.get((t["kind"], t["channel"]), "control messages")][t["round"]] += t[
                    "wire_bytes"
                ]
        assert drawn == by_kind
        for name, values in drawn.items():
            assert column(tab, f"bytes-{direction}", name) == values
        # What the largest kind hides is drawn once more without it, in the same colours.
        largest = max(by_kind, key=lambda kind: sum(by_kind[kind]))
        assert plotted(tab, f"bytes-{direction}-rest") == {
            k: v for k, v in by_kind.items() if k != largest
        }
        share = f"{100 * sum(by_kind[largest]) / sum(sums[1:]):.1f} % of all was {largest}"
        assert share in tab.run(f"document.querySelector('#bytes-{direction}-rest').textContent")
        hues = [colours(tab, f"bytes-{direction}{rest}") for rest in ("", "-rest")]
        assert len(set(hues[0].values())) == len(hues[0]) and hues[0] | hues[1] == hues[0]
        together = f"they together would {direction}load {human_bytes(reference[0])} a round"
        assert together in tab.run(f"document.querySelector('#bytes-{direction}').textContent")
        assert f"{human_bytes(s[f'bytes_{direction}_per_silo_round'])} " in tab.run(
            "document.querySelector('#total-bytes').textContent"
        )
    assert plotted(tab, "bytes-up")["masked update"][0] == sum(
        t["wire_bytes"]
        for t in traffic
        if t["channel"] == "masked" and t["kind"] == "chunk" and t["round"] == 0
    )
    total, points = 0, []
    for r in rounds:
        total += sum(
            t["wire_bytes"] for t in traffic if t["direction"] == "up" and t["round"] == r["round"]
        )
        points.append([total, r["dev"]])
    assert list(plotted(tab, "metric-by-bytes").values()) == [points]
    assert sum(x[0] for x in plotted(tab, "seconds").values()) == pytest.approx(
        sum(rounds[0]["phases"].values())
    )
    spent = plotted(tab, "silo-seconds")
    assert spent["training"] == [r["silo_seconds"]["computing"] for r in rounds]
    assert spent["masking and sending"] == [r["silo_seconds"]["uploading"] for r in rounds]
    quiet(tab, run / "report.html")


def test_words_and_tables_of_the_page_are_those_of_the_logs(tab: Tab, run: Path) -> None:
    opened(tab, run / "report.html")
    sent = json.loads((run / "disclosures.json").read_text())["each_silo_sends"]
    keys = ("shape", "readable_by", "reveals", "privacy")
    assert table(tab, "#disclosures") == [
        [d["name"], d["channel"], "all", *(d[k] for k in keys)] for d in sent
    ]
    assert all(r["numbers_sent"][d["name"]] > 0 for r in lines(run / "rounds.jsonl") for d in sent)
    words = tab.run("document.querySelector('main').textContent")
    assumed = json.loads((run / "disclosures.json").read_text())["masks_hold_if"]
    # What masks hang on has one home, and nothing on the page says more than it.
    assert words.count(f"as long as {assumed}") == words.count("collude") == 1
    assert "nobody can read" not in words and "In each round" not in words
    traffic = lines(run / "traffic.jsonl")
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for t in traffic:
        for k, key in enumerate(("messages", "payload_bytes", "wire_bytes")):
            sums[f"{t['direction']}: {t['kind']}, {t['channel']}"][k] += t[key]
    assert {r[0]: [int(x.replace(",", "")) for x in r[1:]] for r in table(tab, "#traffic")} == sums
    ups: dict[str, int] = defaultdict(int)
    for t in traffic:
        if t["direction"] == "up":
            ups[t["channel"]] += t["wire_bytes"]
    assert {r[0].split()[0]: int(r[1].replace(",", "")) for r in table(tab, "#channels")} == ups
    (gone,) = table(tab, "#dropped")
    assert gone[:2] == ["silo-003", "2"] and "its connection closed" in gone[2]
    rows = {r[0]: r[1:] for r in table(tab, "#each-silo")}
    assert [rows[f"silo-00{i}"][1] for i in range(4)] == ["2 of 2", "2 of 2", "2 of 2", "1 of 2"]
    for silo, row in rows.items():
        own = [t for t in traffic if t["silo"] == silo]
        both = [sum(t["wire_bytes"] for t in own if t["direction"] == d) for d in ("up", "down")]
        assert [int(x.replace(",", "")) for x in row[2:]] == both
    p = json.loads((run / "partition.json").read_text())
    assert [[int(c or 0) for c in row[1:]] for row in table(tab, "#partition")] == [
        [*counts, size] for counts, size in zip(p["label_counts"], p["sizes"])
    ]
    figures = {r[0]: float(r[1]) for r in table(tab, "#figures")}
    assert figures == pytest.approx(summary(run)["figures"], abs=5.1e-5)
    words = tab.run("document.querySelector('#again').textContent")
    config = (run / "config.toml").read_text()
    assert config in words and summary(run)["model_sha256"] in words
    assert re.search(r'command = "(.*)"', config).group(1) in words  # type: ignore[union-attr]


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
    from config.errors import UserError

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
