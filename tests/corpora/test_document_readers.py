"""PubTator files made for the purpose, odd ones, broken ones, and CDR where it is to be had."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from config.errors import UserError
from config.settings import Settings
from corpora.document import read as documents
from corpora.document.entropy import released
from corpora.document.table import UNLINKED, DocumentCorpus
from corpora.splitting import sentence_spans
from methods.tasks.load import task_name
from tests.corpora.documents import folder_of, only, said
from tests.corpora.real import DATA as SHARED

TITLE, ABSTRACT = "Ünda and coughs.", "Ünda eased dry coughs. Later, wet coughs and fever came."


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def pubtator(*annotations: str, name: str = "1") -> str:
    rows = [f"{name}|t|{TITLE}", f"{name}|a|{ABSTRACT}", *(f"{name}\t{a}" for a in annotations)]
    return "\n".join(rows).replace(" / ", "\t") + "\n"


USUAL = (
    "0 / 4 / Ünda / Chemical / C1",
    "9 / 15 / coughs / Disease / D0001",
    "17 / 21 / Ünda / Chemical / C1",
    "28 / 38 / dry coughs / Disease / D0002",
    "47 / 57 / wet coughs / Disease / D0003|D0002",
    "62 / 67 / fever / Disease / -1",
    "CID / C1 / D0002",
)


def pubtator_corpus(tmp_path: Path, *annotations: str, **more: str) -> DocumentCorpus:
    train = "\n".join(pubtator(*annotations, name=str(n)) for n in range(1, 12))
    return documents.load(str(folder_of(tmp_path, train, pubtator(*annotations), **more)))


def test_pubtator_pairs_mentions_and_what_a_report_must_say(tmp_path: Path) -> None:
    corpus = pubtator_corpus(tmp_path, *USUAL)
    d = only(corpus)
    assert said(d) == {("C1", "D0001"): (), ("C1", "D0002"): ("CID",), ("C1", "D0003"): ()}
    texts = {e.id: [d.text[a:b] for a, b in e.mentions] for e in d.entities}
    assert texts == {
        "C1": ["Ünda", "Ünda"],
        "D0001": ["coughs"],
        "D0002": ["dry coughs", "wet coughs"],  # a mention of two concepts belongs to both
        "D0003": ["wet coughs"],
        UNLINKED: ["fever"],
    }
    sentences = [TITLE, "Ünda eased dry coughs.", "Later, wet coughs and fever came."]
    assert [d.text[a:b].strip() for a, b in d.sentences] == sentences
    assert [d.crosses(p) for p in d.pairs] == [False, False, True]
    assert "unfiltered" in corpus.note and "12 mentions have no concept" in corpus.note
    assert [corpus.counts(s).documents for s in ("train", "dev", "test")] == [9, 2, 1]
    assert corpus.counts("test").mentions == 6 and corpus.counts("test").entities == 4


def test_the_hypernym_filter_leaves_the_general_negative_out(tmp_path: Path) -> None:
    places = (
        "C08.618\tD0001\tCough",
        "C08.618.010\tD0002\tDry cough",
        "C09.618\tD0003\tx",
        "C08\tD0009\ty",
    )
    tree = "\n".join(["Tree\tID\tName", *places])
    corpus = pubtator_corpus(tmp_path, *USUAL, MeshTree_txt=tree)
    d = only(corpus)
    # D0001 stands above D0002, which is related; D0003 does not.
    assert {d.entities[p.tail].id: p.counted for p in d.pairs} == {
        "D0001": False,
        "D0002": True,
        "D0003": True,
    }
    assert (
        "hypernym-filtered with MeshTree.txt: 12 negative pairs" in corpus.note
        and "unfiltered" not in corpus.note
    )
    assert (corpus.counts("test").negative, corpus.counts("test").left_out) == (1, 1)
    given = tmp_path / "tree.tsv"
    given.write_text(
        "\n".join("\t".join(reversed(row.split("\t")[:2])) for row in tree.splitlines()[1:])
    )
    (tmp_path / "corpus" / "MeshTree.txt").unlink()
    # columns the other way
    assert documents.load(str(tmp_path / "corpus"), str(given)).counts("test").left_out == 1
    given.write_text("nothing of the kind\n")
    with pytest.raises(UserError, match="tree.tsv is no MeSH tree"):
        documents.load(str(tmp_path / "corpus"), str(given))
    with pytest.raises(UserError, match='"mesh".*nowhere'):
        documents.load(str(tmp_path / "corpus"), "nowhere")


def test_offsets_that_disagree_with_the_text_are_mended_and_told(tmp_path: Path) -> None:
    wrong = ("8 / 14 / coughs / Disease / D0001", "30 / 40 / dry coughs / Disease / D0002")
    corpus = pubtator_corpus(tmp_path, USUAL[0], *wrong, "CID / C1 / D0002")
    d = only(corpus)
    assert [[d.text[a:b] for a, b in e.mentions] for e in d.entities] == [
        ["Ünda"],
        ["coughs"],
        ["dry coughs"],
    ]
    assert d.entities[1].mentions == ((9, 15),)  # the nearest of three
    assert "24 mentions stood elsewhere" in corpus.note
    with pytest.raises(
        UserError, match=r'train.txt, line 4: .*"headache" at 5-13 is nowhere in document 1'
    ):
        pubtator_corpus(
            tmp_path, USUAL[0], "5 / 13 / headache / Disease / D0001", "CID / C1 / D0001"
        )


def test_a_mistyped_concept_is_read_as_the_one_that_its_words_have_elsewhere(
    tmp_path: Path,
) -> None:
    rows = ("0 / 4 / Ünda / Chemical / D003000", "17 / 21 / Ünda / Chemical / D003000f", USUAL[1])
    corpus = pubtator_corpus(
        tmp_path, *rows, "28 / 38 / dry coughs / Disease / D007022x", "CID / D003000 / D0001"
    )
    d = only(corpus)
    # x: no other says
    assert {e.id: len(e.mentions) for e in d.entities} == {"D003000": 2, "D0001": 1, "D007022x": 1}
    assert said(d) == {("D003000", "D0001"): ("CID",), ("D003000", "D007022x"): ()}
    assert "12 mentions had stray letters behind their concept" in corpus.note


def test_nested_and_overlapping_mentions_stay(tmp_path: Path) -> None:
    nested = ("28 / 38 / dry coughs / Disease / D0002", "32 / 38 / coughs / Disease / D0001")
    d = only(pubtator_corpus(tmp_path, USUAL[0], *nested, "CID / C1 / D0001"))
    assert [e.mentions for e in d.entities] == [((0, 4),), ((28, 38),), ((32, 38),)]


def test_relations_that_form_no_pair_are_counted(tmp_path: Path) -> None:
    corpus = pubtator_corpus(tmp_path, *USUAL, "CID / C1 / D0777")
    assert "12 relations are of concepts that form no candidate pair" in corpus.note


def test_biored_relations_have_a_fifth_column_and_no_direction(tmp_path: Path) -> None:
    rows = (
        "0 / 4 / Ünda / ChemicalEntity / C1",
        "9 / 15 / coughs / Variant / p|SUB|V|600|E",  # one identifier, though it has bars
        "28 / 38 / dry coughs / ChemicalEntity / C2,C3",
        "Association / C2 / C1 / Novel",
        "Cotreatment / C1 / C2 / No",
        "Association / C1 / p|SUB|V|600|E / No",
    )
    corpus = pubtator_corpus(tmp_path, *rows)
    assert corpus.relations == ("Association", "Cotreatment")
    assert said(only(corpus)) == {
        ("C1", "p|SUB|V|600|E"): ("Association",),
        ("C2", "p|SUB|V|600|E"): (),
        ("C3", "p|SUB|V|600|E"): (),
        ("C1", "C2"): ("Association", "Cotreatment"),
        ("C1", "C3"): (),
        ("C2", "C3"): (),
    }


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("2\t0\t4\tÜnda\tChemical\tC1", 'document "2", of which'),
        ("1\tCID", "neither text"),
        ("no tabs", "document"),
    ],
)
def test_broken_lines_are_named(tmp_path: Path, line: str, says: str) -> None:
    folder = folder_of(tmp_path, pubtator(*USUAL) + line + "\n")
    with pytest.raises(UserError, match=rf"train.txt, line 10: .*{says}"):
        documents.load(f"pubtator:{folder}")


def test_which_folders_are_documents(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, pubtator(*USUAL))
    for method in ("fedlcc", "fedavg", "fedatt", "centralised"):
        assert task_name(Settings(method=method, corpus=str(folder))) == "document"
        assert task_name(Settings(method=method, corpus=f"pubtator:{folder}")) == "document"
        assert task_name(Settings(method=method, corpus="document:documents=20")) == "document"
    assert task_name(Settings(method="fedlcc")) == "document"
    with pytest.raises(UserError, match='The method "lazymil" is for distant'):
        task_name(Settings(method="lazymil", corpus="document"))
    (folder / "train.txt").write_text("something else")
    with pytest.raises(UserError, match="is in no format that we know"):
        documents.load(str(folder))
    with pytest.raises(UserError, match="is not a folder"):
        documents.load(str(tmp_path / "nowhere"))
    (folder / "train.txt").unlink()
    with pytest.raises(UserError, match="has no train file"):
        documents.load(f"pubtator:{folder}")


def test_sentences_end_where_no_mention_does() -> None:
    text = "Dose 5. Coli it grew. Then it died. 5 mg."
    found = [text[a:b] for a, b in sentence_spans(text, [(3, 10)])]
    assert found == ["Dose 5. Coli it grew. ", "Then it died. ", "5 mg."]
    assert [text[a:b] for a, b in sentence_spans(text)][0] == "Dose 5. "


@pytest.mark.parametrize(
    "text",
    [
        "Dr. Smith saw her. | Mrs. Roe did not. | Prof. J. B. Lund left.",
        "It began on Jan. 3. | By Sept. 12 it was over. | It ended in Dec. | Then it rained.",
        "See Fig. 2 and No. 4. | Was it he? | No. | The cat did, cf. Table 1.",
        "He took vitamin K. | The rash left. | In E. Coli it grew, e.g. Strain 4.",
        "The U.S. Army came. | She lives in the U.S. | The end.",
        "Roe et al. [3] say so. | It fell to 5. | Then it rose.",
    ],
)
def test_titles_months_and_abbreviations_end_no_sentence(text: str) -> None:
    wanted = text.split(" | ")
    joined = " ".join(wanted)
    assert [joined[a:b].rstrip() for a, b in sentence_spans(joined)] == wanted


@pytest.mark.corpus
@pytest.mark.skipif(not (SHARED / "cdr").is_dir(), reason="the real corpora are not here")
def test_cdr_counts_are_the_published_ones() -> None:
    """Documents, mentions, relations as the corpus' paper has them (Li et al. 2016, Table 2: 5203 +
    4182 …).

    Candidate pairs: all chemicals with all diseases of a document; what the hypernym filter leaves
    of them is the next test's.
    """
    corpus = documents.load(str(SHARED / "cdr"))
    counts = [corpus.counts(s) for s in ("train", "dev", "test")]
    assert [c.documents for c in counts] == [500, 500, 500]
    assert [c.mentions for c in counts] == [5203 + 4182, 5347 + 4244, 5385 + 4424]
    assert [c.relations for c in counts] == [c.positive for c in counts] == [1038, 1012, 1066]
    assert [c.negative for c in counts] == [4394, 4249, 4339]
    # One clonidine of document 227508 is "D003000f"; as an entity of its own it would make two more
    # negatives.
    assert (
        "1 mentions had stray letters" in corpus.note
        and "226 mentions have no concept" in corpus.note
    )
    assert "stood elsewhere" not in corpus.note
    # The authors' code notes 4.3177 to 24.289 for CDR, with another splitter of sentences.
    values = [released(d) for d in corpus.documents("train")]
    assert min(values) == pytest.approx(4.317657676193542)
    assert max(values) == pytest.approx(24.289, abs=0.05)


@pytest.mark.corpus
@pytest.mark.skipif(
    "SOTTOVOCE_MESH_2017" not in os.environ, reason="SOTTOVOCE_MESH_2017 names no MeSH tree of 2017"
)
def test_cdr_filtered_with_the_tree_of_2017_has_the_published_negatives() -> None:
    """Published: 4202/4075/4138 (Christopoulou et al. 2019)."""
    corpus = documents.load(str(SHARED / "cdr"), mesh=os.environ["SOTTOVOCE_MESH_2017"])
    assert [corpus.counts(s).negative for s in ("train", "dev", "test")] == [4202, 4075, 4138]


def test_a_number_that_comes_twice_is_two_documents(tmp_path: Path) -> None:
    other = (
        "1|t|Rash and xol.\n1|a|None.\n1\t0\t4\tRash\tDisease\tD9\n1\t9\t12\txol\tChemical\tC9\n"
    )
    train = "\n".join([pubtator(*USUAL), other + "1\tCID\tC9\tD9\n", pubtator(*USUAL, name="2")])
    folder = folder_of(tmp_path, train, pubtator(*USUAL))
    corpus = documents.load(str(folder))
    found = {d.id: d for s in ("train", "dev") for d in corpus.documents(s)}
    assert sorted(found) == ["1", "1 (2)", "2"]
    assert said(found["1 (2)"]) == {("C9", "D9"): ("CID",)}
    assert found["1"].text.startswith("Ünda and coughs.")
    (note,) = (n for n in corpus.reading.notes if "number of an earlier one" in n.what)
    assert (note.kind, note.count, note.place) == ("repaired", 1, "train.txt, line 11")


@pytest.mark.parametrize("relation", ["CID / C1 / D0001|D0003", "CID / D0001|D0003 / C1"])
def test_a_relation_of_two_concepts_is_one_of_each(tmp_path: Path, relation: str) -> None:
    found = said(only(pubtator_corpus(tmp_path, *USUAL[:-1], relation)))
    assert {frozenset(pair): relations for pair, relations in found.items()} == {
        frozenset({"C1", "D0001"}): ("CID",),
        frozenset({"C1", "D0002"}): (),
        frozenset({"C1", "D0003"}): ("CID",),
    }


def test_files_in_latin_1_or_with_a_mark_are_read(tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path, pubtator(*USUAL) + "\n" + pubtator(*USUAL, name="2"), pubtator(*USUAL)
    )
    (folder / "train.txt").write_bytes((folder / "train.txt").read_text("utf-8").encode("latin-1"))
    (folder / "test.txt.gz").unlink()
    (folder / "test.txt").write_bytes(pubtator(*USUAL).encode("utf-8-sig"))
    corpus = documents.load(str(folder))
    assert only(corpus).text.startswith("Ünda") and "read as Windows-1252" in corpus.note
