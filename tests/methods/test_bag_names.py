"""Names of bags: what a coordinator with friends can make of them, and how silos get them."""

from __future__ import annotations

import hmac
import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.simulation.inprocess import run_inprocess
from config.settings import Settings
from crypto.errors import Refusal
from crypto.oprf import committee as oprf
from crypto.oprf import voprf
from crypto.oprf.group import ORDER, scalar
from methods.base import Answer, Folded, Heard, SiloView, State
from methods.common.bag_names import COMMITTEES, Naming, keyed_names, names_of
from report.files import read_lines
from tests.faults.world import tiny
from tests.methods.naming import named, passed, relayed
from tests.methods.plain import SECRET, resolved, run

BAGS = {0: (b"a", b"b"), 1: (b"b", b"c", b"d"), 2: (b"a", b"d"), 3: (), 4: (b"e",)}
NAMING = Naming(5, 20, first=0, inputs=lambda silo: BAGS[silo.index])
ALL = range(5)


def view(index: int, memory: Any = None, seed: int = 0) -> SiloView[Any, Any]:
    nothing: Any = SimpleNamespace()
    return SiloView(index, nothing, nothing, Settings(silos=5, seed=seed), SECRET, memory or {})


def have(*committee: int) -> dict[str, np.ndarray]:
    """What a silo with names under this committee is told."""
    return {"names/committee": np.array(committee, np.int32)}


def asks(*committee: int, named: tuple[int, ...] = ()) -> Heard:
    common = {"committee": np.array(committee, np.int32), "named": np.array(named, np.int32)}
    return Heard(0, tuple(ALL), common)


def names(silo: SiloView[Any, Any], round: int = 0) -> list[bytes]:
    said = names_of(NAMING, silo, Heard(round, tuple(ALL), {}, have(0, 1)))[0]
    return [name.tobytes() for name in said]


def owed(naming: Naming, state: State) -> set[int]:
    """The silos to which parts are to be brought."""
    replies = naming.relay.replies(state, tuple(ALL))
    return {s for s, said in replies.items() if "names/parts" in said}


# The attack of issue 20: a dictionary


def test_a_coordinator_with_one_silo_finds_no_bag_in_its_dictionary() -> None:
    """The dictionary holds every bag there is, and the friend gives away all that silos share. With
    names that were a hash under that secret, all were found.
    """
    corpus = "distant:sentences=300,dev=60,test=60"
    s = resolved(
        method="lazymil", corpus=corpus, silos=4, rounds=1, epochs=1, options={"warmup": 0.0}
    )
    sent: set[bytes] = set()
    dictionary: set[bytes] = set()

    def watch(exchange: str, silo: SiloView, heard: Heard, answer: Answer) -> None:
        if exchange == "score":
            sent.update(name.tobytes() for name in answer.sealed["names"])
            task: Any = silo.task
            dictionary.update(task.triples(silo.data, np.arange(len(silo.data.indices))))

    run(s, watch=watch)
    prefix = b"sottovoce lazymil bag\x00" + (0).to_bytes(8, "big")
    tried = {hmac.digest(SECRET, prefix + triple, "sha256")[:16] for triple in dictionary}
    assert len(sent) == len(dictionary) > 100
    assert not sent & tried


def test_all_holders_but_one_do_not_suffice_and_all_do() -> None:
    """Ten silos, of which three may be corrupt, and all of those hold the key: with what they have,
    and the coordinator, no guess can be tested. With the fourth every one can.
    """
    naming = Naming(10, 20, first=0, inputs=lambda silo: (b"guess",))
    nothing: Any = SimpleNamespace()
    silos = [SiloView(i, nothing, nothing, Settings(silos=10), SECRET) for i in range(10)]
    holders = oprf.elect(range(10), 10, 0)
    assert holders == (0, 1, 2, 3)
    victim = named(naming, silos)[9]
    sent = names_of(naming, victim, Heard(0, (), {}, have(*holders)))[0][0].tobytes()

    def guessed(helping: tuple[int, ...]) -> bytes:
        keys = [oprf._key(silos[j].among, holders) for j in helping]
        whole = scalar(sum(int.from_bytes(k, "little") for k in keys) % ORDER)
        value = voprf.finalized(b"guess", voprf.blinded(b"guess", whole))[:32]
        return bytes(keyed_names(SECRET, 0, [value])[0].tobytes())

    assert guessed(holders) == sent
    assert sent not in [guessed(holders[:j] + holders[j + 1 :]) for j in range(4)]


# How silos get them


def test_silos_name_a_bag_alike_and_differently_every_round() -> None:
    silos = named(NAMING, [view(i) for i in ALL])
    known = {i: dict(zip(BAGS[i], names(silos[i]))) for i in ALL}
    assert known[0][b"a"] == known[2][b"a"] and known[0][b"b"] == known[1][b"b"]
    assert known[1][b"d"] == known[2][b"d"]
    assert len({name for table in known.values() for name in table.values()}) == 5
    assert not set(names(silos[1], round=1)) & set(names(silos[1]))


