"""The report of a run on sentences: the partition's picture, the target, the message size, from its
files.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from config.load import dump
from report.documents import KINDS, consortium_documents
from report.files import read_run
from report.write import write_report
from study.prepare import Study, write_partition
from tests.methods.small import run
from tests.methods.small_distant import twelve
from tests.methods.small_sentence import tiny_study, tiny_task

SILOS = [list(range(24)), list(range(24, 36)), list(range(36, 45))]


def reported(study: Study, simulation: bool = True) -> tuple[Path, str, dict[str, Any]]:
    _, folder = run(study)
    (folder / "config.toml").write_text(dump(study.settings, {}), "utf-8")
    if simulation:
        write_partition(folder, study)
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    (folder / "summary.json").write_text(json.dumps(summary | {"peak_rss_mb": 1.0}), "utf-8")
    write_report(folder)
    return folder, (folder / "report.md").read_text("utf-8"), summary


@pytest.mark.parametrize("task", ["sentence", "distant"])
def test_partition_is_drawn_from_recorded_counts(task: str) -> None:
    if task == "sentence":
        study = tiny_study("fedavg", SILOS)
    else:
        study = tiny_study("fedavg", [range(5), range(5, 8), range(8, 12)], twelve())
    folder, text, _ = reported(study)
    kept = json.loads((folder / "partition.json").read_text("utf-8"))
    labels = study.task.partition_keys()["label"]
    for row, indices in zip(kept["label_counts"], study.partition.indices, strict=True):
        assert row == [
            sum(int(labels[i]) == c for i in indices) for c in range(len(study.task.labels))
        ]
    assert f"{min(kept['sizes'])} to {max(kept['sizes'])} examples" in text
    drawn = re.search(
        r'<table class="heat".*?</table>', (folder / "report.html").read_text("utf-8")
    )
    assert drawn is not None
    rows = re.findall(r"<tr>(.*?)</tr>", drawn.group())
    assert re.findall(r"<span>(.*?)</span>", rows[0]) == list(study.task.labels)
    for row, counts, size in zip(rows[1:], kept["label_counts"], kept["sizes"], strict=True):
        assert [int(n or 0) for n in re.findall(r"<td.*?>(.*?)</td>", row)] == [*counts, size]


def test_documents_have_every_silo_of_the_study_also_one_that_was_never_heard() -> None:
    folder, _, _ = reported(tiny_study("fedavg", SILOS))
    names = {"silo-000": "north", "silo-001": "east", "silo-002": "south", "silo-003": "west"}
    (folder / "members.json").write_text(json.dumps(names), "utf-8")
    made = consortium_documents(read_run(folder))
    for kind in KINDS:
        assert sorted(made[kind]["silos"]) == sorted(names.values())
    assert made["report"]["silos"]["west"]["rounds"] == []
    assert made["communication-cost"]["silos"]["west"]["bytes_up"] == 0
    assert made["privacy-budget"]["silos"]["west"]["charged"] == []
    # nothing that it sent adds to what the others sent
    (folder / "members.json").unlink()
    answers = consortium_documents(read_run(folder))["report"]["answers"]
    assert made["report"]["answers"] == answers


def test_a_real_coordinators_report_has_no_partition() -> None:
    """Only the launcher of a simulation writes partition.json; without it there is nothing to
    draw.
    """
    folder, text, _ = reported(tiny_study("fedavg", SILOS), simulation=False)
    assert "artition" not in text
    assert 'class="heat"' not in (folder / "report.html").read_text("utf-8")


def test_target_is_in_summary_and_report_also_when_it_is_not_reached() -> None:
    _, text, summary = reported(tiny_study("fedavg", SILOS, rounds=2, target=1e-9 + 1.0))
    assert summary["rounds_to_target"] is None
    assert "not reached in 2 rounds" in text
    folder, text, summary = reported(
        tiny_study("fedavg", SILOS, rounds=2, options={"metric": "micro_f1"})
    )
    assert summary["target"] is None
    assert "first round with" not in text
    dev = [json.loads(x)["dev"] for x in (folder / "rounds.jsonl").read_text("utf-8").splitlines()]
    _, text, summary = reported(tiny_study("fedavg", SILOS, rounds=2, target=max(dev) or 0.5))
    assert summary["rounds_to_target"] == (dev.index(max(dev)) + 1 if max(dev) else None)


def test_message_size_is_that_of_the_coded_arrays() -> None:
    """FedED: one byte per public sentence and class up, a float32 model down. FedAvg: a 32-bit lane
    a parameter.
    """
    task = tiny_task("feded")
    _, text, s = reported(tiny_study("feded", SILOS, task))
    parameters = sum(p.numel() for p in task.new_model(0).parameters())
    assert s["arrays_up_per_silo_round"] == 15 * len(task.labels)
    assert s["arrays_down_per_silo_round"] == 4 * parameters
    assert re.search(rf"message per silo and round \| {15 * len(task.labels)} B up", text)
    _, _, s = reported(tiny_study("fedavg", SILOS, task))
    assert 4 * (parameters + 1) <= s["arrays_up_per_silo_round"] <= 4 * (parameters + 1) + 64
