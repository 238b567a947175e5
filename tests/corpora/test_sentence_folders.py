"""Sentence-relation folders as users have them: JSON in other layouts, relations in other words, and
corpora as they are released.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from config.errors import UserError
from corpora.sentence import read as sentences
from tests.corpora.test_sentence_readers import i2b2_record, own


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def _line_files(folder: Path, train: str, test: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.jsonl").write_text(train)
    (folder / "test.jsonl").write_text(test or own("a b", (0, 1), (2, 3), "eases"))
    return folder


@pytest.mark.parametrize("as_list", [True, False])
def test_json_over_several_lines(tmp_path: Path, as_list: bool) -> None:
    rows = [json.loads(own(f"a{i:02} b", (0, 1), (4, 5), "eases")) for i in range(30)]
    text = (
        json.dumps(rows, indent=2) if as_list else "\n".join(json.dumps(r, indent=2) for r in rows)
    )
    corpus = sentences.load(str(_line_files(tmp_path / "c", text)), 0, 0.0)
    assert len(corpus.splits["train"]) + len(corpus.splits["dev"]) == 30
    rows[3]["head"]["end"] = 99
    text = (
        json.dumps(rows, indent=2) if as_list else "\n".join(json.dumps(r, indent=2) for r in rows)
    )
    line = text[: text.index('"a03 b"')].count("\n")
    with pytest.raises(UserError, match=rf"train\.jsonl, line {line}: .*head span 0-99"):
        sentences.load(str(_line_files(tmp_path / "c", text)), 0, 0.0)


def test_a_list_as_relation_is_its_one_name(tmp_path: Path) -> None:
    def with_relation(value: object, n: int) -> str:
        return json.dumps(json.loads(own(f"a{n:02} b", (0, 1), (4, 5), "")) | {"relation": value})

    lines = [with_relation(["eases"], i) for i in range(20)] + [with_relation([], 20)]
    corpus = sentences.load(str(_line_files(tmp_path / "c", "\n".join(lines))), 0, 0.0)
    assert corpus.relations == ("None", "eases")
    for value, why in ((["eases", "causes"], "2 relations"), (7, "the relation is 7")):
        text = "\n".join([*lines, with_relation(value, 99)])
        with pytest.raises(UserError, match=f"line 22: .*{why}"):
            sentences.load(str(_line_files(tmp_path / "c", text)), 0, 0.0)


@pytest.mark.parametrize("none", ["no_relation", "Other", "NA", "unknown"])
def test_other_words_for_none_are_no_facts(tmp_path: Path, none: str) -> None:
    lines = [own(f"a{i:02} b", (0, 1), (4, 5), (none, "eases")[i % 2]) for i in range(30)]
    corpus = sentences.load(str(_line_files(tmp_path / "c", "\n".join(lines))), 0, 0.0)
    assert corpus.relations[corpus.none] == none and f'"{none}" is taken' in corpus.note


def test_a_row_of_a_list_on_one_line_is_named_by_its_number(tmp_path: Path) -> None:
    rows = [json.loads(own(f"a{i:02} b", (0, 1), (4, 5), "eases")) for i in range(3)]
    marked = [{"text": f"<e1>a</e1> <e2>b{i}</e2>", "label": "x"} for i in range(3)]
    marked[2]["text"] = "<e1>a</e1> b"
    (tmp_path / "train.json").write_text(json.dumps(marked))
    (tmp_path / "test.json").write_text(json.dumps(rows))
    with pytest.raises(UserError, match=r"train\.json, line 1, item 3: "):
        sentences.load(f"marked:{tmp_path}", 0, 0.0)


def test_several_words_for_none_are_one_and_other_is_a_class_beside_them(tmp_path: Path) -> None:
    names = ("NA", "no_relation", "Other", "eases")
    lines = [own(f"a{i:02} b", (0, 1), (4, 5), names[i % 4]) for i in range(40)]
    corpus = sentences.load(str(_line_files(tmp_path / "c", "\n".join(lines))), 0, 0.0)
    assert corpus.relations == ("NA", "Other", "eases") and corpus.none == 0
    assert '"Other" is a class' in corpus.note and '"no_relation" is taken' in corpus.note
    every = [e.relation for split in ("train", "dev") for e in corpus.examples(split)]
    assert [every.count(n) for n in corpus.relations] == [20, 10, 10]
    lines = [
        own(f"a{i:02} b", (0, 1), (4, 5), ("Other", "unknown", "eases")[i % 3]) for i in range(40)
    ]
    corpus = sentences.load(str(_line_files(tmp_path / "d", "\n".join(lines))), 0, 0.0)
    assert corpus.none == -1 and '"unknown" is a class' in corpus.note


def test_pairs_of_a_sentence_stay_on_one_side_of_a_dev_split_that_is_made_here(
    tmp_path: Path,
) -> None:
    lines = [own(f"s{i} b c", (0, 1), (k, k + 1), "eases") for i in range(10, 60) for k in (4, 6)]
    corpus = sentences.load(str(_line_files(tmp_path / "c", "\n".join(lines))), 0, 0.2)
    homes = [{e.text for e in corpus.examples(s)} for s in ("train", "dev", "public")]
    assert sum(map(len, homes)) == len(set().union(*homes)) == 50
    assert corpus.reading.files["dev"] == () and "training examples became dev" in corpus.note


def test_the_other_task_in_ddi_2013s_test_is_passed_over(tmp_path: Path) -> None:
    text = (
        '<document id="d"><sentence id="s" text="xol and abc">'
        '<entity id="e0" charOffset="0-2" type="drug" text="xol"/>'
        '<entity id="e1" charOffset="8-10" type="brand" text="abc"/>'
        '<pair id="p0" e1="e0" e2="e1" ddi="true" type="effect"/></sentence></document>'
    )
    places = ["Train/DrugBank", "Test/Test for DrugNER task/DrugBank"]
    places.append("Test/Test for DDI Extraction task/DrugBank")
    for place in places:
        (tmp_path / place).mkdir(parents=True)
        for i in range(12):
            (tmp_path / place / f"{i}.xml").write_text(text)
    corpus = sentences.load(str(tmp_path), 0, 0.0)
    assert len(corpus.splits["test"]) == 12
    assert "skipped: 12 files of the task that finds drug names" in corpus.note
    assert not any("DrugNER" in name for name in corpus.reading.files["test"])
    train = tmp_path / "Train" / "DrugBank"
    (train / "12.xml.gz").write_bytes(gzip.compress(text.encode()))
    assert sum(len(sentences.load(str(tmp_path), 0, 0.0).splits[s]) for s in ("train", "dev")) == 13
    (train / "13.xml").write_text(text.replace("</sentence>", ""))
    with pytest.raises(UserError, match=r"13\.xml, line 1: not XML that can be read"):
        sentences.load(str(tmp_path), 0, 0.0)


def test_too_few_examples_for_a_dev_split_are_said(tmp_path: Path) -> None:
    lines = "\n".join(own(f"a{i} b", (0, 1), (3, 4), "eases") for i in range(3))
    with pytest.raises(UserError, match="no dev file, and its 3 training examples are too few"):
        sentences.load(str(_line_files(tmp_path / "c", lines)), 0, 0.0)


def test_i2b2_as_it_is_released(tmp_path: Path) -> None:
    """Texts of the test in one folder, their reference standard in another."""
    train = tmp_path / "concept_assertion_relation_training_data" / "beth" / "all"
    answers, texts = tmp_path / "reference_standard_for_test_data" / "rel", tmp_path / "test_data"
    for folder in (train, answers, texts):
        folder.mkdir(parents=True)
    i2b2_record(train, "record-1")
    i2b2_record(answers, "record-2")
    (answers / "record-2.txt").rename(texts / "record-2.txt")
    corpus = sentences.load(str(tmp_path), 0, 0.0)
    assert len(corpus.splits["test"]) == 9
    i2b2_record(texts, "record-2")
    with pytest.raises(UserError, match="the same record twice"):
        sentences.load(str(tmp_path), 0, 0.0)


def test_pgr_of_2018_has_a_test_like_its_training_file(tmp_path: Path) -> None:
    header = "\t".join(f"C{i}" for i in range(11)).replace("C0\tC1", "FILE_ID\tSENTENCE")

    def rows(numbers: range) -> str:
        made = []
        for i in numbers:
            text = f"variants of ABC{i:02} in ataxia {i:02}"
            made.append(f"1\t{text}\tABC\tataxia\t5\tHP\t12\t17\t21\t27\t{bool(i % 2)}")
        return "\n".join([header, *made])

    (tmp_path / "train.tsv").write_text(rows(range(24)))
    (tmp_path / "test.tsv").write_text(rows(range(20, 30)))
    corpus = sentences.load(str(tmp_path), 0, 0.0)
    assert len(corpus.splits["test"]) == 10
    assert len(corpus.splits["train"]) + len(corpus.splits["dev"]) == 20
