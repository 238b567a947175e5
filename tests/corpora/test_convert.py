"""`sottovoce convert`: what is written is what was read, for every task and target; what a target cannot
hold is refused with a count and an example.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cli.main import app
from config.errors import UserError
from corpora.convert.items import Loaded, difference, load
from corpora.convert.run import convert
from corpora.convert.write import WRITERS
from corpora.distant.rows import Row
from corpora.document.table import Document, Entity, Pair
from corpora.ner.table import Sentence
from corpora.notes import Notes
from corpora.sentence.table import Example

SPLITS = ("train", "dev", "test")
# each example reads a corpus, which writes tables: few of them, each of several items
FEW = settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
#: what has stood in the way of a reader before: signs of the formats, and characters of several units
WORDS = st.sampled_from(
    [
        "a",
        "B",
        "O",
        "#",
        "# newdoc",
        "-DOCSTART-",
        "%41",
        "T1",
        "é",
        "😀",
        "x/y",
        "[[",
        '"',
        "\\",
        "IL-2",
        ".",
    ]
).map(lambda w: w.replace(" ", "_"))
NAMES = st.sampled_from(["Drug", "B-Sign", "é", "a/b", "CPR:3", "."])


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@st.composite
def _sentence(draw: st.DrawFn, apart: bool) -> Sentence:
    words = tuple(draw(st.lists(WORDS, min_size=2, max_size=7)))
    cuts = draw(st.lists(st.integers(0, len(words)), min_size=2, max_size=6))
    edges = sorted(set(cuts)) if apart else cuts
    spans = {(min(a, b), max(a, b)) for a, b in zip(edges[::2], edges[1::2]) if a != b}
    entities = sorted((a, b, draw(NAMES)) for a, b in spans)
    domain = draw(st.sampled_from(["ward", "a/b", "..", "é 1"]))
    return Sentence(words, tuple(dict.fromkeys(entities)), domain)


@st.composite
def _splits(draw: st.DrawFn, item: st.SearchStrategy[Any], *first: Any) -> dict[str, list[Any]]:
    found = {s: draw(st.lists(item, min_size=1, max_size=4)) for s in SPLITS}
    found["train"] += list(first)
    return found


ENTITY = Sentence(("a", "b"), ((0, 1, "Drug"),), "ward")  # a corpus has one


def _same(
    task: str, splits: dict[str, list[Any]], to: str, kind: str, labels: Sequence[str] = ()
) -> None:
    none = (
        "None"
        if any(getattr(e, "relation", "") == "None" for s in splits.values() for e in s)
        else ""
    )
    corpus = Loaded(task, "c", "", splits, tuple(labels), none if task == "sentence" else "")
    with tempfile.TemporaryDirectory() as folder:
        out, notes = Path(folder) / "c", Notes()
        out.mkdir()
        WRITERS[to][1](corpus, out, notes)
        again = load(f"{kind}:{out}" if kind else str(out), task)
        assert not notes.all()
        found = [d for d in difference(corpus, again) if d.split != "labels" or labels]
        assert not found


@FEW
@given(_splits(_sentence(apart=True), ENTITY))
def test_entities_as_conll(splits: dict[str, list[Any]]) -> None:
    for some in splits.values():  # the one word that CoNLL cannot hold
        some[:] = [
            replace(s, words=tuple("a" if w == "-DOCSTART-" else w for w in s.words)) for s in some
        ]
    _same("ner", splits, "conll", "conll")


def test_the_word_that_conll_cannot_hold_is_refused(tmp_path: Path) -> None:
    odd = {"words": ["a", "-DOCSTART-"], "entities": [{"start": 0, "end": 1, "type": "X"}]}
    for split in SPLITS:
        rows = [odd, {**odd, "words": ["a", "b"]}]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(UserError, match="3 sentences with the word -DOCSTART-"):
        convert(str(tmp_path), tmp_path / "out", "conll")


@FEW
@given(
    _splits(_sentence(apart=False), ENTITY),
    st.sampled_from([("jsonl", "entities"), ("brat", "brat")]),
)
def test_entities_as_json_lines_and_brat(splits: dict[str, list[Any]], to: tuple[str, str]) -> None:
    _same("ner", splits, *to)


@st.composite
def _example(draw: st.DrawFn) -> Example:
    words = draw(st.lists(WORDS, min_size=2, max_size=6))
    text = draw(st.sampled_from([" ", "  ", "\n"])).join(words)
    places = [i for i, c in enumerate(text) if not c.isspace()]
    spans = [
        (a, draw(st.integers(a + 1, len(text))))
        for a in (draw(st.sampled_from(places)) for _ in "12")
    ]
    relation = draw(st.sampled_from(["None", "eases", "a b", "é"]))
    return Example(text, spans[0], spans[1], draw(NAMES), draw(NAMES), relation)


SHOWN = Example("a b", (0, 1), (2, 3), "Drug", "Drug", "eases")


@FEW
@given(_splits(_example(), SHOWN))
def test_examples_as_json_lines(splits: dict[str, list[Any]]) -> None:
    labels = sorted({e.relation for some in splits.values() for e in some})
    _same("sentence", splits, "jsonl", "jsonl", labels)


@st.composite
def _document(draw: st.DrawFn) -> Document:
    text = draw(
        st.sampled_from(
            ["Aa is bb. Then cc\r\ncame.", "😀 aa, bb; cc. Dd é.", "Aa (bb) cc\n\ndd ee"]
        )
    )
    starts = [i for i, c in enumerate(text) if c.isalnum()]
    entities = []
    for i in range(draw(st.integers(2, 4))):
        mentions = {
            (a, a + 1) for a in draw(st.lists(st.sampled_from(starts), min_size=1, max_size=3))
        }
        id = f"D{i}" if i else draw(st.sampled_from(["-1", "MESH:D0"]))
        entities.append(Entity(id, draw(NAMES), tuple(sorted(mentions))))
    numbers = st.integers(0, len(entities) - 1)
    ends = draw(st.lists(st.tuples(numbers, numbers), max_size=4, unique=True))
    relations = st.lists(st.sampled_from(["x", "a b"]), max_size=2, unique=True)
    pairs = [Pair(h, t, tuple(draw(relations)), draw(st.booleans())) for h, t in ends if h != t]
    id = draw(st.sampled_from(["1", "a/b", ".", "é 1"]))
    return Document(id, text, ((0, len(text)),), tuple(entities), tuple(pairs))


TWO = (Entity("D1", "Drug", ((0, 2),)), Entity("S1", "Sign", ((6, 8),)))
RELATED = Document("0", "Aa is bb.", ((0, 9),), TWO, (Pair(0, 1, ("x", "a b")),))


@FEW
@given(_splits(_document(), RELATED))
def test_documents_as_json_lines(splits: dict[str, list[Any]]) -> None:
    for split in SPLITS:  # a test split without relations would be replaced by dev
        splits[split] = [*splits[split], RELATED]
    _same("document", splits, "jsonl", "documents", ["a b", "x"])


@st.composite
def _row(draw: st.DrawFn) -> Row:
    words = [w.lower() for w in draw(st.lists(WORDS, min_size=2, max_size=6))]
    at = st.integers(0, len(words) - 1)
    name = st.sampled_from(["m.1", "é 1", '"'])
    return Row(
        words,
        draw(at),
        draw(at),
        draw(name),
        draw(name),
        draw(st.sampled_from(["NA", "/x", "a b"])),
    )


@FEW
@given(
    _splits(_row(), Row(["a", "b"], 0, 1, "m.1", "m.2", "/x"), Row(["a"], 0, 0, "m", "n", "a b"))
)
def test_rows_as_json_lines(splits: dict[str, list[Any]]) -> None:
    _same("distant", splits, "jsonl", "", ["NA", "/x", "a b"])


def _marked(folder: Path) -> Path:
    """Marked texts with relations, splits and concepts, as three tasks read them."""
    folder.mkdir()
    for split, n in (("train", 4), ("dev", 2), ("test", 2)):
        rows = []
        for i in range(n):
            text = f"😀 Xolidan-{i} eased the dry cough. It did, and Ardimor too."
            entities = [
                {"id": f"D{i}", "type": "Drug", "mentions": [[2, 11]]},
                {"id": "S1", "type": "Sign", "mentions": [[22, 31]]},
                {"id": "S2", "type": "Sign", "mentions": [[26, 31]]},
                {"id": "D9", "type": "Drug", "mentions": [[45, 52]]},
            ]
            facts = [{"head": f"D{i}", "tail": "S1", "relation": "eases"}] * (i != 1)
            rows.append(
                {"id": f"{split}/{i}", "text": text, "entities": entities, "relations": facts}
            )
        (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    return folder


@pytest.mark.parametrize("task", ["document", "sentence", "ner"])
@pytest.mark.parametrize("to", ["jsonl", "brat"])
def test_there_and_back_again(tmp_path: Path, task: str, to: str) -> None:
    source = _marked(tmp_path / "c")
    done = convert(str(source), tmp_path / "out", to, task=task)
    assert not done.differences and not done.notes
    back = convert(str(tmp_path / "out"), tmp_path / "back", "jsonl", task=task)
    assert not difference(done.source, load(str(tmp_path / "back"), task))
    if task != "ner":
        assert done.source.labels == load(str(tmp_path / "back"), task).labels
    assert back.source.splits.keys() == done.source.splits.keys()


def test_spans_over_each_other_are_refused_and_with_partly_reported(tmp_path: Path) -> None:
    source, out = _marked(tmp_path / "c"), tmp_path / "out"
    with pytest.raises(
        UserError, match=r'8 spans over other spans, such as "cough \(Sign\)".*--partly'
    ):
        convert(str(source), out, "conll", task="ner")
    assert not out.exists() and not list(tmp_path.glob(".convert-*"))
    done = convert(str(source), out, "conll", task="ner", partly=True)
    assert sum(d.lost for d in done.differences) == 8
    assert [(n.what, n.count) for n in done.notes] == [("spans over other spans", 8)]


def test_names_that_brat_cannot_hold_are_refused(tmp_path: Path) -> None:
    source = _marked(tmp_path / "c")
    for path in source.iterdir():
        path.write_text(path.read_text("utf-8").replace("eases", "makes better"), "utf-8")
    with pytest.raises(
        UserError, match='relations whose names BRAT cannot hold, such as "makes better"'
    ):
        convert(str(source), tmp_path / "out", "brat")
    assert not convert(str(source), tmp_path / "out", "jsonl").differences


def test_what_cannot_be_asked_for(tmp_path: Path) -> None:
    source = _marked(tmp_path / "c")
    with pytest.raises(UserError, match="conll cannot hold this task"):
        convert(str(source), tmp_path / "out", "conll", task="document")
    with pytest.raises(UserError, match="is there already"):
        convert(str(source), source, "jsonl")
    with pytest.raises(UserError, match="to"):
        convert(str(source), tmp_path / "out", "xml")


def test_the_command_says_what_it_did(tmp_path: Path) -> None:
    source = _marked(tmp_path / "c")
    shown = CliRunner().invoke(
        app, ["convert", str(source), str(tmp_path / "out"), "--task", "ner"]
    )
    assert shown.exit_code == 0
    assert "3 files as jsonl: 8 train, 4 dev, 4 test" in shown.output
    assert "read back, and the same in every item" in shown.output
