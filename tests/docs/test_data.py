"""docs/data.md: every example is read exactly as it stands there, under the name that stands there.

A section's example files are the fenced blocks that follow a line with a file name alone. Its line
"Run it" says how the folder is named.
"""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from cli.runs import settle
from config.load import load
from corpora.distant import generate as distant_made
from corpora.distant import read as distant
from corpora.distant.vectors import read_vectors
from corpora.document import generate as document_made
from corpora.document import read as documents
from corpora.formats import MARKED, NEEDS
from corpora.ner import generate as ner_made
from corpora.ner import read as ner
from corpora.sentence import generate as sentence_made
from corpora.sentence import read as sentences
from extract.read_pairs import read_candidates
from extract.read_texts import read_texts
from methods.tasks.load import load_task, task_name
from study.corpus import counts
from study.prepare import prepare
from tests.conftest import ROOT
from tests.docs.expected import ALL, DISTANT, DOCUMENTS, MARKED_TEXTS, NER, SENTENCES

PAGE = (ROOT / "docs/data.md").read_text("utf-8")
_FILE = re.compile(r"^`([\w./-]+)`\n\n```\n(.*?)\n```$", re.M | re.S)
_RUN = re.compile(r"^Run it: `make simulate METHOD=(\w+) CORPUS=(\S+)`$", re.M)
SPLITS = ("train", "dev", "test")


