"""Every tensor of a step is on one device, though there is no accelerator here to say so.

A pretended device: tensors that `here`, `place` and torch's own makers give are on it, what is
computed from them is too, and an array is not. Whatever mixes a tensor that is on it with one that
is not, or reads one without `there`, is an error, as it would be on a card; and it has no float64,
as Apple's have none. All of it is computed on the processor, so that steps have their real values.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import extract.command
import extract.evaluate
import models.device
import sottovoce
from bench.simulation.inprocess import run_inprocess
from cli.main import main
from config.errors import UserError
from coordinator.checkpoint import save_model
from extract.pairs import open_extractor
from extract.read_texts import Text
from methods import METHODS, tasks_of
from methods.common.training import load, parameters, train
from methods.dp.norms import embedding_norms, linear_norms
from methods.tasks.base import Task
from models.device import computing_on, here, there, use_device
from study.prepare import Study
from tests.extract.test_pairs import of
from tests.methods import small_distant, small_document, small_ner, small_private, small_sentence
from tests.methods.small import study_of


class Mixed(Exception):
    """Tensors of two devices in one operation."""


class Pretended(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self._there: dict[int, Any] = {}  # by storage: views are where their base is

    def _key(self, t: torch.Tensor) -> int:
        return t.untyped_storage()._cdata

    def mark(self, t: torch.Tensor) -> torch.Tensor:
        storage = t.untyped_storage()
        self._there[storage._cdata] = storage  # kept, so that no other one gets its address
        return t

    def forget(self, t: torch.Tensor) -> torch.Tensor:
        self._there.pop(self._key(t), None)
        return t

    def has(self, t: torch.Tensor) -> bool:
        return self._key(t) in self._there

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        large = [x for x in given if x.dim() > 0]  # numbers may come from the processor
        on = [self.has(x) for x in given]
        carried = str(func).startswith(("aten.copy_", "aten._to_copy"))  # from one to the other
        if not carried and any(on) and not all(self.has(x) for x in large):
            raise Mixed(f"{func} of tensors on two devices")
        out = func(*args, **kwargs)
        lifted = str(func).startswith("aten.lift_fresh")
        if any(on) or not given or lifted:
            for x in tree_leaves(out):
                if isinstance(x, torch.Tensor):
                    if x.dtype == torch.float64 and not lifted:
                        raise Mixed(f"{func} in float64, on a device that has none")
                    self.mark(x)
        return out


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    mode, read, made = Pretended(), torch.Tensor.numpy, torch.from_numpy

    def array(a: np.ndarray) -> torch.Tensor:
        return mode.forget(made(a))

    def off(t: torch.Tensor) -> torch.Tensor:
        return array(read(t.detach()).copy())

    def numpy(t: torch.Tensor, *_: Any, **how: Any) -> Any:
        if mode.has(t):
            raise Mixed("an array of a tensor that is on the device")
        return read(t, **how)

    def on(t: torch.Tensor) -> torch.Tensor:
        if t.dtype == torch.float64:
            raise Mixed("float64 for a device that has none")
        return mode.mark(t.clone())

    monkeypatch.setattr(models.device, "_on", on)
    monkeypatch.setattr(models.device, "_has_doubles", lambda: False)
    monkeypatch.setattr(models.device, "_off", off)
    monkeypatch.setattr(torch.Tensor, "numpy", numpy)
    monkeypatch.setattr(torch, "from_numpy", array)
    return mode


def test_the_pretended_device_refuses_what_a_card_would(pretended: Pretended) -> None:
    with pretended:
        on, off = torch.arange(3), torch.from_numpy(np.arange(3))
        assert pretended.has(on + 1) and not pretended.has(off)
        with pytest.raises(Mixed):
            on + off
        with pytest.raises(Mixed):
            on.numpy()
        with pytest.raises(Mixed):
            here(np.zeros(1))
        with pytest.raises(Mixed):
            torch.zeros(1).double()
        assert pretended.has(torch.zeros(2)[1:]) and pretended.has(torch.tensor([1.0, 2.0]))


SILOS = [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9, 10]]
TASKS: dict[str, Callable[[], Task]] = {
    "distant": lambda: small_distant.twelve(),
    "sentence": lambda: small_sentence.tiny_task(),
    "document": lambda: small_document.tiny_task(),
    "pointer": lambda: small_ner.tiny_task(),
    "tagger": lambda: small_ner.tiny_task(network="tagger"),
}


@pytest.mark.parametrize("name", TASKS)
def test_each_network_steps_and_scores_on_one_device(name: str, pretended: Pretended) -> None:
    task = TASKS[name]()
    with pretended:
        model = task.new_model(0)
        for batch in task.batches(task.subset(np.arange(4)), 2, np.random.default_rng(0)):
            task.loss(model, batch).backward()
        if task.record_rows:
            task.record_losses(model, task.batch(task.subset(np.arange(3)), np.arange(3))).sum()
        with torch.no_grad():
            assert 0 <= task.evaluate(model.eval(), "dev").value <= 1


def _study(method: str) -> Study:
    task = tasks_of(method)[0]
    if task == "sentence":
        model = "feded" if method in ("feded", "public_only") else "fedcmc"
        return small_sentence.tiny_study(method, SILOS, small_sentence.tiny_task(model))
    if task == "document":
        return small_document.tiny_study(method, SILOS)
    if task == "ner":
        network = "tagger" if method == "tagger" else "pointer"
        return small_ner.tiny_study(method, small_ner.tiny_task(network=network), SILOS)
    return study_of(method, small_distant.twelve(), SILOS, batch=4)


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"local", "centralised"}))
def test_each_methods_rounds_are_on_one_device(
    method: str, pretended: Pretended, tmp_path: Path
) -> None:
    study = _study(method)
    study = replace(
        study,
        settings=replace(study.settings, rounds=1 if method in ("fadv_ganin", "fadv_peng") else 2),
    )
    with pretended:
        assert run_inprocess(tmp_path, study) == 0


def test_private_training_is_on_one_device(pretended: Pretended) -> None:
    view = small_private.private_view()
    with pretended:
        assert train(view, view.task.new_model(0), 0)["steps"] > 0


def test_norms_that_need_float64_are_the_same_where_the_device_has_none(
    pretended: Pretended,
) -> None:
    """Large inputs, and words whose parts cancel: float32 would say another norm."""
    x = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0))
    g, words = x.clone(), torch.tensor([[1, 1, 2, 3]] * 3)
    g[:, 1] = -g[:, 0] * (1 + 2**-20)
    linear, embedding = nn.Linear(2, 2, bias=False), nn.Embedding(5, 2)
    large = [(x * 1e8, g * 1e-21), (x[:, :1] * 1e8, g[:, :1] * 1e-25)]
    said = [linear_norms(linear, [a], b)[linear.weight] for a, b in large]
    said += [embedding_norms(embedding, [words], g)[embedding.weight]]
    assert all((n > 0).all() for n in said)
    with pretended:
        on = [(here(a.numpy()), here(b.numpy())) for a, b in large]
        found = [linear_norms(linear, [a], b)[linear.weight] for a, b in on]
        parts = here(words.numpy()), here(g.numpy())
        found += [embedding_norms(embedding, [parts[0]], parts[1])[embedding.weight]]
        assert all(map(pretended.has, found))
        for mine, theirs in zip(map(there, found), said):
            assert mine.tobytes() == theirs.detach().numpy().tobytes()


def _left(task: Task, folder: Path) -> Path:
    save_model(folder, parameters(task.new_model(0)), task.model_files())
    return folder


@pytest.mark.parametrize("network", ["pointer", "tagger"])
def test_entities_are_found_on_one_device(
    network: str, pretended: Pretended, tmp_path: Path
) -> None:
    task = small_ner.tiny_task(network=network, grammar=True)
    folder, rows = _left(task, tmp_path), task.corpus.splits["test"]
    texts = [Text(str(i), " ".join(rows.words(i)), (), plain=True) for i in range(4)]
    with pretended:
        extractor: Any = open_extractor(folder)
        found = extractor.extract(texts, lambda n: None)
    assert [f.id for f in found] == [t.id for t in texts]


def test_relations_of_documents_are_found_on_one_device(
    pretended: Pretended, tmp_path: Path
) -> None:
    task = small_document.tiny_task()
    folder = _left(task, tmp_path)
    texts = [Text(d.id, d.text, d.entities) for d in task.documents("test")[:3]]
    with pretended:
        extractor: Any = open_extractor(folder)
        found = extractor.extract(texts, lambda n: None)
    assert [f.id for f in found] == [t.id for t in texts]


@pytest.mark.parametrize("name", ["distant", "sentence"])
def test_relations_of_sentences_are_found_on_one_device(
    name: str, pretended: Pretended, tmp_path: Path
) -> None:
    folder = _left(TASKS[name](), tmp_path)
    with pretended:
        extractor: Any = open_extractor(folder)
        found = extractor.extract([of(*row[:3]) for row in small_distant.HELD_OUT], lambda n: None)
    assert found and all(0 < f.score <= 1 for f in found)


def _recorded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was said to be computed on, in turn."""
    told: list[str] = []
    use = models.device.use_device

    def recording(said: str, index: int = 0) -> torch.device:
        told.append(said)
        return use("cpu")

    for module in (models.device, extract.command, extract.evaluate):
        monkeypatch.setattr(module, "use_device", recording)
    return told