def test_names_hang_on_the_keys_of_the_holders() -> None:
    ours = named(NAMING, [view(i) for i in ALL])[0]
    theirs = named(NAMING, [view(i, seed=1) for i in ALL])[0]
    assert not set(names(ours)) & set(names(theirs))


def test_nothing_is_asked_before_names_are_needed_nor_when_all_have_theirs() -> None:
    later = replace(NAMING, first=3)
    blind, evaluate = later.exchanges()
    start = State({})
    assert blind.skip(start, 2, tuple(ALL)) and not blind.skip(start, 3, tuple(ALL))
    assert blind.skip(start, 3, (0,))  # too few to hold a key
    assert evaluate.skip(start, 3, tuple(ALL))
    state = relayed(later, [view(i) for i in ALL], round=3)
    # what is owed is not asked for again; what was delivered neither
    assert blind.skip(state, 4, tuple(ALL))
    after = State({}, later.relay.replied(state, (0, 1)))
    assert blind.skip(after, 4, tuple(ALL)) and owed(later, after) == {2, 4}


def test_a_silo_that_comes_late_gets_the_names_that_the_others_have() -> None:
    blind, evaluate = NAMING.exchanges()
    here = [view(i) for i in (0, 1, 3, 4)]
    state = relayed(NAMING, here)
    replies = NAMING.relay.replies(state, tuple(ALL))
    first = [replace(v, memory=_learnt(v, replies)) for v in here]
    state = State({}, NAMING.relay.replied(state, (0, 1, 3, 4)))
    late = view(2)
    assert not blind.skip(state, 1, tuple(ALL))
    for exchange in (blind, evaluate):
        state = passed(exchange, state, [*first, late], 1)
    replies = NAMING.relay.replies(state, tuple(ALL))
    assert owed(NAMING, state) == {2}
    late = replace(late, memory=_learnt(late, replies))
    assert names(late)[0] == names(first[0])[0]  # bag "a"


def _learnt(silo: SiloView[Any, Any], replies: Any) -> Any:
    heard = Heard(0, tuple(ALL), {}, replies.get(silo.index, {}))
    return names_of(NAMING, silo, heard)[1] or {}


def test_a_silo_without_names_uses_some_that_nobody_else_has() -> None:
    silos = named(NAMING, [view(i) for i in ALL])
    alone = names(view(2))
    assert len(set(alone)) == 2 and not set(alone) & {n for s in silos for n in names(s)}
    assert alone == names(view(2)) and alone != names(view(2), round=1)


def test_a_holder_that_is_lost_halfway_costs_no_more_than_another_pass() -> None:
    """The first committee is 0 and 1. Silo 1 is lost before it evaluates: another one is elected."""
    blind, evaluate = NAMING.exchanges()
    silos = [view(i) for i in ALL]
    asked = passed(blind, State({}), silos)
    left = [s for s in silos if s.index != 1]
    state = passed(evaluate, asked, left)
    assert not owed(NAMING, state)
    for exchange in (blind, evaluate):
        assert not exchange.skip(state, 1, (0, 2, 3, 4))
        state = passed(exchange, state, left, 1)
    replies = NAMING.relay.replies(state, tuple(ALL))
    assert owed(NAMING, state) == {0, 2, 4}
    assert replies[0]["names/committee"].tolist() == [2, 3]


def test_a_holder_that_is_lost_while_silos_ask_voids_what_they_asked() -> None:
    blind, evaluate = NAMING.exchanges()
    said = blind.broadcast(State({}), 0, tuple(ALL))
    sealed = {i: blind.answer(view(i), Heard(0, tuple(ALL), said.common)).sealed for i in (0, 2, 3)}
    state = blind.fold(State({}), Folded(0, (0, 2, 3), {}, sealed))
    assert evaluate.skip(state, 0, (0, 2, 3)) and not blind.skip(state, 1, (0, 2, 3))


def test_names_stay_when_another_committee_cannot_be_had_again() -> None:
    """A silo is named under three committees in a run: each allows a coordinator's friends as many
    guesses again.
    """
    silo, others = view(0), [view(i) for i in ALL if i]
    for committee in ((0, 1), (1, 2), (2, 3)):
        silo = _under(silo, others, committee)
    assert silo.memory["names/committees"].tolist() == [COMMITTEES]
    assert not len(NAMING.ask(silo, asks(3, 4)).sealed["points/blinded"])
    assert len(NAMING.ask(silo, asks(2, 3)).sealed["points/blinded"])  # those that it had last
    # asked of it before, in case it would still take the answer
    with pytest.raises(Refusal, match="oprf-committee"):
        _under(replace(view(0), memory={}), others, (3, 4), then=silo)


