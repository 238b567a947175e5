"""FedLCC's table: the picture of convergence, the share of silos, and what stands beside the
paper's corpus.
"""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console

from bench.papers import PAPERS
from bench.papers.jobs import Done, merged
from bench.papers.page import panels
from bench.papers.results import Results
from bench.papers.table import jobs, run_table
from bench.speed.document import measure
from tests.methods.small_document import tiny_task

PAPER = PAPERS["fedlcc"]


def _done(*dev: float) -> Done:
    figures = dict.fromkeys(
        ("f1", "precision", "recall", "intra_f1", "inter_f1", "ign_f1", "best_f1"), dev[-1]
    )
    sizes = {f"{k}_per_silo_round": 1.0 for k in ("arrays_up", "arrays_down", "bytes_up")}
    about = {"corpus": "toy", "corpus_note": "", "metric": "f1"}
    return Done({**about, **sizes, "value": dev[-1], "figures": figures, "per_class": {}}, dev)


def test_panels_are_means_over_seeds() -> None:
    rows = (*PAPER.methods, *PAPER.variants)
    some = [(i, r, c, s) for i, r in enumerate(rows) for c in PAPER.columns for s in (0, 1)]
    runs = {(r, c, s): _done(0.1 * s, 0.2 * s + i / 10) for i, r, c, s in some}
    shown = panels(PAPER, Results(runs, (0, 1)))
    assert list(shown) == ["structural entropy", "IID", "variants, IID"]
    assert shown["IID"]["fedavg"] == [0.05, 0.2]  # by round: the mean of 0 and 0.1, of 0.1 and 0.3
    assert list(shown["variants, IID"]) == ["fedlcc", *PAPER.variants]


def test_the_fraction_study_is_the_papers_and_one_silo_alone_is_unmasked() -> None:
    planned = list(jobs(PAPER, merged(("SILOS=10",)), (0,)))
    words = {j.row: set(j.words) for j in planned if j.column == "IID"}
    own = [ws for row, ws in words.items() if "fedlcc" in row]
    shares = {next((w for w in ws if w.startswith("FRACTION")), "FRACTION=1.0") for ws in own}
    assert shares == {"FRACTION=0.1", "FRACTION=0.3", "FRACTION=0.5", "FRACTION=1.0"}
    assert [r for r, ws in words.items() if "SECAGG=off" in ws] == [
        "fedlcc, C=0.1 (one silo a round: unmasked)"
    ]


def test_the_page_shows_the_picture_and_the_papers_numbers_only_beside_its_corpus(
    tmp_path: Path,
) -> None:
    for corpus, name in (("", "fedlcc-minutes"), ("somewhere/cdr", "fedlcc-cdr")):
        settings = (*PAPER.on_folder, f"CORPUS={corpus}") if corpus else PAPER.sizes["minutes"]
        common = merged(("RUNNER=inprocess",), settings)
        folder = tmp_path / name
        folder.mkdir()
        with (folder / "runs.jsonl").open("w") as f:
            for job in jobs(PAPER, common, (0,)):
                kept = _done(0.3, 0.7)
                f.write(
                    json.dumps({"key": job.key, "summary": kept.summary, "dev": kept.dev}) + "\n"
                )
        words = {
            "PAPER": "fedlcc",
            "SIZE": "minutes",
            "CORPUS": corpus,
            "SEEDS": "1",
            "TABLES": str(tmp_path),
        }
        text = run_table(PAPER, words, (), Console(quiet=True)).read_text("utf-8")
        assert "(rounds.svg)" in text and "<svg" in (folder / "rounds.svg").read_text()
        assert ("| FedLCC, non-IID | 65.54 | 65.67 | 65.60 |" in text) == bool(corpus)


def test_the_bench_measures_both_sides() -> None:
    figures = measure(tiny_task(), documents=6, size=3, repeats=1)
    assert figures["whole"] > 0 and figures["encoder"] > 0 and figures["ratio"] > 0
