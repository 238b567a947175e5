"""The comparison page: figures worked out by hand from runs whose values are known, and the page in
a browser.
"""

from __future__ import annotations

import json
import shutil
import statistics
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from bench.compare import compare_runs, main
from bench.simulation.inprocess import run_inprocess
from cli import main as cli
from config.errors import UserError
from config.load import dump
from report.pages.compare import MODELS, paired
from report.units import duration, human_bytes
from tests.browser.chromium import chromium, needs_chromium
from tests.browser.page import opened, plotted, quiet, table
from tests.conftest import lines, summary
from tests.methods.small_distant import twelve
from tests.methods.small_sentence import tiny_study

ONES, OTHERS = {0: 0.5, 1: 0.7, 2: 0.9}, {0: 0.4, 1: 0.5, 2: 0.6}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One real run, and copies of it with other names, seeds and figures."""
    root = tmp_path_factory.mktemp("runs")
    study = tiny_study("fedavg", [range(5), range(5, 8), range(8, 12)], twelve(), rounds=3)
    real = root / "real"
    real.mkdir()
    assert run_inprocess(real, study) == 0
    (real / "config.toml").write_text(dump(study.settings, {"command": "by hand"}), "utf-8")
    first = json.loads((real / "summary.json").read_text("utf-8"))
    line = json.loads((real / "rounds.jsonl").read_text("utf-8").splitlines()[0])
    made = []
    for method, values, up in (("feded", ONES, 1000), ("fedavg", OTHERS, 500_000)):
        for seed, value in values.items():
            folder = root / f"{method}-{seed}"
            shutil.copytree(real, folder)
            own = {
                "method": method,
                "seed": seed,
                "value": value,
                "arrays_up_per_silo_round": up,
                "wall_seconds": 2.0,
            }
            (folder / "summary.json").write_text(json.dumps(first | own))
            rounds = [
                line | {"round": t, "dev": value * (t + 1) / 3, "arrays_up": 3 * up}
                for t in range(3)
            ]
            (folder / "rounds.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rounds))
            made.append(folder)
    return made


def test_pairs_by_seed_and_students_t_by_hand() -> None:
    """Differences 0.1, 0.2, 0.3: mean 0.2, deviation 0.1, t = 0.2 / (0.1 / sqrt 3) = 3.4641, p =
    0.0742 (2 d.f.).
    """
    mean, above, of, p = paired(ONES, OTHERS)  # type: ignore[misc]
    assert (mean, above, of) == (pytest.approx(0.2), 3, 3)
    assert p == pytest.approx(0.07418, abs=1e-5)
    # a seed that one of them lacks is no pair
    assert paired({0: 1.0, 5: 3.0}, {0: 0.5, 6: 9.0}) == (0.5, 1, 1, None)
    assert paired({0: 1.0, 1: 2.0}, {0: 0.5, 1: 1.5}) == (0.5, 2, 2, None)
    assert paired({0: 1.0}, {1: 1.0}) is None


def test_what_there_was_before_the_first_round_stands_beside_the_budget(
    runs: list[Path], tmp_path: Path
) -> None:
    first, *others = (json.loads((r / "summary.json").read_text("utf-8")) for r in runs[:3])
    text = compare_runs(runs, tmp_path / "compare.html").read_text("utf-8")
    before = f"{statistics.fmean(s['before_value'] for s in (first, *others)):.4f}"
    cell = '<td data-label="before the first round">{}</td>'
    assert text.count(cell.format(before)) == 2  # both are copies of one run
    public = tmp_path / "public"
    shutil.copytree(runs[0], public)
    own = {"method": "moon", "public": "own", "before_value": 0.375}
    (public / "summary.json").write_text(json.dumps(first | own))
    text = compare_runs([*runs, public], tmp_path / "compare.html").read_text("utf-8")
    assert cell.format("0.3750, public text alone") in text


@needs_chromium
def test_page_has_the_figures_and_opens(runs: list[Path], tmp_path: Path) -> None:
    page = compare_runs(runs, tmp_path / "compare.html", target=0.45, bandwidth=2e6)
    with chromium() as tab:
        opened(tab, page)
        rows = table(tab, "#answer-table")
        assert [r[:5] for r in rows] == [
            ["feded", "0.7000", "0.2000", "3", "1.0 kB"],
            ["fedavg", "0.5000", "0.1000", "3", "500.0 kB"],
        ]
        assert table(tab, "#paired-table") == [["fedavg", "+0.2000", "3 of 3", "0.074"]]
        assert plotted(tab, "front-bytes")["feded"] == [[1000, 0.5], [1000, 0.7], [1000, 0.9]]
        # feded: dev 0.5/3, 1/3, 0.5 | 0.7/3, 0.467 | 0.3, 0.6; three silos upload 3 kB a round
        assert table(tab, "#target-table") == [
            ["feded", "3, 2, 2", "9.0 kB, 6.0 kB, 6.0 kB"],
            ["fedavg", "–, 3, 3", "–, 4.5 MB, 4.5 MB"],
        ]
        times = {r[0]: r[2] for r in table(tab, "#upload-table")}
        assert times["fedavg"] == "0.2 s"  # 500 kB at 2 MB/s
        assert (
            times["BERT-base, float32"] == "3 min 39 s"
            and MODELS["BERT-base, float32"] == 437_928_960
        )
        assert times["BERT-large, float32"] == "11 min 10 s"
        assert len(table(tab, "#runs-table")) == 6
        assert "RUNNER=inprocess" in tab.run("document.querySelector('header').textContent")
        quiet(tab, page)


@pytest.fixture(scope="module")
def real_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two methods, three seeds each, every run a real one."""
    root, made = tmp_path_factory.mktemp("real"), []
    for method in ("lazymil", "fedavg"):
        for seed in range(3):
            study = tiny_study(
                method, [range(5), range(5, 8), range(8, 12)], twelve(), rounds=3, seed=seed
            )
            made.append(root / f"{method}-{seed}")
            made[-1].mkdir()
            assert run_inprocess(made[-1], study) == 0
            (made[-1] / "config.toml").write_text(
                dump(study.settings, {"command": f"by hand {seed}"}), "utf-8"
            )
    return made