def test_names_of_another_run_are_not_used() -> None:
    silo = named(NAMING, [view(i) for i in ALL])[1]
    other = replace(silo, peers=view(1, seed=1).among)
    told = Heard(0, tuple(ALL), {}, have(0, 1))
    mine, theirs = (names_of(NAMING, s, told)[0] for s in (silo, other))
    assert not (mine == theirs).all(axis=1).any()


def test_another_run_counts_as_another_committee() -> None:
    """A run without a sum may be given up for another one, with another key: a coordinator's friends
    could ask for their guesses anew, as often as it names a run.
    """
    silo = view(0)
    for seed in range(COMMITTEES):
        silo = replace(silo, peers=view(0, seed=seed).among)
        silo = _under(silo, [view(i, seed=seed) for i in ALL if i], (0, 1))
    assert silo.memory["names/committees"].tolist() == [COMMITTEES]
    assert len(NAMING.ask(silo, asks(0, 1)).sealed["points/blinded"])
    silo = replace(silo, peers=view(0, seed=COMMITTEES).among)
    assert not len(NAMING.ask(silo, asks(0, 1)).sealed["points/blinded"])


def _under(
    silo: SiloView[Any, Any], others: list[Any], committee: tuple[int, ...], then: Any = None
) -> Any:
    """The silo (or what it is by `then`), after it was named under this committee."""
    start = State({}, {"naming/committee": np.array(committee, np.int32)})
    for exchange in NAMING.exchanges():
        start = passed(exchange, start, [silo, *others])
    private, silo = NAMING.relay.replies(start, (0,))[0], then or silo
    memory = names_of(NAMING, silo, Heard(0, tuple(ALL), {}, private))[1]
    return replace(silo, memory=memory or {})


def test_more_bags_than_the_study_allows_are_refused_by_the_silo_itself() -> None:
    small = replace(NAMING, queries=2)
    assert len(small.ask(view(0), asks(0, 1)).sealed["points/blinded"]) == 2
    with pytest.raises(Refusal, match="3 bags .* allows 2"):
        small.ask(view(1), asks(0, 1))


def test_one_silo_that_asks_wrongly_costs_nobody_else_their_names(
    caplog: pytest.LogCaptureFixture,
) -> None:
    blind, evaluate = NAMING.exchanges()
    silos = [view(i) for i in ALL]
    state = passed(blind, State({}), silos)
    memory = {**state.memory, "naming/signature/2": np.zeros((1, 64), np.uint8)}
    with caplog.at_level(logging.ERROR):
        state = passed(evaluate, State({}, memory), silos)
    assert "refused (oprf-request): silo 2" in caplog.text
    assert owed(NAMING, state) == {0, 1, 4}


def test_a_silo_asks_when_it_is_told_that_it_has_none_and_then_the_same_again() -> None:
    """The coordinator may have begun the round again: what holds is what it wrote down."""
    silo = named(NAMING, [view(i) for i in ALL])[1]
    assert not len(NAMING.ask(silo, asks(0, 1, named=(1,))).sealed["points/blinded"])
    again = NAMING.ask(silo, asks(0, 1)).sealed["points/blinded"]
    assert (again == NAMING.ask(view(1), asks(0, 1)).sealed["points/blinded"]).all()


def test_a_silo_uses_its_names_where_it_is_told_to_and_of_its_own_bags_alone() -> None:
    silo = named(NAMING, [view(i) for i in ALL])[1]
    told = Heard(0, tuple(ALL), {}, have(0, 1))
    for other in (Heard(0, tuple(ALL), {}), Heard(0, tuple(ALL), {}, have(2, 3))):
        mine = names_of(NAMING, silo, told)[0]
        assert not (mine == names_of(NAMING, silo, other)[0]).all(axis=1).any()
    changed = replace(NAMING, inputs=lambda silo: (b"x", b"c", b"d"))
    assert (
        not (names_of(NAMING, silo, told)[0] == names_of(changed, silo, told)[0]).any(axis=1).all()
    )


def test_all_silos_are_named_once_though_a_round_asks_half_of_them(tmp_path: Path) -> None:
    """One pass with everybody, before the first round that scores; the rounds' cohorts are theirs."""
    study = tiny(rounds=5, fraction=0.5, silos=8, options={})  # the first two rounds are warm
    run_inprocess(tmp_path, study)
    lines = read_lines(tmp_path / "rounds.jsonl")
    # with so few sentences, a sum may stay closed for want of contributors: not the fourth exchange
    asked = [[len(who) for who in line["asked_by_exchange"][:3]] for line in lines]
    assert asked == [[0, 0, 4], [0, 0, 4], [8, 8, 4], [0, 0, 4], [0, 0, 4]]
    assert "points" not in lines[1]["numbers_sent"] and lines[2]["numbers_sent"]["points"] > 0
