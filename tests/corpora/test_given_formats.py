"""Formats with columns, rows and tags: what is read, what is left out and counted, what is refused by
line. The plain case of each is in docs/data.md.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from config.errors import UserError
from corpora.distant import read as distant
from corpora.document import read as documents
from corpora.ner import read as ner
from corpora.ner.conll import Layout, conll, conllu, entities_of_tags, is_conll
from corpora.notes import Notes
from corpora.recognise import choose, recognised
from corpora.records import records
from corpora.sentence import read as sentences
from corpora.sentence.marks import unmarked
from tests.corpora.real import DATA

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_files(**files: str) -> Path:
        folder = tmp_path / "c"
        folder.mkdir(exist_ok=True)
        for name, text in files.items():
            (folder / name.replace("__", ".")).write_text(text, "utf-8")
        return folder

    return write_files


def entities(path: Path, **layout: str) -> list[tuple[str, str]]:
    chosen = Layout.of(layout.get("columns", ""), layout.get("entity", ""))
    return [
        (" ".join(f.sentence.words[a:b]), t)
        for f in conll(path, "x", Notes(), layout=chosen)
        for a, b, t in f.sentence.entities
    ]


def test_bare_tags_are_one_type_with_a_name_of_the_users(write: Write) -> None:
    path = write(train__txt="dry B\ncough I\nand O\nfever B\nrash B\n") / "train.txt"
    assert is_conll(path)
    assert entities(path) == [("dry cough", "entity"), ("fever", "entity"), ("rash", "entity")]
    assert entities(path, entity="Sign")[0] == ("dry cough", "Sign")
    path = write(train__txt="a B-Drug\n\nb B\nc O\n") / "train.txt"
    with pytest.raises(UserError, match=r"sentence at line 3: its tags have no type and others"):
        entities(path)
    with pytest.raises(ValueError, match="some tags have a type"):
        entities_of_tags(["B-Drug", "I"])


def test_columns_in_any_order(write: Write) -> None:
    folder = write(train__txt="1 B-Drug xolidan NN\n2 O eased VB\n")
    path = folder / "train.txt"
    assert not is_conll(path)
    assert entities(path, columns="_,tag,word,pos") == [("xolidan", "Drug")]
    path.write_text("1 B-Drug xolidan NN\n2 O eased\n")
    with pytest.raises(UserError, match=r"line 2: a word and its tag are expected"):
        entities(path, columns="_,tag,word,pos")
    path.write_text("1 B-Drug xolidan NN\n2 O eased VB x\n")
    with pytest.raises(UserError, match=r'line 2: 5 columns, and the option "columns" names 4'):
        entities(path, columns="_,tag,word,pos")
    with pytest.raises(UserError, match='must name one column "tag"'):
        Layout.of("word,pos")


def test_a_corpus_with_columns_of_its_own_and_an_option_that_nothing_uses(write: Write) -> None:
    text = "B-Drug xolidan\nO eased\n"
    folder = write(train__txt=text, dev__txt=text, test__txt=text)
    assert choose(str(folder), ("ner",), "tag,word") == "ner"
    assert ner.load(str(folder), columns="tag,word").types == ("Drug",)
    usual = "xolidan B-Drug\neased O\n"
    folder = write(train__txt=usual, dev__txt=usual, test__txt=usual)
    assert ner.load(str(folder)).types == ("Drug",)
    rows = json.dumps({"words": ["a"], "entities": [{"start": 0, "end": 1, "type": "X"}]})
    for p in folder.iterdir():
        p.unlink()
    folder = write(train__jsonl=rows, dev__jsonl=rows, test__jsonl=rows)
    with pytest.raises(UserError, match='Option "entity" is for CoNLL columns.* read as entities'):
        ner.load(str(folder), entity="X")


def test_remarks_give_documents_and_domains(write: Write) -> None:
    text = "# domain = ward\n# newdoc id = 1\n#\tO\na\tB-X\n\n# text = a O\nb\tO\n\n# domain = lab\n# newdoc\nc\tO\n"
    found = list(conll(write(a__txt=text) / "a.txt", "x", Notes()))
    assert [(" ".join(f.sentence.words), f.sentence.domain) for f in found] == [
        ("# a", "ward"),
        ("b", "ward"),
        ("c", "lab"),
    ]
    assert len({f.document for f in found}) == 2


CONLLU = (
    "# newdoc id = a\n1-2\tdas\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "1\tXolidan\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No|NER=B-Drug\n"
)


def test_conllu_in_misc_or_behind_it_and_damaged(write: Write) -> None:
    path = (
        write(
            t__conllu=CONLLU + "8.1\tx\t_\t_\t_\t_\t_\t_\t_\t_\n2\tcame\t_\t_\t_\t_\t_\t_\t_\t_\n"
        )
        / "t.conllu"
    )
    (found,) = conllu(path, "x", Notes())
    assert (found.sentence.words, found.sentence.entities) == (
        ("Xolidan", "came"),
        ((0, 1, "Drug"),),
    )
    path.write_text("1\tXolidan\t_\t_\t_\t_\t_\t_\t_\t_\tB-Drug\n")
    assert next(conllu(path, "x", Notes())).sentence.entities == ((0, 1, "Drug"),)
    path.write_text(CONLLU + "2\tcame\t_\n")
    with pytest.raises(UserError, match=r"t\.conllu, line 4: 3 columns; CoNLL-U has ten"):
        list(conllu(path, "x", Notes()))


def test_rows_of_words_that_do_not_fit_are_refused_by_line(write: Write) -> None:
    good = json.dumps({"tokens": ["a", "b"], "ner_tags": ["B-X", "O"]})
    for bad, message in (
        ({"tokens": ["a"], "ner_tags": ["B-X", "O"]}, "1 words and 2 tags"),
        ({"tokens": ["a"], "ner_tags": [3]}, "nothing says which tag each stands for"),
    ):
        folder = write(train__jsonl=f"{good}\n{json.dumps(bad)}", dev__jsonl=good, test__jsonl=good)
        with pytest.raises(UserError, match=rf"train\.jsonl, line 2: .*{message}"):
            ner.load(str(folder))
    own = {"words": ["a", "b"], "entities": [{"start": 0, "end": 3, "type": "X"}]}
    rows = f"{json.dumps({**own, 'entities': []})}\n{json.dumps(own)}"
    folder = write(train__jsonl=rows, dev__jsonl=rows, test__jsonl=rows)
    with pytest.raises(UserError, match=r"line 2: .*does not lie in a sentence of 2 words"):
        ner.load(str(folder))


def test_saved_datasets_and_parquet_name_their_classes(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    tags = datasets.ClassLabel(names=["O", "B-Drug"])
    features = datasets.Features(
        {"tokens": datasets.List(datasets.Value("string")), "ner_tags": datasets.List(tags)}
    )
    table = datasets.Dataset.from_dict({"tokens": [["xol", "is"]], "ner_tags": [[1, 0]]}, features)
    saved = tmp_path / "saved"
    datasets.DatasetDict(train=table, validation=table, test=table).save_to_disk(str(saved))
    assert recognised(str(saved)) == {"ner": "tokens"}
    read = ner.load(str(saved))
    assert read.types == ("Drug",) and read.splits["dev"].spans(0) == [(0, 1, 0)]
    folder = tmp_path / "parquet"
    folder.mkdir()
    for split in ("train", "validation", "test"):
        table.to_parquet(str(folder / f"{split}-00000-of-00001.parquet"))
    assert ner.load(str(folder)).types == ("Drug",)
    (folder / "test-00000-of-00001.parquet").write_bytes(b"no parquet")
    with pytest.raises(UserError, match=r"test-00000-of-00001\.parquet: .*as Parquet"):
        ner.load(str(folder))


def test_a_table_with_columns_of_its_own_names(write: Write) -> None:
    text = "note,drug,effect,kind,pmid\nxol eased cough,xol,cough,eases,1\nxol and rash,xol,rash,no_relation,2\n"
    folder = write(train__csv=text, dev__csv=text, test__csv=text)
    columns = "text:note,head:drug,tail:effect,relation:kind"
    assert recognised(str(folder)) == {} and recognised(str(folder), columns) == {
        "sentence": "table"
    }
    read = sentences.load(str(folder), 0, 0.0, columns)
    assert read.relations == ("no_relation", "eases") and read.none == 0
    for said, message in (
        ("text:nte", r'no column "nte"\. Did you mean "note"'),
        ("texts:note", '"texts:note" is not field:column'),
    ):
        with pytest.raises(UserError, match=message):
            sentences.load(f"table:{folder}", 0, 0.0, said)
    (folder / "dev.csv").write_text(text + "a,b\n")
    with pytest.raises(UserError, match=r"dev\.csv, line 4: 2 columns, and the header has 5"):
        sentences.load(str(folder), 0, 0.0, columns)


def test_a_table_of_windows_is_read_and_it_is_said(write: Write) -> None:
    text = "text,head,tail,relation\nfièvre after xol,xol,fièvre,causes\n"
    folder = write(dev__csv=text, test__csv=text)
    (folder / "train.csv").write_bytes(text.encode("cp1252"))
    read = sentences.load(str(folder), 0, 0.0)
    (e,) = read.examples("train")
    assert e.text[slice(*e.tail)] == "fièvre"
    assert "1 files are not UTF-8 and were read as Windows-1252" in read.note


def test_tables_without_splits_keep_a_document_on_one_side(write: Write) -> None:
    rows = [
        f"xol{i} eased cough number {k},xol{i},cough,eases,{i}" for i in range(40) for k in (1, 2)
    ]
    folder = write(all__csv="\n".join(["text,head,tail,relation,pmid", *rows]))
    read = sentences.load(str(folder), 0, 0.0)
    sides = [{e.text.split()[0] for e in read.examples(s)} for s in ("train", "dev", "test")]
    assert not sides[0] & sides[1] and not sides[0] & sides[2] and not sides[1] & sides[2]
    assert sum(len(list(read.examples(s))) for s in ("train", "dev", "test")) == 80
    assert "became test, by a hash of their documents" in read.note


def test_rows_of_a_table_that_say_nothing_are_counted(write: Write) -> None:
    head = "text,head_start,head_end,tail_start,tail_end,relation\n"
    text = f"{head}xol eased it,0,3,10,12,eases\nxol eased it,0,3,10,12,\n"
    folder = write(train__csv=text, dev__csv=text, test__csv=text)
    assert "skipped: 3 rows without a relation" in sentences.load(str(folder), 0, 0.0).note
    (folder / "test.csv").write_text(text.replace("10,12,eases", "10,99,eases"))
    with pytest.raises(UserError, match=r"test\.csv, line 2: .*does not lie in a text"):
        sentences.load(str(folder), 0, 0.0)


def test_marks() -> None:
    assert unmarked("a <e2>b c</e2> d <e1>e</e1>") == (
        "a b c d e",
        (8, 9),
        (2, 5),
        "entity",
        "entity",
    )
    assert unmarked("[[ a << b >> c ]]")[:3] == ("a b c", (0, 5), (2, 3))
    assert unmarked("@DISEASE$ of @GENE$")[1:] == ((13, 19), (0, 9), "gene", "disease")
    for bad in ("none", "<e1>a</e1> <e1>b</e1> <e2>c</e2>", "</e1>a<e1> <e2>b</e2>"):
        with pytest.raises(ValueError):
            unmarked(bad)


def test_semeval_damaged(write: Write) -> None:
    one = '1\t"<e1>a</e1> <e2>b</e2>"\nX(e1,e2)\nComment:\n\n'
    folder = write(train__txt=one, dev__txt=one, test__txt=one + '2\t"<e1>a</e1> <e2>b</e2>"\n')
    with pytest.raises(UserError, match=r"test\.txt, line 5: .*no relation on the line below"):
        sentences.load(str(folder), 0, 0.0)


def test_tacred_damaged(write: Write) -> None:
    row: dict[str, Any] = {"token": ["a", "b"], "relation": "x"}
    row |= {"subj_start": 0, "subj_end": 0, "obj_start": 1, "obj_end": 1}
    good = json.dumps([row])
    bad = json.dumps([row, {**row, "obj_end": 2}], indent=1)
    folder = write(train__json=good, dev__json=bad, test__json=good)
    with pytest.raises(UserError, match=r"dev\.json, line 13: .*words 1-3 of a sentence of 2"):
        sentences.load(str(folder), 0, 0.0)


def test_gids_damaged_and_with_a_train_file(write: Write) -> None:
    row = "m.{}\tm.7\tAda\tVelden\t{}\tAda, of Velden. ###END###\n"
    rows = "".join(row.format(i, "NA" if i % 2 else "/x") for i in range(60))
    folder = write(train__tsv=rows, test__tsv=row.format(99, "/x"))
    read = distant.load(str(folder))
    assert read.reading.format == "gids" and read.relations == ("NA", "/x")
    assert "entities are a part of a word" in read.note
    assert (int(read.test.head_at[0]), int(read.test.tail_at[0])) == (0, 2)
    (folder / "test.tsv").write_text("m.1\tm.7\tAda\tTarn\tNA\tAda of Velden ###END###\n")
    with pytest.raises(
        UserError, match=r'test\.tsv, line 1: .*"Tarn" does not stand in its sentence'
    ):
        distant.load(str(folder))


def test_psytar_damaged(write: Write) -> None:
    folder = write(
        psytar_sentences__csv="id,drug_id,sentence_index,sentences\n1,x.1,1,a rash\n",
        psytar_adr__csv="id,drug_id,sentence_index,sentences,ADR1\n1,x.2,1,a rash,rash\n",
    )
    with pytest.raises(
        UserError, match=r"psytar_adr\.csv, line 2: the sentence 1 of x\.2 is not in"
    ):
        ner.load(str(folder))


def test_records_of_csv_count_lines_through_cells_with_line_breaks(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b'a,b\n"x\ny",1\nz,2\n'))
    assert [(place.rpartition(" ")[2], row) for place, row in records(path)] == [
        ("2", {"a": "x\ny", "b": "1"}),
        ("4", {"a": "z", "b": "2"}),
    ]


def test_marked_texts_with_relations_are_read_as_the_task_that_is_said(write: Write) -> None:
    row = {"id": 1, "text": "xol eased cough", "relations": []}
    drug = {"id": 1, "label": "Drug", "start_offset": 0, "end_offset": 3}
    plain = {**row, "entities": [drug]}
    folder = write(train__jsonl="\n".join(json.dumps({**plain, "id": i}) for i in range(9)))
    tasks = ("document", "sentence", "ner", "distant")
    assert choose(f"doccano:{folder}", tasks) == choose(str(folder), tasks) == "ner"
    ends = [drug, {"id": 2, "label": "Sign", "start_offset": 10, "end_offset": 15}]
    full = {**row, "entities": ends, "relations": [{"from_id": 1, "to_id": 2, "type": "eases"}]}
    folder = write(train__jsonl="\n".join(json.dumps({**full, "id": i}) for i in range(9)))
    assert choose(f"doccano:{folder}", tasks) == choose(str(folder), tasks) == "document"
    assert choose(str(folder), ("sentence", "ner")) == "sentence"


@pytest.mark.corpus
@pytest.mark.skipif(not (DATA / "gids").is_dir(), reason="no real corpora beside the project")
def test_gids_as_its_readme_counts() -> None:
    read = distant.load(str(DATA / "gids"))
    sizes = [len(read.split(s)) for s in ("train", "dev", "test")]
    assert (sizes[0] + sizes[1], sizes[2]) == (5663, 1864) and len(read.relations) == 5
    pairs = {
        s: set(zip(read.split(s).head.tolist(), read.split(s).tail.tolist()))
        for s in ("train", "dev", "test")
    }
    assert (len(pairs["train"] | pairs["dev"]), len(pairs["test"])) == (3247, 1082)
    assert not pairs["train"] & pairs["dev"]


@pytest.mark.corpus
@pytest.mark.skipif(not (DATA / "psytar").is_dir(), reason="no real corpora beside the project")
def test_psytar_as_its_readme_counts() -> None:
    """What stands in the corpus and what was left out with a reason are together what there is."""
    read = ner.load(str(DATA / "psytar"))
    notes = {n.what: n.count for n in read.reading.notes}

    def strings(kind: str) -> int:
        number = read.types.index(kind)
        found = sum(int((read.splits[s].entities[:, 2] == number).sum()) for s in read.splits)
        return found + sum(n for what, n in notes.items() if what.startswith(f"{kind} strings"))

    sentences_ = sum(len(read.splits[s]) for s in read.splits)
    assert sentences_ + notes["sentences without any words"] == 6010
    assert (strings("ADR"), strings("Symptom")) == (4813, 1219)


@pytest.mark.corpus
@pytest.mark.skipif(
    not (DATA / "chemdisgene").is_dir(), reason="no real corpora beside the project"
)
def test_chemdisgene_as_its_readme_counts() -> None:
    read = documents.load(str(DATA / "chemdisgene"))
    counts = [read.counts(s) for s in ("train", "dev", "test")]
    assert sum(c.documents for c in counts) == 523
    assert sum(c.relations for c in counts) == 3911
    assert not [n for n in read.reading.notes if n.kind in ("skipped", "repaired")]
