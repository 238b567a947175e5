"""What every contributor relies on: pinned versions, local hooks that run what `make lint` runs."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import ROOT


def _pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def _wanted() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    return [Requirement(x) for x in (*project["dependencies"], *(y for e in extras for y in e))]


def test_every_package_that_is_asked_for_or_brought_along_is_pinned() -> None:
    """Of those that are installed: an extra that is not there brings nothing along."""
    pins, seen = _pins(), set[tuple[str, str]]()
    waiting = [(r, "") for r in _wanted()]
    while waiting:
        r, extra = waiting.pop()
        name = canonicalize_name(r.name)
        environment: dict[str, Any] = {**default_environment(), "extra": extra}
        if (name, extra) in seen or (r.marker and not r.marker.evaluate(environment)):
            continue
        seen.add((name, extra))
        try:
            there = distribution(name)
        except PackageNotFoundError:
            continue
        assert name in pins, f"{name} {there.version} is not in constraints.txt"
        assert there.version.partition("+")[0] == pins[name], name
        for asked in ("", *r.extras):
            waiting += [(Requirement(x), asked) for x in there.requires or []]
    assert len(seen) > 60
    for r in _wanted():
        assert canonicalize_name(r.name) in pins


def test_no_package_is_pinned_twice() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    names = [canonicalize_name(x.split("==")[0]) for x in lines if x and not x.startswith("#")]
    assert len(names) == len(set(names))


def test_hooks_are_local_and_run_what_make_lint_runs() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    assert [r["repo"] for r in config["repos"]] == ["local"]
    hooks = config["repos"][0]["hooks"]
    assert all(h["language"] == "system" for h in hooks)
    recipe = re.search(r"^lint:.*?\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text("utf-8"), re.M)
    assert recipe is not None
    for_make = set(re.findall(r"^\t@\$\(BIN\)/([\w-]+(?: [a-z]+)?)", recipe[1], re.M))
    for_hooks = {
        " ".join(w for w in h["entry"].removeprefix(".venv/bin/").split() if w[0] != "-")
        for h in hooks
    }
    assert for_hooks == for_make == {"ruff format", "ruff check", "mypy", "lint-imports"}
