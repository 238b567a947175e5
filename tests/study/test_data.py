"""What a run is given: nothing is set aside, cut or ignored without a word."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from bench.simulation.run import simulate
from config.errors import UserError
from config.load import dump, load
from config.settings import Settings
from methods.tasks.load import load_task
from methods.tasks.words import data_lines
from study.prepare import prepare


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _pairs(folder: Path, relations: tuple[str, ...] = ("eases", "causes"), long: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", 40), ("dev", 8), ("test", 8)):
        rows = []
        for i in range(count):
            text = f"xol number {i} eased a cough" + " and so on" * (100 if i < long else 0)
            tail = text.index("cough")
            entities = {"head": {"start": 0, "end": 3}, "tail": {"start": tail, "end": tail + 5}}
            rows.append(
                json.dumps({"text": text, **entities, "relation": relations[i % len(relations)]})
            )
        (folder / f"{name}.jsonl").write_text("\n".join(rows))
    return folder


def _words(folder: Path, method: str, **more: str) -> dict[str, str]:
    return {"method": method, "corpus": str(folder), "silos": "4", **more}


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "fedcmc", "moon", "centralised", "local"])
def test_a_method_without_a_public_set_trains_on_everything(tmp_path: Path, method: str) -> None:
    study = prepare(load(None, _words(_pairs(tmp_path / "c"), method)))
    assert sum(study.partition.sizes) == 40
    assert not [n for n in study.task.notes() if n.kind == "set aside"]


@pytest.mark.parametrize("method", ["feded", "public_only"])
def test_a_public_set_is_said_with_what_is_left(tmp_path: Path, method: str) -> None:
    study = prepare(load(None, _words(_pairs(tmp_path / "c"), method)))
    assert sum(study.partition.sizes) == 32
    (note,) = (n for n in study.task.notes() if n.kind == "set aside")
    assert (note.count, "32 are trained on" in note.what) == (8, True)


def test_a_reference_takes_what_its_method_takes(tmp_path: Path) -> None:
    words = _words(_pairs(tmp_path / "c"), "local") | {"options.of": "feded"}
    assert sum(prepare(load(None, words)).partition.sizes) == 32
    words = _words(_pairs(tmp_path / "c"), "fedavg") | {"options.public": "0.2"}
    assert sum(prepare(load(None, words)).partition.sizes) == 32


def test_first_lines_summary_and_report_say_files_cuts_and_what_is_trained_on(
    tmp_path: Path,
) -> None:
    folder = _pairs(tmp_path / "mine", long=5)
    words = _words(folder, "fedavg", rounds="1", epochs="1", runner="inprocess")
    console = Console(record=True, width=300, force_terminal=False)
    assert simulate(load(None, words | {"out": str(tmp_path / "runs")}), console) == 0
    said = console.export_text()
    files = "mine read as jsonl: train from train.jsonl; dev from dev.jsonl; test from test.jsonl"
    cut = "cut: 5 train sentences are longer than the window of 128 pieces"
    assert files in said and cut in said
    assert "trained on: 40 sentences, divided among 4 silos" in said
    run = (tmp_path / "runs" / "latest").resolve()
    summary = json.loads((run / "summary.json").read_text("utf-8"))
    assert summary["corpus_files"] == files and cut in summary["corpus_note"]
    for name in ("report.html", "report.md"):
        report = (run / name).read_text("utf-8")
        assert "train from train.jsonl" in report and cut in report


def test_one_class_only_is_warned_of_beside_the_metric(tmp_path: Path) -> None:
    folder = _pairs(tmp_path / "mine", relations=("eases",))
    words = _words(folder, "fedavg", rounds="1", epochs="1", runner="inprocess")
    console = Console(record=True, width=300, force_terminal=False)
    assert simulate(load(None, words | {"out": str(tmp_path / "runs")}), console) == 0
    said = console.export_text()
    warned = 'all of the test split is of the class "eases": its micro_f1 says nothing'
    assert said.count(f"warning: {warned}") == 2  # in the first lines, and above the figure
    run = (tmp_path / "runs" / "latest").resolve()
    assert json.loads((run / "summary.json").read_text("utf-8"))["warning"] == warned
    assert "says nothing" in (run / "report.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("method", "corpus", "key"),
    [
        ("lazymil", "distant:sentences=400", "encoder"),
        ("lazymil", "distant:sentences=400", "seq2seq"),
        ("fedcmc", "sentence", "vectors"),
        ("fedcmc", "sentence", "seq2seq"),
        ("fedlcc", "document", "vectors"),
        ("fedner", "ner", "encoder"),
        ("tagger", "ner", "seq2seq"),
    ],
)
def test_a_checkpoint_that_nobody_would_use_is_refused(method: str, corpus: str, key: str) -> None:
    settings = load(None, {"method": method, "corpus": corpus, key: "/nope"})
    with pytest.raises(UserError, match=f"{key.upper()} names .* leave it out"):
        load_task(settings)


@pytest.mark.parametrize("key", ["rounds", "epochs", "batch", "silos", "lr"])
def test_zero_is_no_way_to_ask_for_the_default(tmp_path: Path, key: str) -> None:
    with pytest.raises(UserError, match=f"{key.upper()} must be .*, not 0"):
        load(None, {key: "0"})
    path = tmp_path / "study.toml"
    path.write_text(f"{key} = 0\n")
    with pytest.raises(UserError, match=f"study.toml: {key.upper()} must be"):
        load(path, {})


def test_what_is_left_open_stays_open_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(dump(Settings(), {}))
    assert load(path, {}) == Settings()


def test_documents_that_lose_mentions_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / "long"
    folder.mkdir()
    for name in ("train", "dev", "test"):
        rows = []
        for i in range(4):
            text = f"Xol caused rash . {'so it went on ' * (600 if i == 0 else 1)}and xol again ."
            late = text.rindex("xol")
            rows += [
                f"{i}|t|Rash{i}.",
                f"{i}|a|{text}",
                f"{i}\t7\t10\tXol\tChemical\tC1",
                f"{i}\t18\t22\trash\tDisease\tD1",
                f"{i}\t{late + 7}\t{late + 10}\txol\tChemical\tC1",
                f"{i}\tCID\tC1\tD1",
                "",
            ]
        (folder / f"{name}.txt").write_text("\n".join(rows))
    task = load_task(load(None, {"method": "fedlcc", "corpus": str(folder)}))
    said = data_lines(task)
    for split in ("train", "dev", "test"):
        assert f"cut: 1 mentions of {split} documents lie beyond that and are lost" in said


@pytest.mark.parametrize("method", ["fedner", "tagger"])
def test_sentences_that_lose_mentions_are_counted(tmp_path: Path, method: str) -> None:
    folder = tmp_path / "long"
    folder.mkdir()
    plain, tail = "cough\tB-Sign\n\n", "dry\tB-Sign\ncough\tI-Sign\nrash\tB-Sign\n\n"
    long = "rash\tB-Sign\n" + "so\tO\n" * 300 + tail
    for name, text in (("train", plain * 3 + long * 2), ("dev", plain + long), ("test", plain)):
        (folder / f"{name}.txt").write_text(text)
    task = load_task(load(None, {"method": method, "corpus": str(folder)}))
    cut = [line for line in data_lines(task) if line.startswith("cut: ")]
    window = "sentences are longer than the window of 128 pieces"
    assert cut == [
        f"cut: 2 train {window}",
        "cut: 4 mentions of train sentences lie beyond that and are lost",
        f"cut: 1 dev {window}",
        "cut: 2 mentions of dev sentences lie beyond that and are lost",
    ]


def _own_documents(folder: Path) -> Path:
    folder.mkdir()
    marks = "1\t7\t10\tXol\tChemical\tC1\n1\t18\t22\trash\tDisease\tD1\n1\tCID\tC1\tD1\n"
    for name in ("train", "dev", "test"):
        (folder / f"{name}.txt").write_text(f"1|t|Rash1.\n1|a|Xol caused rash .\n{marks}\n")
    return folder


def _own_entities(folder: Path) -> Path:
    folder.mkdir()
    for name in ("train", "dev", "test"):
        (folder / f"{name}.txt").write_text("dry\tB-Sign\ncough\tI-Sign\n\n" * 4)
    return folder


def _own_bags(folder: Path) -> Path:
    folder.mkdir()
    text = {"text": "xol eased a cough", "relation": "eases"}
    ends = {"h": {"id": "1", "name": "xol"}, "t": {"id": "2", "name": "cough"}}
    ends["h"]["pos"], ends["t"]["pos"] = [0, 3], [12, 17]  # type: ignore[assignment]
    for name in ("train", "val", "test"):
        lines = [json.dumps(text | ends | {"relation": r}) for r in ("eases", "NA")]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return folder


def _statistics_are_built_in(method: str, corpus: object, **more: str) -> bool:
    words = {"method": method, "corpus": str(corpus), **more}
    notes = load_task(load(None, words)).notes()
    return any("standardised by built-in text" in n.what for n in notes)


_BUDGET = {"dp": "record", "epsilon": "3"}


@pytest.mark.parametrize(
    ("method", "own", "built_in", "public"),
    [
        ("fedavg", _pairs, "sentence:sentences=200", "own"),
        ("fedlcc", _own_documents, "document:documents=20", "document:documents=10"),
        ("fedner", _own_entities, "ner:sentences=60", "ner:sentences=30"),
        ("lazymil", _own_bags, "distant:sentences=200", "distant:sentences=100"),
    ],
)
def test_a_head_under_a_budget_says_that_its_features_fit_built_in_text(
    tmp_path: Path, method: str, own: Callable[[Path], Path], built_in: str, public: str
) -> None:
    corpus = own(tmp_path / "own")
    assert _statistics_are_built_in(method, corpus, **_BUDGET)
    assert not _statistics_are_built_in(method, corpus)
    assert not _statistics_are_built_in(method, built_in, **_BUDGET)
    # also before the coordinator has trained on it, when a run or a doctor says what it reads
    assert not _statistics_are_built_in(method, corpus, public=public, **_BUDGET)


def test_enough_public_sentences_of_the_corpus_are_what_features_are_standardised_by(
    tmp_path: Path,
) -> None:
    folder = _pairs(tmp_path / "many")
    lines = (folder / "train.jsonl").read_text().splitlines()
    texts = [line.replace("number", f"number {k}") for k in range(25) for line in lines]
    (folder / "train.jsonl").write_text("\n".join(texts))
    few = _BUDGET | {"options.public": "0.3"}
    assert _statistics_are_built_in("fedavg", folder, **few)
    assert not _statistics_are_built_in("fedavg", folder, **few | {"options.public": "0.5"})
