"""A small federation on real sockets, for attacks: silos as `silo.process.serve` runs them, one
thread each.

Any of them can be made to lie: `lies` changes its messages on their way out. The lying coordinator
is in liar.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import silo.process
from config.settings import Settings
from coordinator.rundir import make_keys
from crypto.identity.keys import Identity
from crypto.numbers.encoding import Encoding
from crypto.sum.params import Policy
from crypto.sum.plain import PlainSum
from methods.base import (
    Answer,
    ArraySpec,
    Broadcast,
    Disclosure,
    Exchange,
    Heard,
    Method,
    SiloView,
    State,
)
from methods.base import silo_name as name_of
from methods.common.bag_names import NAME_BYTES, Naming, names_of
from silo.home import Home
from wire import messages as m
from wire.counter import ByteCounter
from wire.dealer import Dealer
from wire.keyring import Keyring
from wire.keys import CurveKeys
from wire.router import Router

__all__ = [
    "AGREED_CAP",
    "BAGS",
    "BLIND",
    "BOTH",
    "CARRIED",
    "EVALUATE",
    "METHOD",
    "NAMES",
    "ONES",
    "PATIENCE",
    "QUERIES",
    "REPORT",
    "RUN",
    "SIZE",
    "TRAIN",
    "WEIGHED",
    "Lie",
    "Outgoing",
    "Stage",
]

SIZE = 6
TRAIN, REPORT, BOTH, CARRIED, WEIGHED, BLIND, EVALUATE, NAMES = range(8)
ONES = np.ones(SIZE, np.float32)
RUN = b"r" * 32
_OVER = "the play is over"
PATIENCE = 20.0  #: seconds until something that must happen has not happened

Outgoing = tuple[m.Message, Any]
Lie = Callable[[m.Message, Any], Iterable[Outgoing]]


# What is trained: a silo's update is its secret vector times the model, so that a model of zeros
# silences it.


@dataclass(frozen=True)
class _Held:
    """A silo's data: its secret vector, and records that have no place in a corpus."""

    vector: np.ndarray
    indices: np.ndarray = field(default_factory=lambda: np.arange(0))


def _vector(silo: SiloView) -> np.ndarray:
    assert isinstance(silo.data, _Held)
    return silo.data.vector


def _exchange(name: str, masked: bool, sealed: bool, carried: bool = False) -> Exchange:
    def answer(silo: SiloView, heard: Heard) -> Answer:
        model = silo.carry["model"] if carried else heard.common["model"]
        update = {"update": _vector(silo) * model} if masked else {}
        count = {"count": np.array([silo.index], np.float32)} if sealed else {}
        return Answer(update, count, carry={"model": model})

    said = [Disclosure("update", "masked", "numbers", "their sum", "none")] * masked
    said += [Disclosure("count", "sealed", "one number", "it", "none")] * sealed
    return Exchange(
        name=name,
        disclosures=tuple(said),
        broadcast=lambda state, round, cohort: Broadcast(state.model),
        answer=answer,
        fold=lambda state, folded: state,
        masked={"update": ArraySpec((SIZE,))} if masked else {},
        sealed={"count": ArraySpec((1,))} if sealed else {},
    )


#: Examples of each silo, where they are weighed: the first is a hundred thousand times as large as
#: the others.
EXAMPLES = (1_000_000, *[10] * 11)
AGREED_CAP = 10.0  #: whoever has ten or more has a weight of one


def weight_of(silo: SiloView) -> float:
    """p = n / cap, at most one. The cap is the study's, and nobody else's."""
    return min(EXAMPLES[silo.index], AGREED_CAP) / AGREED_CAP


def _weighed(silo: SiloView[Any, Any], heard: Heard) -> Answer:
    p = np.float32(weight_of(silo))
    return Answer({"weight": np.array([p]), "update": p * _vector(silo) * heard.common["model"]})


_WEIGHED = Exchange(
    name="weighed",
    disclosures=tuple(
        Disclosure(name, "masked", "numbers", "their sum", "none") for name in ("weight", "update")
    ),
    broadcast=lambda state, round, cohort: Broadcast(state.model),
    answer=_weighed,
    fold=lambda state, folded: state,
    masked={"weight": ArraySpec((1,), cap=1.0, public_count=True), "update": ArraySpec((SIZE,))},
    weight_cap=AGREED_CAP,
)

#: What every silo calls its bags, to be named by an oblivious function.
BAGS = (b"aspra treats febra", b"dolox causes gripa", b"cefix treats dolor")
QUERIES = 8
NAMING = Naming(silos=4, queries=QUERIES, first=0, inputs=lambda silo: BAGS)


def _names(silo: SiloView[Any, Any], heard: Heard) -> Answer:
    names, memory = names_of(NAMING, silo, heard)
    return Answer(sealed={"names": names}, memory=memory)


_NAMES = Exchange(
    name="names",
    disclosures=(Disclosure("names", "sealed", "names", "which are equal", "none"),),
    broadcast=lambda state, round, cohort: Broadcast({}),
    answer=_names,
    fold=lambda state, folded: state,
    sealed={"names": ArraySpec((None, NAME_BYTES), "uint8")},
    everyone=True,
)

