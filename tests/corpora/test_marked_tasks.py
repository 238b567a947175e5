"""From marked texts to the three tasks: what is left out, how candidates are chosen, where splits come
from, and what is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from config.errors import UserError
from corpora.document import read as documents
from corpora.ner import read as ner
from corpora.notes import Notes
from corpora.sentence import read as sentences
from corpora.splits import cut_documents
from corpora.standoff import knowledge
from corpora.standoff import read as standoff
from corpora.standoff.candidates import rule_of
from corpora.standoff.table import Link, Marked, Mention, kept
from corpora.standoff.to_documents import documents as to_documents
from corpora.standoff.to_documents import rule
from corpora.standoff.to_sentences import directions, examples, ner_sentences

TEXT = "Xolidan eased the cough."


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def said(notes: Notes) -> dict[tuple[str, str], int]:
    return {(n.kind, n.what): n.count for n in notes.all()}


def words(document: Marked) -> list[tuple[str, str]]:
    return [(document.quoted(m), m.type) for m in document.mentions]


def test_what_cannot_be_is_left_out_and_counted() -> None:
    document = Marked(
        "d",
        TEXT,
        (
            Mention("a", "Drug", ((0, 7),)),
            Mention("a", "Drug", ((18, 23),)),
            Mention("b", "Drug", ((20, 99),)),
            Mention("c", "Drug", ((7, 8),)),
        ),
        (Link("x", "a", "b"),),
        (Link("y", "D1", "D2"),),
    )
    notes = Notes()
    assert [m.id for m in kept(document, notes).mentions] == ["a"]
    assert said(notes) == {
        ("skipped", "mentions whose id stands twice in one document"): 1,
        ("skipped", "mentions that do not lie in their text"): 1,
        ("skipped", "mentions of blanks alone"): 1,
        ("skipped", "relations of ends that are not mentioned"): 2,
    }


def test_words_that_leave_out_a_part_of_the_text_are_not_used() -> None:
    document = Marked("d", TEXT, (Mention("a", "Drug", ((0, 7),)),), words=((0, 7), (8, 13)))
    notes = Notes()
    (found,) = ner_sentences(kept(document, notes), "x", notes)
    assert found.sentence.words == ("Xolidan", "eased", "the", "cough", ".")
    assert [n.kind for n in notes.all()] == ["repaired"]
    whole = ((0, 7), (8, 13), (14, 17), (18, 24))
    (found,) = ner_sentences(kept(replace(document, words=whole), notes), "x", notes)
    assert found.sentence.words[-1] == "cough."


@pytest.mark.parametrize("kind", ["ann", "a1"])
def test_marks_without_a_text_are_refused_by_every_task(tmp_path: Path, kind: str) -> None:
    for i in range(5):
        (tmp_path / f"n{i}.txt").write_text(TEXT)
        marks = "T1\tDrug 0 7\tXolidan\nT2\tSymptom 18 23\tcough\nR1\teases Arg1:T1 Arg2:T2\n"
        (tmp_path / f"n{i}.{kind}").write_text(marks)
    for load in (documents.load, lambda f: sentences.load(f, 0, 0.0), ner.load):
        (tmp_path / f"lost.{kind}").unlink(missing_ok=True)
        load(str(tmp_path))
        (tmp_path / f"lost.{kind}").write_text("T1\tDrug 0 7\tXolidan\n")
        with pytest.raises(UserError, match=rf"lost\.{kind} has no text beside it"):
            load(str(tmp_path))


def _pair(a: tuple[int, int], b: tuple[int, int], *links: Link, kind: str = "Drug") -> Marked:
    text = "Aaa and bbb. Then ccc came."
    return Marked("d", text, (Mention("a", "Drug", (a,)), Mention("b", kind, (b,))), links)


def test_relations_across_sentences_are_counted_and_spans_keep_sentences_whole() -> None:
    document = _pair((0, 3), (18, 21), Link("x", "a", "b"), kind="Gene")
    notes = Notes()
    rule_ = rule_of([(("Drug", "Gene"), True)])
    assert not list(examples(document, rule_, "None", notes))
    assert said(notes) == {("skipped", "relations across sentences"): 1}
    over = Marked("d", document.text, (Mention("a", "Drug", ((8, 21),)),))
    (found,) = ner_sentences(over, "x", notes)
    assert " ".join(found.sentence.words) == "Aaa and bbb . Then ccc came ."


def test_pairs_of_one_type_are_asked_in_both_orders_if_relations_go_both_ways() -> None:
    forward = _pair((0, 3), (8, 11), Link("x", "a", "b"))
    back = _pair((0, 3), (8, 11), Link("x", "b", "a"))
    rules = [
        rule_of(d for m in some for d in directions(m)) for some in ([forward], [forward, back])
    ]
    got = [[(e.head, e.relation) for e in examples(forward, r, "None", Notes())] for r in rules]
    assert got == [[((0, 3), "x")], [((0, 3), "x"), ((8, 11), "None")]]
    assert "in the order of the text" in rules[0].words()


def test_entities_by_words_by_equivalence_and_by_concept() -> None:
    text = "Aaa helps. aaa and A help bbb."
    mentions = [
        Mention("1", "Drug", ((0, 3),)),
        Mention("2", "Drug", ((11, 14),)),
        Mention("3", "Drug", ((19, 20),)),
        Mention("4", "Gene", ((26, 29),)),
    ]
    document = Marked("d", text, tuple(mentions), (Link("x", "3", "4"),), same=(("1", "3"),))
    asked = rule([document], False)
    (found,) = to_documents([document], asked, False, Notes())
    assert [e.mentions for e in found.entities] == [((0, 3), (11, 14), (19, 20)), ((26, 29),)]
    assert [p.relations for p in found.pairs] == [("x",)]
    linked = [Mention(m.id, m.type, m.spans, (f"C{m.id}",)) for m in mentions]
    document = Marked("d", text, tuple(linked), facts=(Link("x", "C1", "C4"),))
    (found,) = to_documents([document], rule([document], True), True, Notes())
    assert [(p.head, p.relations) for p in found.pairs] == [(0, ("x",)), (1, ()), (2, ())]


def _write(folder: Path, **rows: list[Mapping[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, some in rows.items():
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, some)))
    return folder


def test_without_splits_documents_are_cut_and_it_is_said(tmp_path: Path) -> None:
    row = {"text": TEXT, "label": [[0, 7, "Drug"]]}
    folder = _write(tmp_path / "c", export=[{**row, "id": i} for i in range(40)])
    read = standoff.read(folder, standoff.recognise(folder))
    assert sum(map(len, read.splits.values())) == 40 and all(read.splits.values())
    assert sorted(n.kind for n in read.notes) == ["cut", "cut"]
    again = standoff.read(folder, "doccano")
    assert read.splits == again.splits
    few = _write(tmp_path / "d", export=[{**row, "id": 1}])
    with pytest.raises(UserError, match="no dev and no test split"):
        standoff.read(few, "doccano")


def test_a_cut_test_split_without_relations_is_no_published_one(tmp_path: Path) -> None:
    """It is chance, and said as a warning; the dev split does not take its place."""
    entities = [{"id": k, "type": k, "mentions": [[i, i + 1]]} for i, k in enumerate("ab")]
    row: dict[str, Any] = {"text": "ab cd", "entities": entities}
    fact = [{"head": "a", "tail": "b", "relation": "x"}]
    made = cut_documents([str(i) for i in range(30)], ("dev", "test"))
    rows: list[Mapping[str, Any]] = [
        {**row, "id": id, "relations": [] if split == "test" else fact}
        for id, split in made.items()
    ]
    corpus = documents.load(str(_write(tmp_path / "c", all=rows)))
    assert corpus.counts("test").relations == 0 < corpus.counts("dev").relations
    assert "published" not in corpus.note
    folder = _write(tmp_path / "d", train=rows, dev=[rows[0], {**rows[1], "relations": fact}])
    _write(folder, test=[{**row, "id": "t", "relations": []}])
    assert "published test split has no labels" in documents.load(str(folder)).note


def test_a_damaged_file_is_refused_and_never_passed_over(tmp_path: Path) -> None:
    row = {"id": 1, "text": TEXT, "label": [[0, 7, "Drug"]]}
    folder = _write(tmp_path / "c", train=[row, row], test=[row])
    (folder / "dev.jsonl").write_text('{"id": 1, "text": ')
    with pytest.raises(UserError, match=r"dev\.jsonl, line 1: "):
        standoff.read(folder, "doccano")
    _write(folder, dev=[row, {"id": 2, "text": TEXT, "label": [["x", 7, "Drug"]]}])
    with pytest.raises(UserError, match=r"dev\.jsonl, line 2: not a row of doccano"):
        standoff.read(folder, "doccano")
    _write(folder, dev=[row], other=[{"unlike": 1}])
    read = standoff.read(folder, "doccano")
    assert [(n.kind, n.what) for n in read.notes] == [("skipped", "files of another form")]


def test_our_own_documents_with_pairs_are_read_as_they_stand(tmp_path: Path) -> None:
    entities = [
        {"id": "D", "type": "Drug", "mentions": [[0, 7]]},
        {"id": "S", "type": "Symptom", "mentions": [[18, 23]]},
    ]
    pairs = [
        {"head": 1, "tail": 0, "relations": ["x"]},
        {"head": 0, "tail": 1, "relations": [], "counted": False},
    ]
    row = {"id": "1", "text": TEXT, "entities": entities, "pairs": pairs}
    folder = _write(tmp_path / "c", train=[row], dev=[row], test=[row])
    (found,) = documents.load(str(folder)).documents("test")
    assert [(p.head, p.tail, p.relations, p.counted) for p in found.pairs] == [
        (1, 0, ("x",), True),
        (0, 1, (), False),
    ]
    _write(folder, dev=[{**row, "pairs": [{"head": 5, "tail": 0}]}])
    with pytest.raises(UserError, match=r"dev\.jsonl, line 1: .* entities that are not there"):
        documents.load(str(folder))


def test_spacy_is_named_where_it_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "train.spacy"
    path.write_bytes(b"no DocBin")
    try:
        import spacy  # noqa: F401
    except ImportError:
        with pytest.raises(UserError, match=r"not installed: pip install 'sottovoce\[spacy\]'"):
            list(knowledge.docbin(path, Notes()))
    else:
        with pytest.raises(UserError, match="cannot be read as a DocBin"):
            list(knowledge.docbin(path, Notes()))


def test_spacy_files_are_read(tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy")
    doc = spacy.blank("en")("Xolidan eased the dry cough.")
    doc.ents = [spacy.tokens.Span(doc, 0, 1, label="Drug", kb_id="D1")]
    doc.spans["sc"] = [spacy.tokens.Span(doc, 3, 5, label="Sign")]
    spacy.tokens.DocBin(docs=[doc]).to_disk(tmp_path / "train.spacy")
    notes = Notes()
    (found,) = knowledge.docbin(tmp_path / "train.spacy", notes)
    assert words(found) == [("Xolidan", "Drug"), ("dry cough", "Sign")]
    assert found.mentions[0].concepts == ("D1",) and len(found.words) == 6
    assert [n.what for n in notes.all()] == ['the span group "sc" is read beside doc.ents']
