"""Which file is which split: by whole words, and never by a guess."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.errors import UserError
from corpora.splits import BOTH, assign, cut_documents, split_of


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("eng.train", "train"),
        ("eng.testa", "dev"),
        ("eng.testb", "test"),
        ("train.tsv.gz", "train"),
        ("devel.tsv", "dev"),
        ("train_dev.tsv", BOTH),
        ("semeval_train.txt", "train"),
        ("semeval_val.txt", "dev"),
        ("valid.jsonl", "dev"),
        ("validation-00000-of-00001.parquet", "dev"),
        ("CDR_TrainingSet.PubTator.txt", "train"),
        ("CDR_DevelopmentSet.PubTator.txt.gz", "dev"),
        ("CDR_TestSet.PubTator.txt", "test"),
        ("NCBItrainset_corpus.txt", "train"),
        ("NCBIdevelopset_corpus.txt", "dev"),
        ("TRAIN_FILE.TXT", "train"),
        ("goldTrain.tsv", "train"),
        ("TestCorpus.xml", "test"),
        ("trainDev.tsv", BOTH),
        ("wnut17train.conll", "train"),
        ("expert_test.tsv", "test"),
        ("device_01.txt", ""),
        ("contest.txt", ""),
        ("latestNotes.txt", ""),
        ("evaluation.txt", ""),
        ("value.txt", ""),
        ("training_and_test.txt", ""),
    ],
)
def test_a_split_is_told_by_whole_words(name: str, split: str) -> None:
    assert split_of(name) == split


def _folder(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x\n")
    return root


def test_conll_2003_has_three_splits(tmp_path: Path) -> None:
    found = assign(_folder(tmp_path, "eng.train", "eng.testa", "eng.testb"))
    assert found.names() == {"train": ("eng.train",), "dev": ("eng.testa",), "test": ("eng.testb",)}


def test_a_file_of_train_and_dev_is_not_joined_to_train(tmp_path: Path) -> None:
    found = assign(_folder(tmp_path, "train.tsv", "train_dev.tsv", "devel.tsv", "test.tsv"))
    assert found.names() == {"train": ("train.tsv",), "dev": ("devel.tsv",), "test": ("test.tsv",)}
    assert "train_dev.tsv" in found.notes[0].what


def test_a_file_of_train_and_dev_is_train_where_neither_is_there_alone(tmp_path: Path) -> None:
    found = assign(_folder(tmp_path, "train_dev.tsv", "test.tsv"))
    assert found.names() == {"train": ("train_dev.tsv",), "test": ("test.tsv",)}


def test_dev_is_not_trained_on_through_a_file_of_both(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train_dev\.tsv .* devel\.tsv is dev"):
        assign(_folder(tmp_path, "train_dev.tsv", "devel.tsv", "test.tsv"))


def test_notes_do_not_make_themselves_splits(tmp_path: Path) -> None:
    folder = _folder(tmp_path, "blood_test_001.txt", "device_01.txt", "train/test_002.txt")
    found = assign(folder, document_files=True)
    assert found.names() == {"train": ("train/test_002.txt",)}
    assert [p.name for p in found.unsplit] == ["blood_test_001.txt", "device_01.txt"]


def test_several_files_for_a_split_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"several files for test \(test1\.txt, test2\.txt\)"):
        assign(_folder(tmp_path, "train.txt", "test1.txt", "test2.txt"))


def test_a_file_beside_a_folder_of_its_split_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"several files for train \(train\.txt, train/a\.txt\)"):
        assign(_folder(tmp_path, "train.txt", "train/a.txt"))


def test_numbered_parts_are_a_stated_union(tmp_path: Path) -> None:
    found = assign(_folder(tmp_path, "train-00000-of-00002.csv", "train-00001-of-00002.csv"))
    assert len(found.files["train"]) == 2
    assert found.notes[0].sentence() == "merged: 2 numbered files are the train split"


def test_files_about_the_corpus_are_no_data(tmp_path: Path) -> None:
    found = assign(_folder(tmp_path, "train.txt", "README_train.txt", "LICENSE", ".train.txt.swp"))
    assert found.names() == {"train": ("train.txt",)}
    assert not found.unsplit


def test_a_missing_split_says_which_files_were_seen(tmp_path: Path) -> None:
    found = assign(_folder(tmp_path, "train.txt", "tests.txt"))
    with pytest.raises(UserError, match=r"no test file.*tests\.txt \(no split\), train\.txt \(tra"):
        found.need("train", "test")


def test_documents_are_cut_by_their_names_alone() -> None:
    names = [f"note-{i}" for i in range(200)]
    made = cut_documents(names, ("dev", "test"))
    assert 10 <= sum(s == "dev" for s in made.values()) <= 35
    assert made == cut_documents(list(reversed(names)), ("dev", "test"))
    assert set(cut_documents(names, ("dev",)).values()) == {"train", "dev"}


@pytest.mark.parametrize("count", [3, 4, 7])
def test_a_small_corpus_has_no_empty_split(count: int) -> None:
    for start in range(30):
        names = [f"n{start + i}" for i in range(count)]
        assert set(cut_documents(names, ("dev", "test")).values()) == {"train", "dev", "test"}


def test_two_documents_are_too_few_for_three_splits() -> None:
    with pytest.raises(ValueError, match="2 documents cannot be cut"):
        cut_documents(["a", "b"], ("dev", "test"))
