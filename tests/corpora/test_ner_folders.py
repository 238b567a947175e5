"""NER folders as users have them: BRAT with other line ends and broken offsets, documents that must
stay whole, names that are no splits, text in other encodings.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from config.errors import UserError
from corpora.ner import read as ner
from corpora.ner.conll import conll
from corpora.ner.table import Sentence
from corpora.notes import Notes
from corpora.standoff.read import documents_of
from corpora.standoff.to_sentences import ner_sentences
from tests.corpora.ner_files import line2012, write

TEXT = "Took Lipitor. My legs hurt badly\nand my memory went."


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _brat(folder: Path, text: str, ann: str, notes: Notes) -> list[Sentence]:
    path = folder / "a.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    (folder / "a.ann").write_bytes(ann.encode())
    (document,) = documents_of(path, "brat", notes)
    return [f.sentence for f in ner_sentences(document, "cadec", notes)]


def _marked(s: Sentence) -> list[tuple[str, str]]:
    return [(" ".join(s.words[a:b]), kind) for a, b, kind in s.entities]


def test_brat_spans_become_words_of_their_sentence(tmp_path: Path) -> None:
    ann = (
        "T1\tDrug 5 12\tLipitor\nT2\tADR 17 26\tlegs hurt\nT3\tADR 17 21;27 32\tlegs badly\n"
        "#1\tAnnotatorNotes T1\tx\nT4\tADR 40 46\tmemory\n"
    )
    notes = Notes()
    found = _brat(tmp_path, TEXT, ann, notes)
    assert [s.words for s in found] == [
        ("Took", "Lipitor", "."),
        ("My", "legs", "hurt", "badly"),
        ("and", "my", "memory", "went", "."),
    ]
    assert [_marked(s) for s in found] == [
        [("Lipitor", "Drug")],
        [("legs hurt", "ADR")],
        [("memory", "ADR")],
    ]
    assert [n.sentence() for n in notes.all()] == ["skipped: 1 discontinuous spans"]


@pytest.mark.parametrize("counted", [True, False])
def test_brat_offsets_that_count_carriage_returns_or_do_not(tmp_path: Path, counted: bool) -> None:
    text = "Took warfarin.\r\nThen warfarin and\r\naspirin again, and warfarin.\r\n"
    as_counted = text if counted else text.replace("\r", "")
    places = [as_counted.index("warfarin"), as_counted.index("warfarin and")]
    ann = "".join(f"T{i}\tDrug {at} {at + 8}\twarfarin\r\n" for i, at in enumerate(places, 1))
    notes = Notes()
    found = _brat(tmp_path, text, ann, notes)
    assert [_marked(s) for s in found] == [[("warfarin", "Drug")], [("warfarin", "Drug")], []]
    assert notes.count("repaired") == (0 if counted else 1)


def test_brat_offsets_that_count_a_byte_order_mark(tmp_path: Path) -> None:
    text = "\ufeffTook warfarin.\nThen warfarin again."
    places = [text.index("warfarin"), text.rindex("warfarin")]
    ann = "".join(f"T{i}\tDrug {at} {at + 8}\twarfarin\n" for i, at in enumerate(places, 1))
    notes = Notes()
    found = _brat(tmp_path, text, ann, notes)
    assert [_marked(s) for s in found] == [[("warfarin", "Drug")], [("warfarin", "Drug")]]
    assert found[0].words == ("Took", "warfarin", ".")
    assert [n.kind for n in notes.all()] == ["repaired"]


def test_brat_words_are_compared_with_the_text(tmp_path: Path) -> None:
    text = "Aspirin helped; aspirin did not, and lithium hurt."
    ann = "T1\tDrug 0 7\tAspirin\nT2\tDrug 30 37\tlithium\nT3\tDrug 3 6\tibuprofen\n"
    notes = Notes()
    found = _brat(tmp_path, text, ann, notes)
    assert _marked(found[0]) == [("Aspirin", "Drug"), ("lithium", "Drug")]
    repaired, skipped = notes.all()
    assert (repaired.kind, repaired.count, repaired.example) == (
        "repaired",
        1,
        "'lithium' at 30, found at 37",
    )
    assert (skipped.kind, skipped.place) == ("skipped", f"{tmp_path / 'a.ann'}, line 3")
    assert "'ibuprofen' at 3-6" in skipped.example


def test_brat_spans_are_not_lost_to_sentence_splitting_and_growth_is_counted(
    tmp_path: Path,
) -> None:
    text = "Dr. Smith left. A new\ndrug for hyper-tensions came. J. Roe wrote. Heart failure. Died."
    marks = {"Dr. Smith": "Person", "new\ndrug": "Drug", "tension": "Sign", "tensions": "Sign"}
    rows = [
        f"T{i}\t{kind} {text.index(w)} {text.index(w) + len(w)}\t{w.replace(chr(10), ' ')}"
        for i, (w, kind) in enumerate(marks.items(), 1)
    ]
    at = text.index("failure. D")
    notes = Notes()
    found = _brat(tmp_path, text, "\n".join([*rows, f"T9\tEnd {at} {at + 10}\tfailure. D"]), notes)
    assert [_marked(s) for s in found] == [
        [("Dr . Smith", "Person")],
        [("new drug", "Drug"), ("tensions", "Sign")],
        [],
        [("failure . Died", "End")],
    ]
    assert {(n.kind, n.count) for n in notes.all()} == {
        ("merged", 2),
        ("repaired", 2),
        ("merged", 1),
    }


@pytest.mark.parametrize(
    ("ann", "why"),
    [
        ("T1 Drug 5 12", "line 1: not an entity"),
        ("T1\tDrug 12 5\tx", "line 1: not an entity"),
        ("T1\tDrug 5 999\tz", "line 1: the span 5-999"),
    ],
)
def test_brat_files_that_are_wrong(tmp_path: Path, ann: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        _brat(tmp_path, TEXT, ann, Notes())


def _notes_folder(folder: Path, count: int = 30) -> Path:
    for i in range(count):
        name = f"blood_test_{i:03}" if i % 2 else f"device_{i:02}"
        write(folder / f"{name}.txt", f"Took drug{i}.")
        write(folder / f"{name}.ann", f"T1\tDrug 5 {9 + len(str(i))}\tdrug{i}\n")
    return folder


def test_notes_called_test_and_device_are_no_splits(tmp_path: Path) -> None:
    folder = _notes_folder(tmp_path / "notes")
    write(folder / "README.txt", "About these notes.")
    for name in ("notice_01", "citation"):  # no files about the corpus: they are annotated
        write(folder / f"{name}_2.txt", "Took drug.")
        write(folder / f"{name}_2.ann", "T1\tDrug 5 9\tdrug\n")
    write(folder / "later.txt", "Not annotated yet.")
    corpus = ner.load(str(folder))
    sizes = {split: len(rows) for split, rows in corpus.splits.items()}
    assert sum(sizes.values()) == 32 and sizes["train"] > 20
    said = [n.sentence() for n in corpus.reading.notes]
    assert "skipped: 1 texts without .ann beside them" in said
    assert corpus.reading.files["dev"] == ()
    write(folder / "lost.ann", "T1\tDrug 0 4\tlost\n")
    with pytest.raises(UserError, match=r"lost\.ann has no text beside it"):
        ner.load(str(folder))


def test_conll_2003_documents_are_not_cut_in_two(tmp_path: Path) -> None:
    blocks = []
    for d in range(60):
        blocks.append("-DOCSTART- -X- -X- O\n")
        blocks += [f"doc{d} NNP I-NP B-PER\nsaid{s} VB O O\n" for s in range(5)]
    write(tmp_path / "c" / "eng.train", "\n".join(blocks))
    write(tmp_path / "c" / "eng.testb", "x O\ny B-PER\n")
    corpus = ner.load(str(tmp_path / "c"))
    rows = corpus.splits
    homes = {s: {rows[s].words(i)[0] for i in range(len(rows[s]))} for s in ("train", "dev")}
    assert homes["dev"] and not homes["dev"] & homes["train"]
    assert corpus.reading.documents["train"] + corpus.reading.documents["dev"] == 60
    write(tmp_path / "c" / "eng.testa", "z O\nw B-PER\n")
    assert [len(s) for s in ner.load(str(tmp_path / "c")).splits.values()] == [300, 1, 1]


@pytest.mark.parametrize("begin", ["# newdoc id = {}\n", "\n# doc_id {}\n", "\n"])
def test_other_ways_to_begin_a_document(tmp_path: Path, begin: str) -> None:
    text = "".join(f"{begin.format(d)}# a remark\nword{d}\tB-X\n\nmore{d}\tO\n\n" for d in range(4))
    found = list(conll(write(tmp_path / "a.txt", text), "x", Notes()))
    assert len(found) == 8
    by_document = {f.document for f in found}
    assert len(by_document) == 4


def test_without_document_boundaries_neighbours_stay_together(tmp_path: Path) -> None:
    path = write(tmp_path / "c" / "a.txt", "".join(f"w{i}\tB-X\n\n" for i in range(80)))
    found = list(conll(path, "x", Notes()))
    assert len({f.document for f in found}) == 4
    corpus = ner.load(str(tmp_path / "c"))
    assert "no document boundaries: 20 sentences in a row" in corpus.note
    assert {len(s) % 20 for s in corpus.splits.values()} == {0}


def test_split_folders_of_conll_are_splits_and_no_domains(tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        for name in ("a", "b"):
            write(tmp_path / "mine" / split / f"{name}.conll", f"{split}{name}\tB-X\n")
    corpus = ner.load(str(tmp_path / "mine"))
    assert corpus.domains == ("mine",) and [len(s) for s in corpus.splits.values()] == [2, 2, 2]
    assert corpus.reading.files["train"] == ("train/a.conll", "train/b.conll")


def test_biobert_files_do_not_train_on_dev(tmp_path: Path) -> None:
    for name, word in (("train", "a"), ("devel", "b"), ("test", "c")):
        write(tmp_path / "c" / f"{name}.tsv", f"{word}\tB-X\n")
    write(tmp_path / "c" / "train_dev.tsv", "a\tB-X\n\nb\tB-X\n")
    corpus = ner.load(str(tmp_path / "c"))
    assert [len(s) for s in corpus.splits.values()] == [1, 1, 1]
    assert "train_dev.tsv" in corpus.note


def test_genres_in_a_file_each_are_domains_cut_by_document(tmp_path: Path) -> None:
    for genre in ("news", "letters"):
        text = "".join(f"# newdoc id = {i}\n{genre}{i}\tB-X\n\n" for i in range(40))
        write(tmp_path / "g" / f"{genre}.conll", text)
    corpus = ner.load(str(tmp_path / "g"))
    assert corpus.domains == ("letters", "news") and all(len(s) for s in corpus.splits.values())
    assert corpus.reading.files["train"] == ("letters.conll", "news.conll")


def test_text_with_a_mark_or_in_latin_1_is_read_and_said(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    (folder / "train.txt").write_bytes("Ibuprofén\tB-X\n".encode("utf-8-sig"))
    (folder / "dev.txt").write_bytes("fièvre\tB-X\n".encode("latin-1"))
    (folder / "test.txt").write_bytes("toux\tB-X\n".encode("utf-16"))
    corpus = ner.load(str(folder))
    assert [s.words(0) for s in corpus.splits.values()] == [["Ibuprofén"], ["fièvre"], ["toux"]]
    assert "1 files are not UTF-8 and were read as Windows-1252" in corpus.note
    assert "1 files are UTF-16" in corpus.note
    (folder / "dev.txt").write_bytes(b"caf\xc3\xa9\tO\nfi\xe8vre\tB-X\n")
    with pytest.raises(UserError, match=r"dev\.txt, line 2: the byte 0xe8 is not UTF-8"):
        ner.load(str(folder))
    (folder / "dev.txt.gz").write_bytes(b"no gzip")
    (folder / "dev.txt").unlink()
    with pytest.raises(UserError, match=r"dev\.txt\.gz cannot be read from its beginning"):
        ner.load(f"conll:{folder}")


def test_a_domain_without_training_data_is_said(tmp_path: Path) -> None:
    for name, splits in (("a", ("train", "dev", "test")), ("b", ("dev", "test"))):
        for split in splits:
            write(
                tmp_path / "g" / split / f"{name}_1.gold_conll", line2012("x", "(P)", f"{name}/1")
            )
    corpus = ner.load(f"conll2012:{tmp_path / 'g'}")
    assert "the domain b has no training data" in corpus.note