def _sections() -> dict[str, str]:
    parts = re.split(r"^###? (.+)$", PAGE, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


@pytest.fixture(autouse=True)
def _written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All files of the page, in a folder of their own, which is where the test stands."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for name, text in _FILE.findall(PAGE):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text + "\n", "utf-8")


def test_no_format_is_without_an_example() -> None:
    """The sections with a "Run it" are those tested here, and every reader's format has one."""
    runs = {name for name, body in _sections().items() if _RUN.search(body)}
    assert runs == set(ALL) | set(MARKED_TEXTS)
    marked = {re.findall(r"Format name:\s+`(\w+)`", _sections()[n])[0] for n in MARKED_TEXTS}
    assert marked == set(MARKED_TEXTS.values()) == set(MARKED) - {"docbin"}
    for of, formats in (
        (SENTENCES, sentences.FORMATS),
        (DOCUMENTS, documents.FORMATS),
        (NER, ner.FORMATS),
    ):
        told = {re.findall(r"Format\s+name:\s+`(\w+)`", _sections()[name])[0] for name in of}
        assert told | set(MARKED) == set(formats) - {"hub"}
    assert len(DISTANT) == len(NEEDS["distant"])


@pytest.mark.parametrize(("section", "kind"), MARKED_TEXTS.items())
def test_marked_texts(section: str, kind: str) -> None:
    """All three tasks read the same entities and relations from every one of these formats."""
    _, corpus = _named(section)
    read = ner.load(corpus)
    assert read.reading.format == kind
    rows = read.splits["test"]
    last = len(rows) - 1  # ChemDisGene's title is a sentence before it
    said = [(" ".join(rows.words(last)[a:b]), read.types[t]) for a, b, t in rows.spans(last)]
    assert said == [("Nausea", "Symptom"), ("pelutin", "Drug")]
    examples = sentences.load(corpus, 0, 0.0)
    assert examples.relations == ("causes", "eases")
    for split, size in (("train", 2), ("dev", 1), ("test", 1)):
        assert len(examples.splits[split]) == size
    (e,) = examples.examples("test")
    assert (e.text[slice(*e.head)], e.relation, e.text[slice(*e.tail)]) == (
        "pelutin",
        "causes",
        "Nausea",
    )
    whole = documents.load(corpus)
    (d,) = whole.documents("test")
    (pair,) = d.pairs
    words = [d.text[slice(*d.entities[i].mentions[0])] for i in (pair.head, pair.tail)]
    assert (words, pair.relations) == (["pelutin", "Nausea"], ("causes",))
    (first,) = whole.documents("train")
    assert (len(first.pairs), sum(bool(p.relations) for p in first.pairs)) == (4, 2)


def _named(section: str) -> tuple[str, str]:
    """(task, CORPUS) as the section's "Run it" has them."""
    (found,) = _RUN.findall(_sections()[section])
    method, corpus = found
    return task_name(load(None, {"method": method, "corpus": corpus})), corpus


@pytest.mark.parametrize("section", SENTENCES)
def test_sentences(section: str) -> None:
    expected = ALL[section]
    task, corpus = _named(section)
    read = sentences.load(corpus, 0, 0.2)
    assert (task, read.relations) == (expected.task, expected.labels)
    assert tuple(len(read.splits[s]) for s in SPLITS) == expected.sizes
    test = [
        (e.text[slice(*e.head)], e.relation, e.text[slice(*e.tail)]) for e in read.examples("test")
    ]
    assert test == expected.said
    assert expected.note in read.note


def test_the_first_example_can_be_run() -> None:
    words = {"method": "fedcmc", "corpus": "data/mine", "silos": "3"}
    # all five: fedcmc reads no public set
    assert prepare(load(None, words)).partition.sizes == (2, 2, 1)


@pytest.mark.parametrize("section", DISTANT)
def test_distant_supervision(section: str) -> None:
    expected = ALL[section]
    task, corpus = _named(section)
    read = distant.load(corpus)
    assert (task, read.relations) == (expected.task, expected.labels)
    assert tuple(len(read.split(s)) for s in SPLITS) == expected.sizes
    rows = zip(read.test.head, read.test.relation, read.test.tail)
    assert [
        (read.entities[h], read.relations[r], read.entities[t]) for h, r, t in rows
    ] == expected.said
    assert expected.note in read.note


@pytest.mark.parametrize("section", DOCUMENTS)
def test_documents(section: str) -> None:
    expected = ALL[section]
    task, corpus = _named(section)
    read = documents.load(corpus)
    assert (task, read.relations) == (expected.task, expected.labels)
    assert tuple(read.counts(s).documents for s in SPLITS) == expected.sizes
    (d,) = read.documents("test")
    pairs = {(d.entities[p.head].id, d.entities[p.tail].id): p.relations for p in d.pairs}
    assert pairs == expected.said
    assert expected.note in read.note


@pytest.mark.parametrize("section", NER)
def test_named_entities(section: str) -> None:
    expected = ALL[section]
    task, corpus = _named(section)
    read = ner.load(corpus)
    assert (task, read.types) == (expected.task, expected.labels)
    assert tuple(len(read.splits[s]) for s in SPLITS) == expected.sizes
    rows = read.splits["test"]
    words = rows.words(0)
    assert [(" ".join(words[a:b]), read.types[t]) for a, b, t in rows.spans(0)] == expected.said
    assert expected.note in read.note


def test_conll_without_splits_types_or_the_usual_order() -> None:
    option = re.compile(r'^With options: `make simulate (.*?)(?: SET="(.*)")?`$', re.M)
    first, second = option.findall(_sections()["CoNLL columns"])
    words = [*first[0].split(), f"SET={first[1]}"]
    overrides, _ = settle(words, {}, None, None)
    task = load_task(load(None, overrides))
    assert (task.name, task.labels) == ("ner", ("Symptom",))
    found = counts(task)
    assert (
        sum(c.units for c in found.values()) == 4 == sum(c.documents or 0 for c in found.values())
    )
    assert sum(c.mentions for c in found.values()) == 3
    assert "became dev, by a hash" in task.corpus_note
    folders = ner.load(second[0].partition("CORPUS=")[2])
    assert [len(folders.splits[s]) for s in SPLITS] == [2, 1, 1] and folders.domains == ("wards",)


def _run_python(section: str) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", _sections()[section], re.M | re.S)
    exec(compile(code, section, "exec"), {})


@pytest.mark.parametrize("folder", ["data/parquet", "data/saved"])
def test_parquet_and_saved_datasets(folder: str) -> None:
    _run_python("Tables")
    read = sentences.load(folder, 0, 0.0)
    (first, second) = read.examples("test")
    assert (first.relation, first.text[slice(*first.head)]) == ("eases", "Xolidan")
    assert (second.relation, second.text[slice(*second.tail)]) == ("causes", "rash")
    assert read.reading.format == "table"


def test_spacy() -> None:
    pytest.importorskip("spacy")
    _run_python("spaCy")
    read = ner.load("data/docbin")
    rows = read.splits["test"]
    said = [(" ".join(rows.words(0)[a:b]), read.types[t]) for a, b, t in rows.spans(0)]
    assert said == [("Xolidan", "Drug"), ("dry cough", "Symptom")]


def test_the_genre_is_the_domain() -> None:
    assert ner.load("data/ontonotes").domains == ("bc", "nw")


def test_a_list_of_folders_is_several_domains_and_a_mapping_renames_types() -> None:
    read = ner.load("data/notes,data/brat")
    assert (read.domains, read.types) == (("notes", "brat"), ("Drug", "Symptom"))
    assert ner.read_mapping(Path("data/mapping.txt")) == {"Complaint": "Symptom", "Duration": ""}


def test_word_vectors() -> None:
    words, matrix = read_vectors("data/vectors.txt", 3)
    assert words == ("the", "cough", "fever") and matrix.shape == (3, 3)


def test_text_for_a_trained_model() -> None:
    marked = [c.example for c in read_candidates(["new/marked.txt"])]
    assert [(e.text[slice(*e.head)], e.text[slice(*e.tail)], e.tail_type) for e in marked] == [
        ("Xolidan", "cough", "symptom"),
        ("xolidan", "rash", "symptom"),
    ]
    assert [c.id for c in read_candidates(["new/pairs.jsonl"])] == ["a1", "a2.1", "a2.2"]
    (document,) = read_texts(["new/documents.jsonl"])
    assert [document.text[slice(*e.mentions[0])] for e in document.entities] == [
        "Xolidan",
        "cough",
        "rash",
    ]
    (plain,) = read_texts(["new/plain.txt"])
    assert plain.plain and plain.text.endswith("A rash came.\n")


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("distant", distant_made.SETTINGS["distant"]),
        ("sentence", sentence_made.SETTINGS["sentence"]),
        ("document", document_made.SETTINGS["document"]),
        ("ner", ner_made.SETTINGS["ner"]),
    ],
)
def test_the_table_of_built_in_corpora_has_every_option_and_its_default(
    name: str, recipe: object
) -> None:
    rows = re.findall(r"^\| (?:`([\w-]+)`)? ?\| `(\w+)` \| [^|]+ \| ([\d.]+) \|$", PAGE, re.M)
    told: dict[str, dict[str, str]] = {}
    corpus = ""
    for first, option, default in rows:
        corpus = first or corpus
        told.setdefault(corpus, {})[option] = default
    assert told[name] == {
        f.name: str(getattr(recipe, f.name))
        for f in fields(recipe)  # type: ignore[arg-type]
        if f.name != "seed"
    }
    if name == "distant":
        larger = distant_made.SETTINGS["nyt10-sized"]
        for f in fields(larger):
            if getattr(larger, f.name) != getattr(recipe, f.name):
                assert f"`{f.name}={getattr(larger, f.name)}`" in PAGE
