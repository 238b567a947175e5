"""A run handed to other tools: every table has what the log has; figures for Prometheus; optional
extras.
"""

from __future__ import annotations

import csv
import json
import math
import sys
import urllib.error
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet
import pytest

from bench.simulation.inprocess import run_inprocess
from cli import main as cli
from config.errors import UserError
from config.load import dump, load
from coordinator.prometheus import CoordinatorMetrics
from report.event_file import to_line
from report.events import Refused
from report.export import export_csv, export_mlflow, export_parquet, export_tensorboard
from report.files import RunFiles, read_lines, read_run
from study.prepare import write_partition
from tests.browser.test_methods import study
from wire.counter import ByteCounter
from wire.prometheus import Metrics, MetricsServer, address_of


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFiles:
    folder, s = tmp_path_factory.mktemp("run"), study("lazymil")
    assert run_inprocess(folder, s) == 0
    (folder / "config.toml").write_text(dump(s.settings, {"command": "by hand"}), "utf-8")
    write_partition(folder, s)
    counter = ByteCounter()
    counter.round = 0
    counter.count("silo-000", "chunk", "masked", "up", [100, 20])
    (folder / "traffic.jsonl").write_text(
        "".join(json.dumps(x) + "\n" for x in counter.drain()), "utf-8"
    )
    return read_run(folder)


def test_csv_and_parquet_have_every_line_and_value(run: RunFiles, tmp_path: Path) -> None:
    made = export_csv(run, tmp_path / "csv")
    again = export_parquet(run, tmp_path / "parquet")
    names = [
        "summary",
        "rounds",
        "traffic",
        "privacy",
        "events",
        "disclosures",
        "curve",
        "settings",
        "partition",
    ]
    assert [p.stem for p in made] == [p.stem for p in again] == names
    logs = {
        "rounds": run.rounds,
        "traffic": run.traffic,
        "privacy": run.privacy,
        "events": read_lines(run.path / "events.jsonl"),
    }
    for name, lines in logs.items():
        with (tmp_path / "csv" / f"{name}.csv").open(newline="", encoding="utf-8") as f:
            rows = list(csv.DictReader(f))
        table = pyarrow.parquet.read_table(tmp_path / "parquet" / f"{name}.parquet").to_pylist()
        assert len(rows) == len(table) == len(lines)
        for line, row, typed in zip(lines, rows, table):
            for key, value in line.items():
                if isinstance(value, dict):
                    for inner, one in value.items():
                        said, kept = row[f"{key}.{inner}"], typed[f"{key}.{inner}"]
                        assert (
                            kept == one and (said if isinstance(one, str) else float(said)) == one
                        )
                elif isinstance(value, list):
                    assert json.loads(row[key]) == json.loads(typed[key]) == value
                else:
                    assert row[key] == str(value) and typed[key] == (
                        math.inf if value == "inf" else value
                    ), key
    (summary,) = pyarrow.parquet.read_table(tmp_path / "parquet" / "summary.parquet").to_pylist()
    assert summary["value"] == run.summary["value"] and summary["epsilon"] == math.inf


def test_export_says_what_it_needs(
    run: RunFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in ([str(run.path)], [str(tmp_path), "--csv", str(tmp_path / "x")]):
        with pytest.raises(SystemExit) as end:
            cli.main(["export", *words])
        assert end.value.code == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and "--csv FOLDER" in said[0] and "summary.json" in said[1]
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        export_csv(run, tmp_path / "file")


@pytest.mark.skipif(
    find_spec("tensorboard") is None, reason="the optional extra tensorboard is not installed"
)
def test_tensorboard_has_every_round(run: RunFiles, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    export_tensorboard(run, tmp_path)
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    assert [(e.step, e.value) for e in read.Scalars("dev")] == [
        (r["round"] + 1, pytest.approx(r["dev"], rel=1e-6)) for r in run.rounds
    ]
    assert read.Scalars("summary/value")[0].value == pytest.approx(run.summary["value"], rel=1e-6)


@pytest.mark.skipif(
    find_spec("mlflow") is None, reason="the optional extra mlflow is not installed"
)
def test_mlflow_has_every_round_and_setting(
    run: RunFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    for wrong, sentence in (
        ("mlruns", "takes the URI of a store"),
        (tmp_path.as_uri(), "did not take the run"),
    ):
        with pytest.raises(UserError, match=sentence):
            export_mlflow(run, wrong)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # no server and no database here
    made = export_mlflow(run, tmp_path.as_uri())
    client = mlflow.MlflowClient(tracking_uri=tmp_path.as_uri())
    kept = client.get_run(made).data
    assert [(m.step, m.value) for m in client.get_metric_history(made, "dev")] == [
        (r["round"] + 1, r["dev"]) for r in run.rounds
    ]
    assert (
        kept.metrics["summary.value"] == run.summary["value"] and kept.params["method"] == "lazymil"
    )
    assert kept.tags["epsilon"] == "inf"


def test_an_extra_that_is_not_there_is_named(
    run: RunFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("torch.utils.tensorboard", "mlflow"):  # as if they were not installed
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=r"pip install 'sottovoce\[tensorboard\]'"):
        export_tensorboard(run, tmp_path)
    with pytest.raises(UserError, match=r"pip install 'sottovoce\[mlflow\]'"):
        export_mlflow(run, tmp_path.as_uri())


def test_figures_for_prometheus_are_those_of_the_log(run: RunFiles) -> None:
    figures = CoordinatorMetrics(5, 3)
    odd = Refused(silo="silo-000", attack='a"\n\\', detail="")
    for event in (*run.events, odd):
        figures.observe("events.jsonl", to_line(event))
    for line in run.rounds:
        figures.observe("rounds.jsonl", line)
    server = MetricsServer(figures, *address_of("0"))
    try:
        address = f"http://127.0.0.1:{server.port}"
        with urllib.request.urlopen(f"{address}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        for path, data in (("/", None), ("/metrics?x", None), ("/metrics", b"x")):
            with pytest.raises(urllib.error.HTTPError) as e:
                urllib.request.urlopen(f"{address}{path}", data, timeout=5)
            assert e.value.code in (404, 501)
    finally:
        server.close()
    said = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(said["sottovoce_rounds_done"]) == len(run.rounds)
    assert (
        float(said[f'sottovoce_dev{{metric="{run.summary["metric"]}"}}']) == run.rounds[-1]["dev"]
    )
    assert said['sottovoce_refused_total{attack="a\\"\\n\\\\",by="coordinator"}'] == "1.0"
    assert float(said["sottovoce_finished"]) == 1
    announced = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(announced) == len(set(announced)) and {n.partition("{")[0] for n in said} <= set(
        announced
    )


def test_figures_stay_on_the_loopback_address_unless_another_is_named() -> None:
    assert address_of("9100") == ("127.0.0.1", 9100) and address_of("0.0.0.0:9100") == (
        "0.0.0.0",
        9100,
    )
    assert load(None, {}).metrics == ""
    for wrong in ("on", "70000", ":9100", "a:b"):
        with pytest.raises(UserError, match="METRICS must be PORT or HOST:PORT"):
            load(None, {"metrics": wrong})
    with pytest.raises(KeyError):
        Metrics({}).set("unheard", 1)
