"""`make table PAPER=privacy` has every method, and its page can be made; the report says what
protects what.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.papers import PAPERS
from bench.papers.jobs import Done
from bench.papers.page import Results, page
from bench.papers.table import jobs, with_columns, with_methods
from config.errors import UserError
from config.load import load
from config.settings import Settings
from methods import METHODS, check_options, describe
from methods.tasks.load import task_name
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
    rows = {"moon (sentence)", "fedner (ner)", "fedner (ner), public text"}
    assert set(some.variants) == rows == set(some.more_variants)
    # the smaller corpus, unless hours are asked for
    small, full = some.variants["fedner (ner)"], some.more_variants["fedner (ner)"]
    assert "CORPUS=ner:sentences=3000" in small and "CORPUS=ner:sentences=12000" in full
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
            "corpus_note": "made",
            "metric": job.row[:4],
            "value": 0.5,
            "epsilon": epsilon if job.column else "inf",
        }
        s["before_value"] = 0.1
        done[job.row, job.column, job.seed] = Done(s, (0.1, 0.2))
    text = page(some, (), Results(done, (0, 1)), "")
    assert (
        "| fedner (ner) | 2.5000 ± 0.0000 | 2.5000 ± 0.0000 | 2.5000 ± 0.0000 | infinite |" in text
    )
    assert (
        "CORPUS=ner:sentences=3000 (made)" in text
        and "CORPUS=sentence:sentences=5000 (made)" in text
    )
    assert "each minus no noise" in text
    # beside every budget, what there is without the silos
    assert "| public set only (sentence) | 0.5000" in text
    assert "before the first round" in text and "| moon (sentence) | 0.1000" in text
    # then there is nothing to compare, and no more is said
    for columns in (["epsilon 1", "epsilon 8"], ["no noise"]):
        cut = page(with_columns(some, columns), (), Results(done, (0, 1)), "")
        assert "each minus" not in cut and "| fedner (ner) | 0.5000" in cut


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
