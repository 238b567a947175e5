"""Readers on small files made for the purpose; PGR itself where its folder is at hand."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from config.errors import UserError
from corpora.distant import read as readers
from corpora.distant.table import Corpus
from corpora.distant.vectors import read_vectors
from tests.corpora.real import DATA

PGR = DATA / "pgr"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _words(corpus: Corpus, split: str, row: int) -> list[str]:
    s = corpus.split(split)
    return [corpus.words[t] for t in s.tokens[s.offsets[row] : s.offsets[row + 1]]]


def _opennre_line(head: str, tail: str, relation: str, text: str = "{h} was born in {t} .") -> str:
    a = text.index("{h}")
    sentence = text.replace("{h}", head)
    b = sentence.index("{t}")
    sentence = sentence.replace("{t}", tail)
    h = {"id": f"m.{head}", "name": head, "pos": [a, a + len(head)]}
    t = {"id": f"m.{tail}", "name": tail, "pos": [b, b + len(tail)]}
    return json.dumps({"text": sentence, "relation": relation, "h": h, "t": t})


def _opennre(folder: Path, zipped: bool = False, spoil: str | None = None) -> Path:
    folder.mkdir()
    train = [
        _opennre_line(f"Ada Number{i}", "London", "/people/born" if i % 2 else "NA")
        for i in range(60)
    ]
    if spoil is not None:
        train[6] = spoil
    text = "\n".join(train) + "\n"
    if zipped:
        (folder / "nyt10_train.txt.gz").write_bytes(gzip.compress(text.encode()))
    else:
        (folder / "nyt10_train.txt").write_text(text)
    test = [_opennre_line("Bob", "Paris", "/people/born"), _opennre_line("Bob", "Rome", "NA")]
    (folder / "nyt10_test.txt").write_text("\n".join(test))
    (folder / "nyt10_rel2id.json").write_text(
        json.dumps({"/people/lived": 1, "NA": 0, "/people/born": 2})
    )
    return folder


@pytest.mark.parametrize("zipped", [False, True])
def test_opennre_json_lines(tmp_path: Path, zipped: bool) -> None:
    corpus = readers.load(str(_opennre(tmp_path / "nyt", zipped)))
    assert corpus.relations == ("NA", "/people/lived", "/people/born")
    assert corpus.auc_points == 2000 and not corpus.public_words
    assert len(corpus.train) + len(corpus.dev) == 60 and len(corpus.dev) > 0
    assert _words(corpus, "test", 0) == ["bob", "was", "born", "in", "paris", "."]
    assert (corpus.test.head_at[0], corpus.test.tail_at[0]) == (0, 4)
    # "ada number0 was born in london"
    assert (corpus.train.head_at[0], corpus.train.tail_at[0]) == (0, 5)
    facts = [
        (corpus.entities[h], corpus.entities[t], corpus.relations[r])
        for h, t, r in corpus.gold["test"]
    ]
    assert facts == [("m.Bob", "m.Paris", "/people/born")]
    pairs = [
        set(zip(corpus.split(s).head.tolist(), corpus.split(s).tail.tolist()))
        for s in ("train", "dev", "test")
    ]
    assert not pairs[0] & pairs[1] and not pairs[0] & pairs[2]
    table = corpus.table("test")
    assert table[0]["sentence"] == "bob was born in paris ." and table[1]["relation"] == "NA"


def test_opennre_tokens_and_the_mirgene_variant_without_ids(tmp_path: Path) -> None:
    folder = tmp_path / "mir"
    folder.mkdir()
    item: dict[str, Any] = {
        "token": ["miR-1", "targets", "FOXO1"],
        "relation": "regulates",
        "entity_pair": "1|2",
    }
    item |= {"h": {"name": "miR-1", "pos": [0, 1]}, "t": {"name": "FOXO1", "pos": [2, 3]}}
    many = "\n".join(json.dumps(item | {"entity_pair": f"{i}|2"}) for i in range(50))
    (folder / "train.json").write_text(many)
    (folder / "test.json").write_text(json.dumps(item))
    corpus = readers.load(str(folder))
    assert corpus.auc_points == 0 and corpus.relations == ("NA", "regulates")
    assert corpus.entities[corpus.test.head[0]] == "1|2" and corpus.test.tail_at[0] == 2


@pytest.mark.parametrize(
    "spoil",
    [
        "{not json",
        "[1, 2]",
        json.dumps({"text": "a b", "relation": "NA", "h": {"id": "x", "pos": [0, 1]}}),
        json.dumps(
            {
                "text": "a b",
                "relation": "NA",
                "h": {"id": "x", "pos": [0, 1]},
                "t": {"id": "y", "pos": [7, 9]},
            }
        ),
        json.dumps(
            {
                "token": [],
                "relation": "NA",
                "h": {"id": "x", "pos": [0, 1]},
                "t": {"id": "y", "pos": [0, 1]},
            }
        ),
        json.dumps({"text": 3, "relation": "NA", "h": 5, "t": []}),
    ],
)
def test_a_corrupt_line_names_file_and_line(tmp_path: Path, spoil: str) -> None:
    with pytest.raises(UserError, match=r"nyt10_train\.txt, line 7: "):
        readers.load(str(_opennre(tmp_path / "nyt", spoil=spoil)))


def test_a_gzip_cut_short_names_the_file(tmp_path: Path) -> None:
    folder = _opennre(tmp_path / "nyt", zipped=True)
    file = folder / "nyt10_train.txt.gz"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(UserError, match="nyt10_train.txt.gz"):
        readers.load(str(folder))


def _nyt10(folder: Path, bad: str = "") -> Path:
    folder.mkdir()
    row = "m.1\tm.{i}\tqueens\tnew_york\t/location/contains\tin new_york , queens is large ###END###\n"
    (folder / "train.txt").write_text("".join(row.format(i=i) for i in range(60)) + bad)
    (folder / "test.txt").write_text(
        "m.1\tm.99\tqueens\tabsent\tNA\tqueens alone\t###END###\n" + row.format(i=98)
    )
    (folder / "relation2id.txt").write_text("2\nNA 0\n/location/contains 1\n")
    return folder


def test_older_nyt10_files(tmp_path: Path) -> None:
    corpus = readers.load(str(_nyt10(tmp_path / "nyt")))
    assert corpus.relations == ("NA", "/location/contains") and corpus.auc_points == 2000
    assert _words(corpus, "train", 0) == ["in", "new_york", ",", "queens", "is", "large"]
    assert (corpus.train.head_at[0], corpus.train.tail_at[0]) == (3, 1)
    assert corpus.test.tail_at[0] == 0  # an entity not found in its sentence
    assert len(corpus.gold["test"]) == 1


@pytest.mark.parametrize(
    "bad", ["m.1\tm.2\tonly three\n", "a\tb\tc\td\t/unlisted\te f\t###END###\n"]
)
def test_a_corrupt_nyt10_line(tmp_path: Path, bad: str) -> None:
    with pytest.raises(UserError, match=r"train\.txt, line 61: "):
        readers.load(str(_nyt10(tmp_path / "nyt", bad)))


def test_mirgene_lines(tmp_path: Path) -> None:
    folder = tmp_path / "mirgene"
    folder.mkdir()
    line = "{r} 123 4 {p} lex:a dep:b\tThe <Gene>FOXO1</Gene> gene is regulated by <MiRNA>miR - 223</MiRNA>.\n"
    (folder / "train.txt").write_text("".join(line.format(r="NONE", p=f"p{i}") for i in range(60)))
    (folder / "test.txt").write_text(line.format(r="POSITIVE", p="q"))
    corpus = readers.load(str(folder))
    assert corpus.relations == ("NA", "POSITIVE")
    assert _words(corpus, "test", 0)[:3] == ["the", "foxo1", "gene"]
    assert (corpus.test.head_at[0], corpus.test.tail_at[0]) == (6, 1)
    (folder / "test.txt").write_text("POSITIVE 1 2 q\tno entity is tagged here\n")
    with pytest.raises(UserError, match=r"test\.txt, line 1: .*0 tagged"):
        readers.load(str(folder))


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UserError, match="no train file.*Files seen: none"):
        readers.load(str(empty))
    (empty / "train.txt").write_text("{}\n")
    with pytest.raises(UserError, match="no test file"):
        readers.load(str(empty))
    with pytest.raises(UserError, match="not a folder"):
        readers.load(str(empty / "train.txt"))


def test_word_vectors_of_both_formats(tmp_path: Path) -> None:
    text = tmp_path / "v.txt"
    text.write_text("the 1 2 3\nThe 9 9 9\ncat -1 0 0.5\n")
    words, matrix = read_vectors(str(text), 10)
    assert words == ("the", "cat") and matrix.tolist() == [[1, 2, 3], [-1, 0, 0.5]]
    counted = tmp_path / "w.txt.gz"
    counted.write_bytes(gzip.compress(b"2 3\nthe 1 2 3\ncat 4 5 6\n"))
    assert read_vectors(str(counted), 1)[0] == ("the",)
    binary = tmp_path / "v.bin"
    rows = [
        b"the " + struct.pack("<3f", 1e-30, 2, 3) + b"\n",
        b"cat " + struct.pack("<3f", 4, 5, 6) + b"\n",
    ]
    binary.write_bytes(b"2 3\n" + b"".join(rows))
    words, matrix = read_vectors(str(binary), 10)
    assert words == ("the", "cat") and matrix[1].tolist() == [4, 5, 6]
    binary.write_bytes(b"3 3\n" + b"".join(rows))
    with pytest.raises(UserError, match="cut short"):
        read_vectors(str(binary), 10)
    text.write_text("the 1 2 3\ncat 1 x 3\n")
    with pytest.raises(UserError, match="line 2"):
        read_vectors(str(text), 10)
    with pytest.raises(UserError, match="cannot be read"):
        read_vectors(str(tmp_path / "none"), 10)


@pytest.mark.corpus
@pytest.mark.skipif(not PGR.is_dir(), reason="needs ../shared/data/pgr")
def test_pgr_as_published() -> None:
    corpus = readers.load(str(PGR))
    assert len(corpus.train) + len(corpus.dev) + len(corpus.test) == 7963
    splits = [corpus.split(s) for s in ("train", "dev", "test")]
    pairs = [set(zip(s.head.tolist(), s.tail.tolist())) for s in splits]
    assert sum(map(len, pairs)) == len(set.union(*pairs)) == 4610
    assert corpus.relations == ("NA", "related") and np.all(corpus.gold["test"][:, 2] == 1)


@pytest.mark.parametrize("none", ["no_relation", "Other", "unknown", "NA"])
def test_other_words_for_none_are_no_facts(tmp_path: Path, none: str) -> None:
    train = [_opennre_line(f"Ada{i}", "Oslo", "born" if i % 2 else none) for i in range(60)]
    (tmp_path / "semeval_train.txt").write_text("\n".join(train))
    (tmp_path / "semeval_val.txt").write_text("\n".join(train[:4]))
    (tmp_path / "semeval_test.txt").write_text("\n".join(train[:6]))
    (tmp_path / "semeval_rel2id.json").write_text(json.dumps({none: 0, "born": 1}))
    corpus = readers.load(str(tmp_path))
    assert corpus.relations == ("NA", "born") and len(corpus.gold["test"]) == 3
    assert (len(corpus.train), len(corpus.dev), len(corpus.test)) == (60, 4, 6)
    assert corpus.reading.files["train"] == ("semeval_train.txt",)
    assert (f'"{none}" is taken' in corpus.note) == (none != "NA")


def test_other_is_a_class_where_na_is_none_and_na_beside_a_fact_says_nothing(
    tmp_path: Path,
) -> None:
    names = (["born", "NA"], "NA", "Other")
    rows = [json.loads(_opennre_line(f"Ada{i}", "Oslo", "")) for i in range(60)]
    for i, row in enumerate(rows):
        row["relation"] = names[i % 3]
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.txt").write_text("\n".join(map(json.dumps, rows)))
    corpus = readers.load(str(tmp_path))
    assert corpus.relations == ("NA", "born", "Other") and '"Other" is a class' in corpus.note
    assert np.bincount(corpus.train.relation).tolist() == [20, 20, 20]


def test_a_list_of_relations_is_a_row_each_and_indented_json_is_read(tmp_path: Path) -> None:
    rows = [json.loads(_opennre_line(f"Ada{i}", "Oslo", "born")) for i in range(60)]
    rows[0]["relation"] = ["born", "lives"]
    rows[1]["relation"] = []
    (tmp_path / "train.json").write_text(json.dumps(rows, indent=1))
    (tmp_path / "dev.json").write_text(json.dumps(rows[:2]))
    (tmp_path / "test.json").write_text(json.dumps(rows[:2]))
    corpus = readers.load(str(tmp_path))
    assert corpus.relations == ("NA", "born", "lives")
    assert len(corpus.train) == 61
    rows[0]["relation"] = {"name": "born"}
    (tmp_path / "train.json").write_text(json.dumps(rows, indent=1))
    with pytest.raises(UserError, match=r"train\.json, line 2: .*neither a name nor a list"):
        readers.load(str(tmp_path))


def test_pgr_of_2018_is_tested_on_its_own_test_file(tmp_path: Path) -> None:
    header = "FILE_ID\tSENTENCE\t" + "\t".join("abcdefghi")

    def rows(numbers: range) -> str:
        made = []
        for i in numbers:
            text = f"variants of ABC{i:02} in ataxia {i:02}"
            made.append(f"1\t{text}\tABC\tat\t{i}\tHP\t12\t17\t21\t27\t{bool(i % 2)}")
        return "\n".join([header, *made])

    (tmp_path / "train.tsv").write_text(rows(range(64)))
    (tmp_path / "test.tsv").write_text(rows(range(60, 70)))
    corpus = readers.load(str(tmp_path))
    assert len(corpus.test) == 10 and len(corpus.train) + len(corpus.dev) == 60
    assert corpus.reading.files["test"] == ("test.tsv",)
    (tmp_path / "test.tsv").write_text("index\tsentence\tlabel\n0\t@GENE$ and @DISEASE$\t1\n")
    blind = readers.load(str(tmp_path))
    assert blind.reading.files["test"] == () and "test files without ids" in blind.note


def test_entities_that_are_no_word_of_their_sentence_are_counted(tmp_path: Path) -> None:
    rows = [f"m{i}\tt{i}\tada{i}\toslo\tNA\tada{i} left oslo ." for i in range(60)]
    rows[3] = "m3\tt3\tada3\toslo\tborn\tshe left oslo ."
    for name in ("train", "dev", "test"):
        (tmp_path / f"{name}.txt").write_text("\n".join(rows if name == "train" else rows[:4]))
    (tmp_path / "relation2id.txt").write_text("2\nNA 0\nborn 1\n")
    corpus = readers.load(str(tmp_path))
    assert "repaired: 3 entities are no word of their sentence" in corpus.note
