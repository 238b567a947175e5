"""Whole texts: relations of documents and entities of NER, as the tasks themselves judge them;
formats and refusals.
"""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.simulation.inprocess import run_inprocess
from cli import main as cli
from config.errors import UserError
from config.load import dump, load
from coordinator.checkpoint import save_model
from corpora.document.table import Entity
from corpora.ner.formats import words_of
from corpora.notes import Notes
from extract.evaluate import evaluate_model
from extract.pairs import open_extractor
from extract.read_pairs import read_candidates
from extract.read_texts import Text, read_texts
from methods.common.training import parameters
from methods.tasks.document import DocumentTask
from models import document_heads as heads
from study.prepare import prepare
from tests.extract.test_pairs import trained
from tests.methods import small_document as document_small
from tests.methods import small_ner as ner_small

PUBTATOR = (
    "7|t|Aspra and tussa .\n7|a|Tussa after aspra and febra .\n"
    "7\t0\t5\tAspra\tdrug\tD1\n7\t10\t15\ttussa\tdisease\tM1\n7\t18\t23\tTussa\tdisease\tM1\n"
    "7\t30\t35\taspra\tdrug\tD1\n7\t40\t45\tfebra\tdrug\tD2\n7\tcauses\tD1\tM1\n\n"
)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> tuple[DocumentTask, Any, Path]:
    task = document_small.tiny_task()
    model, folder = trained(task, 1, 0.01), tmp_path_factory.mktemp("document") / "model"
    save_model(folder, parameters(model), task.model_files())
    return task, model, folder


@pytest.fixture(scope="module", params=["pointer", "tagger"])
def ner(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Path]:
    task = ner_small.tiny_task(network=request.param, grammar=True)
    model = trained(task, 2 if request.param == "pointer" else 12, 0.02)
    folder = tmp_path_factory.mktemp("ner") / "model"
    save_model(folder, parameters(model), task.model_files())
    return task, model, folder


def test_documents_are_judged_as_the_task_judges_them(
    document: tuple[DocumentTask, Any, Path],
) -> None:
    """Those whose entities are all in pairs: the others are read in training without the entities
    that are in none.
    """
    task, model, folder = document
    paired = [{e for p in d.pairs for e in (p.head, p.tail)} for d in task.documents("test")]
    whole = [
        k for k, d in enumerate(task.documents("test")) if paired[k] == set(range(len(d.entities)))
    ]
    texts = [Text(d.id, d.text, d.entities) for d in (task.documents("test")[k] for k in whole)]
    done: list[int] = []
    extractor: Any = open_extractor(folder)
    found = extractor.extract(texts, done.append)
    assert sum(done) == len(texts) > 3
    logits = task.read_all(model, task.data("test"), lambda r: r.logits)
    yes, p = heads.predict(task.head, logits).numpy(), heads.scores(task.head, logits).numpy()
    at = task.data("test").split.pieces.pair_at
    for k, f in zip(whole, found):
        ours = {
            (x.head, x.tail): (x.relation, x.score if x.relation else 1 - x.score) for x in f.links
        }
        rows = slice(at[k], at[k + 1])
        for pair, holds, value in zip(
            task.documents("test")[k].candidates, yes[rows, 0], p[rows, 0]
        ):
            relation, score = ours[pair.head, pair.tail]
            assert relation == (task.relations[0] if holds else None) and score == pytest.approx(
                float(value), abs=1e-5
            )


def test_entities_are_found_as_the_task_finds_them(ner: tuple[Any, Any, Path]) -> None:
    task, model, folder = ner
    rows = task.corpus.splits["test"]
    words = [rows.words(i) for i in range(len(rows))]
    plain = [
        i
        for i, w in enumerate(words)
        if [" ".join(w)[a:b] for a, b in words_of(" ".join(w))] == list(w)
    ]
    data = replace(
        task.subset(np.arange(0)),
        pieces=task._pieces_now("test"),
        rows=rows,
        indices=np.array(plain),
    )
    expected = task.predict(model, data)
    assert any(expected)
    texts = [Text(str(i), " ".join(words[i]), (), plain=True) for i in plain]
    extractor: Any = open_extractor(folder)
    found = extractor.extract(texts, lambda n: None)
    assert len(plain) > 5
    for i, f, spans in zip(plain, found, expected):
        starts = {a: k for k, (a, _) in enumerate(words_of(f.text))}
        ends = {b: k + 1 for k, (_, b) in enumerate(words_of(f.text))}
        got = {(starts[a], ends[b], e.type) for e in f.entities for a, b in e.mentions}
        assert got == {(a, b, task.labels[t]) for a, b, t in spans}, words[i]
        assert all(e.score is not None and 0 < e.score <= 1 for e in f.entities)


