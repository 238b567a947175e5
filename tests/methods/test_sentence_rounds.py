"""Whole rounds: against references that read every silo's parameters, and with silos of every odd
kind.
"""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.numpy import load_file

from bench.simulation.inprocess import InProcessCarrier
from config.errors import UserError
from coordinator.exchange import Call, first_ranges, message_bytes
from coordinator.loop import run_study
from coordinator.runlog import RunLog
from crypto.sum.plain import PlainSum
from methods import METHODS, adjusted, build, describe, feded
from methods.base import Arrays, Broadcast, Folded, derived_seed
from methods.common.training import load, parameters
from report.files import read_lines
from tests.methods.sentence_reference import SILOS, assert_same, initial, trained
from tests.methods.small import gradient_of, kept_in, run
from tests.methods.small_sentence import tiny_checkpoint, tiny_content, tiny_study, tiny_task

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("lost", [None, 1])
def test_fedatt_equals_a_server_that_reads_every_model(lost: int | None) -> None:
    """Also when a silo is lost: then the softmax is over those who are left."""
    study = tiny_study("fedatt", SILOS, options={"eps": 0.8})
    start = initial(study)
    here = [k for k in range(3) if k != lost]
    each = [trained(study, k, start, 0, None) for k in here]
    expected = {}
    for name, w in start.items():
        s = np.array(
            [math.sqrt(float(((w - e[name]).astype(np.float64) ** 2).sum())) for e in each]
        )
        a = np.exp(s) / np.exp(s).sum()
        step = sum(a_k * (w.astype(np.float64) - e[name]) for a_k, e in zip(a, each))
        expected[name] = (w - 0.8 * step).astype(np.float32)
    absent = {(0, 0): frozenset({lost})} if lost is not None else None
    assert_same(run(study, absent)[0], expected)


def test_fedatt_with_equal_distances_is_the_uniform_mean() -> None:
    """Three silos with the same one batch and no dropout move equally far: eps = 1 gives FedAvg's
    model.
    """
    still = copy.deepcopy(tiny_checkpoint().backbone)
    for part in still.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    task = tiny_task(dropout=0.0)
    task.checkpoint = replace(task.checkpoint, backbone=still)
    same = [[0, 1, 2, 3]] * 3
    got = run(tiny_study("fedatt", same, task))[0]
    assert_same(got, run(tiny_study("fedavg", same, task, options={"weight_cap": 4}))[0])


