"""Texts with marks on them: what each format's parser reads, repairs, leaves out and refuses. The plain
case of every format is in docs/data.md, which tests/docs/test_data.py reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import UserError
from corpora.notes import Notes
from corpora.standoff import bioc, brat, knowledge, tools
from corpora.standoff.offsets import UNPLACED, from_utf16, located
from corpora.standoff.table import Link, Marked, kept

TEXT = "Xolidan eased the cough."


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def said(notes: Notes) -> dict[tuple[str, str], int]:
    return {(n.kind, n.what): n.count for n in notes.all()}


def words(document: Marked) -> list[tuple[str, str]]:
    return [(document.quoted(m), m.type) for m in document.mentions]


def studio(text: str, *marks: tuple[int, int, str], **more: Any) -> dict[str, Any]:
    results = [
        {
            "id": f"m{i}",
            "type": "labels",
            "value": {"start": a, "end": b, "text": w, "labels": ["X"]},
        }
        for i, (a, b, w) in enumerate(marks)
    ]
    return {"id": 1, "data": {"text": text}, "annotations": [{"result": results}], **more}


@pytest.mark.parametrize(
    ("text", "start", "end", "want", "note"),
    [
        ("😀 cough", 3, 8, "cough", "mentions whose offsets count UTF-16 units"),
        ("é cough", 3, 8, "cough", "mentions whose offsets count bytes"),
        ("a\nb\ncough", 6, 11, "cough", "mentions whose offsets count line breaks of two signs"),
        (
            "a dry cough",
            0,
            5,
            "cough",
            "mentions that stood elsewhere than their offsets say, found by their words",
        ),
    ],
)
def test_offsets_of_another_unit_are_read_in_it(
    text: str, start: int, end: int, want: str, note: str
) -> None:
    notes = Notes()
    found = located(text, start, end, want, notes, "here")
    assert found is not None and text[slice(*found)] == want
    assert said(notes) == {("repaired", note): 1}


def test_words_that_stand_twice_or_nowhere_are_left_out() -> None:
    for text in ("cough or cough", "no such word"):
        notes = Notes()
        assert located(text, 2, 4, "cough", notes, "here") is None
        assert said(notes) == {("skipped", UNPLACED): 1}


@given(st.text(alphabet=st.sampled_from("ab😀é"), max_size=8))
def test_utf_16_units_are_characters_again(text: str) -> None:
    character = from_utf16(text)
    for at in range(len(text) + 1):
        assert character(len(text[:at].encode("utf-16-le")) // 2) == at


def test_label_studio_leaves_out_what_nobody_finished_and_says_which_annotation_it_took() -> None:
    notes = Notes()
    assert not list(
        tools.label_studio({"id": 1, "data": {"text": "a"}, "annotations": []}, "p", notes)
    )
    cancelled = {
        "id": 2,
        "data": {"text": "a"},
        "annotations": [{"result": [], "was_cancelled": True}],
    }
    assert not list(tools.label_studio(cancelled, "p", notes))
    twice = studio(TEXT, (0, 7, "Xolidan"))
    truth = studio(TEXT, (18, 23, "cough"))["annotations"][0]
    twice["annotations"].append({**truth, "ground_truth": True})
    (found,) = tools.label_studio(twice, "p", notes)
    assert words(found) == [("cough", "X")]
    assert said(notes)["skipped", "tasks without any annotation"] == 2
    assert sum(notes.count(k) for k in ("skipped",)) == 3


def test_label_studio_reads_directions_and_counts_what_marks_no_words() -> None:
    row = studio(TEXT, (0, 7, "Xolidan"), (18, 23, "cough"))
    row["annotations"][0]["result"] += [
        {"type": "relation", "from_id": "m0", "to_id": "m1", "direction": "left", "labels": ["a"]},
        {"type": "relation", "from_id": "m0", "to_id": "m1", "direction": "bi", "labels": ["b"]},
        {"type": "relation", "from_id": "m0", "to_id": "m1"},
        {"type": "choices", "value": {"choices": ["good"]}},
    ]
    notes = Notes()
    (found,) = tools.label_studio(row, "p", notes)
    assert [(k.name, k.head, k.tail) for k in found.links] == [
        ("a", "m1", "m0"),
        ("b", "m0", "m1"),
        ("b", "m1", "m0"),
        ("related", "m0", "m1"),
    ]
    assert said(notes) == {("skipped", "results of the kind choices, which mark no words"): 1}
    short = {
        "id": 4,
        "text": TEXT,
        "label": [{"start": 0, "end": 7, "text": "Xolidan", "labels": ["X"]}],
    }
    assert tools.is_label_studio(short)
    assert words(next(tools.label_studio(short, "p", notes))) == [("Xolidan", "X")]
    cell = {**short, "label": json.dumps(short["label"])}  # CSV has the marks so
    assert tools.is_label_studio(cell)
    assert words(next(tools.label_studio(cell, "p", notes))) == [("Xolidan", "X")]
    # nobody annotated the first task: the columns tell
    assert tools.is_label_studio({"text": TEXT, "id": 1, "annotator": 1, "annotation_id": 2})


def test_label_studio_fields_of_other_names() -> None:
    row = studio(TEXT, (18, 23, "cough"))
    row["data"] = {"source": "ward 3, bed 2, after noon", "note": TEXT}
    (found,) = tools.label_studio(row, "p", Notes())
    assert (found.text, words(found)) == (TEXT, [("cough", "X")])
    row["data"] = {"source": "ward 3", "note": "another text"}
    with pytest.raises(ValueError, match='of the fields note, source none is called "text"'):
        list(tools.label_studio(row, "p", Notes()))


def test_prodigy_reads_what_was_accepted() -> None:
    notes = Notes()
    span = {"start": 0, "end": 7, "label": "Drug"}
    row = {"text": TEXT, "spans": [span], "answer": "reject"}
    assert not list(tools.prodigy(row, "p", notes))
    row = {"text": TEXT, "spans": [span], "relations": [{"head": 0, "child": 3, "label": "x"}]}
    (found,) = tools.prodigy(row, "p", notes)
    assert words(found) == [("Xolidan", "Drug")] and not found.links
    assert said(notes) == {
        ("skipped", 'tasks with the answer "reject"'): 1,
        ("skipped", "relations between words that are no entities"): 1,
    }


def test_doccano_of_sequence_labelling() -> None:
    row = {"id": 5, "text": TEXT, "label": [[0, 7, "Drug"], [18, 23, "Symptom"]]}
    assert tools.is_doccano(row) and not tools.is_doccano({"text": TEXT, "label": "INHIBITOR"})
    (found,) = tools.doccano(row, "p", Notes())
    assert words(found) == [("Xolidan", "Drug"), ("cough", "Symptom")]


def test_brat_concepts_equivalents_events_and_gaps(tmp_path: Path) -> None:
    (tmp_path / "n.txt").write_text("Xolidan, or X, eased arm and leg pain.")
    marks = [
        "T1\tDrug 0 7\tXolidan",
        "T2\tDrug 12 13\tX",
        "T3\tSymptom 21 24;33 37\tarm pain",
        "N1\tReference T1 MESH:D1\tXolidan",
        "*\tEquiv T1 T2",
        "E1\tChange:T1 Theme:T3",
        "A1\tNegated E1",
        "R1\teases Arg1:T1 Arg2:T3",
        "R2\tcauses Arg1:E1 Arg2:T3",
        "#1\tAnnotatorNotes T1\tfree text",
    ]
    (tmp_path / "n.ann").write_text("\n".join(marks))
    notes = Notes()
    (found,) = brat.brat(tmp_path / "n.txt", notes)
    assert words(found)[2] == ("arm … pain", "Symptom")
    assert (found.mentions[0].concepts, found.same) == (("MESH:D1",), (("T1", "T2"),))
    assert [k.name for k in found.links] == ["eases"]
    assert said(notes) == {
        ("skipped", "events, whose triggers are entities"): 1,
        ("skipped", "attributes"): 1,
        ("skipped", "relations of events"): 1,
    }
    (tmp_path / "n.ann").write_text("N1\tReference T1")
    with pytest.raises(UserError, match=r"n\.ann, line 1: not a concept of BRAT"):
        list(brat.brat(tmp_path / "n.txt", Notes()))


def test_bionlp_joins_its_files_and_counts_a_text_without_marks(tmp_path: Path) -> None:
    (tmp_path / "n.txt").write_text(TEXT)
    (tmp_path / "n.a1").write_text("T1\tDrug 0 7\tXolidan\nT2\tSymptom 18 23\tcough\n")
    (tmp_path / "n.a2").write_text("T3\tChange 8 13\teased\nE1\tChange:T3 Theme:T1\n")
    (tmp_path / "n.rel").write_text("R1\teases Arg1:T1 Arg2:T2\n")
    notes = Notes()
    (found,) = brat.bionlp(tmp_path / "n.txt", notes)
    assert [w for w, _ in words(found)] == ["Xolidan", "cough", "eased"]
    assert [k.name for k in found.links] == ["eases"]
    (tmp_path / "o.txt").write_text(TEXT)
    assert not list(brat.bionlp(tmp_path / "o.txt", notes))
    assert said(notes)["skipped", "texts without .a1 beside them"] == 1


BIOC = """<?xml version="1.0"?>
<!DOCTYPE collection SYSTEM "BioC.dtd">
<collection><source>s</source><document><id>7</id>
<passage><offset>0</offset><text>A title.</text></passage>
<passage><offset>10</offset><sentence><offset>10</offset><text>Xolidan eased the cough.</text>
<annotation id="a"><infon key="type">Drug</infon><infon key="MESH">D1|D2</infon>
<location offset="10" length="7"/><text>Xolidan</text></annotation></sentence></passage>
<relation id="R0"><infon key="relation">CID</infon><infon key="Chemical">D1</infon>
<infon key="Disease">D2</infon></relation>
<relation id="R1"><infon key="relation">CID</infon></relation>
</document></collection>"""


def test_bioc_places_passages_by_their_offsets(tmp_path: Path) -> None:
    path = tmp_path / "c.xml"
    path.write_text(BIOC)
    notes = Notes()
    (found,) = bioc.bioc(path, notes)
    assert found.text == "A title.\n Xolidan eased the cough."
    assert words(found) == [("Xolidan", "Drug")] and found.mentions[0].concepts == ("D1", "D2")
    assert found.facts == (Link("CID", "D1", "D2"),)
    what = "relations that do not join two annotations or two concepts"
    assert said(notes) == {("skipped", what): 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.replace("</document>", ""), r"c\.xml, line \d+: not XML that can be read"),
        (lambda t: t.replace("<offset>10</offset><sent", "<offset>3</offset><sent"), ""),
        (
            lambda t: t.replace("<sentence><offset>10<", "<sentence><offset>3<"),
            r"c\.xml, document 1: not BioC: the text at offset 3 lies over the text before it",
        ),
        (
            lambda t: t.replace('SYSTEM "BioC.dtd"', '[<!ENTITY x SYSTEM "file:///etc/passwd">]'),
            r"c\.xml: the file declares XML entities, which are not read",
        ),
    ],
)
def test_bioc_damaged(tmp_path: Path, change: Callable[[str], str], message: str) -> None:
    path = tmp_path / "c.xml"
    path.write_text(change(BIOC))
    if not message:
        assert list(bioc.bioc(path, Notes()))
        return
    with pytest.raises(UserError, match=message):
        list(bioc.bioc(path, Notes()))


def test_bigbio_coreferences_and_events() -> None:
    row = {
        "id": "1",
        "document_id": "d",
        "passages": [{"text": ["A."], "offsets": [[0, 2]]}, {"text": [TEXT], "offsets": [[3, 27]]}],
        "entities": [
            {
                "id": "a",
                "type": "Drug",
                "text": ["Xolidan"],
                "offsets": [[3, 10]],
                "normalized": [],
            },
            {"id": "b", "type": "Drug", "text": ["nope"], "offsets": [[3, 10]], "normalized": []},
        ],
        "events": [{"id": "e", "type": "x"}],
        "coreferences": [{"id": "c", "entity_ids": ["a", "b"]}],
        "relations": [],
    }
    notes = Notes()
    (found,) = knowledge.bigbio(row, "p", notes)
    assert words(found) == [("Xolidan", "Drug")] and kept(found, notes).same == ()
    assert notes.count("skipped") == 2
