"""A study on own data names its classes: silos that lack some, a coordinator without training data
and whoever only asks for the hash all mean the same study. What the study does not name is counted
and refused, or mapped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from config.errors import UserError
from config.site import read_site
from config.study import read_study
from coordinator.program import coordinator_study
from silo.home import Home
from silo.program import rules_of, silo_study
from study.agreement import Agreed, page
from study.machine import Machine
from study.public_start import public_words, start_publicly
from tests.consortium import Consortium
from tests.methods import small_document, small_ner, small_sentence


@pytest.fixture
def parties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Consortium:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Consortium(tmp_path)


# The same small data in the forms of the four tasks: (text, class) by file


def _sentences(labels: Sequence[str]) -> str:
    rows = []
    for i, label in enumerate(labels):
        text = f"xol number {i} eased a cough"
        spans = {"head": {"start": 0, "end": 3}, "tail": {"start": len(text) - 5, "end": len(text)}}
        rows.append(json.dumps({"text": text, **spans, "relation": label}))
    return "\n".join(rows)


def _bags(labels: Sequence[str]) -> str:
    rows = []
    for i, label in enumerate(labels):
        text = f"xol{i} eased a cough"
        head = {"name": f"xol{i}", "id": f"x{i}", "pos": [0, len(f"xol{i}")]}
        tail = {"name": "cough", "id": "c", "pos": [len(text) - 5, len(text)]}
        rows.append(json.dumps({"text": text, "h": head, "t": tail, "relation": label}))
    return "\n".join(rows)


def _documents(labels: Sequence[str]) -> str:
    rows = []
    for i, label in enumerate(labels):
        text = f"Xol number {i} eased a cough."
        entities = [
            {"id": "x", "type": "Drug", "mentions": [[0, 3]]},
            {"id": "c", "type": "Disease", "mentions": [[len(text) - 6, len(text) - 1]]},
        ]
        pairs = [{"head": 0, "tail": 1, "relations": [label]}]
        sentences = [[0, len(text)]]
        rows.append(
            json.dumps(
                {"id": f"d{i}", "text": text, "sentences": sentences, "entities": entities}
                | {"pairs": pairs}
            )
        )
    return "\n".join(rows)


def _tags(labels: Sequence[str]) -> str:
    return "\n\n".join(f"Xol B-{label}\nnumber O\n{i} O" for i, label in enumerate(labels)) + "\n"


FORMS = {
    "sentence": (_sentences, "jsonl", "fedavg"),
    "distant": (_bags, "jsonl", "lazymil"),
    "document": (_documents, "jsonl", "fedlcc"),
    "ner": (_tags, "conll", "fedner"),
}
CHECKPOINTS = {
    "sentence": {"encoder": small_sentence.tiny_folder},
    "distant": {},
    "document": {"encoder": small_document.tiny_folder},
    "ner": {"seq2seq": small_ner.tiny_folder},
}
CLASSES = ["causes", "eases", "worsens"]


class Own:
    """A consortium whose parties have folders of their own."""

    def __init__(self, parties: Consortium, task: str, more: str = "") -> None:
        self.parties, self.task = parties, task
        self.write, self.ending, method = FORMS[task]
        self.checkpoints = {k: str(make()) for k, make in CHECKPOINTS[task].items()}
        options = {"sentence": "max_length = 32", "ner": "max_length = 32"}.get(task, "")
        block = "block = 8\nmax_length = 64" if task == "document" else options
        named = f'task = "{task}"\n' if task == "sentence" else ""
        (parties.path / "study.toml").write_text(
            f'title = "Own data"\nmethod = "{method}"\nrounds = 1\n[options]\n{block}\n'
            f"[data]\n{named}classes = {json.dumps(CLASSES)}\n{more}"
        )

    def folder(self, name: str, **splits: Sequence[str]) -> Path:
        folder = self.parties.path / f"data-{name}"
        folder.mkdir(exist_ok=True)
        for split, labels in splits.items():
            (folder / f"{split}.{self.ending}").write_text(self.write(labels))
        return folder

    def silo(self, name: str, labels: Sequence[str], **more: str) -> Agreed:
        corpus = self.folder(name, train=labels)
        self.parties.site(name, 1, corpus=str(corpus), **self.checkpoints, **more)
        site = read_site(self.parties.path / f"{name}.toml")
        return silo_study(site, Home(site.home), rules_of(site.limits))

    def hub(self, corpus: Path | None) -> Agreed:
        machine = Machine(self.parties.path / "hub", corpus=str(corpus or ""), **self.checkpoints)
        study = read_study(self.parties.path / "study.toml")
        return coordinator_study(study, self.parties.roster, machine, scores=corpus is not None)


@pytest.mark.parametrize("task", FORMS)
def test_everybody_means_the_same_study(parties: Consortium, task: str) -> None:
    """One silo lacks a class, another has one only; nobody has both training and test data."""
    own = Own(parties, task)
    silos = [
        own.silo("north", ["eases", "causes"] * 4),
        own.silo("east", ["worsens"] * 5),
        own.silo("south", ["causes", "worsens", "eases"] * 2),
    ]
    hub = own.hub(own.folder("hub", dev=["eases", "causes"], test=["worsens", "eases"]))
    asked = own.hub(None)
    assert len({of.hash for of in (*silos, hub, asked)}) == 1
    # every record of a silo is trained on, none is held out, and only its own
    for number, (of, count) in enumerate(zip(silos, (8, 5, 6))):
        assert [len(ix) for ix in of.prepared.partition.indices] == [
            count if i == number else 0 for i in range(3)
        ]
    named = dict(enumerate(hub.prepared.task.labels))
    east = silos[1].prepared
    counts = east.task.label_counts(east.partition.indices[1])
    assert {named[int(c)]: int(counts[c]) for c in np.flatnonzero(counts)} == {"worsens": 5}
    assert hub.prepared.task.train_size() == 0
    assert list(hub.prepared.task.held_out("test").values())[0] == 2


@pytest.mark.parametrize("task", FORMS)
def test_a_class_that_the_study_does_not_name(parties: Consortium, task: str) -> None:
    own = Own(parties, task)
    labels = ["eases", "helps", "helps", "odd", "causes", "causes"]
    with pytest.raises(UserError) as refused:
        own.silo("north", labels)
    assert '"helps" (2), "odd" (1)' in str(refused.value) and "mapping" in str(refused.value)
    file = parties.path / "classes.txt"
    file.write_text("helps = eases  # as we call it\nodd =\nnever = causes\n")
    of = own.silo("north", labels, mapping="classes.txt")
    assert of.hash == own.hub(None).hash
    task_ = of.prepared.task
    counts = dict(zip(task_.labels, task_.label_counts(of.prepared.partition.indices[0]).tolist()))
    assert (counts["eases"], counts["causes"], counts["worsens"]) == (3, 2, 0)
    said = " ".join(n.sentence() for n in task_.notes())
    assert '2 "helps" was read as "eases"' in said and '1 "odd" was left out' in said
    assert 'the mapping names "never"' in said
    file.write_text("helps = easing\n")
    with pytest.raises(UserError, match='leads to "easing"'):
        own.silo("north", labels, mapping="classes.txt")


def test_a_silo_annotates_what_the_study_says(parties: Consortium) -> None:
    """A type of its tag set that it never found is annotated all the same; others are refused."""
    own = Own(parties, "ner", '[data.tags]\nnorth = ["causes", "eases"]\n')
    of = own.silo("north", ["eases"] * 4)
    known = of.prepared.task.subset(np.arange(4)).known_types(0)
    assert known.tolist() == [True, True, False]
    with pytest.raises(UserError, match=r'annotates by the study.*"worsens" \(1\)'):
        own.silo("north", ["eases", "worsens"])
    (parties.path / "study.toml").write_text(
        (parties.path / "study.toml").read_text().replace("north =", "nobody =")
    )
    with pytest.raises(UserError, match="names nobody, which is not in the roster"):
        own.silo("north", ["eases"])


def test_what_a_folder_calls_no_relation_is_the_studys_none(parties: Consortium) -> None:
    own = Own(parties, "sentence", 'none = "worsens"\n')
    of = own.silo("north", ["eases", "no_relation", "causes"])
    counts = of.prepared.task.label_counts(np.arange(3))
    assert dict(zip(of.prepared.task.labels, counts.tolist())) == {
        "causes": 1,
        "eases": 1,
        "worsens": 1,
    }


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("classes = []", "data.classes must be a list of names"),
        ('classes = ["a", "a"]', "each of them once"),
        ('classes = ["a"]\nnone = "b"', "data.none must be one of"),
        ('classes = ["a"]\nnome = "a"', 'unknown key "data.nome"'),
        ('classes = ["a"]\n[data.tags]\nnorth = ["b"]', 'has "b", which is none of the classes'),
    ],
)
def test_a_mistake_in_the_study_is_one_sentence(tmp_path: Path, said: str, words: str) -> None:
    file = tmp_path / "study.toml"
    file.write_text(f'title = "t"\n[data]\n{said}\n')
    with pytest.raises(UserError, match=words):
        read_study(file)


def test_what_fits_no_study_on_own_data_is_said(parties: Consortium) -> None:
    own = Own(parties, "sentence", 'none = "eases"\n')
    study = parties.path / "study.toml"
    whole = study.read_text()
    study.write_text(whole.replace('task = "sentence"\n', ""))
    with pytest.raises(UserError, match="data.task must be distant or sentence"):
        own.hub(None)
    study.write_text(whole.replace('task = "sentence"', 'task = "document"'))
    with pytest.raises(UserError, match="data.none is for sentence relations"):
        own.hub(None)
    study.write_text('title = "t"\nmethod = "fedavg"\n')
    with pytest.raises(UserError, match=r"names no classes.*has \[data\]"):
        own.silo("north", ["eases"])
    study.write_text(whole.replace('"fedavg"', '"feded"'))
    with pytest.raises(UserError, match="reads a public set"):
        own.hub(None)
    study.write_text(whole)
    with pytest.raises(UserError, match="there is no folder"):
        own.hub(Path("/nowhere/at/all"))


PART = {"sentence": "head", "distant": "top:1", "document": "top:1", "ner": "prompts"}


@pytest.mark.parametrize("task", FORMS)
def test_a_study_that_starts_from_public_text_of_the_coordinators(
    parties: Consortium, task: str, tmp_path: Path
) -> None:
    """Silos agree that there is some, need none of it, and the consent text says what they are sent;
    a folder of public text has the study's classes, or is refused.
    """
    own = Own(parties, task)
    file = parties.path / "study.toml"
    said = f'public = "folder"\npublic_epochs = 1\ntrain = "{PART[task]}"\nmethod'
    file.write_text(file.read_text().replace("method", said, 1))
    silo = own.silo("north", ["eases", "causes"] * 4)
    held_out = own.folder("hub", dev=["eases", "causes"], test=["worsens", "eases"])
    text = own.folder("public", train=["worsens", "causes", "eases"] * 2)

    def hub(public: Path) -> Agreed:
        machine = Machine(parties.path / "hub", corpus=str(held_out), **own.checkpoints)
        machine = replace(machine, public=str(public))
        return coordinator_study(read_study(file), parties.roster, machine)

    of = hub(text)
    assert of.hash == silo.hash and page(silo) == page(of)
    assert "numbers, is sent to each silo once, which keeps it. Nothing leaves" in page(silo)
    before = {k: v.copy() for k, v in of.prepared.task.not_trained().items()}
    start_publicly(tmp_path, of.prepared.settings, of.prepared.task)
    after = of.prepared.task.not_trained()
    assert any(not np.array_equal(after[k], before[k]) for k in before)
    odd = own.folder("odd", train=["cures", "eases"])
    other = hub(odd).prepared
    with pytest.raises(UserError, match=r'PUBLIC: .*"cures" \(1\)'):
        public_words(other.settings, other.task)
    file.write_text(file.read_text().replace('public = "folder"', 'public = "/data"', 1))
    with pytest.raises(UserError, match='public may be "own", "folder" or a built-in corpus'):
        hub(text)
    file.write_text(file.read_text().replace('public = "/data"\npublic_epochs = 1\n', "", 1))
    with pytest.raises(UserError, match="so nobody agreed"):
        hub(text)
