"""docs/methods.md: the code of the guide runs exactly as it stands there, and what the page says of
names, options and headings is so.
"""

from __future__ import annotations

import html
import importlib
import re
import subprocess
import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import methods
import sottovoce as front_door
from config.settings import TASK_DEFAULTS, Settings
from tests.conftest import ROOT, sottovoce, summary
from tests.methods.small_distant import twelve

PAGE = (ROOT / "docs/methods.md").read_text("utf-8")
GUIDE, RULINGS = PAGE.split("\n## What the papers leave open\n")
_FILE = re.compile(r"^`my/(\w+\.py)`\n\n```python\n(.*?)^```$", re.M | re.S)
EXAMPLES = ("momentum", "equal_steps")
TINY = ("CORPUS=distant:sentences=400", "SILOS=4", "ROUNDS=2", "EPOCHS=1", "SEED=3")


@pytest.fixture(scope="module")
def my(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the page's own files."""
    folder = tmp_path_factory.mktemp("my")
    for name, text in _FILE.findall(PAGE):
        (folder / name).write_text(text, "utf-8")
    return folder


def _run(out: Path, *words: str) -> Path:
    done = sottovoce("simulate", f"OUT={out}", *TINY, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return out / "latest"


def _model(run: Path) -> str:
    return str(summary(run)["model_sha256"])


@pytest.fixture(scope="module")
def by_processes(
    my: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Path:
    method = my / f"{request.param}.py"
    return _run(tmp_path_factory.mktemp(request.param), f"METHOD={method}", "RUNNER=processes")


def test_the_page_has_both_examples_and_the_first_is_short() -> None:
    files = dict(_FILE.findall(PAGE))
    assert list(files) == [f"{name}.py" for name in EXAMPLES]
    # "about twenty lines": what is code, without docstrings, blank lines and imports
    body = re.sub(r'""".*?"""', "", files["momentum.py"], flags=re.S).splitlines()
    code = [line for line in body if line.strip() and not line.startswith(("from ", "import "))]
    assert len(code) <= 22
    imports = {
        i for text in files.values() for i in re.findall(r"^(?:from|import) (\w+)", text, re.M)
    }
    assert imports == {"sottovoce", "numpy", "dataclasses"}


@pytest.mark.slow
@pytest.mark.parametrize("by_processes", EXAMPLES, indirect=True)
def test_an_example_gives_one_model_by_both_runners_and_a_report(
    by_processes: Path, my: Path, tmp_path: Path
) -> None:
    name = str(summary(by_processes)["method"])
    assert name in EXAMPLES and summary(by_processes)["runner"] == "processes"
    plain = _run(tmp_path, f"METHOD={my / f'{name}.py'}", "RUNNER=inprocess")
    assert _model(plain) == _model(by_processes)
    assert summary(plain)["value"] != summary(plain)["before_value"]
    report = by_processes / "report.html"
    report.unlink()
    done = sottovoce("report", str(by_processes))
    assert done.returncode == 0, done.stderr
    page = html.unescape(report.read_text("utf-8"))
    assert f"<title>{name} " in page
    if name == "equal_steps":  # its own words reach the reader
        assert "how far training moved the silo's model" in page


@pytest.mark.slow
def test_without_momentum_it_is_fedavg_to_the_bit(my: Path, tmp_path: Path) -> None:
    loop = "RUNNER=inprocess"
    fedavg = _run(tmp_path / "a", "METHOD=fedavg", loop)
    still = _run(tmp_path / "b", f"METHOD={my / 'momentum.py'}", loop, "--set", "beta=0.0")
    moved = _run(tmp_path / "c", f"METHOD={my / 'momentum.py'}", loop, "--set", "beta=0.5")
    assert _model(still) == _model(fedavg) != _model(moved)


@pytest.mark.slow
@pytest.mark.parametrize("dp", ["record", "silo"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_with_a_budget(name: str, dp: str, my: Path, tmp_path: Path) -> None:
    method = f"METHOD={my / f'{name}.py'}"
    run = _run(tmp_path, method, f"DP={dp}", "EPSILON=8", "RUNNER=inprocess")
    assert 0 < float(summary(run)["epsilon"]) <= 8
    assert "non-private" not in (run / "privacy.jsonl").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("dp", ["record", "silo"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_without_its_declaration_no_budget_is_accepted(
    name: str, dp: str, my: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare.py"
    bare.write_text(re.sub(r"privacy=[A-Z]+", "privacy=None", (my / f"{name}.py").read_text()))
    done = sottovoce(
        "simulate", f"METHOD={bare}", *TINY, f"DP={dp}", "EPSILON=8", f"OUT={tmp_path}"
    )
    assert done.returncode == 2
    assert done.stderr.startswith(
        f'The method "bare" does not run with DP={dp}: its file declares no privacy'
    )
    assert not (tmp_path / "latest").exists()


@pytest.mark.slow
@pytest.mark.parametrize("by_processes", ["momentum"], indirect=True)
def test_a_plan_counts_its_bytes(by_processes: Path, my: Path) -> None:
    plan = front_door.plan(
        str(my / "momentum.py"), 4, corpus="distant:sentences=400", rounds=2, epochs=1, seed=3
    )
    counted = float(summary(by_processes)["bytes_up_per_silo_round"])
    assert plan["bytes_up_per_silo_round"] == pytest.approx(counted, rel=0.02)


@pytest.mark.slow
def test_an_example_loads_nothing_of_the_other_party(my: Path) -> None:
    """A silo that takes part in a method from outside still stands alone."""
    program = f"""
import sys, methods
methods.find({str(my / "equal_steps.py")!r})
loaded = {{m.partition(".")[0] for m in sys.modules}}
assert not loaded & {{"coordinator", "silo", "report", "bench", "cli", "pandas"}}, loaded
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# What the page says


def test_every_name_of_the_contract_is_explained() -> None:
    (table,) = re.findall(r"^### Names to import$(.*?)^### ", PAGE, re.M | re.S)
    told = {
        n for row in re.findall(r"^\| (`.+?) \|", table, re.M) for n in re.findall(r"`(\w+)`", row)
    }
    assert told == set(front_door._CONTRACT)


def test_the_lines_that_release_a_figure_run_as_they_stand() -> None:
    (lines,) = re.findall(r"^```python\n(grid = .*?)^```$", GUIDE, re.M | re.S)
    charged: list[str] = []
    silo = front_door.SiloView(
        0,
        twelve(),
        twelve().subset(np.arange(4)),
        Settings(dp="record", epsilon=1.0),
        b"",
        spend=lambda what, event: charged.append(what),
        privacy=front_door.Privacy(
            front_door.RecordPrivacy({}, release=front_door.Release("class counts", often=1))
        ),
    )
    names = {name: getattr(front_door, name) for name in ("release_grid", "noised")}
    given = {"silo": silo, "heard": front_door.Heard(0, (0,), {}), "counts": np.array([7, 0, 2])}
    out: dict[str, Any] = {}
    exec(lines, names | given, out)
    assert charged == ["class counts"] and out["noisy"].shape == (3,)
    assert not np.array_equal(out["noisy"], [7, 0, 2])


def _options() -> set[str]:
    """Of all methods and tasks."""
    own = [methods.describe(name).options for name in methods.METHODS]
    tasks = [asdict(importlib.import_module(f"methods.tasks.{t}").Knobs()) for t in TASK_DEFAULTS]
    return {name for table in [*own, *tasks] for name in table}


def test_options_that_the_rulings_name_exist() -> None:
    named = set(re.findall(r"`(\w+)=[\w.]+(?: (\w+)=[\w.]+)?`", RULINGS))
    words = {w for pair in named for w in pair if w}
    settings = {f.name.upper() for f in fields(Settings)}
    unknown = words - _options() - settings
    assert words and not unknown


def test_every_method_has_its_rulings() -> None:
    missing = {name for name in methods.METHODS if f"`{name}`" not in RULINGS}
    assert not missing


def test_partitions_that_the_rulings_name_exist() -> None:
    from corpora.partition import _KINDS, parse

    (body,) = re.findall(r"^### Partitions$(.*)", RULINGS, re.M | re.S)
    told = re.findall(r"^- `(\w+)", body, re.M)
    assert set(told) | {"pair"} == {*_KINDS, "entropy"}
    for spec in re.findall(r"`(entropy:\w+)`", body):
        parse(spec)


_REFERENCE = re.compile(r'docs/methods\.md,\s+(?:#:? )?"([^"]+)"')


def _references(text: str) -> list[str]:
    return _REFERENCE.findall(text.replace('\\"', '"'))


def test_headings_that_code_refers_to_are_there() -> None:
    """Comments say `docs/methods.md, "FedED"`: the heading is there, and no other form is used."""
    headings = set(re.findall(r"^#{2,3} (.+)$", PAGE, re.M))
    code = [
        p
        for top in ROOT.iterdir()
        if top.is_dir() and (top / "__init__.py").exists()
        for p in top.rglob("*.py")
        if p != Path(__file__)
    ]
    wrong = {
        (p.name, h) for p in code for h in _references(p.read_text("utf-8")) if h not in headings
    }
    assert not wrong
    bare = [
        p.name
        for p in code
        if re.search(r"methods\.md, section|(?<!docs/)methods\.md", p.read_text("utf-8"))
    ]
    assert not bare
    assert sum(len(_references(p.read_text("utf-8"))) for p in code) >= 8
