"""Whole rounds of FedCMC against a server that reads every classifier, and what a silo sends in
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from config.errors import UserError
from methods import fedcmc
from methods.base import Arrays, Contradiction, Folded, Heard, SiloView, derived_seed
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


def test_with_major_vectors_predicting_training_is_the_same_and_they_classify() -> None:
    plain, folder = run(tiny_study("fedcmc", SILOS, rounds=2))
    ours, other = run(tiny_study("fedcmc", SILOS, rounds=2, options={"predict": "major"}))
    kept, memory = kept_in(folder, "memory"), kept_in(other, "memory")
    assert {n for n in plain if not np.array_equal(plain[n], ours[n])} == {fedcmc.CLASSIFIER}
    np.testing.assert_array_equal(ours[fedcmc.CLASSIFIER], kept["major"])
    np.testing.assert_array_equal(memory[fedcmc.AVERAGED], plain[fedcmc.CLASSIFIER])
    with pytest.raises(UserError, match="predict"):
        tiny_study("fedcmc", SILOS, options={"predict": "minor"})


_CONTEXT = b"what was broadcast in round 0"


def _view(study: Study, silo: int, **more: Any) -> SiloView[Any, Any]:
    nothing = study.task.subset(np.arange(0))
    return SiloView(silo, study.task, nothing, study.settings, b"", **more)


def _statement(study: Study, silo: int, own: np.ndarray, context: bytes = _CONTEXT) -> Arrays:
    signed = _view(study, silo).sign(fedcmc._PURPOSE, fedcmc._statement(context, own))
    return {"similarities": own, "signature": np.frombuffer(signed, np.uint8)}


def _told(study: Study, sealed: Mapping[int, Arrays], survivors: tuple[int, ...]) -> Arrays:
    """What all are told when these sent this and are in the round's sum."""
    first, second = study.method.exchanges
    state = study.method.init(0)
    total = {k: np.ones([n or 0 for n in spec.shape]) for k, spec in first.masked.items()}
    after = first.fold(state, Folded(0, survivors, total, sealed))
    said = second.broadcast(after, 0, survivors)
    assert said.private == {}
    return said.common


def _second(
    study: Study, silo: int, own: np.ndarray, said: Arrays, certified: tuple[int, ...] | None
) -> list[float]:
    """What a silo with these similarities sends when it is told so: a row of ones where it won."""
    _, second = study.method.exchanges
    rows = np.ones((len(own), 16), np.float32)
    carry = {"classifier": rows, "similarities": own, "context": _CONTEXT}
    known = {} if certified is None else {0: certified}
    view = _view(study, silo, carry=carry, certified=known)
    return second.answer(view, Heard(0, (0, 1, 2), said)).masked["rows"][:, 0].tolist()


def _three(study: Study) -> list[np.ndarray]:
    own = [np.full(len(study.task.labels), d, np.float32) for d in (0.5, 0.2, 0.3)]
    own[2][0] = 0.1
    return own


def test_fedcmc_shows_all_silos_the_same_and_each_finds_the_winners_itself() -> None:
    study = tiny_study("fedcmc", SILOS)
    own, others = _three(study), len(study.task.labels) - 1
    said = _told(study, {k: _statement(study, k, d) for k, d in enumerate(own)}, (0, 1, 2))
    sent = [_second(study, k, own[k], said, (0, 1, 2)) for k in range(3)]
    assert sent == [[0.0] * (others + 1), [0.0] + [1.0] * others, [1.0] + [0.0] * others]
    # who was lost before the sum was closed is not among those shown, and cannot win
    sealed = {k: _statement(study, k, d) for k, d in enumerate(own)}
    two = _told(study, sealed, (0, 1))
    assert two["silos"].tolist() == [0, 1]
    assert _second(study, 1, own[1], two, (0, 1)) == [1.0] * (others + 1)
    # a silo without examples is shown to have none, and is never a winner
    nobody = np.full(others + 1, np.nan, np.float32)
    with_empty = {0: _statement(study, 0, nobody), 1: sealed[1], 2: sealed[2]}
    told = _told(study, with_empty, (0, 1, 2))
    assert not any(_second(study, 0, nobody, told, (0, 1, 2)))


def test_fedcmc_sends_no_row_on_a_list_that_is_not_everybodys_own() -> None:
    study = tiny_study("fedcmc", SILOS)
    own = _three(study)
    sealed = {k: _statement(study, k, d) for k, d in enumerate(own)}
    said = _told(study, sealed, (0, 1, 2))

    def refused(says: str, told: Arrays, certified: tuple[int, ...] | None = (0, 1, 2)) -> None:
        with pytest.raises(Contradiction, match=says):
            _second(study, 0, own[0], told, certified)

    refused("not shown whose updates", said, None)
    # those who beat silo 0 are left out, as if they were not in the sum
    refused("everybody in the round's sum", _told(study, sealed, (0,)))
    refused("shown twice", {k: np.concatenate([v, v]) for k, v in said.items()})
    higher = np.ones_like(own[1])
    for claim in (
        {**sealed[1], "similarities": higher},  # not what it signed
        _statement(study, 1, higher, b"another round"),
        {**sealed[2]},  # another silo's
    ):
        refused("silo 1 are not signed by it", _told(study, {**sealed, 1: claim}, (0, 1, 2)))
    # its own, signed by itself, and not what it sent in this round
    refused("its own", _told(study, {**sealed, 0: _statement(study, 0, higher)}, (0, 1, 2)))


def test_fedcmcs_ablations_are_held_to_the_same_and_a_draw_says_what_it_leaves() -> None:
    """A draw is from the run's seed, so that every silo makes it itself."""
    studies = [
        tiny_study("fedcmc", SILOS, options={"vectors": v}) for v in ("major", "minor", "random")
    ]
    unless = [study.method.exchanges[1].disclosures[0].unless for study in studies]
    assert unless[:2] == ["", ""] and "leaves silos out" in unless[2]
    for study in studies[1:]:
        own = _three(study)
        said = _told(study, {k: _statement(study, k, d) for k, d in enumerate(own)}, (0, 1, 2))
        sent = np.array([_second(study, k, own[k], said, (0, 1, 2)) for k in range(3)])
        assert (sent.sum(axis=0) == 1.0).all()
    # the highest, of one class and of another
    highest = _told(
        studies[1], {k: _statement(studies[1], k, d) for k, d in enumerate(own)}, (0, 1, 2)
    )
    assert set(_second(studies[1], 0, own[0], highest, (0, 1, 2))) == {1.0}


def test_more_silos_than_sign_for_a_sum_are_refused() -> None:
    with pytest.raises(UserError, match=r"fedcmc runs with at most 256 silos, not 257"):
        tiny_study("fedcmc", [[0]] * 257)
    tiny_study("fedcmc", [[0]] * 257, secagg=False)


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
