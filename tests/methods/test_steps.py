"""Optimizer, schedule and clipping: against torch's own, by hand, and from one round to the next."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from config.errors import UserError
from config.load import load, with_task_defaults
from config.settings import SCHEDULES, Settings
from methods import check_options
from methods.base import Heard, SiloView, State
from methods.common.steps import Steps, rate_at
from methods.common.training import train
from silo.gate import Gate
from silo.memory import MemoryFile
from study.prepare import Study
from tests.methods.small_sentence import tiny_study

SILOS = [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9, 10]]


def _settings(**changed: Any) -> Settings:
    base = with_task_defaults(Settings(rounds=4, lr=1.0, decay=0.0), "sentence")
    return replace(base, **changed)


def test_the_rate_by_hand() -> None:
    """Four rounds of ten steps, a quarter of them warm-up: 1/10 … 1, then down to 1/30."""
    s = _settings(warmup=0.25, schedule="linear")
    assert [rate_at(s, 0, k, 10) for k in (0, 4, 9)] == pytest.approx([0.1, 0.5, 1.0])
    assert [rate_at(s, r, 0, 10) for r in (1, 2, 3)] == pytest.approx([1, 2 / 3, 1 / 3])
    assert rate_at(s, 3, 9, 10) == pytest.approx(1 / 30)
    cosine = replace(s, schedule="cosine")
    assert rate_at(cosine, 2, 5, 10) == pytest.approx(0.5)  # the middle of what is left
    # the decay by round stands beside the schedule; a silo with other batches is as far as others
    slow = replace(s, decay=0.1)
    assert rate_at(slow, 2, 0, 10) == pytest.approx(0.81 * 2 / 3) == rate_at(slow, 2, 0, 3)


@given(
    schedule=st.sampled_from(SCHEDULES),
    warmup=st.floats(0, 0.99),
    rounds=st.integers(1, 6),
    steps=st.integers(1, 12),
)
def test_rates_rise_then_never_rise_again(
    schedule: str, warmup: float, rounds: int, steps: int
) -> None:
    s = _settings(schedule=schedule, warmup=warmup, rounds=rounds)
    rates = [rate_at(s, r, k, steps) for r in range(rounds) for k in range(steps)]
    top = int(np.argmax(rates))
    assert all(0 < rate <= 1 + 1e-12 for rate in rates)
    assert all(a <= b + 1e-12 for a, b in zip(rates[:top], rates[1 : top + 1]))
    assert all(a >= b - 1e-12 for a, b in zip(rates[top:], rates[top + 1 :]))


def _network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))


def _loss(model: nn.Module, k: int) -> torch.Tensor:
    x = torch.from_numpy(np.random.default_rng(k).normal(size=(8, 5)).astype(np.float32))
    return (model(x) ** 2).mean() * 10


def _plain(name: str, model: nn.Module) -> torch.optim.Optimizer:
    made = {
        "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.3),
        "adam": lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.3),
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.3),
        "momentum": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.3, momentum=0.9),
    }
    return made[name](model.parameters())


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd", "momentum"])
@pytest.mark.parametrize("clip_norm", [0.0, 0.05])
def test_steps_are_torchs_own(name: str, clip_norm: float) -> None:
    s = _settings(optimizer=name, lr=0.1, weight_decay=0.3, clip_norm=clip_norm, rounds=2)
    ours, theirs = _network(), _network()
    optimizer = _plain(name, theirs)
    steps = Steps(replace(s, schedule="linear"), ours, 1, 5)
    for k in range(5):
        steps.clear()
        _loss(ours, k).backward()
        steps.step()
        optimizer.zero_grad()
        _loss(theirs, k).backward()
        norm = torch.sqrt(sum((p.grad**2).sum() for p in theirs.parameters()))  # type: ignore
        if clip_norm:
            assert norm > clip_norm  # else nothing would be tested
            for p in theirs.parameters():
                assert p.grad is not None
                p.grad *= clip_norm / (norm + 1e-6)
        optimizer.param_groups[0]["lr"] = 0.1 * (0.5 - k / 10)
        optimizer.step()
    for a, b in zip(ours.parameters(), theirs.parameters()):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-7)
        assert torch.equal(a, b) or clip_norm or name.startswith("adam")


@pytest.mark.parametrize("name", ["adamw", "adam", "momentum"])
def test_a_kept_optimizer_goes_on_as_if_nothing_had_been_between(name: str) -> None:
    s = _settings(optimizer=name, lr=0.1, rounds=2)
    whole, parts = _network(), _network()

    def go(model: nn.Module, steps: Steps, first: int) -> None:
        for k in range(first, first + 3):
            steps.clear()
            _loss(model, k).backward()
            steps.step()

    one = Steps(s, whole, 0, 6)
    go(whole, one, 0)
    go(whole, one, 3)
    before = Steps(s, parts, 0, 3)
    go(parts, before, 0)
    kept = before.state()
    assert kept and all(v.dtype == np.float32 for v in kept.values())
    fresh = copy.deepcopy(parts)
    go(parts, Steps(s, parts, 1, 3, kept), 3)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), parts.parameters()))
    go(fresh, Steps(s, fresh, 1, 3), 3)
    assert not all(torch.equal(a, b) for a, b in zip(whole.parameters(), fresh.parameters()))


class _Tied(nn.Module):
    """One table at both ends, as in many encoders, and a parameter that is not always used."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Parameter(torch.randn(5, 4))
        self.middle = nn.Linear(4, 4)
        self.rare = nn.Linear(5, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.middle(x @ self.table)) @ self.table.T
        return self.rare(x) if x[0, 0] > 0 else x


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd", "momentum"])
@pytest.mark.parametrize("clip_norm", [0.0, 0.05])
def test_spent_gradients_give_the_same_model_and_are_never_there_together(
    name: str, clip_norm: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a bound on their norm they wait elsewhere."""
    more = {"schedule": "linear", "clip_norm": clip_norm}
    s = _settings(optimizer=name, lr=0.05, weight_decay=0.3, **more)
    kept, spent = _Tied(), _Tied()
    there: list[int] = []
    states = []
    for model, large in ((kept, 10**9), (spent, 0)):
        monkeypatch.setattr("methods.common.steps._LARGE", large)
        go_on: dict[str, np.ndarray] = {}
        for round in (0, 1):  # the second with what the first has kept
            steps = Steps(s, model, round, 4, go_on, spend=True)
            watches = [
                p.register_post_accumulate_grad_hook(
                    lambda _: there.append(sum(p.grad is not None for p in spent.parameters()))
                )
                for p in model.parameters()
            ]
            for k in range(4):
                steps.clear()
                _loss(model, k).backward()
                steps.step()
            steps.end()
            for watch in watches:
                watch.remove()
            go_on = steps.state()
        states.append(go_on)
    assert all(torch.equal(a, b) for a, b in zip(kept.parameters(), spent.parameters()))
    assert states[0].keys() == states[1].keys()
    assert all(np.array_equal(states[0][k], states[1][k]) for k in states[0])
    assert there and not any(there)
    _loss(spent, 0).backward()
    assert all(p.grad is not None for p in spent.middle.parameters())  # its own again


class _InBfloat16(nn.Module):
    """Products in bfloat16; `twice`: one weight is in two of them, and its gradient is a sum."""

    def __init__(self, twice: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.in_bfloat16, self.twice = True, twice
        self.first, self.last = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
            h = torch.tanh(self.first(x))
            return self.last(self.first(h) if self.twice else h).float()


@pytest.mark.parametrize("twice", [False, True])
def test_gradients_that_wait_for_their_norm_wait_in_bfloat16_where_it_holds_them(
    twice: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = _settings(optimizer="adamw", lr=0.05, clip_norm=0.05)
    kept, spent = _InBfloat16(twice), _InBfloat16(twice)
    for model, large in ((kept, 10**9), (spent, 0)):
        monkeypatch.setattr("methods.common.steps._LARGE", large)
        steps = Steps(s, model, 0, 4, spend=True)
        for k in range(4):
            steps.clear()
            _loss(model, k).backward()
            waiting = {p.dtype for p in steps._waits.values() if p.dim() == 2}
            steps.step()
    assert all(torch.equal(a, b) for a, b in zip(kept.parameters(), spent.parameters()))
    assert waiting == {torch.bfloat16} | ({torch.float32} if twice else set())


# At a silo


def _study(**settings: Any) -> Study:
    some = {"keep_optimizer": True, "rounds": 3, "lr": 0.01, **settings}
    return tiny_study("fedavg", SILOS, **some)


def _view(study: Study, silo: int = 0) -> SiloView:
    data = study.task.subset(study.partition.indices[silo])
    return SiloView(silo, study.task, data, study.settings, b"")


def _ask(gate: Gate, study: Study, state: State, round: int) -> dict[str, np.ndarray]:
    said = study.method.exchanges[0].broadcast(state, round, (0, 1, 2))
    heard = Heard(round, (0, 1, 2), said.common)
    return dict(gate.answer(0, heard, bytes([round]) * 32).masked)


def test_a_silo_keeps_its_optimizer_on_its_own_disk(tmp_path: Path) -> None:
    """Killed after it had answered, asked for the round again, and never handed back a round it has
    not trained in: each time it answers as it would have.
    """
    study = _study()
    state, file = study.method.init(0), MemoryFile(tmp_path / "memory.safetensors", "s")
    alive = Gate(_view(study), study.method, file)
    told = [_ask(alive, study, state, round) for round in range(2)]
    assert (tmp_path / "optimizer.safetensors").is_file()
    again = _ask(Gate(_view(study), study.method, file), study, state, 1)
    assert all(np.array_equal(told[1][k], again[k]) for k in again)
    # what it kept matters, and is of this study alone
    for other in (MemoryFile(tmp_path / "memory.safetensors", "another study"), MemoryFile(None)):
        alone = _ask(Gate(_view(study), study.method, other), study, state, 1)
        assert any(not np.array_equal(told[1][k], alone[k]) for k in alone)
    # without a disk (a plain loop) it is the same
    held = Gate(_view(study), study.method, MemoryFile(None))
    for round in range(2):
        assert all(
            np.array_equal(a, told[round][k]) for k, a in _ask(held, study, state, round).items()
        )


def test_nothing_is_kept_unless_it_is_asked_for(tmp_path: Path) -> None:
    study = _study(keep_optimizer=False)
    gate = Gate(_view(study), study.method, MemoryFile(tmp_path / "memory.safetensors", "s"))
    _ask(gate, study, study.method.init(0), 0)
    assert not (tmp_path / "optimizer.safetensors").exists()


def test_private_training_keeps_its_optimizer_too() -> None:
    from tests.methods.small_private import private_view

    kept: dict[str, np.ndarray] = {}
    view = private_view(optimizer="momentum", keep_optimizer=True, lr=0.1)
    view = replace(view, keep_optimizer=lambda round, state: kept.update(state()))
    train(view, view.task.new_model(0), 0)
    assert any(k.endswith("/momentum_buffer") for k in kept)


def test_what_a_kept_optimizer_lets_a_liar_do_and_that_it_is_said() -> None:
    """The others are shown a model of huge gradients in rounds without the victim; what Adam keeps
    of them then leaves the others almost still, and the sum is nearly the victim's own.
    """
    study = _study(lr=0.01, rounds=50, epochs=12)
    exchange, state = study.method.exchanges[0], study.method.init(0)
    (update,) = [d for d in exchange.disclosures if d.name == "update"]
    assert "what their optimizers keep leaves them still" in update.readable_by
    assert "nothing of one silo alone" not in update.reveals
    (weight,) = [d for d in exchange.disclosures if d.name == "weight"]
    assert not weight.unless  # a count is no movement
    gates = [Gate(_view(study, k), study.method, MemoryFile(None)) for k in range(3)]
    bad = State(
        {k: v * (50.0 if k.startswith("classifier") else 1.0) for k, v in state.model.items()}
    )

    def moved(silo: int, of: State, round: int) -> float:
        masked = _ask(gates[silo], study, of, round)
        return float(np.sqrt(sum((v**2).sum() for k, v in masked.items() if k != "weight")))

    for round in range(2):
        moved(0, bad, round)
    moved(0, state, 2)  # in which the first moments fade, and the second do not
    others, victim = moved(0, state, 3), moved(2, state, 3)
    honest = moved(1, state, 3)
    assert others < 0.5 * victim  # of as many examples
    assert honest > 0.6 * victim  # of three quarters as many


# What a user is told


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"optimizer": "adamm"}, "OPTIMIZER must be adamw, adam, sgd or momentum"),
        ({"schedule": "step"}, "SCHEDULE must be constant, linear or cosine"),
        ({"warmup": "1"}, "WARMUP must be at least 0 and below 1, not 1"),
        ({"clip_norm": "-2"}, "CLIP_NORM must be at least 0, not -2"),
        ({"weight_decay": "-2"}, "WEIGHT_DECAY must be"),
        ({"keep_optimizer": "maybe"}, "KEEP_OPTIMIZER"),
        ({"device": "gpu"}, "DEVICE must be auto, cpu, cuda or mps"),
        ({"slots": "-1"}, "SLOTS must be"),
        ({"evaluate": "0"}, "EVALUATE must be 1"),
        ({"optimizer": "sgd", "keep_optimizer": "on"}, "sgd keeps nothing"),
    ],
)
def test_mistakes(words: dict[str, str], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        load(None, words)


def test_an_optimizer_that_keeps_nothing_is_refused_where_it_is_the_tasks_too() -> None:
    with pytest.raises(UserError, match="sgd keeps nothing"):
        with_task_defaults(load(None, {"keep_optimizer": "on"}), "distant")


def test_what_became_a_setting_is_no_option() -> None:
    with pytest.raises(UserError, match="say WEIGHT_DECAY=0.1"):
        check_options("fedavg", "sentence", {"weight_decay": 0.1})