def test_commands_and_python_use_the_device_that_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _left(small_ner.tiny_task(network="tagger"), tmp_path / "run" / "model")
    (tmp_path / "text.txt").write_text("Aspra helps .\n", "utf-8")
    told = _recorded(monkeypatch)
    for device in ("mps", "auto"):
        words = ["extract", str(folder), str(tmp_path / "text.txt"), "--format", "jsonl"]
        _command(*words, *(["--device", device] if device != "auto" else []))
        _command("evaluate", str(folder), "--device", device)  # no config.toml: asked before that
    assert told == ["mps", "mps", "auto", "auto"]
    told.clear()
    model = sottovoce.load(folder, device="mps")
    model.extract("Aspra helps .")
    assert told == ["mps", "mps"]
    monkeypatch.setattr(
        sottovoce._model, "read_json", lambda words: {"asked": words[words.index("--device") + 1]}
    )
    assert model.evaluate() == {"asked": "mps"}
    capsys.readouterr()


def _command(*words: str) -> None:
    with pytest.raises(SystemExit):
        main(list(words))


def test_a_notebooks_own_device_is_its_own_again() -> None:
    torch.set_default_device("meta")
    try:
        with pytest.raises(ZeroDivisionError), computing_on("cpu"):
            assert torch.zeros(1).device.type == "cpu"
            raise ZeroDivisionError
        assert torch.zeros(1).device.type == "meta"
    finally:
        torch.set_default_device(None)


