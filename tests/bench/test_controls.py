"""The controls of the studies, each against a server that reads every silo's model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bench.studies.controls import control
from config.errors import UserError
from methods import feded
from methods.base import SiloView
from methods.common import training
from methods.common.contribution import quantise
from methods.common.public import plain_loss, public_passes
from methods.common.training import load
from tests.methods.sentence_reference import SILOS, SIZES, assert_same, initial, trained
from tests.methods.small import run, study_of
from tests.methods.small_distant import twelve
from tests.methods.small_sentence import tiny_study, tiny_task


def file_of(name: str) -> str:
    return control(name).removeprefix("METHOD=")


def test_fedavg_then_a_pass_over_the_public_set() -> None:
    how_trained = {"optimizer": "sgd", "lr": 0.05}  # Adam would blow rounding up
    study = tiny_study(file_of("fedavg_public"), SILOS, tiny_task("feded"), **how_trained)
    start = initial(study)
    each = [trained(study, k, start, 0, None) for k in range(3)]
    shares = np.array(SIZES) / sum(SIZES)
    mean = {n: sum(p * e[n] for p, e in zip(shares, each)).astype(np.float32) for n in start}
    task: Any = study.task
    how: Any = {"round": 0, "loss": plain_loss(task), "passes": 1, "purpose": "public"}
    expected = public_passes(task, study.settings, mean, **how)
    assert not np.allclose(expected["classifier.weight"], mean["classifier.weight"], atol=1e-5)
    assert_same(run(study)[0], expected)


def test_the_teacher_alone_is_the_mean_of_the_silos_models() -> None:
    study = tiny_study(file_of("feded_teacher"), SILOS, tiny_task("feded"))
    start = initial(study)
    each = [trained(study, k, start, 0, None) for k in range(3)]
    state = run(study)[0]
    task: Any = study.task
    for k in range(3):
        assert_same({n: state[f"{k}/{n}"] for n in start}, each[k], atol=0)
    answers = [task.log_probabilities(load(task.new_model(0), e), task.data("test")) for e in each]
    together = np.mean([np.maximum(a, feded.FLOOR) for a in answers], axis=0).argmax(axis=1)
    gold = task.data("test").labels
    assert study.method.evaluate is not None
    found = study.method.evaluate(state, "test")
    assert found.figures["accuracy"] == pytest.approx((together == gold).mean())
    # and the student is FedED's own
    student = run(tiny_study("feded", SILOS, tiny_task("feded")))[0]
    assert_same({n: state[f"student/{n}"] for n in start}, student, atol=0)


def test_the_teacher_alone_is_for_a_simulation() -> None:
    with pytest.raises(UserError, match="for a simulation: say RUNNER=inprocess"):
        tiny_study(file_of("feded_teacher"), SILOS, tiny_task("feded"), runner="processes")
    with pytest.raises(UserError, match="is of logits=sealed"):
        options = {"logits": "masked"}
        tiny_study(file_of("feded_teacher"), SILOS, tiny_task("feded"), options=options)


def test_kl_alone_ignores_the_labels() -> None:
    """What `loss=kl` is named for: another label changes nothing."""
    logits = torch.tensor([[0.2, -0.4], [1.0, 0.3]])
    q = F.softmax(torch.tensor([[0.5, 0.1], [0.0, 2.0]]), dim=-1)
    o = feded.Options(loss="kl")
    a = feded.distil_loss(logits, torch.tensor([0, 1]), q, o)
    assert a == feded.distil_loss(logits, torch.tensor([1, 0]), q, o)
    by_hand = (q * (q.log() - F.log_softmax(logits, dim=-1))).sum() / 2
    assert float(a) == pytest.approx(float(by_hand))


FOURS = [range(4), range(4, 8), range(8, 12)]


def of_distant(name: str, **settings: Any) -> Any:
    return study_of(file_of(name), twelve(), FOURS, batch=4, **settings)


def test_the_union_of_winners_is_what_every_silo_trains_on() -> None:
    study = of_distant("lazymil_union", options={"warmup": 0.0})
    start, task = initial(study), study.task
    rows = task.subset(np.arange(12))
    values = quantise(task.label_probabilities(load(task.new_model(0), start), rows))
    best: dict[bytes, int] = {}
    for row, triple in enumerate(task.triples(rows, np.arange(12))):
        if triple not in best or values[row] > values[best[triple]]:
            best[triple] = row  # of equals the lower silo's, which is the lower row
    union = np.array(sorted(best.values()))
    assert any(set(union.tolist()) - set(silo) for silo in FOURS)  # others' sentences
    each = []
    for k, silo in enumerate(FOURS):
        view = SiloView(k, task, task.subset(np.array(silo)), study.settings, b"")
        model, _ = training.trained(view, start, 0, task.subset(union))
        each.append(training.parameters(model))
    mean = {n: np.stack([e[n] for e in each]).mean(axis=0) for n in start}
    assert_same(run(study)[0], mean)


def test_the_union_of_winners_runs_in_a_simulation_and_nowhere_else() -> None:
    for settings, words in (
        ({"runner": "processes"}, "breaks privacy, and runs in a simulation with RUNNER=inprocess"),
        ({"dp": "record", "epsilon": 8.0}, "no budget covers it"),
    ):
        with pytest.raises(UserError, match=words):
            of_distant("lazymil_union", **settings)


@pytest.mark.parametrize(("warmup", "same_as"), [(1.0, "lazymil"), (0.0, "one")])
def test_fedavg_then_one_is_lazy_mils_warm_start_and_then_one(warmup: float, same_as: str) -> None:
    study = of_distant("fedavg_then_one", rounds=2, options={"warmup": warmup})
    options = {"warmup": warmup} if same_as == "lazymil" else {}
    other = study_of(same_as, twelve(), FOURS, batch=4, rounds=2, options=options)
    assert_same(run(study)[0], run(other)[0], atol=0)
