"""The ledger: written before it is answered, whole after any kill, carried over, and a budget that
stops.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from config.errors import UserError
from config.settings import Settings
from crypto.errors import Refusal
from methods.base import (
    Answer,
    ArraySpec,
    Broadcast,
    Disclosure,
    Exchange,
    Heard,
    Method,
    Privacy,
    RecordPrivacy,
    SiloView,
    State,
)
from privacy.accountant import total
from privacy.events import DpSgd, Free, Gaussian, NoisySum, NonPrivate
from silo.gate import Gate
from silo.ledger import Budget, BudgetSpent, Ledger
from silo.memory import MemoryFile

STEP = DpSgd(1.0, 0.1, 10)


def _charge(ledger: Ledger, *events: object) -> None:
    for event in events:
        ledger.charge(0, "train", "training", event)  # type: ignore[arg-type]


def _events(path: Path) -> tuple[object, ...]:
    ledger = Ledger(path, Budget())
    ledger.close()
    return ledger.events


def test_events_are_there_after_reopening_and_add_up(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    for _ in range(2):  # a second run on the same data goes on where the first ended
        ledger = Ledger(path, Budget())
        _charge(ledger, STEP, Free("because"))
        ledger.close()
    ledger = Ledger(path, Budget())
    assert ledger.events == (STEP, Free("because")) * 2
    assert ledger.total() == total([DpSgd(1.0, 0.1, 20)], 1e-5)


def test_a_budget_stops_and_stays_stopped(tmp_path: Path) -> None:
    one = total([STEP], 1e-5).epsilon
    ledger = Ledger(tmp_path / "l", Budget(epsilon=1.05 * one))
    _charge(ledger, STEP)
    before = (tmp_path / "l").read_bytes()
    for _ in range(2):
        with pytest.raises(BudgetSpent, match="above its budget"):
            _charge(ledger, STEP)
    with pytest.raises(BudgetSpent):  # even what would cost nothing: it is out
        _charge(ledger, Free("because"))
    assert (tmp_path / "l").read_bytes() == before
    ledger.close()
    with pytest.raises(BudgetSpent, match="above its budget"):
        _charge(Ledger(tmp_path / "l", Budget(epsilon=1.05 * one)), STEP)


def test_without_noise_the_total_is_infinite_for_good_and_a_budget_refuses_it(
    tmp_path: Path,
) -> None:
    ledger = Ledger(tmp_path / "l", Budget())
    _charge(ledger, NonPrivate())
    assert math.isinf(ledger.total().epsilon)
    assert [line["epsilon_after"] for line in ledger.drain()] == ["inf"]
    ledger.close()
    with pytest.raises(BudgetSpent, match="released without noise before"):
        _charge(Ledger(tmp_path / "l", Budget(epsilon=1e6)), STEP)
    with pytest.raises(BudgetSpent, match="without noise"):
        _charge(Ledger(tmp_path / "new", Budget(epsilon=1e6)), NonPrivate())


def test_a_line_cut_short_is_dropped_and_any_other_damage_stops(tmp_path: Path) -> None:
    path = tmp_path / "l"
    ledger = Ledger(path, Budget())
    _charge(ledger, STEP, STEP)
    ledger.close()
    whole = path.read_bytes()
    end = whole.index(b"\n")
    # wherever a crash cut it, whole lines count
    for cut in [*range(0, len(whole), 23), len(whole) - 1, end, end + 1]:
        path.write_bytes(whole[:cut])
        torn = Ledger(path, Budget())
        assert len(torn.events) == whole[:cut].count(b"\n")
        _charge(torn, STEP)
        torn.close()
        assert len(_events(path)) == whole[:cut].count(b"\n") + 1
    first = json.loads(whole.splitlines()[0])
    for bad in ({**first, "event": {"kind": "gossip"}}, {"round": 1}, [1]):
        path.write_bytes(json.dumps(bad).encode() + b"\n" + whole)
        with pytest.raises(UserError, match="line 1.*cannot be charged"):
            Ledger(path, Budget())


def test_studies_at_once_charge_one_budget(tmp_path: Path) -> None:
    """Two ledgers on one file see each other's charges, and the budget is both studies'."""
    path = tmp_path / "l"
    budget = Budget(epsilon=1.05 * total([STEP] * 3, 1e-5, "record").epsilon)
    one, other = Ledger(path, budget), Ledger(path, budget)
    _charge(one, STEP)
    _charge(other, STEP)
    _charge(one, STEP)
    with pytest.raises(BudgetSpent):
        _charge(other, STEP)
    assert len(one.events) == 3 and _events(path) == (STEP, STEP, STEP)


@pytest.mark.slow
def test_processes_at_once_lose_no_charge(tmp_path: Path) -> None:
    path, children = tmp_path / "l", []
    for number in range(3):
        child = os.fork()
        if child == 0:
            ledger = Ledger(path, Budget())
            for _ in range(40):
                ledger.charge(number, "train", "update", Free("x" * (1 + 700 * number)))
            os._exit(len(ledger.events) < 40)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert len(_events(path)) == 120


def test_a_shared_folder_refuses_other_records(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l", Budget(), data="a")
    _charge(ledger, STEP)
    ledger.close()
    with pytest.raises(UserError, match="begun on other records"):
        Ledger(tmp_path / "l", Budget(), data="b", same_data=True)
    assert _events(tmp_path / "l") == (STEP,)  # a silo's own file counts on


@pytest.mark.slow
def test_kill_9_at_any_point_never_under_counts(tmp_path: Path) -> None:
    """A process says a number after each charge and is killed in the middle of it; the file has at
    least that many.
    """
    path, rng, said = tmp_path / "ledger.jsonl", np.random.default_rng(0), 0
    for _ in range(12):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            ledger = Ledger(path, Budget())
            for n in itertools.count(len(ledger.events) + 1):
                ledger.charge(0, "train", "update", Free("x" * int(rng.integers(1, 5000))))
                os.write(writer, f"{n}\n".encode())
        os.close(writer)
        with os.fdopen(reader) as numbers:
            for _ in range(int(rng.integers(1, 40))):
                said = int(numbers.readline())
            os.kill(child, signal.SIGKILL)
            said = max([said, *(int(x) for x in numbers.read().split("\n")[:-1])])
        os.waitpid(child, 0)
        assert said <= len(_events(path)) <= said + 1


def _method(name: str = "fedavg") -> Method:
    def answer(silo: SiloView, heard: Heard) -> Answer:
        if silo.settings.dp == "record":
            silo.spend("training", STEP)
        return Answer({"update/w": np.ones(2, np.float32)})

    said = Disclosure("update", "masked", "two numbers", "them", "none")
    exchange = Exchange(
        "train",
        (said,),
        lambda s, r, c: Broadcast({}),
        answer,
        lambda s, f: s,
        masked={"update/w": ArraySpec((2,))},
    )
    # a method of the homemade kind says nothing of privacy
    said_of_privacy = None if name == "homemade" else Privacy(RecordPrivacy({"update": "trained"}))
    return Method(name, "nobody", (exchange,), lambda seed: State({}), privacy=said_of_privacy)


def _gate(ledger: Ledger, dp: str = "off", name: str = "fedavg") -> Gate:
    nothing: Any = None  # neither task nor data is looked at
    view = SiloView(0, nothing, nothing, Settings(dp=dp), b"")
    return Gate(view, _method(name), MemoryFile(None), ledger)


def _hear(gate: Gate, round: int) -> Answer:
    return gate.answer(0, Heard(round, (0, 1, 2), {}), str(round).encode())


def test_every_disclosure_is_charged_before_the_desk_gives_it_out(tmp_path: Path) -> None:
    gate = _gate(Ledger(tmp_path / "off", Budget()))
    _hear(gate, 0)
    assert [(x["disclosure"], x["event"], x["epsilon_after"]) for x in gate.charged()] == [
        ("update", "non-private release", "inf")
    ]
    ledger = Ledger(tmp_path / "record", Budget(epsilon=1e3))
    gate = _gate(ledger, "record")
    _hear(gate, 0)
    assert [e for e in ledger.events if not isinstance(e, Free)] == [STEP]
    assert [x["disclosure"] for x in gate.charged()] == ["training", "update"]
    # the same payload again, after a sum that failed: the same answer, not a second release
    _hear(gate, 0)
    assert len(ledger.events) == 2
    assert len(gate.charged()) == 2


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1001.0])
def test_numbers_that_no_training_makes_are_refused_before_a_record_is_looked_at(
    tmp_path: Path, value: float
) -> None:
    """A model near float32's end overflowed where other records had their padding: 4.7 clips hung
    on one document.
    """
    ledger = Ledger(tmp_path / "record", Budget(epsilon=1e3))
    gate = _gate(ledger, "record")
    sent = {"w": np.array([1.0, 999.0], np.float32), "winners": np.array([5000])}
    gate.answer(0, Heard(0, (0, 1, 2), sent), b"0")
    before = len(ledger.events)
    for heard in (
        Heard(1, (0, 1, 2), {"w": np.array([value], np.float32)}),
        Heard(1, (0, 1, 2), {}, {"w": np.array([value], np.float32)}),
    ):
        with pytest.raises(Refusal, match="numbers beyond 1000") as refused:
            gate.answer(0, heard, b"1")
        assert refused.value.attack == "range-widening"
    assert len(ledger.events) == before
    # without a budget nothing hangs on it
    common = Heard(1, (0, 1, 2), {"w": np.array([value], np.float32)})
    _gate(Ledger(tmp_path / "off", Budget())).answer(0, common, b"1")


def _silo_that_dies(path: Path, at: int, after: bool, sent: int) -> None:
    """In a process of its own: three rounds, each answer told to `sent`; kill -9 at the ledger's
    at-th call of the system, before or after it is made. A line may also be cut in two there, as a
    full disk or a crash would.
    """
    calls, write, sync = itertools.count(), os.write, os.fsync

    def dying(real: Callable[..., object]) -> Callable[..., object]:
        def call(file: int, *rest: bytes) -> object:
            here = next(calls) == at
            if here and not after:
                if rest:
                    write(file, rest[0][: len(rest[0]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            done = real(file, *rest)
            if here:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        return call

    ledger = Ledger(path, Budget(epsilon=1e3))
    gate = _gate(ledger, "record")
    os.write, os.fsync = dying(write), dying(sync)  # type: ignore[assignment]
    for round in range(3):
        _hear(gate, round)
        write(sent, f"{round}\n".encode())
    os._exit(0)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_kill_9_at_every_call_of_a_silo_leaves_what_was_sent_in_its_ledger(
    tmp_path: Path, after: bool
) -> None:
    for at in itertools.count():
        path = tmp_path / f"{at}.jsonl"
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                _silo_that_dies(path, at, after, writer)
            finally:
                os._exit(1)
        os.close(writer)
        with os.fdopen(reader) as told:
            sent = [int(x) for x in told.read().split()]
        _, status = os.waitpid(child, 0)
        held = [json.loads(x) for x in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []
        for round in sent:
            charged = [x["disclosure"] for x in held if x["round"] == round]
            assert charged == ["training", "update"], (at, round)
        assert len(_events(path)) == len(held)  # and the next process can go on with it
        if not os.WIFSIGNALED(status):
            # two lines a round
            assert at == 12 and sent == [0, 1, 2] and os.WEXITSTATUS(status) == 0
            return


def test_costs_of_sentences_and_of_bags_are_not_added(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l", Budget(), records="sentence")
    _charge(ledger, STEP, Gaussian(2.0))
    ledger.close()
    with pytest.raises(UserError, match="single sentences, and the records of this run are bags"):
        Ledger(tmp_path / "l", Budget(), records="bag")
    Ledger(tmp_path / "l", Budget(), records="sentence").close()
    noisy = Ledger(tmp_path / "s", Budget(unit="silo"), records="silo")
    _charge(noisy, NoisySum(3.0, 0.0))
    noisy.close()
    # a whole silo was protected, and so every bag in it
    Ledger(tmp_path / "s", Budget(), records="bag").close()


def test_a_disclosure_that_nobody_has_shown_to_be_covered_is_refused_under_a_budget(
    tmp_path: Path,
) -> None:
    gate = _gate(Ledger(tmp_path / "l", Budget(epsilon=1e3)), "record", name="homemade")
    with pytest.raises(BudgetSpent, match="update would leave without noise"):
        _hear(gate, 0)


def test_a_ledger_that_cannot_be_written_lets_nothing_out(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l", Budget())
    file = ledger._file
    assert file is not None and file._file is not None
    os.close(file._file)
    file._file = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(OSError):
        _hear(_gate(ledger), 0)
    assert ledger.events == ()
