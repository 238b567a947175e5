"""A run's page in a real browser: it opens, asks nobody for anything, can be used, and says what
the logs say.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

import pytest

from report.units import human_bytes
from tests.browser.chromium import Tab, needs_chromium
from tests.browser.page import colours, column, opened, plotted, quiet, table, tile
from tests.conftest import lines, summary

pytestmark = needs_chromium

#: The kinds of message that have a name of their own in the byte charts.
KINDS = {
    ("chunk", "masked"): "masked update",
    ("upload", "masked"): "shares beside it",
    ("chunk", "sealed"): "sealed values",
    ("sum", "control"): "keys, signatures, released shares",
    ("chunk", "broadcast"): "model and other broadcast arrays",
}


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
    good, left, budget, bare = tab.run(
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
        "the coordinator can read it and nobody else: "
        "points (32 bytes per bag of the silo; in round 1 only), " in left
    )
    assert (
        "only the sum over the silos can be read" in left
        and ": update (one number per model parameter)." in left
    )
    assert "No bound: no noise was added, so epsilon is infinite." in budget
    assert "may tell something about any record: epsilon is infinite" in bare
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
    once = {
        "points": "1",
        "parts": "1",
    }  # names are agreed on in the first round, for the whole run
    assert table(tab, "#disclosures") == [
        [d["name"], d["channel"], once.get(d["name"], "all"), *(d[k] for k in keys)] for d in sent
    ]
    first, *later = [r["numbers_sent"] for r in lines(run / "rounds.jsonl")]
    assert all(first[d["name"]] > 0 for d in sent)
    assert all({n for n in r if r[n]} == {d["name"] for d in sent} - set(once) for r in later)
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