@needs_chromium
def test_every_number_of_real_runs_is_that_of_their_logs(
    real_runs: list[Path], tmp_path: Path
) -> None:
    logs = {r.name: (summary(r), lines(r / "rounds.jsonl")) for r in real_runs}
    of = {m: [logs[f"{m}-{seed}"] for seed in range(3)] for m in ("lazymil", "fedavg")}
    target = sorted(line["dev"] for _, rounds in logs.values() for line in rounds)[9]
    page = compare_runs(real_runs, tmp_path / "compare.html", target=target, bandwidth=1e5)
    with chromium() as tab:
        tab.size(1000, 800)
        opened(tab, page)
        for name, mean, spread, seeds, up, epsilon, before, wall in table(tab, "#answer-table"):
            assert before == f"{statistics.fmean(s['before_value'] for s, _ in of[name]):.4f}"
            values = [s["value"] for s, _ in of[name]]
            sent = statistics.fmean(s["arrays_up_per_silo_round"] for s, _ in of[name])
            assert (mean, spread) == (
                f"{statistics.fmean(values):.4f}",
                f"{statistics.stdev(values):.4f}",
            )
            assert (seeds, up, epsilon) == ("3", human_bytes(sent), "infinite")
            assert wall == duration(statistics.fmean(s["wall_seconds"] for s, _ in of[name]))
        order = [row[0] for row in table(tab, "#answer-table")]
        assert order == sorted(of, key=lambda m: -statistics.fmean(s["value"] for s, _ in of[m]))
        ((other, difference, above, p),) = table(tab, "#paired-table")
        d = [a["value"] - b["value"] for (a, _), (b, _) in zip(of["lazymil"], of["fedavg"])]
        assert (other, difference, above) == (
            "fedavg",
            f"{statistics.fmean(d):+.4f}",
            f"{sum(x > 0 for x in d)} of 3",
        )
        t = statistics.fmean(d) / (statistics.stdev(d) / 3**0.5) if statistics.stdev(d) else None
        # Student's t with two degrees of freedom has a closed form.
        assert p == ("–" if t is None else f"{1 - abs(t) / (2 + t * t) ** 0.5:.3f}")
        for name, runs in of.items():
            points = [[s["arrays_up_per_silo_round"], s["value"]] for s, _ in runs]
            assert plotted(tab, "front-bytes")[name] == points
            uploaded = list(accumulate(line["arrays_up"] for line in runs[0][1]))
            assert plotted(tab, "convergence")[name] == [
                [b, x["dev"]] for b, x in zip(uploaded, runs[0][1])
            ]
        for name, rounds, sent_until in table(tab, "#target-table"):
            reached = [
                next((k for k, x in enumerate(r, 1) if x["dev"] >= target), None)
                for _, r in of[name]
            ]
            sums = [
                sum(x["arrays_up"] for x in r[:k]) if k else None
                for k, (_, r) in zip(reached, of[name])
            ]
            assert rounds == ", ".join(str(k) if k else "–" for k in reached)
            assert sent_until == ", ".join("–" if n is None else human_bytes(n) for n in sums)
        upload = {name: (size, time) for name, size, time in table(tab, "#upload-table")}
        for name, runs in of.items():
            sent = statistics.fmean(s["arrays_up_per_silo_round"] for s, _ in runs)
            assert upload[name] == (human_bytes(sent), duration(sent / 1e5))
        model = of["lazymil"][0][0]["model_float32_bytes"]
        assert upload["this model, FedAvg, float32"] == (human_bytes(model), duration(model / 1e5))
        rows = [
            [s["method"], str(s["seed"]), f"{s['value']:.4f}"]
            for runs in of.values()
            for s, _ in runs
        ]
        assert [row[:3] for row in table(tab, "#runs-table")] == rows
        # Used as a reader would: a table unfolds, a method is hidden by its legend, the page turns
        # dark and narrow.
        tab.click("#front-bytes summary")
        assert tab.run("document.querySelector('#front-bytes table').checkVisibility()") is True
        at = "[...document.querySelectorAll('#convergence text')].find(t => t.textContent === 'fedavg')"
        tab.run("document.querySelector('#convergence .plot').scrollIntoView({block: 'center'})")
        tab.click_at(
            *tab.run(
                f"(b => [b.x + b.width / 2, b.y + b.height / 2])({at}.getBoundingClientRect())"
            )
        )
        chart = "echarts.getInstanceByDom(document.querySelector('#convergence .plot')).getOption().legend[0].selected"
        assert tab.run(chart)["fedavg"] is False
        tab.dark(True)
        tab.size(390, 800, mobile=True)
        tab.until("document.querySelector('#convergence svg').getBoundingClientRect().width <= 390")
        assert tab.run("document.documentElement.scrollWidth") <= 390
        quiet(tab, page)


