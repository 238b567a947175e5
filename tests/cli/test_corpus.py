"""`sottovoce corpus`: what is read of a folder is shown before anything is trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from corpora.recognise import recognised


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")


def _said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(["corpus", *words])
    told = capsys.readouterr()
    assert end.value.code in (0, None), told.err
    return told.out


def _refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(["corpus", *words])
    assert end.value.code == 2
    return capsys.readouterr().err


def _notes(folder: Path) -> Path:
    for i in range(12):
        split = "train" if i < 8 else "dev" if i < 10 else "test"
        (folder / split).mkdir(parents=True, exist_ok=True)
        text = f"Dr. Roe gave xolidan{i}. The cough{i} went."
        at = text.index("cough")
        marks = f"T1\tDrug 13 {20 + len(str(i))}\txolidan{i}\nT2\tSign {at} {at + 5}\tcough\n"
        (folder / split / f"n{i}.txt").write_text(text)
        (folder / split / f"n{i}.ann").write_text(marks)
    return folder


def test_json_has_the_keys_that_programs_rely_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found: dict[str, Any] = json.loads(_said(capsys, str(_notes(tmp_path / "notes")), "--json"))
    assert list(found) == ["task", "format", "splits", "domains", "notes"]
    assert (found["task"], found["format"], found["domains"]) == ("ner", "brat", {"notes": 24})
    assert set(found["splits"]) == {"train", "dev", "test"}
    train = found["splits"]["train"]
    assert set(train) == {"files", "units", "mentions", "relations", "labels"}
    assert (train["units"], train["mentions"], train["relations"]) == (16, 16, 0)
    assert train["labels"] == {"Drug": 8, "Sign": 8} and len(train["files"]) == 16
    (grown,) = (n for n in found["notes"] if "grew to whole words" in n["what"])
    assert (grown["kind"], grown["count"], grown["place"]) == ("repaired", 12, "train/n0.ann")
    assert grown["example"] == "'cough' became 'cough0'"


def test_people_see_files_counts_notes_examples_and_a_partition(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = _said(capsys, str(_notes(tmp_path / "notes")), "PARTITION=iid", "SILOS=4")
    for part in (
        "notes: named entities",
        "notes read as brat: train from train/n0.ann, train/n0.txt",
        "repaired: 12 spans begin or end inside a word and grew to whole words",
        "train/n0.ann: 'cough' became 'cough0'",
        "Dr . Roe gave xolidan0 .",
        "partition iid, 4 silos",
        "make simulate METHOD=fedner",
    ):
        assert part in out


def test_a_run_says_the_same_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from methods.tasks.words import data_lines
    from study.corpus import open_corpus

    folder = str(_notes(tmp_path / "notes"))
    _, task = open_corpus(folder, {})
    shown = _said(capsys, folder).splitlines()
    assert data_lines(task) and set(data_lines(task)) <= set(shown)


def test_sentences_are_counted_by_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"text": "xol eased a cough", "head": {"start": 0, "end": 3}}
    row |= {"tail": {"start": 12, "end": 17}}
    lines = [
        json.dumps(row | {"text": f"xol eased a cough {i}", "relation": ("eases", None)[i % 2]})
        for i in range(40)
    ]
    for name, some in (("train", lines), ("dev", lines[:2]), ("test", lines[:4])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(some))
    found = json.loads(_said(capsys, str(tmp_path), "--json"))
    assert found["splits"]["train"]["labels"] == {"None": 20, "eases": 20}
    assert found["splits"]["train"]["relations"] == 20 and "public" not in found["splits"]
    found = json.loads(_said(capsys, str(tmp_path), "METHOD=feded", "--json"))
    assert (found["splits"]["train"]["units"], found["splits"]["public"]["units"]) == (32, 8)
    assert [n["kind"] for n in found["notes"]] == ["set aside"]
    assert "8 of 40 training examples" in _said(capsys, str(tmp_path), "METHOD=feded")


def test_a_folder_in_no_format_names_all_that_were_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "has no files in it" in _refused(capsys, str(tmp_path))
    (tmp_path / "stories.txt").write_text("Once upon a time.\n")
    (tmp_path / "rows.jsonl").write_text('{"title": "secret", "body": "word"}\n')
    told = _refused(capsys, str(tmp_path))
    seen = "rows.jsonl (rows with title, body); stories.txt (lines without tabs)"
    for part in (seen, "conll needs", "semeval needs", "gids needs", "brat needs"):
        assert told.count(part) == 1
    assert "secret" not in told and "Once" not in told
    without = told.partition('No file has the word "train"')[2].partition("\n")[0]
    for name in ("pubtator", "jsonl", "nyt10"):
        assert name in without and f"{name} needs" not in told
    (tmp_path / "train.txt").write_text("Once upon a time.\n")
    told = _refused(capsys, str(tmp_path))
    assert 'word "train"' not in told and "pubtator needs a training file whose first line" in told


def test_a_corpus_of_another_task_is_said_to_be_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(_notes(tmp_path / "notes"))
    assert recognised(folder) == {"ner": "brat"}
    told = _refused(capsys, folder, "METHOD=lazymil")
    assert "is read as brat, of the task ner" in told
    assert 'Option "task" must be' in _refused(capsys, folder, "TASK=tagging")


def test_a_silos_folder_is_looked_at_without_a_test_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A silo trains and scores nothing, so it has training files and nothing else."""
    row = {"text": "xol eased a cough", "head": {"start": 0, "end": 3}}
    row |= {"tail": {"start": 12, "end": 17}}
    lines = [
        json.dumps(row | {"text": f"xol eased a cough {i}", "relation": ("eases", None)[i % 2]})
        for i in range(40)
    ]
    (tmp_path / "silo").mkdir()
    (tmp_path / "silo" / "train.jsonl").write_text("\n".join(lines))
    found = json.loads(_said(capsys, str(tmp_path / "silo"), "--json"))
    train = found["splits"]["train"]
    assert (train["units"], train["labels"]) == (40, {"None": 20, "eases": 20})
    assert found["splits"]["dev"]["units"] == found["splits"]["test"]["units"] == 0
    told = _said(capsys, str(tmp_path / "silo"))
    assert "read as a silo's folder" in told and 'classes = ["None", "eases"]' in told
    assert "make simulate" not in told
    # what is wrong in it is said all the same
    (tmp_path / "silo" / "train.jsonl").write_text("\n".join([*lines, "{"]))
    assert "train.jsonl, line 41: not JSON" in _refused(capsys, str(tmp_path / "silo"))
