"""Whole rounds of FedCMC against a server that reads every classifier, and what a silo sends in
them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from methods import fedcmc
from methods.base import Arrays, Contradiction, Heard, SiloView, derived_seed
from study.prepare import Study
from tests.methods.sentence_reference import SILOS, SIZES, assert_same, initial, trained
from tests.methods.small import kept_in, run
from tests.methods.small_sentence import tiny_study

pytestmark = pytest.mark.slow


def test_fedcmc_equals_a_server_that_reads_every_classifier() -> None:
    mu = 0.7
    study = tiny_study("fedcmc", SILOS, rounds=2, options={"mu": mu, "weight_cap": 24})
    theta = initial(study)
    major = theta["classifier.weight"]
    rows = []
    for t in range(2):
        m = torch.from_numpy(major.copy())

        def loss(model: Any, batch: Any, m: torch.Tensor = m) -> torch.Tensor:
            h = model.dropout(model.encode(*batch.inputs))
            return F.cross_entropy(model.classifier(h), batch.relation) + mu * F.cross_entropy(
                h @ m.T, batch.relation
            )

        each = [trained(study, k, theta, t, loss) for k in range(3)]
        theta = {
            n: np.average([e[n].astype(np.float64) for e in each], axis=0, weights=SIZES)
            for n in theta
        }
        theta = {n: v.astype(np.float32) for n, v in theta.items()}
        rows = [e["classifier.weight"].astype(np.float64) for e in each]
        classes = len(major)
        chosen = []
        for c in range(classes):
            d = [
                np.mean(
                    [
                        r[c] @ r[i] / np.linalg.norm(r[c]) / np.linalg.norm(r[i])
                        for i in range(classes)
                        if i != c
                    ]
                )
                for r in rows
            ]
            chosen.append(rows[int(np.argmin(d))][c])
        major = np.stack(chosen).astype(np.float32)
    got, folder = run(study)
    # The first round's fixed-point rounding enters the second's training, where Adam may turn a
    # gradient of nearly zero into a step: a few numbers then differ by a part of a step (5e-4), all
    # others by next to nothing.
    assert_same(got, theta, atol=1e-4)
    assert np.mean(np.concatenate([np.abs(got[n] - theta[n]).ravel() for n in theta])) < 1e-6
    np.testing.assert_allclose(kept_in(folder, "memory")["major"], major, rtol=0, atol=1e-4)
    # not simply one silo's whole classifier
    assert any(not np.allclose(major, r, atol=1e-3) for r in rows)


def _second(study: Any, silo: int, own: np.ndarray, said: Arrays) -> np.ndarray:
    """What a silo with these similarities sends when it is told so: a row of ones where it won."""
    _, second = study.method.exchanges
    rows = np.ones((len(own), 16), np.float32)
    nothing = study.task.subset(np.arange(0))
    carry = {"classifier": rows, "similarities": own}
    view = SiloView(silo, study.task, nothing, study.settings, b"", carry=carry)
    return second.answer(view, Heard(0, (0, 1, 2), said)).masked["rows"][:, 0]


def test_fedcmc_tells_all_silos_the_same_and_a_lie_is_contradicted() -> None:
    study = tiny_study("fedcmc", SILOS)
    _, second = study.method.exchanges
    classes = len(study.task.labels)
    state = study.method.init(0)
    own = [np.full(classes, d, np.float32) for d in (0.5, 0.2, 0.3)]
    own[2][0] = 0.1
    winner, d = fedcmc.winners(dict(enumerate(own)), classes, "major", np.random.default_rng(0))
    state = replace(state, memory={**state.memory, "winner": winner, "similarity": d})
    said = second.broadcast(state, 0, (0, 1, 2))
    assert said.private == {} and "leaves out of the sum" in second.disclosures[0].unless
    sent = [_second(study, k, own[k], said.common) for k in range(3)]
    assert [x.tolist() for x in sent] == [
        [0.0] * classes,
        [0.0] + [1.0] * (classes - 1),
        [1.0] + [0.0] * (classes - 1),
    ]
    # silo 0 is told that it won everything, with its own similarity: those who beat it refuse
    lie: Arrays = {"winner": np.zeros(classes, np.int64), "similarity": own[0]}
    for k in (1, 2):
        with pytest.raises(Contradiction, match="class 0: its own similarity beats the lowest"):
            _second(study, k, own[k], lie)
    # told so with the true lowest, it knows that it did not win, and sends nothing
    assert not _second(study, 0, own[0], {**lie, "similarity": d}).any()
    # a silo without examples knows nothing, and is never a winner
    assert not _second(study, 0, np.full(classes, np.nan, np.float32), lie).any()


def test_fedcmcs_ablations_are_held_to_the_same_or_say_that_they_are_not() -> None:
    (_, highest), (_, drawn) = (
        tiny_study("fedcmc", SILOS, options={"vectors": v}).method.exchanges
        for v in ("minor", "random")
    )
    assert "leaves out" in highest.disclosures[0].unless and "drawn" in drawn.disclosures[0].unless
    low, high = np.array([0.1, 0.9], np.float32), np.array([0.5, 0.5], np.float32)
    assert fedcmc.contradiction(low, high, "major").startswith("class 0")
    assert fedcmc.contradiction(low, high, "minor").startswith("class 1")
    assert fedcmc.contradiction(low, high, "random") == ""


def test_fedatt_tells_nobody_anything_alone() -> None:
    """No private word, so a coordinator that lies must show all silos the same: nothing it may say
    silences some and not others, since the level cancels.
    """
    study = tiny_study("fedatt", SILOS)
    (only,) = study.method.exchanges
    state = study.method.init(0)
    assert only.broadcast(state, 0, (0, 1, 2)).private == {} and not only.sealed
    assert not any(d.unless for d in only.disclosures)
    shares = []
    for level in (0.0, 0.1, 0.2, 50.0, -50.0):
        said = only.broadcast(
            replace(state, memory={"level": state.memory["level"] + level}), 0, ()
        )
        views = [
            SiloView(k, study.task, study.task.subset(ix), study.settings, b"")
            for k, ix in enumerate(study.partition.indices)
        ]
        e = np.stack([only.answer(v, Heard(0, (), said.common)).masked["attention"] for v in views])
        shares.append(e / e.sum(axis=0))
    np.testing.assert_allclose(shares[1], shares[0], rtol=1e-5)
    np.testing.assert_allclose(shares[2], shares[0], rtol=1e-5)
    assert shares[0].min() > 0.2  # of three silos that moved about equally far
    # beyond what can be: all alike, and never one silo alone
    assert np.allclose(shares[3], 1 / 3) and np.allclose(shares[4], 1 / 3)


def test_fedcmc_keeps_the_last_vector_of_a_class_whose_winner_is_lost() -> None:
    study = tiny_study("fedcmc", SILOS)
    before = study.method.init(derived_seed(0, "init")).memory["major"]
    _, whole = run(study)
    major = kept_in(whole, "memory")["major"]
    owners = [
        int(
            np.argmin(
                [np.abs(trained_rows[c] - major[c]).max() for trained_rows in _classifiers(study)]
            )
        )
        for c in range(len(major))
    ]
    lost = owners[0]
    _, folder = run(tiny_study("fedcmc", SILOS), absent={(0, 1): frozenset({lost})})
    after = kept_in(folder, "memory")["major"]
    for c, owner in enumerate(owners):
        np.testing.assert_allclose(after[c], before[c] if owner == lost else major[c], atol=1e-6)


def _classifiers(study: Study) -> list[np.ndarray]:
    start = initial(study)
    m = torch.from_numpy(start["classifier.weight"].copy())

    def loss(model: Any, batch: Any) -> torch.Tensor:
        h = model.dropout(model.encode(*batch.inputs))
        return F.cross_entropy(model.classifier(h), batch.relation) + F.cross_entropy(
            h @ m.T, batch.relation
        )

    return [trained(study, k, start, 0, loss)["classifier.weight"] for k in range(3)]