@pytest.mark.parametrize("channel", ["sealed", "masked"])
def test_feded_is_one_pass_of_distillation_on_the_mean_of_predictions(channel: str) -> None:
    task = tiny_task("feded")
    options = {"logits": channel, "logit_bits": 32, "tau": 2.0}
    study = tiny_study("feded", SILOS, task, options=options)
    start, s = initial(study), study.settings
    z = np.zeros((task.size(task.public), len(task.labels)))
    for k in range(3):
        model = load(task.new_model(0), trained(study, k, start, 0, None)).eval()
        rows = task.batch(task.public, np.arange(task.size(task.public)))
        with torch.no_grad():
            z += np.clip(F.log_softmax(model(*rows.inputs), -1).numpy(), -20, 0) / 3
    q = torch.softmax(torch.from_numpy(z) / 2.0, -1).float()
    student = load(task.new_model(0), start)
    optimizer = torch.optim.AdamW(student.parameters(), lr=s.lr, weight_decay=0.01)
    torch.manual_seed(derived_seed(s.seed, "distil dropout", 0))
    student.train()
    seen: list[int] = []
    for rows_ in task.batch_rows(
        task.public, s.batch, np.random.default_rng(derived_seed(s.seed, "distil", 0))
    ):
        batch = task.batch(task.public, rows_)
        log_p = F.log_softmax(student(*batch.inputs), -1)
        kl = (q[rows_] * (q[rows_].log() - log_p)).sum(-1)
        loss = (kl - log_p[torch.arange(len(rows_)), batch.relation]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += rows_.tolist()
    assert sorted(seen) == list(range(task.size(task.public)))  # one pass, every sentence once
    # Adam magnifies rounding of near-zero gradients
    assert_same(run(study)[0], parameters(student), atol=2e-4)


def test_feded_sends_nothing_but_predictions_on_the_public_set() -> None:
    study = tiny_study("feded", SILOS, tiny_task("feded"))
    (exchange,) = study.method.exchanges
    assert not exchange.masked
    spec = exchange.sealed["predictions"]
    assert list(exchange.sealed) == ["predictions"]
    assert (spec.shape, spec.dtype) == ((15, len(study.task.labels)), "uint8")


def test_masked_predictions_travel_in_sixteen_bits_and_lose_at_most_half_a_step() -> None:
    """Twenty silos: few value bits are left of a lane, and yet no rotation carries predictions out
    of their range.
    """
    silos, task = [[i] for i in range(20)], tiny_task("feded")
    asked = tiny_study("feded", silos, task, options={"logits": "masked"}).settings
    settings = adjusted(asked)
    assert settings.bits == 16
    assert adjusted(replace(asked, options={"logits": "masked", "logit_bits": 32})).bits == 32
    exchange = build("feded", task, settings).exchanges[0]
    call = Call(
        0,
        0,
        exchange=exchange,
        broadcast=Broadcast({}),
        cohort=tuple(range(20)),
        ranges=first_ranges(settings, exchange),
        lane_bits=settings.bits,
    )
    rng = np.random.default_rng(3)
    log_p = F.log_softmax(
        torch.from_numpy(rng.normal(0, 8, (20, 15, len(task.labels)))), -1
    ).numpy()
    plain = PlainSum(call.encoding())
    for each in log_p:
        plain.add(call.encoding().encode([feded.encode(each, feded.Options(logits="masked"))], b""))
    folded = Folded(0, tuple(range(20)), call.total(plain.result(20)))
    got = feded.ensemble(folded, feded.Options(logits="masked"))
    step = 10 / (65535 // 40)
    assert np.abs(got - np.clip(log_p, -20, 0).mean(axis=0)).max() <= step / 2 + 1e-6
    assert message_bytes(call, folded)["up"] == 20 * 2 * (-(-15 * len(task.labels) // 4) * 4)


def test_moon_skips_its_term_the_first_time_and_remembers_its_own_model() -> None:
    study = tiny_study("moon", SILOS, options={"weight_cap": 24})
    plain = tiny_study("fedavg", SILOS, options={"weight_cap": 24})
    got, folder = run(study)
    assert_same(got, run(plain)[0])  # first participation: FedAvg
    kept = load_file(folder / "silos" / "silo-001" / "memory.safetensors")
    kept = {k.removeprefix("last/"): v for k, v in kept.items() if k.startswith("last/")}
    assert_same(kept, trained(study, 1, initial(study), 0, None), atol=0)
    twice = run(tiny_study("moon", SILOS, rounds=2, options={"weight_cap": 24}))[0]
    without = run(tiny_study("moon", SILOS, rounds=2, options={"weight_cap": 24, "mu": 0.0}))[0]
    assert not np.allclose(twice["classifier.weight"], without["classifier.weight"], atol=1e-6)


def test_scaffold_variate_is_the_gradient_at_the_received_model() -> None:
    study = tiny_study("scaffold", SILOS)
    _, folder = run(study)
    task, start = study.task, initial(study)
    model = load(task.new_model(0), start).eval()
    mean: dict[str, np.ndarray] = {}
    for k in range(3):
        data = task.subset(study.partition.indices[k])
        model.zero_grad()
        task.loss(model, task.batch(data, np.arange(len(SILOS[k])))).backward()
        for n, p in model.named_parameters():
            mean[n] = mean.get(n, 0) + gradient_of(p).numpy() / 3
    got = kept_in(folder, "memory")
    for n, g in mean.items():
        np.testing.assert_allclose(got[f"c/{n}"], g, atol=1e-5, err_msg=n)


def test_public_only_hears_nothing_from_the_silos() -> None:
    study = tiny_study("public_only", SILOS, tiny_task("feded"))
    a = run(study)[0]
    b = run(tiny_study("public_only", [[0], [1], [2]], tiny_task("feded")))[0]
    assert_same(a, b, atol=0)
    assert not np.allclose(a["classifier.weight"], initial(study)["classifier.weight"])


# Silos of every odd kind

SENTENCE_METHODS = [
    m for m in METHODS if "sentence" in describe(m).tasks and not describe(m).reference
]


def odd_silos() -> list[list[int]]:
    """Ordinary, empty, one example, one class; and together they lack a class that the labels
    have.
    """
    train = tiny_content().splits["train"]
    label = [e.relation for e in train]
    missing = min(set(label), key=label.count)
    one_class = [i for i, r in enumerate(label) if r == "reveals"]
    ordinary = [i for i in range(30) if label[i] not in (missing, "reveals")]
    alone = next(i for i in range(30, 60) if label[i] not in (missing, "reveals"))
    return [ordinary, [], [alone], one_class]


@pytest.mark.parametrize("method", SENTENCE_METHODS)
def test_odd_silos(method: str) -> None:
    silos = odd_silos()
    study = tiny_study(method, silos, rounds=2, batch=8)
    present = {
        int(x) for ix in study.partition.indices for x in study.task.partition_keys()["label"][ix]
    }
    assert len(present) < len(study.task.labels)  # a class that nobody has
    got, _ = run(study)
    start = initial(study)
    assert all(np.isfinite(v).all() for v in got.values())
    assert any(not np.array_equal(got[k], start[k]) for k in start)


class _LateSilo(InProcessCarrier):
    """Silo 3 is not there before round `first`."""

    first = 1

    def present(self) -> tuple[int, ...]:
        return tuple(i for i in super().present() if i != 3 or self.counter.round >= self.first)


def _joined_late(method: str, folder: Path, first: int) -> tuple[Arrays, list[dict[str, Any]]]:
    study = tiny_study(method, [*SILOS, list(range(45, 55))], rounds=3, batch=16)
    carrier = _LateSilo(study, RunLog(folder))
    carrier.first = first
    run_study(
        study.method, study.task, settings=study.settings, carrier=carrier, runlog=RunLog(folder)
    )
    state = load_file(folder / "checkpoint" / "state.safetensors")
    return {k: v for k, v in state.items() if k.startswith("model:")}, read_lines(
        folder / "rounds.jsonl"
    )


@pytest.mark.parametrize("method", SENTENCE_METHODS)
def test_a_silo_that_joins_late(method: str, tmp_path: Path) -> None:
    """It comes in the second round, without the memory that others have of the first, and counts
    from then on.
    """
    (tmp_path / "late").mkdir()
    (tmp_path / "never").mkdir()
    got, rounds = _joined_late(method, tmp_path / "late", first=1)
    assert ["silo-003" in r["survivors"] for r in rounds] == [False, True, True]
    assert all(np.isfinite(v).all() for v in got.values())
    without, _ = _joined_late(method, tmp_path / "never", first=99)
    assert any(not np.array_equal(got[k], without[k]) for k in got)


@pytest.mark.parametrize("method", ["local", "centralised", "public_only"])
def test_references_with_odd_silos(method: str) -> None:
    silos = odd_silos() if method != "centralised" else [sum(odd_silos(), [])]
    _, folder = run(tiny_study(method, silos, rounds=2, batch=8, secagg=False))
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    assert 0.0 <= summary["value"] <= 1.0


@pytest.mark.parametrize(
    "method", ["fedavg", "fedcmc", "moon", "fedrs", "fedlc", "fedprox", "scaffold"]
)
def test_all_silos_empty_changes_nothing(method: str) -> None:
    study = tiny_study(method, [[], [], []])
    assert_same(run(study)[0], initial(study), atol=1e-7)


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "moon", "fedrs", "fedlc", "fedcmc"])
def test_an_empty_silo_has_no_weight(method: str) -> None:
    with_empty = run(tiny_study(method, [*SILOS, []], options={"weight_cap": 24}))[0]
    without = run(tiny_study(method, SILOS, options={"weight_cap": 24}))[0]
    assert_same(with_empty, without)


@pytest.mark.parametrize("method", ["centralised", "local"])
def test_the_references_run_on_sentences(method: str) -> None:
    silos = [list(range(30))] if method == "centralised" else SILOS
    study = tiny_study(
        method, silos, secagg=False, options={"of": "fedrs"} if method == "local" else {}
    )
    _, folder = run(study)
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    assert summary["method"] == method
    assert set(summary["per_class"]) <= set(study.task.labels) - {"None"}


def test_local_refuses_a_method_that_keeps_more_than_a_model() -> None:
    with pytest.raises(UserError, match="fedcmc"):
        tiny_study("local", SILOS, options={"of": "fedcmc"})


@pytest.mark.parametrize(
    ("method", "options", "says"),
    [
        ("feded", {"logits": "plain"}, "sealed or masked"),
        ("feded", {"logit_bits": 12}, "32, 16 or 8"),
        ("feded", {"tau": 0.0}, "above 0"),
        ("fedcmc", {"vectors": "best"}, "major, minor or random"),
        ("fedatt", {"norm": "nuclear"}, "frobenius or spectral"),
        ("scaffold", {"variate": "both"}, "gradient or drift"),
    ],
)
def test_options_are_checked(method: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        tiny_study(method, SILOS, options=options)


def test_feded_needs_a_public_set() -> None:
    content = tiny_content()
    splits = {**content.splits, "public": []}
    task = tiny_task(
        "feded", type(content)(content.name, content.note, content.relations, content.none, splits)
    )
    with pytest.raises(UserError, match="public set"):
        build("feded", task, tiny_study("fedavg", SILOS, task).settings)
