"""A start from public text: every task's network begins with what was trained, silos hold what they
do not train, are told it once, and refuse a sum on anything else.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from config.errors import UserError
from config.load import load
from methods.base import (
    Answer,
    Broadcast,
    Contradiction,
    Exchange,
    Folded,
    Heard,
    Method,
    SiloView,
    State,
)
from methods.common.arrays import model_sha256
from methods.common.public_start import EXCHANGE, with_public_start
from models.sentence_encoder import SentenceEncoder, Style
from study import public_start
from study.agreement import study_hash
from study.prepare import Study, prepare
from study.public_start import made_public_start, public_words, start_publicly
from tests.methods import small_document, small_ner, small_sentence

SENTENCES = {"corpus": "sentence:sentences=60,dev=20,test=20", "options.max_length": "64"}
#: task -> settings of a study in which silos train little, and of its public text
STUDIES: dict[str, dict[str, str]] = {
    "sentence": {
        "method": "fedavg",
        **SENTENCES,
        "encoder": "tiny",
        "public": "sentence:sentences=40",
        "dp": "record",
        "epsilon": "3",
    },
    "document": {
        "method": "fedlcc",
        "corpus": "document:documents=12,dev=10,test=10",
        "encoder": "tiny",
        "options.block": "8",
        "public": "document:documents=10,dev=10,test=10",
        "dp": "record",
        "epsilon": "3",
    },
    "ner": {
        "method": "fedner",
        "corpus": "ner:sentences=24,dev=12,test=12",
        "seq2seq": "tiny",
        "options.max_length": "64",
        "public": "ner:sentences=12,dev=12,test=12",
        "train": "prompts",
    },
    "distant": {
        "method": "fedavg",
        "corpus": "distant:sentences=200",
        "public": "distant:sentences=150",
        "train": "top:1",
    },
    "adapters": {
        "method": "fedavg",
        **SENTENCES,
        "encoder": "tiny",
        "public": "sentence:sentences=40",
        "train": "lora:2",
    },
}
FOLDERS = {"document": small_document.tiny_folder, "ner": small_ner.tiny_folder}


def study(which: str, **more: str) -> Study:
    given = {"silos": "3", "rounds": "2", "public_epochs": "1", **STUDIES[which], **more}
    if not given["public"]:
        del given["public_epochs"]
    for key in ("encoder", "seq2seq"):
        if given.get(key) == "tiny":
            given[key] = str(FOLDERS.get(which, small_sentence.tiny_folder)())
    return prepare(load(None, given))


@pytest.mark.parametrize("which", STUDIES)
def test_every_model_begins_with_what_public_text_gave(which: str, tmp_path: Path) -> None:
    of = study(which)
    bare = {k: v.copy() for k, v in of.task.not_trained().items()}
    first = of.method.init(0).model
    start_publicly(tmp_path, of.settings, of.task)
    made = made_public_start(tmp_path, of.settings, of.task)  # from the disk
    held = of.task.not_trained()
    assert held and set(held) <= set(made)
    assert all(np.array_equal(held[k], made[k]) for k in held)
    assert any(not np.array_equal(held[k], bare[k]) for k in held)
    begins = of.method.init(0).model
    own = [k for k in begins if k in made]
    assert own and all(np.array_equal(begins[k], made[k]) for k in own)
    assert any(not np.array_equal(begins[k], first[k]) for k in own)
    # a saved model is whole
    assert set(of.task.frozen()) | set(begins) == {
        n for n, _ in of.task.new_model(0).named_parameters()
    }


def test_runs_that_share_features_train_alike_text_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two at once: the second waits for the first, and has its numbers."""
    train, begun, go_on = public_start._trained, list[int](), threading.Event()

    def slowly(*given: Any) -> Any:
        begun.append(1)
        assert go_on.wait(60)
        return train(*given)

    monkeypatch.setattr(public_start, "_trained", slowly)
    shared = str(tmp_path / "features")
    of = [study("sentence", features=shared, runner="inprocess", epsilon=e) for e in "38"]
    runs = [tmp_path / str(k) for k in range(2)]
    for run in runs:
        run.mkdir()
    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(made_public_start, r, s.settings, s.task) for r, s in zip(runs, of)]
        wait(made, timeout=0.5)  # time for the second to begin too, if it could
        go_on.set()
        first, second = (m.result() for m in made)
    assert len(begun) == 1
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[k], second[k]) for k in first)


def test_where_all_is_trained_nothing_more_has_to_be_told() -> None:
    plain = study("sentence", train="all", dp="off", epsilon="0")
    assert [e.name for e in plain.method.exchanges] == ["train"]
    assert not plain.task.not_trained()