def test_what_cannot_be_compared_is_refused_in_a_sentence(
    runs: list[Path], tmp_path: Path, capsys: Any
) -> None:
    with pytest.raises(UserError, match="at least two runs"):
        compare_runs([runs[0], runs[0]], tmp_path / "x.html")
    with pytest.raises(UserError, match="not a finished run"):
        compare_runs([runs[0], tmp_path], tmp_path / "x.html")
    other = tmp_path / "other"
    shutil.copytree(runs[0], other)
    s = json.loads((other / "summary.json").read_text("utf-8"))
    (other / "summary.json").write_text(json.dumps(s | {"metric": "micro_f1"}))
    with pytest.raises(UserError, match="not measured alike"):
        compare_runs([runs[1], other], tmp_path / "x.html")
    with pytest.raises(UserError, match="cannot be written"):
        compare_runs(runs, tmp_path / "nowhere" / "x.html")
    for words, sentence in (
        (["SEEDS=2"], "METHODS is empty"),
        (["METHODS=fedavgg"], 'Did you mean "fedavg"'),
    ):
        with pytest.raises(SystemExit) as end:
            main([*words, f"COMPARE={tmp_path / 'c'}"])
        assert end.value.code == 2 and sentence in capsys.readouterr().err


def test_unlike_runs_are_compared_with_a_warning(runs: list[Path], tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(runs[3], other)
    s = json.loads((other / "summary.json").read_text("utf-8"))
    (other / "summary.json").write_text(
        json.dumps(s | {"silos": 99, "reference": "All data in one place."})
    )
    with pytest.raises(SystemExit, match="0"):
        cli.main(["compare", str(runs[0]), str(other), "--output", str(tmp_path / "x.html")])
    text = (tmp_path / "x.html").read_text("utf-8")
    assert "do not have the same number of silos" in text and "fedavg is no federation" in text
    assert "do not have the same data" not in text


def test_make_compare_runs_what_is_missing(
    runs: list[Path], tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    """The runs themselves are stood in for by copies: what is asked for, and that nothing is asked
    for twice.
    """
    asked: list[str] = []

    def simulate(command: list[str], **_: Any) -> Any:
        words = dict(w.split("=", 1) for w in command[4:])
        asked.append(f"{words['METHOD']} {words['SEED']} {words['ROUNDS']}")
        source = next(r for r in runs if r.name == f"{words['METHOD']}-{words['SEED']}")
        shutil.copytree(source, Path(words["OUT"]) / "latest")
        return type("Done", (), {"returncode": 0})

    monkeypatch.setattr("bench.compare.subprocess.run", simulate)
    words = ["METHODS=feded fedavg", "SEEDS=2", "ROUNDS=3", f"COMPARE={tmp_path}"]
    main(words)
    assert asked == ["feded 0 3", "feded 1 3", "fedavg 0 3", "fedavg 1 3"]
    main([*words, "TARGET=0.4"])
    assert len(asked) == 4 and "comparison: " in capsys.readouterr().out
    main(["METHODS=feded fedavg", "SEEDS=3", "ROUNDS=3", f"COMPARE={tmp_path}"])
    assert asked[4:] == ["feded 2 3", "fedavg 2 3"]
