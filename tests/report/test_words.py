"""The report's words, each from the files it speaks of: what was sent in which rounds, whom to
trust, who held what.
"""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from config.load import dump, load
from config.settings import Settings
from report.files import RunFiles
from report.pages.elements import Html
from report.pages.glossary import glossary
from report.pages.silos import held_classes, silos
from report.pages.words import rounds_with
from report.write import write_report
from study.agreement import sum_assumption
from study.prepare import prepare
from tests.conftest import lines, summary
from tests.methods.small import run
from tests.methods.small_distant import twelve
from tests.methods.small_sentence import tiny_study

SENTENCES = {
    "method": "fedavg",
    "corpus": "sentence:sentences=60,dev=20,test=20",
    "silos": "3",
    "rounds": "1",
}


def files(**own: Any) -> RunFiles:
    nothing: dict[str, Any] = {
        "summary": {"missed": {}},
        "rounds": [],
        "traffic": [],
        "privacy": [],
        "events": [],
        "disclosures": {},
        "curve": {},
        "config": {},
        "config_text": "",
        "partition": None,
        "plan": None,
    }
    return RunFiles(Path("run"), **(nothing | own))


def test_classes_that_silos_hold_are_counted_in_the_partition() -> None:
    labels = ["NA", "treats", "causes"]
    same = {"labels": labels, "label_counts": [[5, 0, 1], [0, 2, 7]]}
    assert held_classes(same) == "Every silo holds 2 of the 3 classes."
    counts = [[5, 0, 1], [0, 2, 7], [4, 0, 0], [1, 1, 1], [0, 0, 0]]
    assert (
        held_classes({"labels": labels, "label_counts": counts})
        == "Of 3 classes a silo holds 0 to 3, mostly 2."
    )


@pytest.mark.parametrize("asked", [3, 2])
def test_silos_that_were_never_asked_are_named(asked: int) -> None:
    names = [f"silo-{i:03d}" for i in range(asked)]
    partition = {
        "sizes": [4, 5, 6],
        "label_counts": [[4], [5], [6]],
        "labels": ["a"],
        "spec": "iid",
        "seed": 1,
        "note": "",
    }
    line = {"round": 0, "participants": names, "survivors": names}
    page = silos(files(rounds=[line], partition=partition))
    assert (f"each of the {asked} silos that were asked (1 others never were)" in page) is (
        asked == 2
    )
    assert ("each of the 3 silos" in page) is (asked == 3)
    assert page.count("1 of 1") == asked


def test_rounds_in_which_something_was_sent_are_said_as_they_were() -> None:
    sent = [0, 0, 7, 7, 0, 7]
    rounds = [
        {"round": t, "numbers_sent": {"names": n, "update": 9, "never": 0}}
        for t, n in enumerate(sent)
    ]
    of = files(rounds=rounds)
    assert rounds_with(of, "names") == "rounds 3 to 4, 6"
    assert rounds_with(of, "update") == "all" and rounds_with(of, "never") == "none"
    # a run of before this was counted
    assert rounds_with(files(rounds=[{"round": 0}]), "names") == "–"


def test_a_warm_start_is_not_said_to_have_sent_scores() -> None:
    """Lazy MIL's first round of three scores nothing; the baseline and the model's size are in both
    reports.
    """
    task = twelve()
    study = tiny_study("lazymil", [range(5), range(5, 8), range(8, 12)], task, rounds=3)
    _, folder = run(study)
    (folder / "config.toml").write_text(dump(study.settings, {}), "utf-8")
    rounds = lines(folder / "rounds.jsonl")
    assert [r["numbers_sent"]["names"] > 0 for r in rounds] == [False, True, True]
    size = sum(p.numel() for p in study.task.new_model(0).parameters())
    assert [r["numbers_sent"]["update"] for r in rounds] == [3 * size] * 3
    s, page = summary(folder), write_report(folder).read_text("utf-8")
    assert s["parameters"] == s["parameters_trained"] == size == s["model_float32_bytes"] / 4
    test = task.corpus.split("test")
    pairs = {(int(h), int(t)) for h, t in zip(test.head, test.tail)}
    facts = {tuple(f) for f in task.corpus.gold["test"].tolist()}
    assert s["test_size"] == {
        "sentences": len(test),
        "entity pairs": len(pairs),
        "facts to find": len(facts),
    }
    text = (folder / "report.md").read_text("utf-8")
    for words in (html.unescape(page), text):
        assert "16 bytes per bag of the silo; in rounds 2 to 3 only" in words
        assert f"Before the first round the same model scored {s['before_value']:.4f}" in words
        assert (
            f"as long as {json.loads((folder / 'disclosures.json').read_text())['masks_hold_if']}."
            in words
        )
        assert "One exception" not in words
        assert "Signed, and seen by the coordinator and the silos of the sum" in words
        assert words.count("collude") == 1


def test_the_report_says_device_precision_schedule_and_what_was_trained() -> None:
    """In both forms, as the run had them and not as they are by default."""
    prepared = prepare(
        load(None, SENTENCES | {"train": "top:1", "schedule": "cosine", "precision": "bfloat16"})
    )
    study = replace(prepared, settings=replace(prepared.settings, runner="inprocess"))
    _, folder = run(study)
    (folder / "config.toml").write_text(dump(study.settings, {}), "utf-8")
    s, page = summary(folder), write_report(folder).read_text("utf-8")
    assert s["device"] == "cpu" and 0 < s["parameters_trained"] < s["parameters"]
    for words in (html.unescape(re.sub("<[^>]*>", "", page)), _markdown(folder)):
        assert (
            f"{s['parameters']:,} parameters, {s['parameters_trained']:,} of them trained" in words
        )
        assert "learning rate 0.001, falling by cosine to zero" in words
        assert (
            "The coordinator computed on cpu; what is frozen of the encoder is computed in" in words
        )
        assert "its trained layers compute in bfloat16." in words
    # what a run of before this has
    before = {k: v for k, v in s.items() if k != "computing"}
    (folder / "summary.json").write_text(json.dumps(before), "utf-8")
    write_report(folder)
    assert "The coordinator computed on cpu; PRECISION=bfloat16." in _markdown(folder)


def _markdown(folder: Path) -> str:
    return (folder / "report.md").read_text("utf-8")


def test_a_ring_promises_less_than_a_complete_graph_and_says_so() -> None:
    few = Settings(silos=10)
    assert (
        sum_assumption(few)
        == "the coordinator colludes with fewer than a third of all silos of the study (of 10: at most 3)"
    )
    assert sum_assumption(Settings(silos=3)).endswith("(of 3: none)")
    assert "colludes with at most 20% of all silos" in sum_assumption(Settings(silos=100))
    assert "fewer than a third of the participants of any one round" in sum_assumption(
        Settings(silos=100, fraction=0.1)
    )


def test_glossary_has_the_words_of_the_page_and_no_others() -> None:
    page = glossary(
        Html("<p>PGR has bags; p@100</p><script>epsilon</script><p class='silo'>one baggage</p>")
    )
    terms = [part.partition("</dt>")[0] for part in page.split("<dt>")[1:]]
    assert terms == ["bag", "p@100, p@mean", "PGR"]
