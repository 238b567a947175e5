"""What attacks proved stands beside what was promised, in a run's report and its privacy budget; a run
that nobody attacked says so; an odd audit.json is left out with a sentence.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from config.load import dump
from report.audit import FILE, FORMAT, which_run
from report.documents import consortium_documents
from report.files import read_run
from report.pages.audit import audit_of_document
from report.write import write_report
from study.papers import write_run_papers
from study.prepare import write_partition
from tests.conftest import summary
from tests.faults.world import tiny
from tests.methods.small import run


@pytest.fixture(scope="module")
def made() -> Path:
    study = tiny("fedavg", dp="record", noise=4.0, epsilon=8.0, runner="inprocess")
    _, folder = run(study)
    (folder / "config.toml").write_text(dump(study.settings, {}), "utf-8")
    write_partition(folder, study)
    return folder


@pytest.fixture
def folder(made: Path) -> Path:
    (made / FILE).unlink(missing_ok=True)
    (made / "study.json").unlink(missing_ok=True)
    return made


def audit(folder: Path, **changed: Any) -> dict[str, Any]:
    """As `make audit` writes it; the figures occur nowhere else in the run."""
    said = {
        "distinguisher": "support",
        "true_positives": 0.4,
        "false_positives": 0.1,
        "plays": 251,
        "epsilon_at_least": 0.3217,
    }
    release = {
        "release": "training",
        "exchange": "train",
        "found": [{**said, "distinguisher": "low bits", "epsilon_at_least": 0.0}, said],
        "epsilon_at_most": 3.4567,
        "broken": False,
    }
    member = {"name": "loss threshold", "right": 39, "guesses": 60}
    return {
        "format": FORMAT,
        "made": 1_790_000_000.0,
        "program": "9.8.7",
        "command": "make audit RUN=runs/it",
        "played_again": True,
        "of": which_run(summary(folder)),
        "confidence": {"membership": 0.95, "releases": 0.99},
        "records": 8,
        "membership": [{**member, "epsilon_at_least": 0.1298, "epsilon_at_most": 7.9111}],
        "releases": [release],
        **changed,
    }


def pages(folder: Path) -> dict[str, str]:
    """The words of the three pages."""
    write_report(folder)
    write_run_papers(folder, read_run(folder))
    found = {"report.md": (folder / "report.md").read_text("utf-8")}
    for name in ("report.html", "privacy-budget.html"):
        text = re.sub(
            r"<(script|style).*?</\1>", "", (folder / name).read_text("utf-8"), flags=re.S
        )
        found[name] = html.unescape(re.sub(r"<[^>]*>", " ", text))
    return found


def written(folder: Path, table: Any) -> dict[str, str]:
    (folder / FILE).write_text(json.dumps(table), "utf-8")
    return pages(folder)


def test_a_run_that_nobody_attacked_says_so_and_what_would(folder: Path) -> None:
    for name, words in pages(folder).items():
        assert words.count("This run was not audited") == 1, name
        where = "(its folder)" if name == "privacy-budget.html" else str(folder)
        assert f"make audit RUN={where}" in words, name
        assert "epsilon proved" not in words


def test_a_consortiums_run_names_a_simulation_and_its_signed_figures_stay_as_they_were(
    folder: Path,
) -> None:
    of: dict[str, Any] = {
        "title": "A study",
        "consortium": "c",
        "coordinator": "hub",
        "silos": [],
        "study_hash": "",
    }
    of |= {"roster_version": 1, "roster_fingerprint": "", "program": "9"}
    (folder / "study.json").write_text(json.dumps(of), "utf-8")
    for name, words in pages(folder).items():
        assert "make audit METHOD=fedavg DP=record EPSILON=8" in words, name
        assert "an audit needs all silos' records" in words and "RUN=" not in words, name
    assert "audit" not in consortium_documents(read_run(folder))["privacy-budget"]


def test_bounds_stand_beside_their_promises(folder: Path) -> None:
    for name, words in written(folder, audit(folder)).items():
        cells = r"\W+".join(
            ["the final model", "7.9111", "0.1298", "95%", "39 of 60 guesses right", "loss"]
        )
        assert re.search(cells, words), name
        # of the distinguishers of a release, the one that proved most
        cells = r"\W+".join(
            [r"training \(train\)", "3.4567", "0.3217", "99%", "251 with", ".*", "support"]
        )
        assert re.search(cells, words), name
        assert "2026-09-2" in words and "sottovoce 9.8.7 (make audit RUN=runs/it)" in words, name
        assert "the same model, bit for bit" in words and "not audited" not in words, name
        assert "BROKEN" not in words and "broke the promise" not in words, name
    page = (folder / "report.html").read_text("utf-8")
    assert '<data value="0.3217">' in page and '<data value="3.4567">' in page
    kept = json.loads((folder / "privacy-budget.json").read_text("utf-8"))["audit"]["bounds"]
    assert [(b["promised"], b["proved"]) for b in kept] == [(7.9111, 0.1298), (3.4567, 0.3217)]
    words = written(folder, audit(folder, played_again=False))["report.md"]
    assert "ended with another model" in words and "bit for bit" not in words


def test_a_broken_promise_is_said_before_any_figure(folder: Path) -> None:
    table = audit(folder)
    table["releases"][0]["found"][1]["epsilon_at_least"] = 3.4568
    words = written(folder, table)
    for name in ("report.md", "report.html"):
        first = words[name].index("An audit broke the promise of this run: training (train).")
        assert first < words[name].index("test auc" if name == "report.md" else "auc"), name
    assert all("BROKEN: training (train)" in page for page in words.values())


def test_a_bound_on_records_is_none_of_a_promise_about_silos(folder: Path) -> None:
    kept = (folder / "summary.json").read_text("utf-8")
    try:
        (folder / "summary.json").write_text(json.dumps(json.loads(kept) | {"dp": "silo"}), "utf-8")
        table = audit(folder, releases=[])
        table["membership"][0] |= {"epsilon_at_least": 9.5}
        words = written(folder, table)["report.md"]
    finally:
        (folder / "summary.json").write_text(kept, "utf-8")
    assert "9.5000" in words and "BROKEN" not in words
    assert "on single records, and DP=silo promises something of whole silos" in words


def test_a_silos_own_document_says_nothing_of_audits(folder: Path) -> None:
    d = consortium_documents(read_run(folder))["privacy-budget"]
    assert audit_of_document(d)
    assert audit_of_document({**d, "about": {**d["about"], "role": "silo"}}) == []


def _release(**changed: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda t: {**t, "releases": [{**t["releases"][0], **changed}]}


ODD: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a list": lambda t: [t],
    "nothing": lambda t: {},
    "another format": lambda t: {**t, "format": 2},
    "of nobody": lambda t: {k: v for k, v in t.items() if k != "of"},
    "of another budget": lambda t: {**t, "of": {**t["of"], "epsilon_budget": 3.0}},
    "of another model": lambda t: {**t, "of": {**t["of"], "model_sha256": "0" * 64}},
    "of less": lambda t: {**t, "of": {k: v for k, v in t["of"].items() if k != "seed"}},
    "no bounds": lambda t: {**t, "membership": [], "releases": []},
    "not a number": lambda t: {
        **t,
        "membership": [{**t["membership"][0], "epsilon_at_least": float("nan")}],
    },
    "a word for a number": _release(epsilon_at_most="8"),
    "a negative promise": _release(epsilon_at_most=-1.0),
    "a truth for a number": _release(epsilon_at_most=True),
    "no distinguisher": _release(found=[]),
    "rows that are none": _release(found=[3]),
    "too many rows": lambda t: {**t, "releases": t["releases"] * 101},
    "lines in a word": _release(release="a\n\n# b"),
    "a number for a word": _release(exchange=7),
    "sure of itself": lambda t: {**t, "confidence": {"membership": 0.95, "releases": 1.0}},
    "no confidence": lambda t: {**t, "confidence": 0.99},
    "a year far away": lambda t: {**t, "made": 1e300},
    "half a record": lambda t: {**t, "records": 0.5},
    "maybe": lambda t: {**t, "played_again": "yes"},
    "too long": lambda t: {**t, "more": "x" * (1 << 20)},
}


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_file_is_left_out_with_a_sentence(folder: Path, odd: str) -> None:
    _left_out(written(folder, ODD[odd](audit(folder))))


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"1" * 5000])
def test_what_is_no_json_is_left_out(folder: Path, content: bytes) -> None:
    (folder / FILE).write_bytes(content)
    _left_out(pages(folder))


def test_a_folder_in_its_place_is_left_out(folder: Path) -> None:
    (folder / FILE).mkdir()
    try:
        _left_out(pages(folder))
    finally:
        (folder / FILE).rmdir()


def _left_out(words: dict[str, str]) -> None:
    for name, page in words.items():
        (said,) = re.findall(r"audit\.json in this run's folder is left out: [^.]+\.", page)
        assert len(said) < 200, name
        assert page.count("This run was not audited") == 1, name
        assert "0.1298" not in page and "epsilon proved" not in page, name


def test_markup_in_a_word_is_shown_and_not_run(folder: Path) -> None:
    written(folder, _release(release="<script>alert(1)</script>")(audit(folder)))
    for name in ("report.html", "privacy-budget.html"):
        page = (folder / name).read_text("utf-8")
        assert "&lt;script&gt;alert(1)" in page and "<script>alert(1)" not in page
