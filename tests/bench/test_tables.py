"""`make table`: what it runs, what it remembers, and what its page says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from bench.papers import PAPERS, Comparison, Published
from bench.papers.jobs import Done, merged, seed_list
from bench.papers.page import page
from bench.papers.results import Results
from bench.papers.table import jobs, run_table, with_columns, with_rows
from config.errors import UserError
from config.load import load
from config.settings import Settings
from methods import METHODS, check_options, tasks_of
from methods.tasks.load import load_task
from report.files import rounds_to

TOY = Comparison(
    title="toy",
    methods=("feded", "fedavg"),
    columns={"a": (), "b": ("BATCH=2",)},
    references={"all": ("METHOD=centralised",)},
    metrics={"micro-F1": "figures.micro_f1"},
    sizes={"minutes": ("SILOS=3",)},
    published=(Published("gad", "Somebody 2020", ("", "F1"), (("Theirs", "81.11"),)),),
    messages=True,
    target=0.5,
    steady=2,
    per_class=True,
)


def done(f1: float, up: float, *dev: float) -> Done:
    return Done(
        {
            "corpus": "gad",
            "corpus_note": "",
            "metric": "micro_f1",
            "figures": {"micro_f1": f1},
            "per_class": {"x": f1},
            "arrays_up_per_silo_round": up,
            "arrays_down_per_silo_round": 5000.0,
            "bytes_up_per_silo_round": 0.0,
        },
        dev,
    )


def toy_page(corpus: str = "") -> str:
    runs = {
        ("feded", "a", 0): done(0.5, 10.0, 0.4, 0.5, 0.6),
        ("feded", "a", 1): done(0.7, 10.0, 0.5, 0.1, 0.2),
        ("feded", "b", 0): done(0.5, 10.0, 0.4, 0.4, 0.49),
        ("feded", "b", 1): done(0.5, 10.0, 0.1, 0.1, 0.9),
        **{("fedavg", c, s): done(0.55, 20_000.0, 0.1) for c in "ab" for s in (0, 1)},
        **{("all", "", s): done(0.9, 0.0, 0.9) for s in (0, 1)},
    }
    return page(TOY, ("SILOS=3",), Results(runs, (0, 1)), corpus)


def test_rounds_to_target_by_hand() -> None:
    assert rounds_to(0.5, [0.4, 0.5, 0.6]) == 2
    assert rounds_to(0.5, [0.4, 0.6, 0.3]) == 2  # the first that reaches it, even if it falls back
    assert rounds_to(0.7, [0.4, 0.5, 0.6]) is None
    assert rounds_to(0.7, []) is None


def test_page_has_spread_pairs_rounds_and_messages() -> None:
    text = toy_page()
    assert "| feded | 0.6000 ± 0.1414 | 0.5000 ± 0.0000 |" in text
    assert "| fedavg | +0.0500 (1 of 2) | -0.0500 (0 of 2) |" in text
    assert "| feded | 2, 1 | –, 3 |" in text  # one seed never reached it, and the page says so
    assert "not reached in 3 rounds" in text
    # (0.5+0.6)/2 and (0.1+0.2)/2; 0.445 and 0.5
    assert "| feded | 0.3500 ± 0.2828 | 0.4725 ± 0.0389 |" in text
    assert "| feded | 10 B | 1/2000 | 5.0 kB | not measured |" in text
    assert "| x | 0.6000 ± 0.1414 | 0.5500 ± 0.0000 | 0.9000 ± 0.0000 |" in text


def test_a_table_with_a_budget_shows_what_there_was_before_the_first_round() -> None:
    toy = replace(TOY, methods=("feded",), columns={"a": ()}, references={}, messages=False)
    toy = replace(toy, target=0.0, steady=0)

    def shown(**more: object) -> str:
        run = done(0.5, 10.0, 0.4)
        run = replace(run, summary={**run.summary, "before_value": 0.25, "public": "", **more})
        return page(toy, (), Results({("feded", "a", 0): run}, (0,)), "")

    assert "before the first round" not in shown(epsilon="inf")
    private = shown(epsilon=8.0)
    assert (
        "## micro_f1 before the first round\n\n|  | a |\n|---|---|\n| feded | 0.2500 |" in private
    )
    assert "first round (with public text: of that text alone)" in shown(epsilon=8.0, public="own")


def test_a_papers_numbers_stand_only_beside_its_own_corpus() -> None:
    assert "81.11" not in toy_page()
    assert "81.11" not in toy_page("my/own")
    text = toy_page("data/GAD")
    assert text.index("not run by us: Somebody 2020") < text.index("81.11")
    assert "81.11" not in text[: text.index("not run by us")]


def test_later_settings_win_and_knobs_add_up() -> None:
    assert merged(("A=1", "SET=x=1"), ("SET=y=2",), ("A=2",)) == ("A=2", "SET=x=1 y=2")


def test_seeds_are_a_number_or_a_range() -> None:
    assert seed_list("3") == (0, 1, 2)
    assert seed_list("10-12") == (10, 11, 12)
    for wrong in ("0", "", "3-1", "a", "-2"):
        with pytest.raises(UserError, match="SEEDS"):
            seed_list(wrong)


def test_columns_can_be_chosen_and_unknown_ones_are_refused() -> None:
    lazymil = PAPERS["lazymil"]
    some = with_columns(lazymil, ["C=1.0", "C=0.5"])
    assert some.columns == {"C=1.0": ("FRACTION=1.0",), "C=0.5": ("FRACTION=0.5",)}
    with pytest.raises(UserError, match='no column "C=0.7"'):
        with_columns(lazymil, ["C=0.7"])
    some = with_columns(with_rows(PAPERS["fedner"], ["fedner", "w/o weight"]), ["30 % misaligned"])
    assert [(j.row, j.words) for j in jobs(some, ("CORPUS=ner",), (0,))] == [
        ("fedner", ("CORPUS=ner:misaligned=0.3", "METHOD=fedner", "SET=tags=disjoint")),
        (
            "w/o weight",
            ("CORPUS=ner:misaligned=0.3", "METHOD=fedner", "SET=ablation=no_weight tags=disjoint"),
        ),
    ]
    with pytest.raises(UserError, match='no row "w/o"'):
        with_rows(PAPERS["fedner"], ["w/o"])


@pytest.mark.parametrize("paper", sorted(p for p in PAPERS if not PAPERS[p].places))
def test_the_long_setting_has_a_corpus_that_can_be_made(paper: str) -> None:
    """Nobody waits hours in a test; but a recipe that contradicts itself would refuse in the first
    minute.
    """
    words = dict(
        w.split("=", 1) for w in next(jobs(PAPERS[paper], PAPERS[paper].sizes["hours"], (0,))).words
    )
    asked = {name.lower(): words[name] for name in ("METHOD", "CORPUS") if name in words}
    assert load_task(load(None, asked)).train_size() > 100


def _known(settings: Settings, task: str) -> bool:
    """Whether the method, on this task, has all of the knobs."""
    try:
        check_options(settings.method, task, settings.options)
    except UserError:
        return False
    return True


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize("size", ["minutes", "hours", "folder"])
def test_every_run_of_every_paper_has_settings_that_exist(paper: str, size: str) -> None:
    """Read by the code that a run reads them with: a misspelt method, setting or knob shows here,
    not after an hour.
    """
    c = PAPERS[paper]
    c = replace(c, columns={**c.columns, **c.more_columns})
    common = c.on_folder if size == "folder" else c.sizes[size]
    planned = list(jobs(c, merged(common), (0, 1)))
    # two rows that are the same run would be a mistake
    assert len({j.key for j in planned}) == len(planned)
    for job in planned:
        table = dict(w.partition("=")[::2] for w in job.words)
        knobs = dict(k.partition("=")[::2] for k in table.pop("SET", "").split())
        s = load(
            None,
            {k.lower(): v for k, v in table.items()}
            | {f"options.{k}": v for k, v in knobs.items()},
        )
        assert s.method in METHODS
        assert any(_known(s, task) for task in tasks_of(s.method)), s


def test_what_is_finished_is_not_run_again(tmp_path: Path) -> None:
    words = {
        "PAPER": "feded",
        "SIZE": "minutes",
        "CORPUS": "",
        "SEEDS": "1",
        "TABLES": str(tmp_path),
    }
    toy = replace(TOY, methods=("feded",), columns={"a": ()}, references={})
    (job,) = jobs(toy, merged(("RUNNER=inprocess",), toy.sizes["minutes"]), (0,))
    folder = tmp_path / "feded-minutes"
    folder.mkdir()
    kept = done(0.625, 10.0, 0.3, 0.625)
    line = {"key": job.key, "summary": kept.summary, "dev": kept.dev}
    (folder / "runs.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
    path = run_table(replace(toy, target=0.6), words, (), Console(quiet=True))
    assert "| feded | 2 |" in path.read_text("utf-8")
