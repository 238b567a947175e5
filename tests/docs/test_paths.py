"""What the documents point at is there: files, modules, links and the headings behind them."""

from __future__ import annotations

import os
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT

#: CHANGELOG.md is history: it may name what is gone
PAGES = sorted(
    str(p.relative_to(ROOT))
    for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    if p.name != "CHANGELOG.md"
)
_ENDINGS = "py|c|h|md|ipynb|service|yaml"


#: what stands beside the repository's own files and is not theirs
_BESIDE = {"runs", "build", "__pycache__"}


@cache
def _files() -> frozenset[str]:
    """Every file of the repository, without what was made in it."""
    found = []
    for folder, inside, names in os.walk(ROOT):
        inside[:] = [d for d in inside if d not in _BESIDE and d[0] != "." and "egg-info" not in d]
        found += [str((Path(folder) / name).relative_to(ROOT)) for name in names]
    return frozenset(found)


@cache
def _folders() -> frozenset[str]:
    return frozenset(str(parent) for f in _files() for parent in Path(f).parents)


def _tops() -> str:
    return "|".join(sorted({f.partition("/")[0] for f in _files() if "/" in f} - {"."}))


def _text(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def _named(text: str) -> set[str]:
    """Paths from the top of the repository, and names of modules without their folder."""
    whole = re.findall(rf"(?<![\w./-])((?:{_tops()})/[\w./-]*\w\.(?:{_ENDINGS}))\b", text)
    bare = re.findall(r"`(\w+\.py)`", text)
    return {*whole, *bare}


@pytest.mark.parametrize("page", PAGES)
def test_tests_that_a_page_names_are_there(page: str) -> None:
    for path, name in re.findall(r"(tests/[\w/]+\.py)::(\w+)", _text(page)):
        assert re.search(rf"^def {name}\(", _text(path), re.M), f"{page}: {path}::{name}"


def test_twelve_attacks_of_november_have_tests() -> None:
    rows = re.findall(r"^\| (\d+) \| `.*", _text("docs/secagg.md"), re.M)
    lines = re.findall(r"^\| \d+ \| `.*", _text("docs/secagg.md"), re.M)
    assert rows == [str(n) for n in range(1, 13)] and all("::test_" in line for line in lines)


def test_twelve_attacks_were_seen_on_the_code_of_before() -> None:
    """Each has its row, and the tests that fail without a mend are still there."""
    text = _text("docs/secagg.md")
    table = text[text.index("| | seen on 14a77fe") :].split("\n\n")[0].splitlines()[2:]
    assert [line.split(" | ")[0] for line in table] == [f"| {n}" for n in range(1, 13)]
    code = "".join(_text(f) for f in _files() if f.startswith("tests/") and f.endswith(".py"))
    for line in table:
        named = re.findall(r"`(test_\w+)`", line)
        assert named and all(f"def {test}(" in code for test in named), line


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_are_there(page: str) -> None:
    names = {Path(f).name for f in _files()}
    missing = {n for n in _named(_text(page)) if n not in (_files() if "/" in n else names)}
    assert not missing, f"{page} names {sorted(missing)}"


@pytest.mark.parametrize("page", PAGES)
def test_folders_that_a_page_names_are_there(page: str) -> None:
    """`tests/faults`, `ops/`; not the folders that a silo makes for itself."""
    found = re.findall(rf"`((?:{_tops()})(?:/[\w-]+)*)/?`", _text(page))
    missing = {f for f in found if "/" in f and f not in _folders()}
    made = {"silo/keys", "silo/next", "silo/retired", "coordinator/invitations"}
    assert not missing - made, f"{page} names {sorted(missing - made)}"


@pytest.mark.parametrize("page", PAGES)
def test_modules_that_a_page_starts_are_there(page: str) -> None:
    for module in re.findall(r"python -m ([a-z][\w.]*\w)", _text(page)):
        place = module.replace(".", "/")
        if place.partition("/")[0] in _tops().split("|"):
            assert {f"{place}.py", f"{place}/__main__.py"} & _files(), f"{page}: -m {module}"


def _anchor(heading: str) -> str:
    """As GitHub makes it: letters, digits, hyphens; blanks become hyphens."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = re.sub(r"```.*?```", "", _text(page), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        place = (ROOT / page).parent / path if path else ROOT / page
        assert place.exists(), f"{page} links to {target}"
        if anchor:
            inside = re.sub(r"```.*?```", "", place.read_text("utf-8"), flags=re.S)
            headings = re.findall(r"^#+ (.+)$", inside, re.M)
            assert anchor in map(_anchor, headings), f"{page} links to {target}"


def test_pages_that_code_names_are_there() -> None:
    """Comments say "docs/secagg.md has the argument"."""
    pages = r"(?<![\w/.-])(docs/[\w/-]+\.(?:md|ipynb)|[A-Z]{4,}\.md)\b"
    missing = {
        (f, page)
        for f in _files()
        if f.endswith(".py") and not f.startswith("tests/docs/")
        for page in re.findall(pages, (ROOT / f).read_text("utf-8"))
        if page not in _files()
    }
    assert not missing


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md"])
def test_the_front_pages_stay_short(page: str) -> None:
    assert len(_text(page).splitlines()) <= 150


def test_every_package_is_on_the_map() -> None:
    text = _text("ARCHITECTURE.md")
    mapped = set(re.findall(r"^\| `(\w+)/` \|", text, re.M))
    packages = {f.split("/")[0] for f in _files() if re.fullmatch(r"\w+/__init__\.py", f)}
    assert packages - {"tests"} <= mapped


def test_the_layers_are_those_of_the_linter() -> None:
    project = tomllib.loads(_text("pyproject.toml"))
    (contract,) = project["tool"]["importlinter"]["contracts"]
    (drawn,) = re.findall(r"^```\n(cli.*?)^```", _text("ARCHITECTURE.md"), re.M | re.S)
    assert drawn.split("\n")[:-1] == contract["layers"]
