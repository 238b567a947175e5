"""Readers: files made for the purpose, broken lines, and the real corpora where they are to be
had.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from config.errors import UserError
from config.load import load
from corpora.sentence import read as sentences
from corpora.sentence.table import Example, SentenceCorpus
from study.prepare import prepare
from tests.corpora.real import DATA as SHARED


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def all_of(corpus: SentenceCorpus) -> list[Example]:
    """Everything that was training data, in no particular order, then the test split."""
    return [e for s in ("train", "public", "dev", "test") for e in corpus.examples(s)]


def said(e: Example) -> tuple[str, str, str]:
    return e.text[slice(*e.head)], e.relation, e.text[slice(*e.tail)]


def own(text: str, head: tuple[int, int], tail: tuple[int, int], relation: str | None) -> str:
    entity = [{"start": a, "end": b, "type": k} for (a, b), k in ((head, "drug"), (tail, "sign"))]
    return json.dumps({"text": text, "head": entity[0], "tail": entity[1], "relation": relation})


def test_our_own_json_lines(tmp_path: Path) -> None:
    # offsets count characters, not bytes
    line = own("Ünda eased coughs", (0, 4), (11, 17), "eases")
    (tmp_path / "train.jsonl").write_text(
        "\n".join([line] * 16 + ["", own("a b", (0, 1), (2, 3), None)] * 2)
    )
    with gzip.open(tmp_path / "test.jsonl.gz", "wt") as f:
        f.write(line)
    corpus = sentences.load(str(tmp_path), 0, 0.2)
    assert corpus.relations == ("None", "eases")
    assert corpus.none == 0
    assert said(next(corpus.examples("test"))) == ("Ünda", "eases", "coughs")
    assert [len(corpus.splits[s]) for s in ("train", "public", "dev", "test")] == [13, 3, 2, 1]
    positive = sentences.load(f"jsonl,positive:{tmp_path}", 0, 0.2)
    assert positive.relations == ("eases",)
    assert positive.none == -1


def test_a_silo_with_its_own_data_has_the_public_set_and_the_relations_of_all(
    tmp_path: Path,
) -> None:
    line = own("a b", (0, 1), (2, 3), "eases")
    for name, count in (("train", 10), ("dev", 2), ("test", 2), ("public", 4)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join([line] * count))
    (tmp_path / "relations.txt").write_text("None\ncauses\neases\n")
    corpus = sentences.load(str(tmp_path), 0, 0.2)
    assert [len(corpus.splits[s]) for s in ("train", "public", "dev", "test")] == [10, 4, 2, 2]
    assert (corpus.relations, corpus.none) == (("None", "causes", "eases"), 0)
    (tmp_path / "relations.txt").write_text("None\ncauses\n")
    with pytest.raises(UserError, match='"eases" is not listed'):
        sentences.load(str(tmp_path), 0, 0.2)


def test_of_a_silos_own_records_nothing_is_public(tmp_path: Path) -> None:
    """D_v's hash is sent when a silo enrols; cut from its own records it would let others confirm a
    guess of them.
    """
    every = [
        own(f"a{i} b", (0, 1), (len(f"a{i} "), len(f"a{i} b")), "rs"[i % 2]) for i in range(10, 30)
    ]
    (tmp_path / "test.jsonl").write_text("\n".join(every))
    words = {"method": "fedavg", "corpus": str(tmp_path), "silos": "3"}
    told = []
    for gone in (None, 3):
        (tmp_path / "train.jsonl").write_text(
            "\n".join(x for i, x in enumerate(every) if i != gone)
        )
        told.append(prepare(load(None, words), holder=0).task.agreement())
    assert told[0] == told[1]
    with pytest.raises(UserError, match="public.jsonl"):
        prepare(load(None, words | {"method": "feded"}), holder=0)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        own("a b", (0, 1), (2, 9), "r"),
        own("a b", (1, 2), (2, 3), "r"),
        own("a b", (2, 1), (2, 3), "r"),
        '{"text": "a b", "head": {"start": 0, "end": 1}, "relation": "r"}',
        '{"text": "a b", "head": {"start": "0", "end": 1}, "tail": {"start": 2, "end": 3}, "relation": "r"}',
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    good = own("a b", (0, 1), (2, 3), "r")
    (tmp_path / "train.jsonl").write_text("\n".join([good, good, line, good]))
    (tmp_path / "test.jsonl").write_text(good)
    with pytest.raises(UserError, match=r"train\.jsonl, line 3: "):
        sentences.load(str(tmp_path), 0, 0.2)


def test_blinded_tsv(tmp_path: Path) -> None:
    rows = ["@GENE$ raises @DISEASE$ .\t1", "in @DISEASE$ no @GENE$ .\t0"]
    (tmp_path / "train.tsv").write_text("\n".join(rows * 10))
    (tmp_path / "test.tsv").write_text("index\tsentence\tlabel\n0\t" + rows[1])
    corpus = sentences.load(str(tmp_path), 0, 0.2)
    assert corpus.relations == ("false", "true")
    (e,) = corpus.examples("test")
    assert said(e) == ("@GENE$", "false", "@DISEASE$")
    assert (e.head_type, e.tail_type) == ("gene", "disease")
    (tmp_path / "train.tsv").write_text("\n".join([*rows, "@GENE$ only .\t1"]))
    with pytest.raises(UserError, match=r"train\.tsv, line 3: .*1 blinded"):
        sentences.load(str(tmp_path), 0, 0.2)


def test_chemprot_json_lines(tmp_path: Path) -> None:
    one = {"text": "<< Abc >> is blocked by [[ xol ]].", "label": "INHIBITOR", "metadata": []}
    two = {"text": "[[ a << b >> c ]] here", "label": "SUBSTRATE_PRODUCT-OF", "metadata": []}
    (tmp_path / "train.txt").write_text("\n".join(json.dumps(x) for x in [one, two] * 5))
    (tmp_path / "test.txt").write_text(json.dumps(one))
    corpus = sentences.load(str(tmp_path), 0, 0.2)
    assert {said(e) for e in all_of(corpus)} == {("xol", "CPR:4", "Abc"), ("a b c", "CPR:9", "b")}
    assert next(corpus.examples("test")).text == "Abc is blocked by xol."
    assert corpus.none == -1
    rows = [one, {**one, "label": "FRIEND"}]
    (tmp_path / "train.txt").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(UserError, match=r"train\.txt, line 2: .*FRIEND.* marked:FOLDER"):
        sentences.load(str(tmp_path), 0, 0.2)


def test_chemprot_as_biocreative_has_it(tmp_path: Path) -> None:
    title, abstract = "Xol and abc.", "Xol blocks ABC1. Later DEF was seen. It binds xol too."
    text = f"{title}\t{abstract}"

    def entity(name: str, kind: str, word: str, nth: int = 0) -> str:
        at = [i for i in range(len(text)) if text.startswith(word, i)][nth]
        return f"9\t{name}\t{kind}\t{at}\t{at + len(word)}\t{word}"

    for role in ("training", "test"):
        (tmp_path / f"chemprot_{role}_abstracts.tsv").write_text(f"9\t{title}\t{abstract}\n")
        (tmp_path / f"chemprot_{role}_entities.tsv").write_text(
            "\n".join(
                [
                    entity("T1", "CHEMICAL", "Xol", 1),
                    entity("T2", "GENE-Y", "ABC1"),
                    entity("T3", "GENE-N", "DEF"),
                ]
            )
        )
        (tmp_path / f"chemprot_{role}_relations.tsv").write_text(
            "9\tCPR:4\tY \tINHIBITOR\tArg1:T1\tArg2:T2\n9\tCPR:4\tY \tINHIBITOR\tArg1:T1\tArg2:T3\n"
            "9\tCPR:1\tN \tPART-OF\tArg1:T1\tArg2:T2\n"
        )
    # A relation across sentences cannot be an example: one is left of three, and the report says
    # what became of them.
    with pytest.raises(UserError, match="too few to cut one from"):
        sentences.load(str(tmp_path), 0, 0.0)
    path = tmp_path / "chemprot_training_relations.tsv"
    path.write_text(
        "9\tCPR:4\tY \tINHIBITOR\tArg1:T1\tArg2:T2\n" * 10
        + "9\tCPR:4\tY \tINHIBITOR\tArg1:T1\tArg2:T3\n"
    )
    corpus = sentences.load(str(tmp_path), 0, 0.2)
    (e,) = corpus.examples("test")
    assert (said(e), e.text) == (("Xol", "CPR:4", "ABC1"), "Xol blocks ABC1.")
    assert (e.head_type, e.tail_type) == ("chemical", "gene")
    assert "2 relations across sentences" in corpus.note
    path.write_text("9\tCPR:4\tY \tINHIBITOR\tArg1:T1\tArg2:T8\n")
    with pytest.raises(UserError, match=r"relations\.tsv, line 1: "):
        sentences.load(str(tmp_path), 0, 0.2)


def test_ddi_xml(tmp_path: Path) -> None:
    def document(extra: str = "") -> str:
        return (
            '<document id="d"><sentence id="s" text="xol and abc and y z">'
            '<entity id="e0" charOffset="0-2" type="drug" text="xol"/>'
            '<entity id="e1" charOffset="8-10" type="brand" text="abc"/>'
            '<entity id="e2" charOffset="16-16;18-18" type="drug" text="y z"/>'
            '<pair id="p0" e1="e0" e2="e1" ddi="true" type="effect"/>'
            f'<pair id="p1" e1="e1" e2="e2" ddi="false"/>{extra}</sentence></document>'
        )

    for role in ("Train", "Test"):
        for source in ("DrugBank", "MedLine"):
            (tmp_path / role / source).mkdir(parents=True)
            for i in range(3):
                (tmp_path / role / source / f"{i}.xml").write_text(document())
    corpus = sentences.load(str(tmp_path), 0, 0.2)
    assert {said(e) for e in all_of(corpus)} == {("xol", "effect", "abc"), ("abc", "None", "y z")}
    assert len(all_of(corpus)) == 2 * 2 * 2 * 3
    bad = tmp_path / "Train" / "MedLine" / "1.xml"
    bad.write_text(document('<pair id="p" e1="e0" e2="e9" ddi="true"/>'))
    with pytest.raises(UserError, match=r"1\.xml: sentence s"):
        sentences.load(str(tmp_path), 0, 0.2)
    bad.write_text("<document>\n<sentence>")
    with pytest.raises(UserError, match=r"1\.xml, line 2"):
        sentences.load(str(tmp_path), 0, 0.2)


def i2b2_record(folder: Path, name: str) -> None:
    text = "Admitted in spring\nfever and chest pain despite xol , CT showed cysts\n"
    concepts = [
        ("fever", 0, 0, "problem"),
        ("chest pain", 2, 3, "problem"),
        ("xol", 5, 5, "treatment"),
    ]
    concepts += [("CT", 7, 7, "test"), ("cysts", 9, 9, "problem")]
    (folder / f"{name}.txt").write_text(text)
    (folder / f"{name}.con").write_text(
        "\n".join(f'c="{w}" 2:{a} 2:{b}||t="{t}"' for w, a, b, t in concepts)
    )
    (folder / f"{name}.rel").write_text(
        'c="xol" 2:5 2:5||r="TrWP"||c="chest pain" 2:2 2:3\n'
        'c="ct" 2:7 2:7||r="TeRP"||c="cysts" 2:9 2:9\n'
        'c="cysts" 2:9 2:9||r="PIP"||c="fever" 2:0 2:0\n'
    )


def test_i2b2_2010(tmp_path: Path) -> None:
    for role in ("training_data", "test_data"):
        (tmp_path / role / "rel").mkdir(parents=True)
        for i in range(2):
            i2b2_record(tmp_path / role / "rel", f"record-{i}")
    corpus = sentences.load(str(tmp_path), 0, 0.2)
    test = Counter(said(e) for e in corpus.examples("test"))
    assert test == {
        ("xol", "TrWP", "chest pain"): 2,
        ("xol", "None", "fever"): 2,
        ("xol", "None", "cysts"): 2,
        ("CT", "TeRP", "cysts"): 2,
        ("CT", "None", "fever"): 2,
        ("CT", "None", "chest pain"): 2,
        ("fever", "PIP", "cysts"): 2,
        ("fever", "None", "chest pain"): 2,
        ("chest pain", "None", "cysts"): 2,
    }
    assert corpus.relations == ("None", "PIP", "TeRP", "TrWP")
    positive = sentences.load(f"i2b2,positive:{tmp_path}", 0, 0.2)
    assert Counter(e.relation for e in positive.examples("test")) == {
        "TrWP": 2,
        "TeRP": 2,
        "PIP": 2,
    }
    bad = tmp_path / "training_data" / "rel" / "record-1.con"
    bad.write_text('c="fever" 2:0 2:0||t="problem"\nfever')
    with pytest.raises(UserError, match=r"record-1\.con, line 2"):
        sentences.load(str(tmp_path), 0, 0.2)


def test_pgr_drops_training_sentences_that_stand_in_the_test(tmp_path: Path) -> None:
    header = "\t".join(f"C{i}" for i in range(11)).replace("C0\tC1", "FILE_ID\tSENTENCE")
    rows = []
    for i in range(12):
        text = f"variants of ABC{i:02} were found in children with ataxia of number {i:02} ."
        a, b = text.index("ABC"), text.index("ataxia")
        rows.append(f"1\t{text}\tABC\tataxia\t5\tHP\t{a}\t{a + 5}\t{b}\t{b + 6}\t{bool(i % 2)}")
    (tmp_path / "train.tsv").write_text("\n".join([header, *rows]))
    (tmp_path / "test.tsv").write_text(
        "index\tsentence\tlabel\n0\tvariants of @GENE$ were found in children with @DISEASE$ of number 03 .\t1\n"
        "1\tsome wholly other sentence about @GENE$ in patients who had @DISEASE$ before .\t0\n"
    )
    corpus = sentences.load(str(tmp_path), 0, 0.2)
    assert "1 training examples left out" in corpus.note
    numbers = sorted(e.text[-4:-2] for s in ("train", "public", "dev") for e in corpus.examples(s))
    assert numbers == [f"{i:02}" for i in range(12) if i != 3]
    assert {said(e)[::2] for e in corpus.examples("train")} <= {
        (f"ABC{i:02}", "ataxia") for i in range(12)
    }


def test_a_hub_dataset_with_our_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    row = json.loads(own("a b", (0, 1), (2, 3), "r"))
    table = {"train": [row] * 10, "validation": [row] * 2, "test": [row] * 3}
    monkeypatch.setattr(
        datasets, "load_dataset", lambda name: table if name == "me/mine" else 1 / 0
    )
    corpus = sentences.load("hub:me/mine", 0, 0.2)
    assert [len(corpus.splits[s]) for s in ("train", "public", "dev", "test")] == [8, 2, 2, 3]
    with pytest.raises(UserError, match="me/other"):
        sentences.load("hub:me/other", 0, 0.2)


def test_what_is_no_corpus(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a folder"):
        sentences.load(str(tmp_path / "no"), 0, 0.2)
    with pytest.raises(UserError, match="chemprot"):
        sentences.load(f"chemprt:{tmp_path}", 0, 0.2)
    (tmp_path / "train.txt").write_text("hello")
    with pytest.raises(UserError, match="is in no format that we know"):
        sentences.load(str(tmp_path), 0, 0.2)


@pytest.mark.corpus
@pytest.mark.skipif(not SHARED.is_dir(), reason="the real corpora are not here")
@pytest.mark.parametrize(
    ("name", "training", "test", "relations"),
    [
        ("gad", 4797, 533, ("false", "true")),
        ("chemprot", 4169 + 2427, 3469, ("CPR:3", "CPR:4", "CPR:5", "CPR:6", "CPR:9")),
    ],
)
def test_real_corpora_have_the_published_counts(
    name: str, training: int, test: int, relations: tuple[str, ...]
) -> None:
    corpus = sentences.load(str(SHARED / name), 0, 0.2)
    assert sum(len(corpus.splits[s]) for s in ("train", "public", "dev")) == training
    assert len(corpus.splits["test"]) == test
    assert corpus.relations == relations


@pytest.mark.corpus
@pytest.mark.skipif(not SHARED.is_dir(), reason="the real corpora are not here")
def test_no_expert_sentence_of_pgr_is_trained_on() -> None:
    corpus = sentences.load(str(SHARED / "pgr"), 0, 0.2)
    assert len(corpus.splits["test"]) == 1624
    trained = "\n".join({e.text for s in ("train", "public", "dev") for e in corpus.examples(s)})
    for e in corpus.examples("test"):
        parts = [p.strip() for p in e.text.replace("@DISEASE$", "@GENE$").split("@GENE$")]
        sentence = ".{1,80}".join(map(re.escape, parts))
        assert max(parts, key=len) not in trained or not re.search(
            f"^ ?{sentence}$", trained, re.MULTILINE
        )
