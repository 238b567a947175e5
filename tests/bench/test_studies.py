"""`make study`: the same search for all, seeds apart from it, intervals by hand, and a page that shows
no test figure of a trial.
"""

from __future__ import annotations

import csv
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench.papers.fedcmc import COMPARISON
from bench.papers.jobs import Done, Job, merged, of_corpus, run_missing
from bench.papers.table import _on_folder
from bench.studies import STUDIES
from bench.studies.base import Budget, Claim, Row, Span, Spec
from bench.studies.paired import difference, judged, verdict
from bench.studies.run import Asked, run_study
from bench.studies.search import TUNING_SEED, best_trial, drawn, trial_jobs
from config.errors import UserError
from config.load import load
from methods import check_options, find, tasks_of
from tests.conftest import ROOT
from tests.corpora.real import DATA

TOY = Spec(
    title="toy",
    claim="It is said that a is above b.",
    corpora={"sentence": ("SILOS=3",)},
    common=("BATCH=8",),
    rows={
        "a": Row(words=("METHOD=moon",), own={"SET=mu=": Span(0.1, 10.0)}),
        "b": Row(words=("METHOD=fedavg",)),
        "all": Row(words=("METHOD=centralised",), reference=True),
    },
    columns={"x": ("PARTITION=iid",)},
    space=({"LR": Span(1e-4, 1e-2)},),
    claims=(
        Claim("a is above b", "a", "b"),
        Claim("a is above b by 0.2", "a", "b", 0.2, otherwise="b is strong"),
    ),
    metrics={"micro-F1": "figures.micro_f1"},
    budgets={"minutes": Budget(3, 2, ("ROUNDS=2",))},
    departs=("everything is small",),
    steady=1,
    target=0.3,
)


def summary(dev: float, test: float) -> dict[str, Any]:
    return {
        "metric": "micro_f1",
        "dev_value": dev,
        "value": test,
        "figures": {"micro_f1": test},
        "selected_round": 1,
        "before_value": 0.01,
        "arrays_up_per_silo_round": 1000.0,
        "corpus": "sentence",
        "corpus_note": "synthetic",
        "network": "a network",
        "wall_seconds": 1.0,
        "cpu_seconds": 6.0,
        "parameters_trained": 1234,
    }


def test_what_all_search_is_the_same_for_all_and_a_knob_is_beside_it() -> None:
    a = list(trial_jobs(TOY, "a", TOY.rows["a"], ("CORPUS=s",), 4))
    b = list(trial_jobs(TOY, "b", TOY.rows["b"], ("CORPUS=s",), 4))
    rate = [[w for w in j.words if w.startswith("LR=")] for j in (*a, *b)]
    assert rate[:4] == rate[4:] and len({w for (w,) in rate}) == 4
    assert rate[0] == ["LR=0.001"]  # the middle of 1e-4 to 1e-2, by the logarithm
    knobs = [w for j in a for w in j.words if w.startswith("SET=mu=")]
    assert knobs[0] == "SET=mu=1" and len(set(knobs)) == 4
    assert not any(w.startswith("SET") for j in b for w in j.words)
    assert {j.seed for j in (*a, *b)} == {TUNING_SEED}
    assert all(f"PARTITION_SEED={TUNING_SEED}" in j.words for j in a)


def test_a_budget_may_ask_something_of_one_row_alone() -> None:
    budget = Budget(1, 1, of={"a": ("SET=tau=2",)})
    rows = TOY.rows_of(budget)
    assert rows["a"].words == ("METHOD=moon", "SET=tau=2") and rows["a"].own == TOY.rows["a"].own
    assert rows["b"] == TOY.rows["b"]
    (job,) = trial_jobs(TOY, "a", rows["a"], (), 1)
    assert "SET=tau=2 mu=1" in job.words


def test_points_stay_in_their_range_and_alternatives_take_turns() -> None:
    space = ({"OPTIMIZER": Span(word="sgd"), "LR": Span(1.0, 4.0)}, {"LR": Span(8.0, 9.0)})
    points = drawn(space, 20, "x")
    assert points == drawn(space, 20, "x") != drawn(space, 20, "y")
    for k, words in enumerate(points):
        low, high = ((1.0, 4.0), (8.0, 9.0))[k % 2]
        assert low <= float(words[-1].removeprefix("LR=")) <= high
        assert ("OPTIMIZER=sgd" in words) is (k % 2 == 0)
    assert [w[-1] for w in points[:2]] == ["LR=2", "LR=8.49"]  # the middles: sqrt(4), sqrt(72)