def _view(of: Study, silo: int, memory: Any = None) -> SiloView:
    data = of.task.subset(of.partition.indices[silo])
    return SiloView(
        silo,
        of.task,
        data,
        of.settings,
        bytes(32),
        memory=memory or {},
        privacy=of.method.privacy,
    )


def _heard(of: Study, state: State, index: int, asked: tuple[int, ...], silo: int) -> Heard:
    said = of.method.exchanges[index].broadcast(state, 0, asked)
    return Heard(0, asked, said.common, said.private.get(silo, {}))


def test_it_is_told_once_and_to_late_silos_alone(tmp_path: Path) -> None:
    of = study("sentence")
    start_publicly(tmp_path, of.settings, of.task)
    tell = of.method.exchanges[0]
    state = of.method.init(0)
    assert tell.name == EXCHANGE and tell.everyone
    assert not tell.disclosures and not tell.masked and not tell.sealed  # nothing leaves
    said = tell.broadcast(state, 0, (0, 1))
    assert not said.private and model_sha256(said.common) == model_sha256(of.task.not_trained())
    state = tell.fold(state, Folded(0, (0, 1), {}))
    assert tell.skip(state, 1, (0, 1)) and not tell.skip(state, 1, (0, 1, 2))
    late = tell.broadcast(state, 1, (0, 1, 2))
    assert not late.common and set(late.private) == {2}
    assert tell.answer(_view(of, 0), Heard(1, (0, 1, 2), late.common)).memory is None
    assert tell.skip(tell.fold(state, Folded(1, (0, 1, 2), {})), 2, (0, 1, 2))


def test_a_silo_computes_with_what_it_kept_and_refuses_a_round_on_anything_else(
    tmp_path: Path,
) -> None:
    hub, silo = study("sentence"), study("sentence")  # two machines
    start_publicly(tmp_path, hub.settings, hub.task)
    state = hub.method.init(0)
    wanted = model_sha256(hub.task.not_trained())
    assert model_sha256(silo.task.not_trained()) != wanted
    train = silo.method.exchanges[1]
    heard = _heard(hub, state, 1, (0, 1, 2), 0)
    with pytest.raises(Contradiction, match="not told the public start"):
        train.answer(_view(silo, 0), heard)
    kept = silo.method.exchanges[0].answer(_view(silo, 0), _heard(hub, state, 0, (0, 1, 2), 0))
    assert kept.memory
    changed = {k: v + 1 for k, v in kept.memory.items()}
    with pytest.raises(Contradiction, match="does not have"):
        train.answer(_view(silo, 0, changed), heard)
    bare = replace(heard, common={k: v for k, v in heard.common.items() if k != EXCHANGE})
    with pytest.raises(Contradiction, match="names no public start"):
        train.answer(_view(silo, 0, kept.memory), bare)
    answer = train.answer(_view(silo, 0, kept.memory), heard)
    assert model_sha256(silo.task.not_trained()) == wanted
    theirs = hub.method.exchanges[1].answer(_view(hub, 0, kept.memory), heard)
    assert model_sha256(answer.masked) == model_sha256(theirs.masked)
    other = {k: np.zeros((2, 2), np.float32) for k in list(hub.task.not_trained())[:1]}
    with pytest.raises(Contradiction, match="another network"):
        silo.method.exchanges[0].answer(_view(silo, 1), Heard(0, (0,), other))


def test_what_a_method_remembers_stays_beside_it(tmp_path: Path) -> None:
    """SCAFFOLD keeps control variates at both ends."""
    of = study("sentence", method="scaffold")
    start_publicly(tmp_path, of.settings, of.task)
    state, kept = of.method.init(0), dict[str, np.ndarray]()
    for index, exchange in enumerate(of.method.exchanges):
        heard = _heard(of, state, index, (0,), 0)
        answer = exchange.answer(_view(of, 0, kept), heard)
        kept = dict(answer.memory) if answer.memory is not None else kept
        total = {k: v.astype(np.float64) for k, v in answer.masked.items()}
        state = exchange.fold(state, Folded(0, (0,), total, {0: answer.sealed}))
    own = [k for k in kept if not k.startswith(EXCHANGE)]
    assert own and len(kept) > len(own)
    again = of.method.exchanges[1].answer(_view(of, 0, kept), _heard(of, state, 1, (0,), 0))
    assert set(again.memory or {}) == set(kept)
    assert any(k.startswith("c/") for k in state.memory)


