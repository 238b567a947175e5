"""A coordinator that gives one silo everything and the others nothing, each by a private word, over
real sockets: Lazy MIL's winners. Refused by name, and seen to succeed undefended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crypto.sum.records import Proposal
from methods import lazymil
from methods.base import Answer, Disclosure, Heard, SiloView
from methods.common.contribution import STEPS, weights
from tests.system.attacks import gains, refuses
from tests.system.liar import Held, Liar, refused, same
from tests.system.stage import METHOD, SIZE, TRAIN

Make = Callable[..., Liar]
Patch = pytest.MonkeyPatch
Log = pytest.LogCaptureFixture

BAGS = 8
UNSURE = np.zeros(BAGS, np.uint16)
HALF_KNOWN = np.array(
    [STEPS] * 4 + [0] * 4, np.uint16
)  #: of the first four nothing is to be learned
ALL, NOTHING = np.arange(BAGS, dtype=np.uint32), np.zeros(0, np.uint32)
NEEDED = 3  # of four silos one may be corrupt, and two honest ones hide behind each other


values: list[np.ndarray] = []  #: of every silo's bags; the last counts


@pytest.fixture(autouse=True)
def lazy(monkeypatch: Patch) -> Iterator[None]:
    """The toy's first exchange with Lazy MIL's own silo half. What training on all bags adds is the
    silo's secret vector, on those with half of what is to be learned half of it. The broadcast model
    says which share of it all is the level.
    """
    vectors: dict[int, np.ndarray] = {}
    values.append(UNSURE)

    def trained(silo: SiloView[Any, Any], start: Any, round: int, rows: np.ndarray) -> Any:
        w = weights(values[-1])
        return vectors[silo.index] * np.float32(w[rows].sum() / w.sum()), {}

    def answer(silo: SiloView[Any, Any], heard: Heard) -> Answer:
        vectors[silo.index] = silo.data.vector
        view = replace(
            silo,
            carry={"model": {}, "best": np.arange(BAGS), "values": values[-1]},
            task=SimpleNamespace(subset=lambda rows: rows),
            data=SimpleNamespace(indices=np.arange(BAGS)),
        )
        level = heard.common["model"][:1] * lazymil.weights(values[-1]).sum()
        return lazymil.train_on_winners(view, replace(heard, common={"level": level}))

    monkeypatch.setattr(lazymil, "trained", trained)
    monkeypatch.setattr(lazymil, "updates", lambda model, start: {"update": model})
    exchange = METHOD.exchanges[TRAIN]
    word = Disclosure("contributes", "signed", "yes or no", "it", "none")
    was = {name: getattr(exchange, name) for name in ("answer", "contributors", "disclosures")}
    now = {
        "answer": answer,
        "contributors": True,
        "disclosures": (*exchange.disclosures, word),
    }
    for name, value in now.items():
        object.__setattr__(exchange, name, value)
    yield
    for name, value in was.items():
        object.__setattr__(exchange, name, value)


def _told(liar: Liar, *winners: np.ndarray) -> Held:
    """Everybody has uploaded, each having heard which of its bags won."""
    alone = {name: {"winners": won} for name, won in zip(liar.names, winners, strict=True)}
    return liar.gather(liar.header(contributors=NEEDED), alone=alone)


def _all_is_well(liar: Liar) -> None:
    """Where silos win enough, the sum is opened, and is their sum."""
    liar.round += 1
    held = _told(liar, ALL, ALL[:4], ALL[6:], ALL[:1])
    assert [name for name, _ in liar.words(held, liar.names)] == list(liar.names[:3])
    parts = zip(liar.stage.data.values(), (1, 0.5, 0.25, 0.125))
    assert same(liar.sum(held), np.sum([v * share for v, share in parts], axis=0))


@refuses("few-contributors")
def test_few_contributors(make: Make, caplog: Log) -> None:
    """No holder signs a set of survivors that nobody hides in, whatever words come with it."""
    liar = make().enrol()
    before = liar.words(_told(liar, ALL, ALL, ALL, ALL), liar.names)
    held = _told(liar, ALL, NOTHING, NOTHING, NOTHING)
    victims = liar.words(held, liar.names)
    assert [name for name, _ in victims] == ["silo-000"]
    (_, word) = victims[0]
    flipped = bytes([word[0] ^ 1]) + word[1:]
    for words in (
        (),
        victims,
        tuple((name, word) for name in liar.names),  # the victim's under all names
        before,  # of another sum
        (*victims, *before[1:]),
        tuple((name, flipped) for name in liar.names),
    ):
        for name in liar.names:
            asked = liar.proposal(held, name, liar.names)
            with refused("few-contributors", caplog):
                liar.step(name, "propose", Proposal(asked.h, asked.survivors, asked.blobs, words))
    _all_is_well(liar)


@refuses("few-contributors")
def test_few_contributors_asked_for_by_the_header(make: Make, caplog: Log) -> None:
    """How many must contribute is each silo's own count, and not the coordinator's word."""
    liar = make().enrol()
    for number in (0, 1, NEEDED - 1, NEEDED + 1, 99):
        with refused("few-contributors", caplog):
            liar.ask("silo-000", liar.header(contributors=number))
    _all_is_well(liar)


@refuses("few-contributors")
def test_few_contributors_told_one_bag_many_times(make: Make, caplog: Log) -> None:
    """A quarter of the bags is a quarter of different bags."""
    liar = make().enrol()
    again = np.zeros(BAGS, np.uint32)
    held = _told(liar, ALL, again, again, again)
    assert [name for name, _ in liar.words(held, liar.names)] == ["silo-000"]
    with refused("few-contributors", caplog):
        liar.certify(held, liar.names)
    _all_is_well(liar)


@refuses("few-contributors")
def test_few_contributors_told_what_the_model_knows(make: Make, caplog: Log) -> None:
    """Half of the bags of everybody but one, and those of which nothing is to be learned."""
    values.append(HALF_KNOWN)
    liar = make().enrol()
    held = _told(liar, ALL, ALL[:4], ALL[:4], ALL[:4])
    assert [name for name, _ in liar.words(held, liar.names)] == ["silo-000"]
    with refused("few-contributors", caplog):
        liar.certify(held, liar.names)
    values.append(UNSURE)
    _all_is_well(liar)


@refuses("silent-others")
def test_silent_others_behind_a_level_that_one_silo_exceeds(make: Make, caplog: Log) -> None:
    """At a low level little is enough; then nobody has much."""
    values.append(HALF_KNOWN)
    liar = make().enrol()
    low = np.full(SIZE, 1e-5, np.float32)
    told = liar.tell("silo-000", liar.header(low, contributors=NEEDED), low, alone={"winners": ALL})
    with refused("silent-others", caplog):
        liar.collect("silo-000", told)
    values.append(UNSURE)
    _all_is_well(liar)


@gains("few-contributors")
def test_few_contributors_where_a_share_of_the_bags_is_enough(
    make: Make, monkeypatch: Patch
) -> None:
    """Without a level, all sign that they contribute, and the sum is one silo's vector."""
    values.append(HALF_KNOWN)
    monkeypatch.setattr(lazymil, "weights", lambda values: np.ones(len(values), np.int64))
    liar = make().enrol()
    held = _told(liar, ALL, ALL[:4], ALL[:4], ALL[:4])
    assert len(liar.words(held, liar.names)) == 4
    assert np.abs(liar.sum(held) - liar.stage.data["silo-000"]).max() < 1e-4


