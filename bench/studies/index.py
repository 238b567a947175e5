"""`python -m bench.studies.index`: what the studies found, read off their pages.

Writes docs/results/README.md, and the last column of the table of methods in the README. Nothing in
them is written by hand, so that no verdict there can be another one than its page's.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.studies import STUDIES
from methods import describe

__all__ = ["Found", "index_page", "main", "readme", "studies_in"]

RESULTS = "docs/results"
_MADE = re.compile(r"^Made by `make study PAPER=(\w+) ", re.M)
_HEAD = re.compile(r"^# .*: (.+)\n\n\*\*(.+?)\.\*\* ")
_ROW = re.compile(r"^(\| `(\w+)` \| [^|\n]+ \| [^|\n]+ et al\. [^|\n]+ \|)[^|\n]*\|$", re.M)
_NOT_YET = "not yet"


@dataclass(frozen=True)
class Found:
    paper: str  #: the method's name
    corpus: str
    verdict: str
    page: str  #: its file's name


def studies_in(folder: Path) -> list[Found]:
    """The studies whose pages are in the folder, in the order of the papers."""
    found = []
    for path in sorted(folder.glob("*.md")):
        text = path.read_text("utf-8")
        made, head = _MADE.search(text), _HEAD.match(text)
        if made and head:
            corpus, verdict = head.groups()
            found.append(Found(made[1], corpus, verdict[0].lower() + verdict[1:], path.name))
    order = list(STUDIES)
    return sorted(found, key=lambda f: (order.index(f.paper), f.page))


def index_page(found: Sequence[Found]) -> str:
    rows = [
        f"| `{f.paper}` | {describe(f.paper).citation} | {f.corpus} | **{f.verdict}** | [{f.page}]({f.page}) |"
        for f in found
    ]
    missing = [f"`{p}`" for p in STUDIES if p not in {f.paper for f in found}]
    lacks = [f"Not studied yet: {', '.join(missing)}.", ""] if missing else []
    return "\n".join(
        [
            "# Results",
            "",
            "Made by `python -m bench.studies.index` from the pages it links to.",
            "",
            "Each page was made by `make study`: on real text with a real checkpoint, the same search on dev for "
            "every method, seeds that nobody tuned on, intervals, and nothing chosen by looking at test. The verdict "
            "is the page's: *holds* if all of the paper's claims hold, *holds in part* if some do, *does not hold "
            "here* if none does.",
            "",
            "| method | paper | corpus | verdict | page |",
            "|---|---|---|---|---|",
            *rows,
            "",
            *lacks,
            "[privacy.md](privacy.md) has what privacy budgets cost, and what attacks found; "
            "[privacy_real.md](privacy_real.md) what they cost on real text. "
            "[trials/](trials) has older figures: few seeds, mostly built-in corpora, settings that were found by "
            "looking at results. They are no verdict on any paper.",
            "",
        ]
    )


def readme(text: str, found: Sequence[Found]) -> str:
    """The README with the verdicts in the last column of its table of methods."""

    def cell(paper: str) -> str:
        own = [f"[{f.corpus}: {f.verdict}]({RESULTS}/{f.page})" for f in found if f.paper == paper]
        return ", ".join(own) or _NOT_YET

    return _ROW.sub(lambda row: f"{row[1]} {cell(row[2])} |", text)


def main(root: Path) -> None:
    found = studies_in(root / RESULTS)
    (root / RESULTS / "README.md").write_text(index_page(found), "utf-8")
    page = root / "README.md"
    page.write_text(readme(page.read_text("utf-8"), found), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