def test_formats_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.pubtator").write_text(PUBTATOR, "utf-8")
    text = "Aspra and tussa . Tussa after aspra and febra ."
    (tmp_path / "b.txt").write_text(text, "utf-8")
    spans = [
        ("drug", 0, 5),
        ("disease", 10, 15),
        ("disease", 18, 23),
        ("drug", 30, 35),
        ("drug", 40, 45),
    ]
    notes = [f"T{k}\t{t} {a} {b}\t{text[a:b]}\n" for k, (t, a, b) in enumerate(spans, 1)]
    (tmp_path / "b.ann").write_text("".join(notes) + "R1\tx Arg1:T1 Arg2:T2\n", "utf-8")
    entities = [
        {"id": "D1", "type": "drug", "mentions": [[0, 5], [30, 35]]},
        {"id": "M1", "type": "disease", "mentions": [[10, 15], [18, 23]]},
        {"id": "D2", "type": "drug", "start": 40, "end": 45},
    ]
    (tmp_path / "c.jsonl").write_text(
        json.dumps({"id": "7", "text": text, "entities": entities}) + "\n", "utf-8"
    )
    read = read_texts([str(tmp_path)])
    assert [t.id for t in read] == ["7", "b", "7"] and {t.text for t in read} == {text}
    expected = {
        ("drug", ((0, 5), (30, 35))),
        ("disease", ((10, 15), (18, 23))),
        ("drug", ((40, 45),)),
    }
    for t in read:
        assert {(e.type, e.mentions) for e in t.entities} == expected
    # The same files for a model that reads sentences: every ordered pair of entities within one.
    pairs = read_candidates([str(tmp_path / "a.pubtator"), str(tmp_path / "b.txt")])
    assert len(pairs) == 2 * (2 + 6) and {c.id.split(":")[0] for c in pairs} == {"7", "b"}
    assert all(not c.example.problem() for c in pairs)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (b"caf\xe9\n", "line 1: byte 3 is not UTF-8"),
        (
            PUBTATOR.replace("7\t0\t5", "7\t0\t500").encode(),
            "line 3: the mention 0-500 does not lie in document 7",
        ),
        (
            PUBTATOR.replace("\tAspra\tdrug", "\tnobody\tdrug").encode(),
            "line 3: not a line of this format",
        ),
        (
            b'{"text": "ab", "entities": [{"start": 0, "end": 9}]}\n',
            "line 1: the mention 0-9 does not lie in",
        ),
        (
            b'{"text": "ab", "entities": [{"mentions": [["0", 1]]}]}\n',
            "line 1: entity 1: a mention is two",
        ),
        (b'{"id": 3}\n', "line 1: there is no 'text' in it"),
        (b'{"text": "ab"\n', "not JSON"),
    ],
)
def test_what_is_wrong_with_a_text_is_said_in_a_sentence(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    file = tmp_path / "in.txt"
    file.write_bytes(content)
    with pytest.raises(UserError) as e:
        read_texts([str(file)])
    assert sentence in str(e.value) and str(file) in str(e.value)


def test_offsets_of_brat_outside_the_text_are_refused_by_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("short", "utf-8")
    (tmp_path / "a.ann").write_text("T1\tdrug 0 50\tlong\n", "utf-8")
    with pytest.raises(UserError, match="a.ann, line 1: the span 0-50 does not lie in a text of 5"):
        read_texts([str(tmp_path)])


def test_brat_is_read_as_a_corpus_is(tmp_path: Path) -> None:
    """Carriage returns that offsets do not count shift no mention; words that stand nowhere are
    refused.
    """
    (tmp_path / "a.txt").write_bytes(b"Took it.\r\nThen warfarin\r\nand warfarin.\r\n")
    (tmp_path / "a.ann").write_bytes(b"T1\tdrug 14 22\twarfarin\r\nT2\tdrug 27 35\twarfarin\r\n")
    notes = Notes()
    (found,) = read_texts([str(tmp_path)], notes)
    (entity,) = found.entities
    assert [found.text[a:b] for a, b in entity.mentions] == ["warfarin", "warfarin"]
    assert [(n.kind, n.count) for n in notes.all()] == [("repaired", 1)]
    (tmp_path / "a.ann").write_text("T1\tdrug 14 22\taspirin\n", "utf-8")
    with pytest.raises(UserError, match=r"a\.ann, line 1: the words 'aspirin' at 14-22"):
        read_texts([str(tmp_path)])


def test_a_text_without_given_entities_is_refused_by_a_document_model(
    document: tuple[DocumentTask, Any, Path],
) -> None:
    extractor: Any = open_extractor(document[2])
    with pytest.raises(UserError, match='"x" has 0 entities given'):
        extractor.extract([Text("x", "Nothing marked .", (), plain=True)], lambda n: None)
    things = (Entity("1", "planet", ((0, 1),)), Entity("2", "moon", ((2, 3),)))
    with pytest.raises(
        UserError, match="types that this model was trained on .*given: moon, planet"
    ):
        extractor.extract([Text("x", "a b", things)], lambda n: None)


def test_weights_of_another_model_are_refused(ner: tuple[Any, Any, Path], tmp_path: Path) -> None:
    task, _, _ = ner
    other = document_small.tiny_task()
    save_model(tmp_path, parameters(other.new_model(0)), task.model_files())
    with pytest.raises(UserError, match="not those of its config.json"):
        open_extractor(tmp_path)


def test_command_writes_brat_json_lines_and_colour(
    ner: tuple[Any, Any, Path],
    document: tuple[DocumentTask, Any, Path],
    tmp_path: Path,
    monkeypatch: Any,
    capsys: Any,
) -> None:
    def said(model: Path, typed: str, *words: str) -> str:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
        with pytest.raises(SystemExit) as end:
            cli.main(["extract", str(model), *words])
        assert end.value.code == 0
        return str(capsys.readouterr().out)

    rows = ner[0].corpus.splits["test"]
    typed = "\n".join(" ".join(rows.words(i)) for i in range(len(rows)))
    line = json.loads(said(ner[2], typed))
    assert line["text"] == typed and line["entities"]
    assert all(
        typed[e["start"] : e["end"]] == e["text"] and e["type"] in ner[0].labels
        for e in line["entities"]
    )
    assert said(ner[2], typed, "--format", "brat", "--output", str(tmp_path / "out")) == ""
    (again,) = read_texts([str(tmp_path / "out")])  # what we write, our own reader reads
    assert {m for e in again.entities for m in e.mentions} == {
        (e["start"], e["end"]) for e in line["entities"]
    }
    assert line["entities"][0]["type"] in said(ner[2], typed, "--format", "terminal")
    kinds = json.loads((document[2] / "config.json").read_text())["pair_types"][0]
    text = PUBTATOR.replace("\tdrug\t", f"\t{kinds[0]}\t").replace("\tdisease\t", f"\t{kinds[1]}\t")
    told = json.loads(said(document[2], text, "--none"))
    assert {(r["head"], r["tail"]) for r in told["relations"]} >= {("D1", "M1"), ("D2", "M1")}
    assert all(0 <= r["score"] <= 1 for r in told["relations"])
    assert [m["text"] for m in told["entities"][0]["mentions"]] == ["Aspra", "aspra"]
    with pytest.raises(SystemExit) as end:
        cli.main(["extract", str(document[2]), "--format", "brat"])
    assert end.value.code == 2 and "--output" in capsys.readouterr().err


def test_a_document_model_is_scored_again_as_its_run_scored_it(tmp_path: Path) -> None:
    words = {"method": "fedavg", "corpus": "document:documents=30,dev=10,test=10", "silos": "3"}
    words |= {"rounds": "1", "epochs": "1", "runner": "inprocess"}
    study = prepare(load(None, words))
    assert run_inprocess(tmp_path, study) == 0
    (tmp_path / "config.toml").write_text(dump(study.settings, {}), "utf-8")
    summary = json.loads((tmp_path / "summary.json").read_text("utf-8"))
    _, result = evaluate_model(tmp_path, "", "test")
    assert (result.value, dict(result.figures)) == (summary["value"], summary["figures"])
    about = json.loads((tmp_path / "model" / "config.json").read_text("utf-8"))
    about["relations"] = ["cures", *about["relations"][1:]]
    (tmp_path / "model" / "config.json").write_text(json.dumps(about), "utf-8")
    with pytest.raises(UserError, match="the corpus lacks cures"):
        evaluate_model(tmp_path, "", "test")
