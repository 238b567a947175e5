"""DP=silo: the noise that is in an opened sum, also after dropouts; clipping in whole numbers; who
may ask for what.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.simulation.inprocess import run_inprocess
from config.errors import UserError
from config.load import load
from coordinator.exchange import RoundFailed
from crypto.errors import Refusal, SumFailed
from crypto.numbers.encoding import Encoding, steps_of
from crypto.sum.params import Policy, least_honest, parameters
from crypto.sum.silo_limits import Limits
from methods import METHODS, tasks_of
from methods.base import Heard, SiloView
from privacy.accountant import total
from privacy.discrete import table
from privacy.events import Gaussian, NoisySum
from privacy.noise import SecretStream
from privacy.sum_noise import SumNoise, choose
from silo.gate import Gate
from silo.memory import MemoryFile
from study.prepare import prepare
from tests.conftest import lines, summary
from tests.crypto.world import World
from tests.methods.test_coverage import CORPORA, REFERENCES
from tests.privacy.test_accountant import gaussian_epsilon

STEPS = steps_of(32, 10)
# they send something that the coordinator reads silo by silo
SEALED = {"lazymil", "feded", "fedcmc"}


def test_the_discrete_gaussian_has_its_probabilities() -> None:
    n, s = 200_000, 3
    drawn = SecretStream(b"d" * 32).discrete_normal(n, s)
    k = np.arange(-30, 31)
    p = np.exp(-(k**2) / (2 * s**2))
    p /= p.sum()
    seen = np.bincount(drawn + 30, minlength=61)
    often = p * n > 5
    assert ((seen - n * p)[often] ** 2 / (n * p)[often]).sum() < often.sum() + 5 * math.sqrt(
        2 * often.sum()
    )
    t = table(s)
    cumulative = np.array([c / 2**128 for c in t.cumulative])
    assert np.allclose(cumulative, np.cumsum(p)[:-1], atol=1e-12)
    # a draw at an edge is above it
    assert [t.place(c) for c in t.cumulative[25:35]] == list(range(26, 36))
    assert [t.place(c - 1) for c in t.cumulative[25:35]] == list(range(25, 35))


@pytest.mark.parametrize("dead", [0, 3])
def test_the_noise_in_an_opened_sum_is_at_least_the_promise(dead: int) -> None:
    """Ten silos of which three may collude and three may drop out: four honest ones' noise is what
    is promised.
    """
    policy, size = Policy(), 30_000
    noise = choose(1.0, 2.0, least_honest(10, policy, 10), STEPS)
    assert noise.honest == 4
    encoding = Encoding(32, 10, (size,), (noise.range(STEPS),))
    world = World(10, limits=Limits(max_range=1e6, policy=policy)).enrol()
    nothing = {"update/w": np.zeros(size, np.float32)}
    noisy = {
        name: [noise.noised(nothing, SecretStream(name.encode() * 4))["update/w"]]
        for name in world.names
    }
    survivors, sums = world.whole(encoding, noisy, world.names[1 : 1 + dead])
    in_steps = sums[0] / noise.grid
    # nothing but whole numbers of grid steps
    assert np.abs(in_steps - np.rint(in_steps)).max() < 1e-6
    own = {name: np.rint(noisy[name][0] / noise.grid) for name in survivors}
    assert np.array_equal(np.rint(in_steps), sum(own.values()))  # and each silo's, exactly
    promised = noise.noise * noise.clip
    assert sums[0].std() == pytest.approx(promised * math.sqrt(len(survivors) / 4), rel=0.03)
    # three collude and subtract their own
    hidden = sum(own[name] for name in survivors[3:]) * noise.grid
    assert np.std(hidden) > 0.97 * promised
    assert abs(sums[0].mean()) < 5 * sums[0].std() / math.sqrt(size)


def test_a_sum_with_less_noise_than_promised_is_not_opened(tmp_path: Path) -> None:
    policy = Policy()
    noise = choose(1.0, 2.0, least_honest(10, policy, 10), STEPS)
    encoding = Encoding(32, 10, (5,), (noise.range(STEPS),))
    world = World(10, limits=Limits(max_range=1e6, policy=policy)).enrol()
    data = {name: [np.zeros(5, np.float32)] for name in world.names}
    with pytest.raises(SumFailed, match="below the floor of 7"):
        world.whole(encoding, data, world.names[:4])
    words = {
        "corpus": CORPORA["distant"][0],
        "silos": "5",
        "rounds": "1",
        "dp": "silo",
        "noise": "1",
    }
    study = prepare(load(None, words | {"method": "fedavg", "runner": "inprocess", "epochs": "1"}))
    with pytest.raises(RoundFailed, match="not opened: 3 silos"):  # of five, four must be there
        run_inprocess(tmp_path, study, absent={(0, 0): frozenset({0, 1})})
    assert not lines(tmp_path / "rounds.jsonl")


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1.0, 1e6])
def test_a_silos_vector_is_clipped_in_whole_numbers(scale: float) -> None:
    noise = SumNoise(0.7, 3.0, 2, 1024)
    x = np.random.default_rng(1).normal(0, scale, 50_000)
    whole = noise.clipped(x)
    assert math.sqrt(float((whole**2).sum())) <= noise.radius <= 0.7 / noise.grid
    if scale == 1e6:
        assert math.sqrt(float((whole**2).sum())) > 0.9 * noise.radius


def test_the_promise_over_a_run_is_what_the_accountant_says() -> None:
    for n, roster in ((3, 3), (5, 5), (10, 10), (30, 100)):
        policy = Policy(corrupt_among="roster" if n == roster else "cohort")
        least = parameters(n, policy, roster).n_min
        assert 2 <= least_honest(n, policy, roster) <= least
    event = SumNoise(1.0, 5.0, 4, 8192).event(1_500_000, 10)
    assert event.noise == 5.0 and event.slack < 1e-13
    whole = total([NoisySum(5.0, 0.0)] * 20, 1e-5, "silo")
    assert total([event] * 20, 1e-5, "silo").rdp == pytest.approx(whole.rdp, rel=0.01)
    gaussian = total([Gaussian(5.0)] * 20, 1e-5).epsilon
    assert total([event] * 20, 1e-5, "silo").epsilon == pytest.approx(gaussian, rel=1e-3)
    # a record's protection is not a silo's
    assert math.isinf(total([Gaussian(5.0)], 1e-5, "silo").epsilon)


def _gate(path: Path) -> tuple[Gate, Encoding, Heard]:
    words = {
        "corpus": CORPORA["distant"][0],
        "silos": "10",
        "rounds": "1",
        "dp": "silo",
        "noise": "1",
        "epochs": "1",
    }
    study = prepare(load(None, words | {"method": "fedavg"}))
    s = study.settings
    view = SiloView(0, study.task, study.task.subset(study.partition.indices[0]), s, b"")
    gate = Gate(view, study.method, MemoryFile(None))
    exchange = study.method.exchanges[0]
    sizes = tuple(x.size for x in exchange.masked.values())
    blank = Encoding(32, 10, sizes, (1.0,) * len(sizes))
    encoding = replace(blank, ranges=tuple(gate.caps(0, blank)))
    model = study.method.init(0).model
    return gate, encoding, Heard(0, tuple(range(10)), model)


def test_a_silo_refuses_a_sum_that_would_not_keep_its_promise(tmp_path: Path) -> None:
    gate, encoding, heard = _gate(tmp_path)
    wider = replace(encoding, ranges=(encoding.ranges[0], *(2 * r for r in encoding.ranges[1:])))
    for bad, attack in (
        (None, "channel-downgrade"),
        (wider, "range-widening"),
        (replace(encoding, rounding="stochastic"), "range-widening"),
        (replace(encoding, rotate=True), "range-widening"),
    ):
        with pytest.raises(Refusal) as refused:
            gate.answer(0, heard, b"h", bad)
        assert refused.value.attack == attack
    answer = gate.answer(0, heard, b"h", encoding)
    assert [x["disclosure"] for x in gate.charged()] == ["noisy sum", "update", "weight"]
    assert answer.masked["weight"].tolist() == [1.0]
    # asked again over the same silos: the same, no second noise
    assert gate.answer(0, heard, b"h", encoding) is answer
    fewer = replace(heard, cohort=tuple(range(6)))
    # in a smaller sum the same share of noise is too little
    with pytest.raises(Refusal) as refused:
        gate.answer(0, fewer, b"h", encoding)
    assert refused.value.attack == "tiny-sum"
    blank = Encoding(32, 6, encoding.sizes, (1.0,) * len(encoding.sizes))
    smaller = replace(blank, ranges=tuple(gate.caps(0, blank)))
    # also where the sum's own grid is that of the smaller number
    with pytest.raises(Refusal) as refused:
        gate.answer(0, fewer, b"h", smaller)
    assert refused.value.attack == "tiny-sum"


def test_a_silo_whose_update_is_no_number_sends_noise_alone(tmp_path: Path) -> None:
    """A refusal would tell what no noise covers."""
    gate, encoding, heard = _gate(tmp_path)
    broken = {k: np.full_like(v, np.inf) for k, v in heard.common.items()}
    answer = gate.answer(0, replace(heard, common=broken), b"h", encoding)
    assert all(np.isfinite(a).all() for a in answer.masked.values()) and answer.masked[
        "weight"
    ].tolist() == [1.0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "bits", "rounds"), [*((m, "32", "1") for m in METHODS), ("fedavg", "16", "10")]
)
def test_every_method_runs_or_says_why_not(
    method: str, bits: str, rounds: str, tmp_path: Path
) -> None:
    corpus, _ = CORPORA[tasks_of(method)[0]]
    words = {
        "method": method,
        "corpus": corpus,
        "silos": "3",
        "bits": bits,
        "rounds": rounds,
        "epochs": "1",
        "runner": "inprocess",
    }
    words |= {"partition": "iid", "dp": "silo", "epsilon": "8"}
    if method in REFERENCES or method in SEALED:
        with pytest.raises(
            UserError, match=f'^The method "{method}" does not run with DP=silo: [^.]*\\.$'
        ):
            prepare(load(None, words))
        if method != "feded":
            return
        words["options.logits"] = "masked"
    study = prepare(load(None, words))
    assert run_inprocess(tmp_path, study) == 0
    s = summary(tmp_path)
    assert 0 < s["epsilon"] <= 8.0 and s["privacy_unit"] == "silo"
    ledger = [
        json.loads(x)["event"]
        for x in (tmp_path / "silos/silo-001/ledger.jsonl").read_text().splitlines()
    ]
    noisy = [e for e in ledger if e["kind"] == "near-gaussian-sum"]
    assert len(noisy) == int(rounds) * len(study.method.exchanges) and {
        e["kind"] for e in ledger
    } == {
        "near-gaussian-sum",
        "free",
    }
    # Independently: the Gaussian's Renyi divergence, converted (Canonne, Kamath and Steinke 2020,
    # proposition 12).
    rho = sum(1 / (2 * e["noise"] ** 2) for e in noisy)
    alpha = np.linspace(1.01, 400, 200_000)
    bound = rho * alpha + np.log1p(-1 / alpha) - (math.log(1e-5) + np.log(alpha)) / (alpha - 1)
    assert s["epsilon_rdp"] == pytest.approx(bound.min(), rel=0.03)
    # and the Gaussian mechanism, exactly, with what the noise's distance from it adds (of 16 bits a
    # silo has a coarse grid); Opacus's accountant was asked too
    away = sum(2 * e["apart"] for e in noisy)
    assert (away > 0.01) == (bits == "16")
    gaussian = gaussian_epsilon(1 / math.sqrt(2 * rho), 1e-5)
    assert s["epsilon"] == pytest.approx(gaussian + away, rel=2e-3)
    assert s["epsilon"] - 0.002 <= s["epsilon_opacus"] <= s["epsilon"] + 0.021
