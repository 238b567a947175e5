"""The index of results and the README's table say what the pages of the studies say."""

from __future__ import annotations

from pathlib import Path

from bench.studies.index import Found, index_page, main, readme, studies_in
from tests.conftest import ROOT

PAGE = """# FedX and its baselines: cdr

**Does not hold here.** The paper claims something.

Made by `make study PAPER=fedlcc CORPUS=…/cdr BUDGET=minutes`. Corpus: cdr.
"""


def test_index_and_readme_are_as_the_pages_say() -> None:
    """If this fails: python -m bench.studies.index"""
    found = studies_in(ROOT / "docs/results")
    assert (ROOT / "docs/results/README.md").read_text("utf-8") == index_page(found)
    text = (ROOT / "README.md").read_text("utf-8")
    assert text == readme(text, found)


def test_every_page_of_a_study_is_found() -> None:
    made = [p for p in (ROOT / "docs/results").glob("*.md") if p.name not in _NO_STUDY]
    assert {f.page for f in studies_in(ROOT / "docs/results")} == {p.name for p in made}
    assert all(p.with_suffix(".csv").is_file() and p.with_suffix(".svg").is_file() for p in made)


_NO_STUDY = {"README.md", "privacy.md", "privacy_real.md"}


def test_a_verdict_is_read_off_its_page(tmp_path: Path) -> None:
    results = tmp_path / "docs/results"
    results.mkdir(parents=True)
    (results / "fedlcc.md").write_text(PAGE, "utf-8")
    (results / "privacy.md").write_text("# Privacy: attacks\n\n**Held.** Not a study.\n", "utf-8")
    table = "| `fedlcc` | documents | Xiao et al. 2024, *Title*, LREC |{} |\n"
    (tmp_path / "README.md").write_text(table.format(" not yet"), "utf-8")
    main(tmp_path)
    (found,) = studies_in(results)
    assert found == Found("fedlcc", "cdr", "does not hold here", "fedlcc.md")
    index = (results / "README.md").read_text("utf-8")
    assert "| cdr | **does not hold here** | [fedlcc.md](fedlcc.md) |" in index
    assert "Not studied yet: `fedcmc`, `feded`, `fedner`, `lazymil`." in index
    shown = table.format(" [cdr: does not hold here](docs/results/fedlcc.md)")
    assert (tmp_path / "README.md").read_text("utf-8") == shown
    main(tmp_path)
    assert (tmp_path / "README.md").read_text("utf-8") == shown