def test_the_best_trial_is_the_best_on_dev_whatever_it_scored_on_test() -> None:
    jobs = [Job("a", f"trial {k}", 0, (f"LR={k}",)) for k in range(3)]
    scores = [(0.3, 0.9), (0.5, 0.1), (0.5, 0.8)]
    done = {j.key: Done(summary(*s), ()) for j, s in zip(jobs, scores)}
    assert best_trial(jobs, done)[0] == 1


def test_differences_are_paired_and_their_interval_is_that_of_their_mean() -> None:
    d = difference([0.5, 0.6, 0.9], [0.4, 0.5, 0.8])
    assert d.mean == pytest.approx(0.1) and d.low == pytest.approx(0.1)  # no spread, no interval
    assert (d.above, d.seeds) == (3, 3)
    # of two differences a resample's mean is 0, 0.1 or 0.2, with chances 1/4, 1/2, 1/4
    d = difference([0.5, 0.7], [0.5, 0.5])
    assert (d.mean, d.low, d.high) == (pytest.approx(0.1), pytest.approx(0), pytest.approx(0.2))
    with pytest.raises(ValueError, match="shapes|same seed"):
        difference([0.1, 0.2], [0.1, 0.2, 0.3])


@pytest.mark.parametrize(
    ("ours", "words", "all_in_all"),
    [
        ([0.9, 0.8, 0.9], ["holds", "holds"], "holds"),
        ([0.6, 0.6, 0.65], ["holds", "fails"], "holds in part"),
        ([0.4, 0.5, 0.9], ["open", "fails"], "does not hold here"),
        ([0.4, 0.5, 0.5], ["fails", "fails"], "does not hold here"),
    ],
)
def test_verdicts(ours: list[float], words: list[str], all_in_all: str) -> None:
    found = [judged(claim, ours, [0.5, 0.5, 0.5]) for claim in TOY.claims]
    assert [v.word for v in found] == words
    assert verdict(found) == all_in_all


def test_claims_of_ours_and_claims_on_bytes() -> None:
    held = judged(TOY.claims[0], [0.9, 0.8], [0.5, 0.5])
    of_ours = judged(Claim("x", "a", "b", ours=True), [0.1, 0.2], [0.5, 0.5])
    assert (held.word, of_ours.word) == ("holds", "fails")
    assert verdict([held, of_ours]) == "holds"  # the verdict is on what the paper claims
    assert verdict([of_ours]) == "does not hold here"
    small = Claim("a is above b at a tenth of c's bytes", "a", "b", bytes_at_most=("c", 0.1))
    scores = [0.9, 0.8], [0.5, 0.5]
    assert judged(small, *scores, 0.1).word == "holds"
    assert judged(small, *scores, 0.11).word == "fails"
    assert judged(small, [0.9], [0.5], 0.1).word == "open"  # one seed has no interval


def test_a_corpus_may_be_read_in_a_way_of_the_studys() -> None:
    words = STUDIES["fedcmc"].corpora["i2b2"]
    assert of_corpus(words, "data/i2b2") == ("CORPUS=i2b2,positive:data/i2b2",)
    assert of_corpus(words, "i2b2:data/i2b2") == ()  # the user said how
    assert _on_folder(COMPARISON, "data/i2b2")[-1] == "CORPUS=i2b2,positive:data/i2b2"
    assert _on_folder(COMPARISON, "data/chemprot")[-1] == "CORPUS=data/chemprot"


def _prepared(folder: Path, asked: Asked) -> None:
    """All runs as if they were finished: dev falls with the trial, test is 0.6 in a and 0.5 in b;
    what trials scored on test is a figure of its own.
    """
    common = ("RUNNER=inprocess", "BATCH=8", f"CORPUS={asked.corpus}", "SILOS=3", "ROUNDS=2")
    for row, of in TOY.rows.items():
        words = common if of.reference else (*common, "PARTITION=iid")
        trials = list(trial_jobs(TOY, row, of, words, 3))
        value = {"a": 0.6, "b": 0.5, "all": 0.7}[row]
        seeds = [
            Job(
                row,
                "",
                100 + k,
                tuple(
                    f"PARTITION_SEED={k}" if w.startswith("PARTITION_SEED") else w
                    for w in trials[0].words
                ),
            )
            for k in range(2)
        ]
        for kind, jobs, score in (("trials", trials, 0.123456), ("seeds", seeds, value)):
            (folder / kind).mkdir(exist_ok=True, parents=True)
            with (folder / kind / "runs.jsonl").open("a") as f:
                for k, job in enumerate(jobs):
                    done = summary(0.4 - 0.1 * k, score + 0.01 * k)
                    print(json.dumps({"key": job.key, "summary": done, "dev": [0.2, 0.4]}), file=f)