def test_a_method_is_shown_the_certificates_of_its_own_exchanges(tmp_path: Path) -> None:
    """FedCMC sends rows only if it has seen whose updates are in the sum of its exchange 0, which
    the public start before it makes the round's exchange 1.
    """
    of = study("sentence")
    start_publicly(tmp_path, of.settings, of.task)
    seen = []

    def look(silo: SiloView[Any, Any], heard: Heard) -> Answer:
        seen.append((dict(silo.certified), sorted(heard.common)))
        return Answer()

    plain = Exchange("look", (), lambda *_: Broadcast({}), look, lambda state, _: state)
    bare = Method("plain", "", (plain,), lambda seed: State({}))
    made = with_public_start(bare, of.task, 3)
    said = made.exchanges[1].broadcast(made.init(0), 0, (0, 1, 2))
    certified = {0: (7,), 1: (0, 1, 2)}
    made.exchanges[1].answer(
        replace(_view(of, 0), certified=certified), Heard(0, (0, 1, 2), said.common)
    )
    assert seen == [({0: (0, 1, 2)}, [])]


def test_runs_that_share_features_train_on_public_text_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = []
    real = public_start._trained

    def counted(*args: Any) -> Any:
        trained.append(args[0].seed)
        return real(*args)

    monkeypatch.setattr(public_start, "_trained", counted)
    made = {}
    for name, more in {
        "one": {"epsilon": "1"},
        "eight": {"epsilon": "8"},
        "seed": {"epsilon": "1", "seed": "5"},
    }.items():
        kept = {"features": str(tmp_path / "features"), "runner": "inprocess"}
        of = study("sentence", **kept, **more)
        (tmp_path / name).mkdir()
        made[name] = model_sha256(made_public_start(tmp_path / name, of.settings, of.task))
    assert made["one"] == made["eight"] != made["seed"] and trained == [0, 5]
    (tmp_path / "bare").mkdir()
    alone = study("sentence", epsilon="1", runner="inprocess")
    assert (
        model_sha256(made_public_start(tmp_path / "bare", alone.settings, alone.task))
        == made["one"]
    )


def test_standardised_features_leave_every_answer_as_it_was() -> None:
    torch.manual_seed(0)
    backbone = small_sentence.tiny_checkpoint().backbone
    rows = torch.randn(40, 3 * 8) * 3 + 1
    nothing = torch.zeros(40, 1)
    for bias in (True, False):
        for projection in (0, 5):
            style = Style(cls=True, blinding=True, bias=bias, standard=True, projection=projection)
            model = SentenceEncoder(backbone, 4, style).eval()
            before = model(rows, nothing, nothing)
            model.standardise(rows)
            assert torch.allclose(model(rows, nothing, nothing), before, atol=1e-5)
            assert model.standard is not None
            assert torch.allclose(model.standard(rows).std(dim=0), torch.ones(24), atol=1e-2)


def test_features_of_the_old_encoder_are_not_taken_for_those_of_the_new(tmp_path: Path) -> None:
    of = study("sentence")
    of.task.keep_features_in(tmp_path / "features")
    data = of.task.subset(np.arange(4))
    before = of.task.batch(data, np.arange(4)).ids
    start_publicly(tmp_path, of.settings, of.task)
    assert not torch.equal(of.task.batch(data, np.arange(4)).ids, before)
    assert of.task.bottom is not None and of.task.bottom.folder == tmp_path / "features"


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    def said(**more: str) -> str:
        of = study("sentence", **more)
        with pytest.raises(UserError) as error:
            public_words(of.settings, of.task)
        return str(error.value)

    assert "neither built in nor a file or folder" in said(public=str(tmp_path / "none"))
    assert "task ner, and this study is of the task sentence" in said(
        public="ner:sentences=12", method="fedavg"
    )
    assert "name its folder with --public" in said(public="folder")
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "train.jsonl").write_text(
        '{"text": "a cures b", "h": {"pos": [0, 1]}, "t": {"pos": [8, 9]}, "relation": "cures"}\n',
        "utf-8",
    )
    assert '"cures" (1)' in said(public=f"sentence:{folder}")
    own = study("document", public="own")
    with pytest.raises(UserError, match="has no public set of its own; name a folder"):
        public_words(own.settings, own.task)
    with pytest.raises(UserError, match="PUBLIC_EPOCHS needs PUBLIC"):
        load(None, {"public_epochs": "2"})
    same = replace(study("sentence").settings, corpus=str(folder), public=str(folder))
    with pytest.raises(UserError, match="names the folder of CORPUS"):
        public_words(same, study("sentence").task)


def test_where_public_text_lies_is_nobodys_business_but_that_there_is_some() -> None:
    here, there, none = (
        study("sentence", public=p).settings for p in ("folder", "/somewhere/else", "")
    )
    assert study_hash(here, {}, "sentence") == study_hash(there, {}, "sentence")
    assert study_hash(here, {}, "sentence") != study_hash(none, {}, "sentence")
