"""The first touch: the version, and help that names every setting and fits eighty columns."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from dataclasses import fields

import pytest

from cli.main import main
from config.describe import described, table
from config.settings import Settings
from tests.conftest import ROOT, sottovoce

NAMES = [f.name for f in fields(Settings) if f.name != "options"]
NARROW = os.environ | {"COLUMNS": "80"}


def test_every_setting_has_a_line_and_a_default() -> None:
    assert [s.name for s in described()] == NAMES
    for s in described():
        assert s.why and s.default, s.name


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    package = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert ended.value.code == 0 and capsys.readouterr().out == f"sottovoce {package}\n"


@pytest.mark.slow
def test_the_help_of_simulate_names_every_setting_with_its_default() -> None:
    text = sottovoce("simulate", "--help", env=os.environ | {"COLUMNS": "200"}).stdout
    for s in described():
        (line,) = [x for x in text.splitlines() if x.startswith(f"│ --{s.name.replace('_', '-')} ")]
        assert f"[default: {s.default}]" in line


def test_every_setting_is_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong value is named by its setting, so each flag reaches the setting of its name."""
    wrong = {"int": "x", "float": "x", "bool": "x"}
    for f in fields(Settings):
        if f.type in wrong:
            with pytest.raises(SystemExit) as ended:
                main(["simulate", f"--{f.name.replace('_', '-')}", wrong[str(f.type)]])
            assert ended.value.code == 2
            assert capsys.readouterr().err.startswith(f"{f.name.upper()} must be")


@pytest.mark.slow
def test_make_help_names_every_setting_without_an_environment() -> None:
    words = ["make", "help", "VENV=nowhere", f"PYTHON={sys.executable} -S"]  # -S: no packages
    made = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"MAKEFLAGS": ""}
    )
    assert made.returncode == 0, made.stderr
    assert table() in made.stdout
    assert all(len(line) <= 80 for line in made.stdout.splitlines())
    listed = {line.split()[0] for line in table().splitlines() if line[2] != " "}
    assert listed == {name.upper() for name in NAMES} | {"CONFIG", "SET"}


@pytest.mark.slow
def test_nothing_is_wider_than_eighty_columns_or_cut() -> None:
    listed = sottovoce("methods", env=NARROW).stdout
    helped = sottovoce("simulate", "--help", env=NARROW).stdout
    for text in (listed, helped, table()):
        assert text and all(len(line) <= 80 for line in text.splitlines())
        assert "…" not in text
    import methods

    flat = " ".join(listed.split())
    for name in methods.names():
        about = methods.describe(name)
        assert " ".join(about.summary.split()) in flat
        assert " ".join(about.citation.split()) in flat