def test_a_finished_study_is_a_page_a_table_and_a_picture(tmp_path: Path) -> None:
    asked = Asked("toy", "sentence", "minutes", tmp_path)
    _prepared(tmp_path, asked)
    (tmp_path / "majority.json").write_text('{"value": 0.5, "micro_f1": 0.25}')
    page = run_study(TOY, asked, Console(quiet=True)).read_text("utf-8")
    assert "**Holds in part.** It is said that a is above b." in page
    assert "+0.1000 [+0.1000, +0.1000], above in 2 of 2 | **holds** |" in page
    assert "| a is above b by 0.2 | +0.20 |" in page and "| **fails** |" in page
    assert "- Why not: b is strong" in page and "- Why not: \n" not in page
    # as for a, and the rest is on the line that all have
    assert "| a | x | 1 of 3 | `METHOD=moon LR=0.001 mu=1` | 0.4000 |" in page
    assert "All runs: `RUNNER=inprocess BATCH=8 CORPUS=sentence SILOS=3 ROUNDS=2`." in page
    assert "2 CPU minutes" in page  # three rows, three trials and two seeds, six seconds each: 1.5
    assert "| a | 0.6050 ± 0.0071 |" in page and "| all (reference) | 0.7050 ± 0.0071 |" in page
    assert "| a | 1.0 kB | – | 2, 2 | 2.0 kB |" in page
    assert "1 of 3" in page and "Not as in the paper: everything is small" in page
    assert "0.1234" not in page and "0.12" not in page  # what trials scored on test
    rows = list(csv.DictReader((tmp_path / "study.csv").open()))
    assert [(r["row"], r["seed"], float(r["value"])) for r in rows if r["row"] == "b"] == [
        ("b", "0", 0.5),
        ("b", "1", 0.51),
    ]
    assert (tmp_path / "study.svg").read_text().startswith("<?xml")
    assert "always the most frequent answer (reference) | 0.2500 |" in page
    elsewhere = tmp_path / "docs" / "toy.md"
    run_study(TOY, replace(asked, page=elsewhere), Console(quiet=True))
    assert elsewhere.read_text("utf-8") == page.replace("study.", "toy.")
    assert (tmp_path / "docs" / "toy.csv").read_text() == (tmp_path / "study.csv").read_text()


def test_a_seed_that_diverged_counts_as_zero_and_the_page_says_so(tmp_path: Path) -> None:
    asked = Asked("toy", "sentence", "minutes", tmp_path)
    _prepared(tmp_path, asked)
    (tmp_path / "majority.json").write_text("{}")
    lines = (tmp_path / "seeds" / "runs.jsonl").read_text().splitlines()
    lost = {"diverged": True, "dev_value": 0.0, "wall_seconds": 3.0, "cpu_seconds": 60.0}
    lines[1] = json.dumps({**json.loads(lines[1]), "summary": lost, "dev": []})  # a, seed 1
    (tmp_path / "seeds" / "runs.jsonl").write_text("\n".join(lines) + "\n")
    page = run_study(TOY, asked, Console(quiet=True)).read_text("utf-8")
    # 0.6 and 0 for a, 0.5 and 0.51 for b: +0.1 and -0.51
    assert "-0.2050 [-0.5100, +0.1000], above in 1 of 2 | **fails** |" in page
    assert f"| a | {0.3:.4f} ± {0.6 / 2**0.5:.4f} |" in page
    assert "| a | 1.0 kB | – | 2, – | – |" in page  # bytes are those of the run that has some
    assert "Training diverged in a x: 1 of its seeds. Such a run counts as zero" in page
    rows = list(csv.DictReader((tmp_path / "study.csv").open()))
    (row,) = (r for r in rows if r["metric"] == "diverged")
    assert (row["row"], row["seed"], float(row["value"]), row["dev"]) == ("a", "1", 0.0, None)


def test_a_study_in_which_everything_diverged_ends_with_a_sentence(tmp_path: Path) -> None:
    asked = Asked("toy", "sentence", "minutes", tmp_path)
    _prepared(tmp_path, asked)
    (tmp_path / "majority.json").write_text("{}")
    lost = {"diverged": True, "dev_value": 0.0, "wall_seconds": 3.0, "cpu_seconds": 60.0}
    path = tmp_path / "seeds" / "runs.jsonl"
    lines = [json.loads(x) | {"summary": lost, "dev": []} for x in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(x) + "\n" for x in lines))
    with pytest.raises(UserError, match="diverged in every run of this study"):
        run_study(TOY, asked, Console(quiet=True))


