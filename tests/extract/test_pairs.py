"""A trained model in use: `extract` gives what the task itself computes, and says what is wrong
with its input.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli import main as cli
from config.errors import UserError
from config.load import dump, with_task_defaults
from config.settings import Settings
from coordinator.checkpoint import save_model
from corpora.sentence.table import Example
from extract.evaluate import evaluate_model
from extract.pairs import Extractor, Found, open_extractor
from extract.read_pairs import Candidate, read_candidates
from methods.common.steps import optimizer_of
from methods.common.training import parameters
from methods.tasks.distant import DistantTask
from methods.tasks.distant_bags import Rows
from methods.tasks.sentence import SentenceTask
from tests.methods.small_distant import HELD_OUT, twelve
from tests.methods.small_sentence import tiny_task

MARKED = "<e1:drug>Aspra</e1> cures <e2>tussa</e2> .\n"


def trained(task: Any, epochs: int, lr: float) -> Any:
    model = task.new_model(0)
    settings = with_task_defaults(Settings(lr=lr), task.name)
    optimizer = optimizer_of(settings, model.parameters(), lr)
    everything, rng = task.subset(np.arange(task.train_size())), np.random.default_rng(0)
    for _ in range(epochs):
        for batch in task.batches(everything, 4, rng):
            optimizer.zero_grad()
            task.loss(model, batch).backward()
            optimizer.step()
    return model.eval()


@pytest.fixture(scope="module")
def distant(tmp_path_factory: pytest.TempPathFactory) -> tuple[DistantTask, Any, Path]:
    task = twelve()
    model, folder = trained(task, 60, 0.2), tmp_path_factory.mktemp("distant") / "model"
    save_model(folder, parameters(model), task.model_files())
    return task, model, folder


@pytest.fixture(scope="module")
def sentence(tmp_path_factory: pytest.TempPathFactory) -> tuple[SentenceTask, Any, Path]:
    task = tiny_task("feded")
    model, folder = trained(task, 1, 0.01), tmp_path_factory.mktemp("sentence") / "model"
    save_model(folder, parameters(model), task.model_files())
    return task, model, folder


def of(text: str, head: str, tail: str) -> Candidate:
    a, b = text.index(head), text.index(tail)
    return Candidate(
        text, Example(text, (a, a + len(head)), (b, b + len(tail)), "entity", "entity", "")
    )


def _pairs(folder: Path, candidates: list[Candidate]) -> list[Found]:
    extractor = open_extractor(folder)
    assert isinstance(extractor, Extractor)
    return list(extractor.extract(candidates, lambda n: None))


def test_bags_are_judged_as_the_task_judges_them(distant: tuple[DistantTask, Any, Path]) -> None:
    task, model, folder = distant
    found = _pairs(folder, [of(*row[:3]) for row in HELD_OUT])
    rows = Rows(task.corpus.test, np.arange(len(task.corpus.test)))
    bags = task.bags(rows, by_label=False)
    scores = task.bag_scores(model, rows, bags)
    names = task.corpus.entities
    expected = {
        (names[task.corpus.test.head[i]], names[task.corpus.test.tail[i]]): row
        for i, row in zip(bags.first, scores)
    }
    assert len(found) == len(expected) == 4
    for f in found:
        e = f.candidates[0].example
        row = expected[e.text[slice(*e.head)], e.text[slice(*e.tail)]]
        assert list(f.scores.values()) == pytest.approx(row.tolist(), abs=1e-6)
    # It has learnt what "cures" says, of a disease that no silo has ever named; the telling
    # sentence comes first.
    assert found[0].relation == "treats" and [c.id for c in found[0].candidates] == [
        HELD_OUT[0][0],
        HELD_OUT[1][0],
    ]
    assert found[1].relation == "causes"


def test_sentences_are_judged_as_the_task_judges_them(
    sentence: tuple[SentenceTask, Any, Path],
) -> None:
    task, model, folder = sentence
    examples = list(task.corpus.examples("test"))
    found = _pairs(folder, [Candidate(str(i), e) for i, e in enumerate(examples)])
    expected = np.exp(task.log_probabilities(model, task.data("test")))
    assert np.allclose([list(f.scores.values()) for f in found], expected, atol=1e-5)
    assert [f.candidates[0].id for f in found] == [str(i) for i in range(len(examples))]
    best = [task.labels[int(k)] for k in expected.argmax(axis=1)]
    nothing = task.labels[task.none]
    assert nothing in best  # so that saying nothing is tried
    assert [f.relation for f in found] == [None if b == nothing else b for b in best]


def test_plain_text_and_json_lines_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(
        MARKED + "\n<e2:illness>tussa</e2> by <e1>dolox</e1>\n", "utf-8"
    )
    rows = [
        {
            "text": "Aspra cures tussa .",
            "head": {"start": 0, "end": 5, "type": "drug"},
            "tail": {"start": 12, "end": 17},
        },
        {
            "text": "é tussa ab",
            "entities": [{"start": 2, "end": 7}, {"start": 8, "end": 10}, {"start": 0, "end": 1}],
        },
    ]
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), "utf-8")
    (tmp_path / "notes.md").write_text("not read", "utf-8")
    found = read_candidates([str(tmp_path)])
    assert [c.id for c in found] == [
        "a.txt:1",
        "a.txt:3",
        "b.jsonl:1",
        *(f"b.jsonl:2.{k}" for k in range(1, 7)),
    ]
    assert found[0].example == Example(
        "Aspra cures tussa .", (0, 5), (12, 17), "drug", "entity", ""
    )
    assert found[2].example == found[0].example
    assert found[1].example == Example("tussa by dolox", (9, 14), (0, 5), "entity", "illness", "")
    assert {(c.example.head, c.example.tail) for c in found[3:]} == {
        (a, b) for a in ((2, 7), (8, 10), (0, 1)) for b in ((2, 7), (8, 10), (0, 1)) if a != b
    }


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "empty"),
        (b"\n \n", "empty"),
        (MARKED.encode() + b"caf\xe9 <e1>a</e1> <e2>b</e2>\n", "line 2: byte 46 is not UTF-8"),
        (b"no entity here\n", "line 1: it does not have both entities; mark them"),
        (b"<e1>a</e1> <e1>b</e1>\n", "<e1> stands twice"),
        (b"a</e1> <e2>b</e2>\n", "</e1> closes what was not opened"),
        (b"<e1></e1> <e2>b</e2>\n", "the head span 0-0 does not lie in a text"),
        (
            b'{"text": "ab", "head": {"start": 0, "end": 1}, "tail": {"start": 1, "end": 9}}\n',
            "the tail span 1-9",
        ),
        (
            b'{"text": "ab", "head": {"start": -1, "end": 1}, "tail": {"start": 1, "end": 2}}\n',
            "the head span -1-1",
        ),
        (b'{"text": "ab", "head": {"start": 0, "end": 1}}\n', "there is no 'tail' in it"),
        (
            b'{"text": "ab", "entities": [{"start": 0, "end": 1}]}\n',
            "1 entities where at least two",
        ),
        (b'{"text": "ab"\n', "not JSON"),
        (b'{"text": 3, "head": {}, "tail": {}}\n', "text must be a string"),
        (
            b'{"text": "ab", "head": {"start": "0", "end": 1}, "tail": {}}\n',
            "must be whole numbers",
        ),
    ],
)
def test_what_is_wrong_with_the_input_is_said_in_a_sentence(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    file = tmp_path / "in.txt"
    file.write_bytes(content)
    with pytest.raises(UserError) as e:
        read_candidates([str(file)])
    assert sentence in str(e.value) and str(file) in str(e.value)


def test_a_wrong_model_is_named_in_a_sentence(
    distant: tuple[DistantTask, Any, Path], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="is not a folder"):
        open_extractor(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no config.json"):
        open_extractor(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="does not describe a model"):
        open_extractor(tmp_path)
    (tmp_path / "config.json").write_text('{"architecture": "oracle"}')
    with pytest.raises(UserError, match="a oracle model, which extract cannot use"):
        open_extractor(tmp_path)
    task, model, _ = distant
    save_model(tmp_path, parameters(model), task.model_files())
    (tmp_path / "vocabulary.txt").unlink()
    with pytest.raises(UserError, match="vocabulary.txt is missing"):
        open_extractor(tmp_path)
    save_model(tmp_path, parameters(tiny_task().new_model(0)), task.model_files())
    with pytest.raises(UserError, match="not those of its config.json"):
        open_extractor(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(UserError, match="is damaged"):
        open_extractor(tmp_path)


def test_the_command_reads_standard_input_and_writes_json_lines(
    distant: tuple[DistantTask, Any, Path], tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    typed = MARKED + "<e1>aspra</e1> near <e2>tussa</e2> .\n<e1>febra</e1> near <e2>tussa</e2> .\n"

    def said(*words: str) -> str:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
        with pytest.raises(SystemExit) as end:
            cli.main(["extract", str(distant[2]), *words])
        assert end.value.code == 0
        return str(capsys.readouterr().out)

    (line,) = map(json.loads, said().splitlines())
    assert (line["relation"], line["head"]["text"], line["tail"]["start"]) == (
        "treats",
        "Aspra",
        12,
    )
    assert line["sentences"] == ["standard input:1", "standard input:2"]
    assert line["score"] == pytest.approx(max(line["scores"].values()))
    both = [json.loads(x) for x in said("--none").splitlines()]
    assert [x["relation"] for x in both] == ["treats", None]
    assert said("--least", "1.1") == ""
    assert "treats" in said("--format", "terminal") and "(2 sentences)" in said(
        "--format", "terminal"
    )
    assert said("--output", str(tmp_path / "out.jsonl")) == ""
    assert json.loads((tmp_path / "out.jsonl").read_text())["relation"] == "treats"


def test_evaluate_gives_the_summarys_figures_again(tmp_path: Path) -> None:
    """A run on a built-in corpus, in this process; then its model from the folder, by its own split
    and another's.
    """
    from bench.simulation.inprocess import run_inprocess
    from config.load import load
    from study.prepare import prepare

    words = {
        "method": "fedavg",
        "corpus": "distant:sentences=600",
        "silos": "3",
        "rounds": "1",
        "epochs": "1",
    }
    study = prepare(load(None, {**words, "runner": "inprocess"}))
    assert run_inprocess(tmp_path, study) == 0
    (tmp_path / "config.toml").write_text(dump(study.settings, {}), "utf-8")
    summary = json.loads((tmp_path / "summary.json").read_text("utf-8"))
    _, result = evaluate_model(tmp_path, "", "test")
    assert (result.value, dict(result.figures), dict(result.per_class)) == (
        summary["value"],
        summary["figures"],
        summary["per_class"],
    )
    _, other = evaluate_model(tmp_path / "model", "distant:sentences=800", "test")
    assert 0 < other.value < 1 and other.value != result.value
    with pytest.raises(UserError, match="is for sentence|is for document|same classes"):
        evaluate_model(tmp_path, "sentence", "test")
    (tmp_path / "config.toml").unlink()
    with pytest.raises(UserError, match="config.toml beside it"):
        evaluate_model(tmp_path, "", "test")
