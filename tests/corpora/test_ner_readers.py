"""Readers of NER corpora: every format on files made for the purpose, what is wrong with a file by
name and line, and, where they are at hand, the real corpora.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import UserError
from corpora.ner import read as ner
from corpora.ner.conll import Layout, conll, entities_of_tags
from corpora.ner.formats import ade, conll2012
from corpora.notes import Notes
from tests.corpora.ner_files import line2012, write
from tests.corpora.real import DATA

GOLD = [(0, 2, "Drug"), (2, 3, "Drug"), (4, 5, "Disease")]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    "tags",
    [
        ["B-Drug", "I-Drug", "B-Drug", "O", "B-Disease"],  # IOB2
        # IOB: B only between neighbours of one type
        ["I-Drug", "I-Drug", "B-Drug", "O", "I-Disease"],
        ["B-Drug", "E-Drug", "S-Drug", "O", "S-Disease"],  # BIOES
        ["B-Drug", "L-Drug", "U-Drug", "O", "U-Disease"],  # BILOU
    ],
)
def test_four_ways_to_tag_the_same_entities(tags: list[str]) -> None:
    assert entities_of_tags(tags) == GOLD


def test_neighbours_of_different_types_need_no_sign_between_them() -> None:
    assert entities_of_tags(["I-A", "I-B", "I-B"]) == [(0, 1, "A"), (1, 3, "B")]
    assert entities_of_tags([]) == []
    with pytest.raises(ValueError, match='"Drug"'):
        entities_of_tags(["Drug"])


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["", "A", "B"])), max_size=8))
def test_every_scheme_gives_back_what_was_tagged(runs: list[tuple[int, str]]) -> None:
    iob2: list[str] = []
    bioes: list[str] = []
    spans = []
    for length, kind in runs:
        if kind:
            spans.append((len(iob2), len(iob2) + length, kind))
        iob2 += [f"{'I' if i else 'B'}-{kind}" if kind else "O" for i in range(length)]
        inner = ["S"] if length == 1 else ["B", *"I" * (length - 2), "E"]
        bioes += [f"{x}-{kind}" if kind else "O" for x in inner]
    assert entities_of_tags(iob2) == entities_of_tags(bioes) == spans


def test_conll_columns(tmp_path: Path) -> None:
    text = "-DOCSTART-\tO\n\nTaking\tVB\tO\nthio\tNN\tB-Drug\nridazine\tNN\tI-Drug\n\n\nFine\tO\n"
    found = [f.sentence for f in conll(write(tmp_path / "train.tsv.gz", text), "x", Notes())]
    assert [s.words for s in found] == [("Taking", "thio", "ridazine"), ("Fine",)]
    assert found[0].entities == ((1, 3, "Drug"),) and found[1].entities == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Taking O\nthe\n", "line 2: a word and its tag"),
        ("a O\n\nb O\nc Drug\n", 'sentence at line 3: the tag "Drug"'),
    ],
)
def test_conll_files_that_are_wrong(tmp_path: Path, text: str, why: str) -> None:
    path = write(tmp_path / "train.txt", text)
    with pytest.raises(UserError, match=why):
        list(conll(path, "x", Notes()))


def test_a_first_column_that_counts_is_no_word_and_two_columns_of_tags_are_said(
    tmp_path: Path,
) -> None:
    """As GermEval 2014 has it: number, word, outer tag, inner tag."""
    path = write(tmp_path / "a.tsv", "#\tsource\n1\tTarn\tB-LOC\tO\n2\truft\tO\tO\n\n1\tJa\tO\tO\n")
    with pytest.raises(UserError, match=r"a\.tsv: the first column counts.*=_,word,_,tag\."):
        list(conll(path, "x", Notes()))
    layout = Layout.of("number,word,tag,inner")
    found = [f.sentence for f in conll(path, "x", Notes(), "", layout)]
    assert [s.words for s in found] == [("Tarn", "ruft"), ("Ja",)]
    assert found[0].entities == ((0, 1, "LOC"),)
    notes = Notes()
    path = write(tmp_path / "b.txt", "Tarn NNP B-NP B-LOC\nruft VB B-VP O\n")
    assert list(conll(path, "x", notes))[0].sentence.entities == ((0, 1, "LOC"),)
    assert "columns 3, 4 hold tags and the last one is read" in notes.all()[0].what


def test_conll2012_has_the_genre_as_its_domain(tmp_path: Path) -> None:
    lines = ["#begin document (nw/wsj/24/wsj_2400); part 000", line2012("Pierre", "(PERSON*"),
             line2012("Vinken", "*)"), line2012("came", "*"), line2012("today", "(DATE)"), "",
             line2012("New", "(ORG(GPE*", "bc/cnn/1"), line2012("York", "*)", "bc/cnn/1"),
             line2012("Times", "*)", "bc/cnn/1"), "", "#end document"]  # fmt: skip
    notes = Notes()
    found = [
        f.sentence for f in conll2012(write(tmp_path / "a.v4_gold_conll", "\n".join(lines)), notes)
    ]
    assert [(s.domain, s.entities) for s in found] == [
        ("nw", ((0, 2, "PERSON"), (3, 4, "DATE"))),
        ("bc", ((0, 3, "ORG"),)),
    ]
    assert notes.count("skipped") == 1  # the place inside the newspaper's name


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["nw/x 0 1 word"], "line 1: 4 columns"),
        ([line2012("a", "*)")], "line 1: a name is closed"),
        ([line2012("a", "(ORG*")], 'at its end: the name "ORG" is not closed'),
        (
            [line2012("a", "(ORG*"), "", line2012("b", "*)")],
            'line 2: the name "ORG" is not closed',
        ),
    ],
)
def test_conll2012_files_that_are_wrong(tmp_path: Path, lines: list[str], why: str) -> None:
    path = write(tmp_path / "a_gold_conll", "\n".join(lines))
    with pytest.raises(UserError, match=why):
        list(conll2012(path, Notes()))


def test_ade_strings_are_found_where_the_offsets_say(tmp_path: Path) -> None:
    # "rash" stands twice; the distance to the drug (-22) says it is the second, and the document's
    # offsets are shifted.
    rows = ["1|A rash, then lithium and lithium-induced rash.|rash|140|144|lithium|124|131",
            "1|A rash, then lithium and lithium-induced rash.|rash|140|144|valproate|124|131",
            "2|No place.|ache|5|9|aspirin|1|8"]  # fmt: skip
    notes = Notes()
    found = [
        f.sentence for f in ade(write(tmp_path / "DRUG-AE.rel", "\n".join(rows)), "ade", notes)
    ]
    words = found[0].words
    assert [(" ".join(words[a:b]), a, kind) for a, b, kind in found[0].entities][-2:] == [
        ("lithium", 6, "Drug"),
        ("rash", 9, "ADE"),
    ]
    assert notes.count("skipped") == 3  # valproate, ache, aspirin
    with pytest.raises(UserError, match="line 1: eight fields"):
        list(ade(write(tmp_path / "b.rel", "1|x|y"), "ade", Notes()))


def _corpora(folder: Path) -> str:
    for name, kind in (("one", "Chemical"), ("two", "Simple_chemical")):
        for split in ("train", "devel", "test"):
            write(folder / name / f"{split}.tsv", f"{name}{split}\tB-{kind}\nx\tO\n\ny\tI-Gene\n")
    return str(folder)


def test_a_folder_of_corpora_is_one_domain_each_and_a_mapping_makes_them_agree(
    tmp_path: Path,
) -> None:
    spec = _corpora(tmp_path / "ner")
    apart = ner.load(spec)
    assert apart.domains == ("one", "two") and apart.types == (
        "Chemical",
        "Gene",
        "Simple_chemical",
    )
    assert apart.covered.tolist() == [[True, True, False], [False, True, True]]
    mapping = write(
        tmp_path / "labels.map", "# as BC5CDR says\nSimple_chemical = Chemical\nGene =\n"
    )
    agreed = ner.load(spec, str(mapping))
    assert agreed.types == ("Chemical",) and agreed.covered.all()
    assert agreed.splits["train"].words(0) == ["onetrain", "x"]
    assert agreed.splits["train"].spans(1) == []
    one = ner.load(f"{spec}/one", types="Protein,Gene,Chemical")
    assert one.types == ("Protein", "Gene", "Chemical") and one.covered.tolist() == [
        [False, True, True]
    ]


@pytest.mark.parametrize(
    ("mapping", "why"),
    [
        ("Simple_chemicals = X", 'Did you mean "Simple_chemical"'),
        ("Gene\n", "line 1"),
        ("A=B\nA=C", "line 2"),
    ],
)
def test_mappings_that_are_wrong(tmp_path: Path, mapping: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        ner.load(_corpora(tmp_path / "ner"), str(write(tmp_path / "m", mapping)))


def test_folders_that_are_wrong(tmp_path: Path) -> None:
    spec = _corpora(tmp_path / "ner")
    with pytest.raises(UserError, match='"Gene" is in the data but not among'):
        ner.load(spec, types="Chemical,Simple_chemical")
    with pytest.raises(UserError, match="is not a folder"):
        ner.load(f"{spec}/three")
    with pytest.raises(UserError, match='Did you mean "conll"'):
        ner.load(f"conl:{spec}/one")
    with pytest.raises(UserError, match='Two corpora are called "one"'):
        ner.load(f"{spec}/one,{spec}/one")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="has no files in it"):
        ner.load(str(tmp_path / "empty"))
    (tmp_path / "empty" / "a.txt").write_text("Once upon a time.")
    with pytest.raises(UserError, match="is in no format that we know"):
        ner.load(str(tmp_path / "empty"))


def test_documents_stay_on_one_side_of_a_split_that_is_made_here(tmp_path: Path) -> None:
    rows = [
        f"{d}|Drug{d} gave ache{s}.|ache{s}|10|15|Drug{d}|0|5" for d in range(60) for s in range(3)
    ]
    write(tmp_path / "ade" / "DRUG-AE.rel.gz", "\n".join(rows))
    corpus = ner.load(str(tmp_path / "ade"))
    assert "documents became dev" in corpus.note and "documents became test" in corpus.note
    homes = [{s.words(i)[0] for i in range(len(s))} for s in corpus.splits.values()]
    assert sum(map(len, homes)) == len(set().union(*homes)) == 60


@pytest.mark.corpus
@pytest.mark.skipif(not DATA.is_dir(), reason="needs ../shared/data")
def test_the_real_corpora() -> None:
    corpus = ner.load(f"{DATA / 'ner'},{DATA / 'ade'}")
    assert corpus.domains == ("BC5CDR", "BioNLP11ID", "BioNLP13CG", "NCBI-disease", "ade")
    assert corpus.covered.sum(axis=1).tolist() == [2, 4, 16, 1, 2]
    ade_rows = sum(int((s.domain == 4).sum()) for s in corpus.splits.values())
    assert ade_rows == 4272
    train = corpus.splits["train"]
    kinds = [
        corpus.types[t]
        for i in range(len(train))
        if train.domain[i] == 0
        for *_, t in train.spans(i)
    ]
    assert (kinds.count("Chemical"), kinds.count("Disease")) == (5203, 4182)