def test_a_failure_that_only_mentions_it_is_no_divergence(tmp_path: Path) -> None:
    """A silo that was sent too much logs the word, and the run may then end of something else."""
    job, quiet = Job("a", "x", 0, ("METHOD=fedavg",)), Console(quiet=True)

    def failed(command: list[str]) -> tuple[int, str]:
        return 2, "holds NaN: training diverged, lower LR; zeros are sent instead\nNo space left.\n"

    with pytest.raises(UserError, match="No space left"):
        run_missing([job], tmp_path, quiet, workers=1, spread=failed, may_diverge=True)


@pytest.mark.slow
def test_a_rate_that_is_too_high_loses_its_trial_and_not_the_study(tmp_path: Path) -> None:
    small = ("CORPUS=sentence:sentences=60,dev=20,test=20", "TRAIN=head", "OPTIMIZER=sgd")
    words = ("RUNNER=inprocess", "METHOD=fedavg", "SILOS=3", "ROUNDS=2", "LR=1e30", *small)
    job, quiet = Job("a", "x", 0, words), Console(quiet=True)
    with pytest.raises(UserError, match="training diverged, lower LR"):
        run_missing([job], tmp_path / "table", quiet, workers=1)
    found = run_missing([job], tmp_path / "study", quiet, workers=1, may_diverge=True)
    assert found[job.key].diverged and found[job.key].summary["dev_value"] == 0.0
    assert run_missing([job], tmp_path / "study", quiet, workers=1, may_diverge=True) == found


def test_mistakes_are_sentences(tmp_path: Path) -> None:
    asked = Asked("toy", "sentence", "minutes", tmp_path)
    for wrong, words in (
        (replace(asked, corpus="elsewhere"), "CORPUS must name a folder"),
        (replace(asked, budget="years"), 'Unknown BUDGET "years"'),
        (replace(asked, rows=("c",)), 'no row "c"'),
    ):
        with pytest.raises(UserError, match=words):
            run_study(TOY, wrong, Console(quiet=True))


@pytest.mark.slow
def test_a_real_study_from_search_to_page(tmp_path: Path) -> None:
    """Two real runs: a trial, and a seed with what it chose."""
    small = "sentence:sentences=60,dev=20,test=20"
    spec = replace(
        TOY,
        rows={"b": TOY.rows["b"]},
        common=("BATCH=8", "TRAIN=head"),
        claims=(),
        budgets={"minutes": Budget(1, 1, ("ROUNDS=1",))},
    )
    asked = Asked("toy", small, "minutes", tmp_path)
    page = run_study(spec, asked, Console(quiet=True)).read_text("utf-8")
    assert "`METHOD=fedavg LR=0.001`" in page and "**Nothing was claimed.**" in page
    assert not (tmp_path / "features").exists()  # they are as private as the texts
    (row,) = csv.DictReader((tmp_path / "study.csv").open())
    assert row["row"] == "b" and 0.0 <= float(row["value"]) <= 1.0
    runs = (tmp_path / "seeds" / "runs.jsonl").read_text()
    assert "PARTITION_SEED=0" in runs and "SEED=100" in runs
    assert run_study(spec, asked, Console(quiet=True)).read_text("utf-8") == page
    assert (tmp_path / "seeds" / "runs.jsonl").read_text() == runs  # nothing was run again


@pytest.mark.parametrize("paper", STUDIES)
def test_every_run_of_every_study_has_settings_that_exist(paper: str) -> None:
    spec = STUDIES[paper]
    assert {r for c in spec.claims for r in (c.better, c.than)} <= set(spec.rows)
    for budget in spec.budgets.values():
        assert set(budget.of) <= set(spec.rows)
        for name, row in spec.rows_of(budget).items():
            every = itertools.product(spec.corpora.values(), ((), *spec.columns.values()))
            for corpus, words in every:
                common = merged(spec.common, corpus, budget.words, words)
                for job in trial_jobs(spec, name, row, common, 2):
                    table = dict(w.partition("=")[::2] for w in job.words)
                    knobs = dict(k.partition("=")[::2] for k in table.pop("SET", "").split())
                    asked = {k.lower(): v for k, v in table.items()}
                    s = load(None, asked | {f"options.{k}": v for k, v in knobs.items()})
                    assert find(s.method).module.TASKS
                    check_options(s.method, tasks_of(paper)[0], s.options)


@pytest.mark.skipif(not (DATA / "crossner").is_dir(), reason="CrossNER is not here")
def test_all_five_domains_of_crossner_have_all_types_of_its_study() -> None:
    from corpora.ner.read import load as read

    corpus = read(str(DATA / "crossner"), str(ROOT / "bench" / "studies" / "crossner.types"))
    assert corpus.types == ("event", "misc", "organisation", "person", "place")
    assert len(corpus.domains) == 5 and corpus.covered.all()