@gains("few-contributors")
def test_few_contributors_without_their_words(make: Make, monkeypatch: Patch) -> None:
    """Where no holder looks at who contributes, the sum is the vector of the one that won all."""
    monkeypatch.setattr("crypto.sum.silo.check_words", lambda *_: None)
    liar = make().enrol()
    held = _told(liar, ALL, NOTHING, NOTHING, NOTHING)
    assert same(liar.sum(held), liar.stage.data["silo-000"])


@gains("few-contributors")
def test_few_contributors_of_the_coordinators_choice(make: Make, monkeypatch: Patch) -> None:
    """With the number taken from the header, it asks for one."""
    monkeypatch.setattr("crypto.sum.silo_limits.Limits.check_contributors", lambda *_: None)
    liar = make().enrol()
    alone = dict.fromkeys(liar.names, {"winners": NOTHING}) | {"silo-000": {"winners": ALL}}
    held = liar.gather(liar.header(contributors=1), alone=alone)
    assert same(liar.sum(held), liar.stage.data["silo-000"])


def _undeclared(held: Callable[[], Held]) -> Held:
    """The method does not say that what it tells one silo alone must hide behind contributors."""
    object.__setattr__(METHOD.exchanges[TRAIN], "contributors", False)
    return held()


@refuses("model-inconsistency")
def test_a_private_word_that_nothing_binds(make: Make, caplog: Log) -> None:
    """Where the sum does not hide behind contributors, no silo hears anything alone."""
    liar = make().enrol()
    alone = {name: {"winners": ALL} for name in liar.names}
    with refused("model-inconsistency", caplog):
        _undeclared(lambda: liar.gather(liar.header(), alone=alone))


@gains("model-inconsistency")
def test_a_private_word_that_nothing_binds_and_the_gate_lets_in(
    make: Make, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("silo.gate.Gate._may_be_told_alone", lambda *_: True)
    liar = make().enrol()
    alone = dict.fromkeys(liar.names, {"winners": NOTHING}) | {"silo-000": {"winners": ALL}}
    held = _undeclared(lambda: liar.gather(liar.header(), alone=alone))
    assert same(liar.sum(held), liar.stage.data["silo-000"])
