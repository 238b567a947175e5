"""Sottovoce from Python gives what the command gives: the same model, figures, tables and
sentences.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import sottovoce
from sottovoce._command import words
from tests.conftest import ROOT, SMALL, summary
from tests.conftest import sottovoce as command

SENTENCE: dict[str, Any] = {
    "corpus": "sentence:sentences=200,dev=30,test=30",
    "rounds": 2,
    "batch": 16,
}
MARKED = "<e1:drug>aspirin</e1> was given for <e2:disease>fever</e2> ."


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("api")


@pytest.fixture(scope="module")
def run(out: Path) -> sottovoce.Run:
    options = {"max_length": 64, "pooling": "cls"}
    return sottovoce.simulate(
        "fedavg", 3, options=options, out=out / "runs", quiet=True, **SENTENCE
    )


def _words(settings: dict[str, Any]) -> list[str]:
    return [f"{k.upper()}={v}" for k, v in settings.items()]


def test_the_import_is_light_and_the_contract_comes_when_it_is_asked_for() -> None:
    program = """
import sys, sottovoce
heavy = {"torch", "pandas", "transformers", "numpy", "methods", "bench"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
assert set(sottovoce.__all__) <= set(dir(sottovoce))
import methods.base
assert sottovoce.Method is methods.base.Method
for name in sottovoce.__all__:
    assert getattr(sottovoce, name) is not None
from methods.tasks.base import Task
assert sottovoce.Task is Task
try:
    sottovoce.nothing
except AttributeError as e:
    assert "no attribute 'nothing'" in str(e)
else:
    raise SystemExit("an unknown name was found")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_model_is_the_one_of_the_command_line(
    tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE"):
        monkeypatch.setenv(name, "1")  # as a notebook's kernel has it
    settings: dict[str, Any] = {k.lower(): v for k, _, v in (w.partition("=") for w in SMALL)}
    run = sottovoce.simulate(silos=3, options={"warmup": 0.5}, out=tmp_path / "a", **settings)
    said = capsys.readouterr().out
    assert "\nround 1/2: dev auc" in said and f"\nreport: {run.report}\n" in said
    assert "\x1b" not in said
    with pytest.raises(sottovoce.Error) as caught:
        sottovoce.simulate("fedavgg")
    assert str(caught.value) == 'Unknown method "fedavgg". Did you mean "fedavg"?'
    monkeypatch.undo()
    done = command("simulate", *SMALL, "SILOS=3", f"OUT={tmp_path / 'b'}", "--set", "warmup=0.5")
    assert done.returncode == 0, done.stderr
    theirs = summary(tmp_path / "b" / "latest")
    measured = ("wall_seconds", "cpu_seconds", "peak_rss_mb", "bytes_up", "bytes_down", "silo")
    assert {k: v for k, v in run.summary.items() if not k.startswith(measured)} == {
        k: v for k, v in theirs.items() if not k.startswith(measured)
    }
    assert run.summary["model_sha256"] == theirs["model_sha256"]
    assert 'command = "sottovoce simulate METHOD=lazymil' in (run.path / "config.toml").read_text()


@pytest.mark.slow
def test_tables_have_a_row_for_every_line_of_their_file(run: sottovoce.Run) -> None:
    for name in ("rounds", "traffic", "privacy"):
        lines = (run.path / f"{name}.jsonl").read_text("utf-8").splitlines()
        table = getattr(run, name)
        assert len(table) == len(lines) > 1
    assert run.rounds["dev"].tolist() == [
        json.loads(line)["dev"] for line in (run.path / "rounds.jsonl").read_text().splitlines()
    ]
    assert run.rounds["figures.micro_f1"].tolist() == run.rounds["dev"].tolist()
    up = run.traffic[run.traffic["direction"] == "up"]
    assert up["wire_bytes"].sum() == run.summary["bytes_up_total"]
    assert (run.privacy["epsilon_after"] == math.inf).all()
    assert run.report.name == "report.html" and (run.model / "encoder" / "config.json").is_file()


@pytest.mark.slow
def test_a_notebook_is_shown_a_few_figures_and_a_link(run: sottovoce.Run, monkeypatch: Any) -> None:
    monkeypatch.chdir(run.path.parent.parent)
    shown = run._repr_html_()
    assert len(shown) < 2_000 and f"{run.summary['value']:.4f}" in shown
    assert f'href="runs/{run.path.name}/report.html"' in shown
    monkeypatch.chdir("/")
    assert f'href="{run.path.relative_to("/")}/report.html"' in run._repr_html_()
    monkeypatch.chdir(ROOT)
    assert f'href="file://{run.path}/report.html"' in run._repr_html_()
    assert repr(run) == f"<Run {run.path}: fedavg, test micro_f1 {run.summary['value']:.4f}>"


@pytest.mark.slow
def test_a_model_extracts_what_the_command_extracts(run: sottovoce.Run, tmp_path: Path) -> None:
    file = tmp_path / "some.txt"
    file.write_text(f"{MARKED}\n<e1>pain</e1> after <e2>surgery</e2> .\n", "utf-8")
    done = command("extract", str(run.path), str(file), "--format", "jsonl", "--none")
    theirs = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(theirs) == 2
    torch.set_num_threads(2)
    try:
        model = sottovoce.load(run)
        assert model.extract(file, none=True) == theirs
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    first, second = theirs
    assert model.extract(MARKED, none=True) == [{**first, "id": "text:1"}]
    given = {k: first[k] for k in ("text", "head", "tail")}
    several = model.extract([MARKED, given, file], none=True)
    names = ["text-1:1", "text-2:1", "some.txt:1", "some.txt:2"]
    assert [f["id"] for f in several] == names
    assert [f["scores"] for f in several] == [first["scores"]] * 3 + [second["scores"]]
    least = first["score"] + 1e-4
    assert model.extract(MARKED, none=True, least=least) == []
    with pytest.raises(sottovoce.Error, match="^text-2, line 1: it does not have both entities"):
        model.extract([MARKED, "nothing is marked here"])
    with pytest.raises(sottovoce.Error, match='"text" is empty'):
        model.extract("  ")
    assert sottovoce.load(run.model).extract(MARKED) == model.extract(MARKED)


@pytest.mark.slow
def test_a_model_is_evaluated_as_the_command_does_it(run: sottovoce.Run) -> None:
    model = sottovoce.load(run.path)
    own = model.evaluate()
    assert own["value"] == run.summary["value"] and own["figures"] == run.summary["figures"]
    dev = model.evaluate(split="dev")
    assert dev["split"] == "dev" and dev["value"] == run.summary["dev_value"]
    with pytest.raises(sottovoce.Error, match='^--split must be dev or test, not "train".$'):
        model.evaluate(split="train")


@pytest.mark.slow
def test_a_plan_has_the_figures_of_the_command(run: sottovoce.Run) -> None:
    plan = sottovoce.plan("fedavg", 3, options={"max_length": 64}, bandwidth=1000.0, **SENTENCE)
    given = ["METHOD=fedavg", "SILOS=3", *_words(SENTENCE), "BANDWIDTH=1000", "--set"]
    theirs = json.loads(command("plan", *given, "max_length=64", "--json").stdout)
    timed = ("wall_seconds", "_mb", "rss_mb", "calibration_seconds")
    assert set(plan) == set(theirs)
    for key in (k for k in theirs if not k.endswith(timed)):
        assert plan[key] == theirs[key], key
    assert plan["arrays_up_per_silo_round"] == run.summary["arrays_up_per_silo_round"]
    with pytest.raises(sottovoce.Error, match='^Unknown setting "SYLOS"'):
        sottovoce.plan(sylos=3)
    assert len(plan.warnings) == 1 and "DEADLINE" in plan.warnings[0]
    assert "by_silo" not in plan._repr_html_() and "bytes_up_total" in plan._repr_html_()


@pytest.mark.slow
def test_runs_are_compared_on_a_page(run: sottovoce.Run, out: Path) -> None:
    other = sottovoce.simulate("fedatt", 3, out=out / "runs", quiet=True, **SENTENCE)
    page = sottovoce.compare([run, other.path], out / "both.html", target=0.1)
    assert page == out / "both.html"
    text = page.read_text("utf-8")
    assert "fedatt" in text and "fedavg" in text
    with pytest.raises(sottovoce.Error, match="at least two runs"):
        sottovoce.compare([run])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"method": "fedavgg"}, {}),
        ({"sylos": 3}, {}),
        ({"silos": "three"}, {}),
        ({"silos": 2}, {}),
        ({"secagg": False, "dp": "silo", "noise": 1.0}, {}),
        ({"corpus": "distant:sentences=600"}, {"no_such": 1}),
        ({"corpus": "distant:sentences=600"}, {"buckets": "64"}),
        ({"config": "no such file.toml"}, {}),
        ({"corpus": "./no/such/folder"}, {}),
    ],
)
def test_a_mistake_is_an_exception_with_the_sentence_of_the_command(
    settings: dict[str, Any], options: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(sottovoce.Error) as caught:
        sottovoce.simulate(options=options, out=tmp_path, quiet=True, **settings)
    given = {"method": "lazymil", **settings, "out": tmp_path}
    done = command("simulate", *words(given, options))
    assert done.returncode == 2
    assert str(caught.value) == done.stderr.strip() != ""
    assert not list(tmp_path.iterdir())


def test_values_reach_the_command_as_what_they_are() -> None:
    given = {"secagg": False, "silos": 3, "lr": 1e-5, "out": Path("a b"), "dp": None}
    assert words(given) == ["SECAGG=off", "SILOS=3", "LR=1e-05", "OUT=a b"]
    options = {"grammar": True, "tags": "5", "types": 'a "b"', "dropout": 0.5}
    assert words({}, options)[1::2] == [
        "grammar=true",
        'tags="5"',
        'types="a \\"b\\""',
        "dropout=0.5",
    ]


def test_a_folder_without_a_run_or_with_half_of_one_is_said(tmp_path: Path) -> None:
    with pytest.raises(sottovoce.Error, match="is not a run folder: it has no config.toml"):
        sottovoce.load_run(tmp_path)
    (tmp_path / "config.toml").write_text("")
    half = sottovoce.Run.open(tmp_path)
    assert not half.finished and len(half.rounds) == 0 and "not finished" in half._repr_html_()
    for name in ("summary", "report", "model"):
        with pytest.raises(sottovoce.Error, match="it is not a finished run"):
            getattr(half, name)
    with pytest.raises(sottovoce.Error, match="no model in it"):
        sottovoce.load(half)


MINE = """'''The mean of the silos' models, written with the names of `import sottovoce` alone.'''

from dataclasses import dataclass

import numpy as np

import sottovoce as sv

CITATION, TASKS = "nobody", ("distant",)


@dataclass(frozen=True)
class Options:
    step: float = 1.0


def build(task, settings, options):
    start = {n: p.detach().numpy() for n, p in task.new_model(0).named_parameters()}

    def answer(silo, heard):
        return sv.Answer(masked={n: np.full_like(v, 0.001 * options.step) for n, v in start.items()})

    def fold(state, folded):
        model = {n: v + folded.total[n].astype(np.float32) for n, v in state.model.items()}
        return sv.State(model)

    exchange = sv.Exchange(
        name="train",
        disclosures=tuple(
            sv.Disclosure(n, "masked", "a layer", "next to nothing", "only a sum") for n in start
        ),
        broadcast=lambda state, round, cohort: sv.Broadcast({}),
        answer=answer,
        fold=fold,
        masked={n: sv.ArraySpec(v.shape, "float32", 1.0) for n, v in start.items()},
    )
    return sv.Method("mine", CITATION, (exchange,), lambda seed: sv.State(start))
"""


@pytest.mark.slow
def test_a_method_is_written_with_the_names_of_the_package(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MINE, "utf-8")
    settings: dict[str, Any] = {
        "corpus": "distant:sentences=600",
        "rounds": 1,
        "epochs": 1,
        "quiet": True,
    }
    run = sottovoce.simulate(file, 3, out=tmp_path / "runs", options={"step": 2.0}, **settings)
    assert run.finished and run.summary["method"] == "mine"
    assert sottovoce.load(run).evaluate()["value"] == run.summary["value"]
    with pytest.raises(sottovoce.Error, match='has no option "leap"'):
        sottovoce.simulate(file, 3, out=tmp_path / "runs", options={"leap": 1.0}, **settings)
