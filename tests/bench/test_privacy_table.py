"""`make table PAPER=privacy` has every method, and its page can be made; the report says what
protects what.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.papers import PAPERS
from bench.papers.beside import majorities
from bench.papers.gains import gain
from bench.papers.jobs import Done
from bench.papers.page import page
from bench.papers.readings import readings
from bench.papers.results import Results
from bench.papers.table import jobs, main, with_columns, with_methods
from config.errors import UserError
from config.load import load
from config.settings import Settings
from methods import METHODS, check_options, describe
from methods.tasks.load import load_task, task_name
from report.files import RunFiles
from report.pages.protection import protection_rows, sentences, utility

PRIVACY = PAPERS["privacy"]


def test_every_method_has_its_rows_and_every_row_its_settings() -> None:
    rows = {**PRIVACY.variants, **PRIVACY.more_variants}
    methods = {
        w.partition("=")[2] for words in rows.values() for w in words if w.startswith("METHOD=")
    }
    assert methods == {m for m in METHODS if not describe(m).reference}
    for words in rows.values():
        for column in PRIVACY.columns.values():
            plain = [
                w.removeprefix("SET=") if w.startswith("SET=") else w.lower()
                for w in (*words, *column)
            ]
            given = {
                k if k in vars(Settings()) else f"options.{k}": v
                for k, v in (w.split("=", 1) for w in plain)
            }
            settings = load(None, given)
            check_options(settings.method, task_name(settings), settings.options)
            assert (settings.dp == "off") == (settings.epsilon == 0)


def test_rows_can_be_taken_out() -> None:
    some = with_methods(PRIVACY, ["fedner", "moon"])
    ner = {f"fedner (ner){more}" for more in ("", ", public text", ", disjoint tag sets")}
    assert set(some.variants) == {"moon (sentence)", *ner} == set(some.more_variants)
    with pytest.raises(UserError, match='no method "local"'):
        with_methods(PRIVACY, ["local"])


def test_the_page_says_infinite_and_names_every_corpus() -> None:
    some = with_methods(PRIVACY, ["fedner", "moon"])
    done = {}
    for job in jobs(some, (), (0, 1)):
        epsilon = "inf" if job.column == "no noise" else 2.5
        corpus = next(w for w in job.words if w.startswith("CORPUS="))
        s = {
            "corpus": corpus,
            "corpus_note": f"cut: {job.seed + 8} sentences",
            "metric": job.row[:4],
            "value": 0.5,
            "epsilon": epsilon if job.column else "inf",
        }
        s["before_value"] = 0.1
        done[job.row, job.column, job.seed] = Done(s, (0.1, 0.2))
    text = page(some, (), Results(done, (0, 1)), "")
    assert (
        "| moon (sentence) | 2.5000 ± 0.0000 | 2.5000 ± 0.0000 | 2.5000 ± 0.0000 | infinite |"
        in text
    )
    # the first paragraph names the corpora; how they were read stands once for seeds that differ in
    # counts alone
    one = " (counts of one draw; others differ a little)"
    for corpus in ("ner:sentences=12000", "sentence:sentences=5000"):
        assert f"CORPUS={corpus}" in text.split("\n\n")[1]
        assert text.count(f"- CORPUS={corpus}: cut: 8 sentences{one}\n") == 1
    assert "cut: 9 sentences" not in text
    assert "each minus no noise" in text
    # beside every budget, what there is without the silos
    assert "| public set only (sentence) | 0.5000" in text
    assert "before the first round" in text and "| moon (sentence) | 0.1000" in text
    # then there is nothing to compare, and no more is said
    for columns in (["epsilon 1", "epsilon 8"], ["no noise"]):
        cut = page(with_columns(some, columns), (), Results(done, (0, 1)), "")
        assert "each minus" not in cut and "| moon (sentence) | 0.5000" in cut


def test_cells_have_seeds_of_their_own_and_runs_of_a_seed_share_features(tmp_path: Path) -> None:
    made = list(jobs(PRIVACY, (), (0, 1, 2), tmp_path))
    by: dict[tuple[str, str], list[int]] = {(j.row, j.column): [] for j in made}
    for j in made:
        by[j.row, j.column].append(j.seed)
    assert by["fedavg (sentence), public text", "epsilon 1"] == [0, 1, 2, 3, 4]
    assert by["fedavg (sentence)", "epsilon 1"] == [0, 1, 2] == by["lazymil (distant)", "no noise"]
    assert ("fedlcc (document)", "no noise") not in by  # an hour of its own: SIZE=hours has it
    assert ("fedavg (sentence), public text", "no noise") not in by
    shared = {j.row for j in made if j.machine == (f"FEATURES={tmp_path}",)}
    assert "fedlcc (document), public text" in shared and "lazymil (distant)" not in shared
    assert all(not j.machine for j in made if "DP=off" in j.words or not j.column)
    # where features are kept decides nothing, so it is not in a run's name
    assert all("FEATURES" not in j.key for j in made)


def test_what_silos_add_has_an_interval_or_is_said_not_to_be_shown() -> None:
    public = [0.80, 0.81, 0.82, 0.80, 0.82]
    # differences 0.01, 0.02, 0.03, 0.02, 0.02: mean 0.02, deviation 0.0070711, t(4) = 2.7764
    more = gain([b + d for b, d in zip(public, (0.01, 0.02, 0.03, 0.02, 0.02))], public)
    assert more == "+0.0200 [+0.0112, +0.0288]"
    assert gain([0.1, 0.3, 0.2], [0.2, 0.2, 0.2]).endswith(", nothing shown")
    assert gain([0.1, 0.11, 0.1], [0.2, 0.2, 0.2]).endswith(", less than without them")
    assert gain([0.3], [0.2]) == "+0.1000" and gain([], []) == ""


def test_a_model_that_always_gives_the_most_frequent_answer_shows_nothing() -> None:
    """Before the first round there was less; but nobody needs silos for such a model."""
    row, other = "moon (sentence)", "fedrs (sentence)"
    some = replace(PRIVACY, variants={row: (), other: ()}, references={}, seeds={})
    some = with_columns(some, ["epsilon 1"])
    before, guess = {0: 0.3, 1: 0.1, 2: 0.2}, {0: 0.48, 1: 0.5, 2: 0.47}
    runs = {}
    for seed in range(3):
        s = {"corpus": "c", "corpus_note": "", "metric": "f1", "epsilon": 1.0, "public": ""}
        s["before_value"] = before[seed]
        runs[row, "epsilon 1", seed] = Done(s | {"value": guess[seed]}, ())
        runs[other, "epsilon 1", seed] = Done(s | {"value": guess[seed] + 0.01}, ())
    text = page(some, (), Results(runs, (0, 1, 2)), "", {row: guess, other: guess})
    gains = text[text.index("What the silos add") : text.index("How the corpora")]
    assert "or the most frequent answer, whichever is better" in gains
    assert f"| {row} | +0.0000 [+0.0000, +0.0000], nothing shown |" in gains
    assert f"| {other} | +0.0100 [+0.0100, +0.0100] |" in gains
    assert f"| {row} | 0.4833 ± 0.0153 |" in text[text.index("the most frequent class") :]


def test_a_guess_is_made_for_every_seed_of_a_built_in_corpus(tmp_path: Path) -> None:
    words = ("METHOD=fedlcc", "CORPUS=document:documents=30,dev=10,test=10")
    found = majorities({"a": words}, {"a": (0, 1)}, tmp_path)
    shares = []
    for seed in (0, 1):
        given = {"method": "fedlcc", "corpus": words[1].partition("=")[2], "seed": str(seed)}
        held = load_task(load(None, given)).held_out("test")
        share = held["relations to find"] / held["entity pairs"]
        shares.append(2 * share / (1 + share))
    assert found == {"a": dict(enumerate(shares))} and shares[0] != shares[1]
    assert majorities({"a": words}, {"a": (0, 1)}, tmp_path) == found


def test_corpora_are_told_apart_whatever_digits_are_in_their_names() -> None:
    read = [
        {"corpus": "ner/BC5CDR", "corpus_note": "cut: 3 sentences"},
        {"corpus": "ner/BC4CDR", "corpus_note": "cut: 9,000 sentences"},
        {"corpus": "ner/BC4CDR", "corpus_note": "cut: 9,001 sentences"},
    ]
    assert readings(read) == [
        "- ner/BC5CDR: cut: 3 sentences",
        "- ner/BC4CDR: cut: 9,000 sentences (counts of one draw; others differ a little)",
    ]


def test_real_corpora_need_the_users_folders(tmp_path: Path) -> None:
    real = PAPERS["privacy_real"]
    placed = real.in_places({"DATA": "/data", "CHECKPOINTS": "/models"})
    words = [w for row in placed.variants.values() for w in row]
    assert "CORPUS=/data/chemprot" in words and "ENCODER=/models/minilm" in words
    assert not any("{" in w for w in words) and len(placed.variants) == len(real.variants)
    tasks = {w.partition("=")[2] for w in words if w.startswith("METHOD=")}
    assert tasks == {"fedavg", "fedcmc", "fedlcc", "fedner", "lazymil"}
    with pytest.raises(SystemExit):
        main(["PAPER=privacy_real", f"TABLES={tmp_path}"])


def _run(dp: str, epsilon: float | str, privacy: list[dict]) -> RunFiles:
    unit = {"record": "document", "silo": "silo"}.get(dp)
    s = {
        "dp": dp,
        "epsilon": epsilon,
        "privacy_unit": unit,
        "masked": True,
        "reference": "",
        "metric": "f1",
    }
    sent = {
        "name": "update",
        "channel": "masked",
        "readable_by": "nobody; the coordinator reads only the sum",
    }
    rounds = [{"round": t, "dev": 0.1 * t} for t in range(2)]
    told = {"each_silo_sends": [sent], "masks_hold_if": "nobody colludes"}
    return RunFiles(
        path=Path("."),
        summary=s,
        rounds=rounds,
        traffic=[],
        privacy=privacy,
        events=[],
        disclosures=told,
        curve={},
        config={},
        config_text="",
        partition=None,
        plan=None,
    )


def test_what_protects_what_is_what_the_ledgers_say() -> None:
    line = {"silo": "silo-000", "exchange": "train", "delta": 1e-5}
    events = [("training", "DP-SGD: 4 steps"), ("update", "free: computed from the model")]
    charged = [
        {**line, "round": t, "disclosure": d, "event": e, "epsilon_after": 1.0 + t}
        for t in range(2)
        for d, e in events
    ]
    run = _run("record", 2.0, charged)
    rows = protection_rows(run)
    assert rows[0][2] == "masks: only the sum can be read; free: computed from the model"
    assert rows[1] == (
        "training",
        "nobody: it is what the silo computed with, and paid for",
        "DP-SGD: 4 steps",
    )
    said = " ".join(sentences(replace(run, partition={})))  # a simulation's
    assert "several documents" in said and "seed" in said and "infinite" not in said
    drawn = str(utility(run))
    chart = json.loads(drawn[drawn.index("{") : drawn.rindex("}") + 1])
    assert chart["series"][0]["values"] == [[1.0, 0.0], [2.0, 0.1]]
    exact = {
        "round": 0,
        "disclosure": "update",
        "event": "non-private release",
        "epsilon_after": "inf",
    }
    bare = _run("off", "inf", [{**line, **exact}])
    assert protection_rows(bare)[0][2].endswith("; without noise") and utility(bare) is None
    assert "epsilon is infinite" in " ".join(sentences(bare))