METHOD = Method(
    "toy",
    "nobody",
    (
        _exchange("train", True, False),
        _exchange("report", False, True),
        _exchange("both", True, True),
        _exchange("carried", True, False, carried=True),
        _WEIGHED,
        *NAMING.exchanges(),
        _NAMES,
    ),
    lambda seed: State({"model": ONES}),
)


_TASK = SimpleNamespace(
    name="",
    agreement=dict,
    corpus_hash="stage",
    record_unit="",
    keep_features_in=lambda folder: None,
    forget_features=lambda: None,
)


def _truth(message: m.Message, payload: Any) -> Iterable[Outgoing]:
    yield message, payload


class _Line(Dealer):
    """A silo's socket that ends when the stage does, and that may lie."""

    def __init__(self, over: threading.Event, name: str, lies: dict[str, Lie], *where: Any) -> None:
        super().__init__(*where)
        self._over, self._name, self._lies = over, name, lies

    def send(self, message: m.Message, payload: Any = None) -> None:
        lie = self._lies.get(self._name, _truth)
        for said in list(lie(message, payload)):
            super().send(*said)

    def receive(self, timeout: float) -> tuple[m.Message, memoryview | None] | None:
        while not self._over.is_set():
            if (heard := super().receive(0.1)) is not None:
                return heard
        return m.Stop(_OVER), None


class Stage:
    """Keys, a router, and silos in threads. `roster` may name more silos than there are."""

    def __init__(
        self,
        path: Path,
        patch: pytest.MonkeyPatch,
        silos: int = 4,
        roster: int = 0,
        policy: Policy | None = None,
        revoked: int = 0,
    ) -> None:
        """`revoked`: so many more silos were enrolled and taken out again; their folders are still
        there.
        """
        self.path, self.policy = path, policy or Policy()
        self.names = tuple(name_of(i) for i in range(silos))
        self.settings = Settings(method="toy", silos=roster or silos, deadline=PATIENCE)
        make_keys(path / "keys", path / "silos", (roster or silos) + revoked, bytes(32))
        hub = Keyring.load(path / "keys")
        if revoked:
            left = hub.pinned()
            for i in range(revoked):
                left = left.revoke(name_of((roster or silos) + i), "it left")
            rings = [hub, *(Keyring.load(path / "silos" / card.name) for card in left.silos)]
            left = left.sign({ring.card.name: ring.identity for ring in rings})
            for ring in rings:
                ring.pin(left)
        cards = hub.pinned().silos
        self.roster = {card.name: card.identity for card in cards}
        curve = {card.curve.encode(): card.name for card in cards}
        self.coordinator = hub.curve
        self.router = Router(self.coordinator, curve, ByteCounter())
        self.address = f"tcp://127.0.0.1:{self.router.bind('127.0.0.1', 0)}"
        rng = np.random.default_rng(1)
        self.data = {name: rng.normal(0, 1, SIZE).astype(np.float32) for name in self.names}
        self.lies: dict[str, Lie] = {}
        self.crashes: list[BaseException] = []
        self._over, self._threads = threading.Event(), dict[str, threading.Thread]()

        def line(address: str, keys: CurveKeys, *rest: Any) -> Dealer:
            return _Line(self._over, curve[keys.public], self.lies, address, keys, *rest)

        patch.setattr(silo.process, "Dealer", line)
        patch.setattr(silo.process, "policy_for", lambda fraction, silos: self.policy)

    def identity(self, name: str) -> Identity:
        return Keyring.load(self.path / "silos" / name).identity

    def start(self, *names: str) -> None:
        for name in names or self.names:
            self._threads[name] = threading.Thread(target=self._serve, args=(name,), daemon=True)
            self._threads[name].start()

    def _serve(self, name: str) -> None:
        home = Home(self.path / "silos" / name)
        try:
            silo.process.serve(
                home,
                address=self.address,
                settings=self.settings,
                task=_TASK,
                data=_Held(self.data[name]),
                method=METHOD,
            )
        except BaseException as e:  # whoever put up the stage looks at these at the end
            if _OVER not in str(e):  # a silo that was never let in says so
                self.crashes.append(e)

    def stop(self, *names: str) -> None:
        """Ends silos in good order, as a restart does; their folders stay."""
        for name in names or self.names:
            self.router.send(name, m.Stop("restart"))
            self._threads[name].join(PATIENCE)
            assert not self._threads[name].is_alive()
            self.router.forget(name)

    def close(self) -> None:
        self._over.set()
        for thread in self._threads.values():
            thread.join(PATIENCE)
        self.router.close()
        assert not any(thread.is_alive() for thread in self._threads.values())

    def plain(
        self, encoding: Encoding, names: Iterable[str], model: np.ndarray = ONES
    ) -> np.ndarray:
        """The sum over these silos, coded and added as a secure sum does it, without one."""
        total = PlainSum(encoding)
        for name in names:
            total.add(encoding.encode([self.data[name] * model], b""))
        return total.result()[0]