def test_a_threads_device_is_its_own() -> None:
    """Silos of one host are threads, and may have cards of their own."""
    met, seen = threading.Barrier(2), dict[str, tuple[str, str]]()

    def silo(kind: str) -> None:
        models.device._use(torch.device(kind))
        met.wait(30)
        seen[kind] = (torch.zeros(1).device.type, here(np.zeros(1, np.float32)).device.type)

    threads = [threading.Thread(target=silo, args=(kind,)) for kind in ("meta", "cpu")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert seen == {"meta": ("meta", "meta"), "cpu": ("cpu", "cpu")}
    assert here(np.zeros(1)).device.type == "cpu"


def test_a_device_that_is_not_there_is_refused_in_a_sentence() -> None:
    missing = "mps" if not torch.backends.mps.is_available() else "cuda"
    with pytest.raises(UserError, match=f"DEVICE={missing}: torch finds none on this machine"):
        use_device(missing)
    with pytest.raises(UserError, match='^DEVICE must be auto, cpu, cuda or mps, not "tpu".$'):
        use_device("tpu")
    assert use_device("cpu").type == "cpu"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_a_step_on_a_card_is_nearly_the_processors() -> None:
    task = small_sentence.tiny_task()
    batch_of = lambda: task.batch(task.subset(np.arange(4)), np.arange(4))  # noqa: E731
    wanted = float(task.loss(task.new_model(0).eval(), batch_of()))
    start = {k: there(p) for k, p in task.new_model(0).named_parameters()}
    try:
        use_device("cuda")
        model = task.new_model(0).eval()
        assert next(model.parameters()).is_cuda and here(np.zeros(1)).is_cuda
        load(model, start)
        loss = task.loss(model, batch_of())
        loss.backward()
        assert float(loss) == pytest.approx(wanted, rel=1e-3)
    finally:
        use_device("cpu")
