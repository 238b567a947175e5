"""Readers of documents that come as tables of entities and pairs: DocRED, and one document a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from config.errors import UserError
from corpora.document import read as documents
from tests.corpora.documents import folder_of, only, said


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def docred_row(labels: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    vertices = [
        [
            {"name": "Ann Lee", "sent_id": 0, "pos": [0, 2], "type": "PER"},
            {"name": "Lee", "sent_id": 1, "pos": [0, 1], "type": "PER"},
        ],
        [{"name": "Rome", "sent_id": 1, "pos": [3, 4], "type": "LOC"}],
        [{"name": "May", "sent_id": 0, "pos": [3, 4], "type": "TIME"}],
    ]
    return {
        "title": "Ann",
        "sents": [["Ann", "Lee", "in", "May", "."], ["Lee", "lives", "in", "Rome", "."]],
        "vertexSet": vertices,
        **({} if labels is None else {"labels": labels}),
    }


LABELS = [
    {"h": 0, "t": 1, "r": "P551", "evidence": [1]},
    {"h": 0, "t": 1, "r": "P937", "evidence": []},
]


def docred_folder(tmp_path: Path, test_labels: list[dict[str, Any]] | None) -> Path:
    folder = tmp_path / "docred"
    folder.mkdir()
    (folder / "train_annotated.json").write_text(json.dumps([docred_row(LABELS)] * 10))
    (folder / "train_distant.json").write_text("[]")
    (folder / "dev.json").write_text(json.dumps([docred_row(LABELS[:1])]))
    (folder / "test.json").write_text(json.dumps([docred_row(test_labels)]))
    (folder / "rel_info.json").write_text(json.dumps({"P551": "residence"}))
    return folder


def test_docred(tmp_path: Path) -> None:
    corpus = documents.load(str(docred_folder(tmp_path, LABELS)))  # Re-DocRED: test has labels
    d = only(corpus)
    assert corpus.relations == ("P937", "residence")
    assert [[d.text[a:b] for a, b in e.mentions] for e in d.entities] == [
        ["Ann Lee", "Lee"],
        ["Rome"],
        ["May"],
    ]
    assert said(d)[("0", "1")] == ("residence", "P937") and len(d.pairs) == 6
    assert {(p.head, p.tail): d.crosses(p) for p in d.pairs}[1, 2] is True
    assert [corpus.counts(s).documents for s in ("train", "dev", "test")] == [10, 1, 1]


def test_docred_without_test_labels_tests_on_dev_and_says_so(tmp_path: Path) -> None:
    corpus = documents.load(str(docred_folder(tmp_path, None)))
    assert "the dev split is the test here" in corpus.note
    assert [corpus.counts(s).documents for s in ("train", "dev", "test")] == [9, 1, 1]
    assert corpus.counts("test").relations == 1 and corpus.counts("dev").relations == 2


def test_a_list_of_relations_fixes_them_and_their_order(tmp_path: Path) -> None:
    folder = docred_folder(tmp_path, LABELS)
    (folder / "relations.txt").write_text("residence\ncapital\nP937\n")
    assert documents.load(str(folder)).relations == ("residence", "capital", "P937")
    (folder / "relations.txt").write_text("residence\n")
    with pytest.raises(UserError, match='"P937" is not listed'):
        documents.load(str(folder))


def test_docred_mentions_outside_their_sentence_are_refused(tmp_path: Path) -> None:
    folder = docred_folder(tmp_path, LABELS)
    row = docred_row(LABELS)
    row["vertexSet"][1][0]["pos"] = [3, 9]
    (folder / "test.json").write_text(json.dumps([docred_row(LABELS), row]))
    with pytest.raises(
        UserError,
        match=r"test.json, document 1 \(line 1\): .*entity 1 at words 3-9 of a sentence of 5",
    ):
        documents.load(str(folder))


def pairs_line(*labels: str) -> str:
    entity = {
        "a": ("water", "Chemical", "0:5", "1:6", "0:1"),
        "b": ("salt", "Chemical", "2", "3", "0"),
        "c": ("brine x", "Chemical", "6", "8", "1"),
    }
    ends = {0: ("a", "b"), 1: ("a", "c"), 2: ("b", "c")}
    columns = ["77", "water and salt .|then water brine x ."]
    for k, label in enumerate(labels):
        columns += [label, "L2R", "CROSS", "0-1", "2-3"]
        for e in ends[k]:
            columns += [e, *entity[e]]
    return "\t".join(columns)


def test_pairs_by_line(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "\n".join([pairs_line("1:React:2", "1:NR:2", "not_include")] * 10))
    assert documents.recognise(folder) == "pairs"
    corpus = documents.load(str(folder))
    d = next(corpus.documents("test"))
    assert said(d) == {("a", "b"): ("React",), ("a", "c"): (), ("b", "c"): ()}
    assert [p.counted for p in d.pairs] == [True, True, False]
    assert [[d.text[a:b] for a, b in e.mentions] for e in d.entities] == [
        ["water", "water"],
        ["salt"],
        ["brine x"],
    ]
    assert [d.crosses(p) for p in d.pairs] == [False, False, True]
    assert "filtered by whoever made the files" in corpus.note
    (folder / "train.txt").write_text(pairs_line("1:React:2") + "\tone more column\n")
    with pytest.raises(UserError, match="train.txt, line 1: .*20 columns"):
        documents.load(f"pairs:{folder}")
