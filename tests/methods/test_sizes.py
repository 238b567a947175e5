"""What a study's exchanges may take, by what it declares; and lists of a silo's own length."""

from __future__ import annotations

import numpy as np
import pytest

from config.load import load
from coordinator.intake import Intake
from crypto.errors import Refusal
from methods.base import Answer
from methods.common.grouping import grouped
from methods.lazymil import winners
from silo.gate import _check
from study.prepare import Study, prepare
from study.sizes import broadcast_bytes, upload_bytes
from wire import messages as m
from wire.bundle import laid_out, pack


@pytest.fixture(scope="module")
def study() -> Study:
    words = {"method": "lazymil", "options.bags": "1000", "silos": "3"}
    words["corpus"] = "distant:sentences=300"
    return prepare(load(None, words))


def _sealed(bags: int) -> dict[str, np.ndarray]:
    return {"names": np.zeros((bags, 16), np.uint8), "values": np.zeros(bags, np.uint16)}


def test_a_silo_with_more_bags_than_agreed_is_refused_at_both_ends(study: Study) -> None:
    score = study.method.exchanges[-2]
    intake = Intake(score, None, None)
    for bags in (1000, 1001, 4_500_000):
        start = m.SealedStart(1, laid_out(_sealed(bags))[0])
        if bags <= 1000:
            assert intake.take("silo-000", start, None)
            _check(score, Answer(sealed=_sealed(bags)))
            continue
        try:
            intake.take("silo-001", start, None)
            raise AssertionError("it was taken")
        except (Refusal, m.BadMessage) as e:
            assert e.attack == "oversize"
        with pytest.raises(Refusal, match="allows 1000 at most"):
            _check(score, Answer(sealed=_sealed(bags)))


def test_what_a_study_may_take_follows_from_what_it_declares(study: Study) -> None:
    model = sum(a.nbytes for a in study.method.init(0).model.values())
    assert upload_bytes(study.method) == 2 * model
    for exchange in study.method.exchanges:
        told = exchange.broadcast(study.method.init(0), 0, (0, 1, 2))
        assert pack(told.common).buffer.nbytes < broadcast_bytes(study.method, study.task)
    assert broadcast_bytes(study.method, study.task) < 5 * model + (1 << 21)


def _by_hand(scored: dict[int, dict[str, np.ndarray]]) -> dict[int, list[int]]:
    best: dict[bytes, tuple[int, int, int]] = {}
    for s, said in scored.items():
        for i, (name, value) in enumerate(zip(said["names"], said["values"])):
            mine = (-int(value), s, i)
            best[name.tobytes()] = min(best.get(name.tobytes(), mine), mine)
    return {s: sorted(i for _, t, i in best.values() if t == s) for s in scored}


@pytest.mark.parametrize("names", [1, 3, 50])
def test_winners_are_the_highest_then_the_lowest_silo_then_the_first(names: int) -> None:
    rng = np.random.default_rng(names)
    scored: dict[int, dict[str, np.ndarray]] = {
        s: {
            "names": rng.integers(0, names, (40, 1), dtype=np.uint8).repeat(16, axis=1),
            "values": rng.integers(0, 4, 40).astype(np.uint16) * 21845,
        }
        for s in (2, 5, 9)
    }
    assert {s: w.tolist() for s, w in winners(scored).items()} == _by_hand(scored)


def test_equal_rows_are_neighbours_whatever_was_chosen() -> None:
    """Rows that a hash without a key would throw together: equal halves, swapped halves, one bit."""
    rng = np.random.default_rng(1)
    base = rng.integers(0, 2**63, 50, dtype=np.uint64)
    rows = np.concatenate(
        [
            np.stack([base, base], 1),
            np.stack([base, base[::-1]], 1),
            np.stack([base[::-1], base], 1),
        ]
    )
    rows = np.concatenate([rows, rows ^ np.uint64(1 << 63), rows])
    order, starts = grouped(rows)
    ordered = rows[order]
    groups = np.split(ordered, starts[1:])
    assert all((g == g[0]).all() for g in groups)
    assert len(groups) == len(np.unique(rows, axis=0))
