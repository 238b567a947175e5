"""Every `make` line that a page shows: the target is there, its settings are known and of their
kind, its method exists.
"""

from __future__ import annotations

import re
import shlex

import pytest

import methods
from bench import papers
from config.load import load
from config.settings import Settings
from tests.conftest import ROOT
from tests.docs.test_paths import PAGES

_TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
#: what a target takes beside the settings
_OWN = {
    "simulate": {"SET", "CONFIG"},
    "plan": {"SET", "CONFIG", "BANDWIDTH"},
    "compare": {"METHODS", "SEEDS", "BANDWIDTH", "SET"},
    "table": {"PAPER", "SEEDS", "SIZE", "METHODS", "ROWS", "COLUMNS", "SET"},
    "audit": {"RUN", "SHADOWS", "PLAYS", "SET"},
}


def _lines(text: str) -> list[list[str]]:
    """From fenced blocks and from between backticks, without remarks."""
    fenced = re.findall(r"^```\w*\n(.*?)^```$", text, re.M | re.S)
    outside = re.sub(r"^```\w*\n.*?^```$", "", text, flags=re.M | re.S)
    quoted = re.findall(r"`(make [^`]+)`", outside)
    whole = [line for block in fenced for line in block.splitlines() if line.startswith("make ")]
    return [shlex.split(line.partition("  #")[0])[1:] for line in [*whole, *quoted]]


@pytest.mark.parametrize("page", [p for p in PAGES if not p.startswith("docs/results/")])
def test_make_lines(page: str) -> None:
    known = {name.upper() for name in vars(Settings())} - {"OPTIONS"}
    for target, *words in _lines((ROOT / page).read_text("utf-8")):
        if target == "NAME":  # the page speaks of any of them
            continue
        assert target in _TARGETS, f"{page}: make {target}"
        given = dict(w.split("=", 1) for w in words if "…" not in w)
        own = _OWN.get(target)
        if own is None:
            continue
        assert set(given) <= known | own, f"{page}: make {target} {words}"
        settings = {k.lower(): v for k, v in given.items() if k not in own}
        load(None, settings)  # refuses what is not of its kind
        for name in [*given.get("METHODS", "").split(), given.get("METHOD", "lazymil")]:
            assert name in methods.METHODS or name.endswith(".py"), f"{page}: {name}"
        if "PAPER" in given:
            assert given["PAPER"] in papers.PAPERS, f"{page}: {given['PAPER']}"


def test_make_lines_are_found() -> None:
    assert ["simulate", "METHOD=fedavg", "DP=silo", "EPSILON=8"] in _lines(
        (ROOT / "README.md").read_text("utf-8")
    )


def test_the_table_of_methods_has_the_papers_that_their_files_cite() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| (\S+ et al\. [^|]+) \| [^|]+ \|$", text, re.M)
    assert [name for name, _ in rows] == ["lazymil", "feded", "fedcmc", "fedlcc", "fedner"]
    for name, paper in rows:
        assert paper.replace("*", "") == methods.describe(name).citation
