"""FedLCC: its contrast on paper, its memory, its cache, its plain mean, and its model in both
runners.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from bench.simulation.inprocess import run_inprocess
from config.errors import UserError
from config.load import load as settings_of
from methods import fedlcc
from methods.base import Arrays, Heard, SiloView, derived_seed
from methods.common.previous import previous_model, remembered
from methods.common.training import load, parameters, train
from methods.tasks.document import DocumentTask
from methods.tasks.document_data import Data
from models.device import there
from study.prepare import Study, prepare
from tests.conftest import lines, sottovoce, summary, wait_for
from tests.methods.small import gradient_of, run
from tests.methods.small_document import tiny_folder, tiny_study, tiny_task

SILOS = [range(9), range(9, 14), range(14, 24)]


def view(study: Study, silo: int, memory: Arrays | None = None) -> SiloView[DocumentTask, Data]:
    task = study.task
    assert isinstance(task, DocumentTask)
    data = task.subset(study.partition.indices[silo])
    return SiloView(silo, task, data, study.settings, b"", memory or {})


def initial(study: Study) -> Arrays:
    return study.method.init(derived_seed(study.settings.seed, "init")).model


def other(study: Study, by: float = 0.05) -> Arrays:
    rng = np.random.default_rng(1)
    return {
        k: v + by * rng.standard_normal(v.shape).astype(np.float32)
        for k, v in initial(study).items()
    }


def test_equation_12_for_two_pairs_by_hand() -> None:
    x, g = torch.tensor([[1.0, 0.0], [3.0, 4.0]]), torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    p = torch.tensor([[0.0, 5.0], [-3.0, -4.0]])
    # cosines 1 and 0; 0.8 and -1; temperature 0.5
    by_hand = [
        -math.log(math.exp(2) / (math.exp(2) + 1)),
        -math.log(math.exp(1.6) / (math.exp(1.6) + math.exp(-2))),
    ]
    assert float(fedlcc.contrasts(x, g, p, 0.5).mean()) == pytest.approx(sum(by_hand) / 2, rel=1e-6)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 4, 8]))
def test_the_cosine_of_the_products_needs_no_products(seed: int, block: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    x, y = torch.randn(3, 16, generator=rng), torch.randn(3, 16, generator=rng)

    def products(z: torch.Tensor) -> torch.Tensor:
        s, o = z[:, :8].reshape(3, -1, block), z[:, 8:].reshape(3, -1, block)
        return (s.unsqueeze(3) * o.unsqueeze(2)).flatten(1)

    slow = F.cosine_similarity(products(x), products(y))
    torch.testing.assert_close(fedlcc.bilinear_cosine(x, y, block), slow, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["context", "bilinear"])
def test_with_the_previous_model_equal_to_the_global_one_the_contrast_has_no_gradient(
    kind: str,
) -> None:
    study = tiny_study("fedlcc", SILOS, options={"mu": 1.0, "contrast": kind})
    task, start, model = study.task, initial(study), other(study)
    batch = task.batch(task.subset(np.arange(9)), np.arange(9))

    def gradient(before: Arrays) -> tuple[float, dict[str, torch.Tensor]]:
        silo = view(study, 0, remembered({}, 0, before))
        loss = fedlcc._objective(
            silo, Heard(1, (0,), start), fedlcc.Options(mu=1.0, contrast=kind)
        ).loss
        network = load(task.new_model(0), model).eval()
        assert loss is not None
        value = loss(network, batch)
        value.backward()
        return value.item(), {n: gradient_of(p) for n, p in network.named_parameters()}

    network = load(task.new_model(0), model).eval()
    plain = task.loss(network, batch)
    plain.backward()
    same_value, same = gradient(start)
    assert same_value == pytest.approx(plain.item() + math.log(2), rel=1e-5)
    for n, p in network.named_parameters():
        torch.testing.assert_close(same[n], p.grad, atol=1e-7, rtol=1e-5)
    moved = gradient(other(study, 0.3))[1]
    assert any(
        not torch.allclose(moved[n], gradient_of(p), atol=1e-5)
        for n, p in network.named_parameters()
    )


def test_the_first_time_the_term_is_skipped_and_the_mean_is_plain() -> None:
    study = tiny_study("fedlcc", SILOS)
    got, folder = run(study)
    start, each = initial(study), []
    for k in range(3):
        model = load(study.task.new_model(0), start)
        train(view(study, k), model, 0)  # the task's own loss: no contrast
        each.append(parameters(model))
    for name, value in got.items():
        np.testing.assert_allclose(
            value, sum(m[name] for m in each) / 3, rtol=0, atol=1e-6, err_msg=name
        )
    from safetensors.numpy import load_file

    kept = load_file(folder / "silos" / "silo-001" / "memory.safetensors")
    before = previous_model(kept, 1)
    assert set(before) == set(start) and previous_model(kept, 0) == {}
    assert all(np.array_equal(before[n], each[1][n]) for n in start)


def test_later_the_term_counts_and_the_previous_model_is_that_of_the_last_round_trained_in() -> (
    None
):
    with_term, _ = run(tiny_study("fedlcc", SILOS, rounds=2, options={"mu": 2.0}))
    without, _ = run(tiny_study("fedlcc", SILOS, rounds=2, options={"mu": 0.0}))
    assert not np.allclose(with_term["subject.weight"], without["subject.weight"], atol=1e-6)
    first, second = {"w": np.ones(1)}, {"w": np.full(1, 2.0)}
    memory = remembered(remembered({}, 3, first), 7, second)
    assert previous_model(memory, 9) == second  # two rounds missed
    assert previous_model(memory, 7) == first  # the same round asked for again
    assert previous_model(remembered(memory, 7, second), 7) == first


@pytest.mark.slow
def test_weighed_by_size_and_without_the_term_it_is_fedavg_to_the_bit() -> None:
    plain, _ = run(tiny_study("fedavg", SILOS, rounds=2))
    ours, folder = run(tiny_study("fedlcc", SILOS, rounds=2, options={"mean": "size", "mu": 0.0}))
    assert ours.keys() == plain.keys() and all(np.array_equal(ours[k], v) for k, v in plain.items())
    with_term, _ = run(tiny_study("fedlcc", SILOS, rounds=2, options={"mean": "size", "mu": 2.0}))
    assert not np.allclose(with_term["subject.weight"], plain["subject.weight"], atol=1e-6)
    assert (folder / "silos" / "silo-001" / "memory.safetensors").is_file()  # its previous model


def test_reference_passes_happen_once_a_round_whatever_the_epochs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = tiny_study("fedlcc", SILOS, epochs=3)
    passes: list[int] = []
    read_all = DocumentTask.read_all

    def counted(self: Any, model: Any, data: Any, what: Any) -> torch.Tensor:
        passes.append(len(data.indices))
        out = read_all(self, model, data, what)
        assert not out.requires_grad
        return out

    monkeypatch.setattr(DocumentTask, "read_all", counted)
    answer, start = study.method.exchanges[0].answer, initial(study)
    first = answer(view(study, 1), Heard(0, (1,), start))
    assert passes == []
    answer(view(study, 1, first.memory), Heard(1, (1,), other(study)))
    assert passes == [5, 5]  # one of the global model, one of its own previous one; three epochs
    passes.clear()
    answer(view(study, 1, first.memory), Heard(1, (1,), previous_model(first.memory or {}, 1)))
    assert passes == [5]  # the two are one model


def test_the_contrast_of_a_batch_is_that_of_its_own_pairs() -> None:
    """References are looked up by pair: in any order of documents the same value comes out."""
    study = tiny_study("fedlcc", [[7, 2, 19, 4], range(3), range(3)])
    silo = view(study, 0, remembered({}, 0, other(study)))
    task, start = silo.task, initial(study)
    aim = fedlcc._objective(silo, Heard(1, (0,), start), fedlcc.Options(mu=1.0))
    assert aim.loss is not None and aim.each is not None
    network = load(task.new_model(0), other(study, 0.1)).eval()
    chosen = np.array([3, 0])
    batch = task.batch(silo.data, chosen)
    with torch.no_grad():
        x, g, p = (
            load(task.new_model(0), m).eval().read(batch[0]).context
            for m in (other(study, 0.1), start, other(study))
        )
        by_hand = task.loss(network, batch) + fedlcc.contrasts(x, g, p, 0.5).mean()
        torch.testing.assert_close(aim.loss(network, batch), by_hand, atol=1e-5, rtol=1e-5)
        # For DP-SGD by document: what each of them says alone.
        alone = [aim.loss(network, task.batch(silo.data, chosen[i : i + 1])) for i in range(2)]
        torch.testing.assert_close(
            aim.each(network, batch), torch.stack(alone), atol=1e-5, rtol=1e-5
        )


@pytest.mark.parametrize("method", ["fedlcc", "fedavg", "fedatt"])
def test_empty_silos_change_nothing_by_themselves(method: str) -> None:
    study = tiny_study(method, [[], [], []])
    got = run(study)[0]
    assert all(np.allclose(got[k], v, atol=1e-7) for k, v in initial(study).items())


def test_an_empty_silo_does_not_slow_the_uniform_mean() -> None:
    """Two silos with documents move the model as far as they do without a third that has none."""
    some = [list(range(8)), list(range(8, 20))]
    two, three = (run(tiny_study("fedlcc", silos, rounds=1))[0] for silos in (some, [*some, []]))
    start = initial(tiny_study("fedlcc", some))
    moved = max(float(np.abs(two[k] - start[k]).max()) for k in two)
    for name, value in three.items():
        np.testing.assert_allclose(value, two[name], atol=1e-3 * moved, err_msg=name)


@pytest.mark.parametrize("method", ["centralised", "local"])
def test_the_references_run_on_documents(method: str) -> None:
    silos = [range(24)] if method == "centralised" else SILOS
    _, folder = run(tiny_study(method, silos, secagg=False))
    figures = summary(folder)["figures"]
    names = ("f1", "precision", "recall", "intra_f1", "inter_f1", "ign_f1", "best_f1", "threshold")
    assert set(figures) == set(names)


def test_the_best_threshold_is_devs_on_test_too() -> None:
    task = tiny_task()
    model = task.new_model(4).eval()
    margins = {
        s: there(task.read_all(model, task.data(s), lambda r: r.logits[:, 1:] - r.logits[:, :1]))
        for s in ("dev", "test")
    }
    gold = {s: task.data(s).split.labels for s in ("dev", "test")}

    def f1(split: str, cut: float) -> float:
        said = margins[split] > cut
        return 2 * float((said & gold[split]).sum()) / float(said.sum() + gold[split].sum())

    dev, test = (task.evaluate(model, s).figures for s in ("dev", "test"))
    assert dev["best_f1"] == pytest.approx(max(f1("dev", c - 1e-6) for c in margins["dev"].ravel()))
    assert dev["best_f1"] > dev["f1"] and test["threshold"] == dev["threshold"]
    assert test["best_f1"] == pytest.approx(f1("test", dev["threshold"]))


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"contrast": "products"}, "context or bilinear"),
        ({"tau": 0.0}, "tau"),
        ({"mean": "median"}, "uniform or size"),
    ],
)
def test_wrong_options_are_refused(option: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        tiny_study("fedlcc", SILOS, options=option)


WORDS = {
    "method": "fedlcc",
    "silos": "4",
    "rounds": "3",
    "epochs": "2",
    "lr": "0.01",
    "partition": "entropy:released",
    "corpus": "document:documents=48,dev=10,test=10",
}


def _by_round(run: Path) -> list[str]:
    return [r["model_sha256"] for r in lines(run / "rounds.jsonl")]


def _undisturbed(folder: Path, words: dict[str, str]) -> list[str]:
    folder.mkdir()
    study = prepare(settings_of(None, {**words, "options.block": "8"}))
    assert run_inprocess(folder, study) == 0
    return _by_round(folder)


@pytest.mark.slow
def test_silos_killed_and_started_again_find_their_previous_models_and_give_the_model_of_the_plain_loop(
    tmp_path: Path, start: Any
) -> None:
    """Real processes with real masks; three of four silos die in round 1, after some have already
    trained in it.
    """
    words = {**WORDS, "encoder": str(tiny_folder())}
    running = start(*(f"{k.upper()}={v}" for k, v in words.items()), "SET=block=8")
    pids = running.pids()["silos"]
    wait_for(lambda: running.computing("silo-003", round=1))
    for victim in ("silo-000", "silo-001", "silo-002"):
        os.kill(pids[victim], signal.SIGKILL)
    assert running.finish()[0] == 3
    done = sottovoce("simulate", "--resume", str(running.run))
    assert done.returncode == 0, done.stdout + done.stderr
    plain = _undisturbed(tmp_path / "plain", words)
    assert _by_round(running.run) == plain and len(set(plain)) == 3
    partition = json.loads((running.run / "partition.json").read_text())
    assert partition["note"].startswith("released from")
    bars = partition["histogram"]
    assert (
        bars["of"] == "structural entropy (released)"
        and [sum(row) for row in bars["counts"]] == partition["sizes"]
    )
    drawn = re.search(
        r'id="histogram".*?</table>', (running.run / "report.html").read_text("utf-8")
    )
    assert drawn is not None
    rows = [
        [int(n or 0) for n in re.findall(r"<td.*?>(.*?)</td>", r)]
        for r in drawn.group().split("<tr>")[2:]
    ]
    assert rows == [[*counts, sum(counts)] for counts in bars["counts"]]
    # Without the previous models rounds 1 and 2 would have ended elsewhere.
    without = _undisturbed(tmp_path / "without", {**words, "options.mu": "0.0"})
    assert [a == b for a, b in zip(plain, without)] == [True, False, False]


def test_a_task_of_documents_says_what_a_silo_holds() -> None:
    task = tiny_task()
    counts = task.label_counts(np.arange(24))
    of_all = task.corpus.counts("train")
    assert counts.tolist() == [of_all.negative, of_all.positive]
    assert replace(task.subset(np.array([3])), indices=np.array([3])).lengths.shape == (1,)
