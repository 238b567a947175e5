"""A coordinator that lies about who won a class of FedCMC, over real sockets: refused by name, and
seen to succeed undefended.

Seven silos, two of which may be corrupt. All are in the round's first sum. The last has the lowest
similarity of both classes, and so the only rows that may be read. The coordinator wants silo-000's,
which is the lowest of the first five: a second sum over those five is large enough to be opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from crypto.sum.records import SumHeader
from methods import fedcmc
from methods.base import Answer, Heard, SiloView
from tests.system.attacks import gains, refuses
from tests.system.liar import Liar, refused, same
from tests.system.stage import CARRIED, METHOD, ONES, TRAIN
from wire import messages as m
from wire.bundle import broadcast_digest, pack

Make = Callable[..., Liar]
Patch = pytest.MonkeyPatch
Log = pytest.LogCaptureFixture

_SILOS, _CLASSES, _SIGNATURE = 7, 2, 64
_SIMILARITIES = {
    i: np.array(d, np.float32)
    for i, d in enumerate(
        [(0.3, 0.3), (0.5, 0.6), (0.6, 0.4), (0.4, 0.4), (0.7, 0.7), (0.8, 0.8), (0.1, 0.1)]
    )
}
_FIRST_FIVE = tuple(f"silo-{i:03d}" for i in range(5))
Statement = tuple[np.ndarray, bytes]  #: similarities, and the silo's signature


@dataclass
class _Fedcmc:
    """The toy's first exchange leaves what FedCMC's does; "carried" is FedCMC's own silo half."""

    similarities: dict[int, np.ndarray] = field(default_factory=lambda: dict(_SIMILARITIES))
    said: dict[int, Statement] = field(default_factory=dict)  #: what the coordinator was sent

    def train(self, silo: SiloView[Any, Any], heard: Heard) -> Answer:
        d = self.similarities[silo.index]
        signed = silo.sign(fedcmc._PURPOSE, fedcmc._statement(heard.context, d))
        self.said[silo.index] = d, signed
        classifier = silo.data.vector.reshape(_CLASSES, 3)
        carry = {"similarities": d, "classifier": classifier, "context": heard.context}
        return Answer({"update": silo.data.vector * heard.common["model"]}, carry=carry)

    def rows(self, silo: SiloView[Any, Any], heard: Heard) -> Answer:
        method = fedcmc._Framework(None, 0, fedcmc.Options())  # type: ignore[arg-type]
        sent = method.send_rows(silo, replace(heard, common=_unpacked(heard.common["model"])))
        return Answer({"update": sent.masked["rows"].ravel()})


def _packed(said: Mapping[int, Statement]) -> np.ndarray:
    """FedCMC's broadcast as one array: the toy has no other."""
    lines = [[i, *d.view(np.uint8), *signed] for i, (d, signed) in sorted(said.items())]
    return np.array(lines, np.float32)


def _unpacked(array: np.ndarray) -> dict[str, np.ndarray]:
    values = np.ascontiguousarray(array[:, 1:-_SIGNATURE].astype(np.uint8)).view(np.float32)
    signatures = array[:, -_SIGNATURE:].astype(np.uint8)
    return {"silos": array[:, 0], "similarities": values, "signatures": signatures}


@contextmanager
def _fedcmc() -> Iterator[_Fedcmc]:
    made = _Fedcmc()
    good = {index: METHOD.exchanges[index].answer for index in (TRAIN, CARRIED)}
    object.__setattr__(METHOD.exchanges[TRAIN], "answer", made.train)
    object.__setattr__(METHOD.exchanges[CARRIED], "answer", made.rows)
    try:
        yield made
    finally:
        for index, answer in good.items():
            object.__setattr__(METHOD.exchanges[index], "answer", answer)


def _second(liar: Liar, shown: np.ndarray, alive: tuple[str, ...] = _FIRST_FIVE) -> SumHeader:
    said = {
        TRAIN: (liar.round, pack({"model": ONES}).digest),
        CARRIED: (liar.round, pack({"model": shown}).digest),
    }
    return liar.header(shown, exchange="carried", broadcast=broadcast_digest(said), alive=alive)


def _asked(liar: Liar, silo: str, shown: np.ndarray) -> None:
    """The silo is shown this, and must refuse before it has an answer."""
    told = liar.tell(silo, _second(liar, shown), shown, exchange=CARRIED)
    try:
        liar.say(silo, m.Go(told.number))
        liar.hear(silo, m.Ready)
    finally:
        liar.settle(silo)


@refuses("silent-others")
def test_silent_others(make: Make, caplog: Log) -> None:
    """Whoever is asked, also those whom nobody beats: what is shown must be everybody's, and as
    they signed it.
    """
    liar = make(_SILOS).enrol()
    with _fedcmc() as play:
        # in an earlier round, nobody beats silo-000
        play.similarities[6] = np.array([0.9, 0.9], np.float32)
        liar.sum(liar.gather())
        earlier = dict(play.said)
        liar.round += 1
        play.similarities[6] = _SIMILARITIES[6]
        liar.sum(liar.gather())
        true = dict(play.said)
        lies = {
            "left out": {i: s for i, s in true.items() if i != 6},
            "made up": {**true, 6: (earlier[6][0], true[6][1])},
            "of an earlier round": {**true, 6: earlier[6]},
            "in the name of another": {**true, 6: true[5]},
            "not its own": {**true, 0: (true[6][0], true[0][1])},
        }
        for name in ("silo-000", "silo-001"):
            for lie, said in lies.items():
                if lie != "not its own" or name == "silo-000":
                    with refused("silent-others", caplog):
                        _asked(liar, name, _packed(said))
        # told the truth, silo-000 takes part and sends nothing of its own
        whole = _packed(true)
        everybody = dict.fromkeys(liar.names, whole)
        held = liar.gather(_second(liar, whole, liar.names), everybody, exchange=CARRIED)
        assert same(liar.sum(held), liar.stage.data["silo-006"])


@refuses("silent-others")
def test_silent_others_who_were_not_shown_a_certificate(make: Make, caplog: Log) -> None:
    """A silo signs one set of survivors, and another set is opened without asking it: what it
    signed itself is no certificate, and it sends nothing.
    """
    liar = make(_SILOS).enrol()
    with _fedcmc() as play:
        held = liar.gather()
        opened, without_the_winner = liar.names, liar.names[:6]
        for victim in liar.names[:2]:
            proposal = liar.proposal(held, victim, without_the_winner)
            liar.step(victim, "propose", proposal)
        others = liar.names[2:]
        liar.open(held, opened, liar.certify(held, opened, others), others)
        said = {i: s for i, s in play.said.items() if i != 6}
        with refused("silent-others", caplog):
            _asked(liar, "silo-000", _packed(said))


@gains("silent-others")
def test_silent_others_where_any_list_is_believed(make: Make, monkeypatch: Patch) -> None:
    """The winner is left out of what is shown, and all who would know out of the second sum: the
    sum is the rows of a silo that did not win.
    """

    def believed(silo: SiloView[Any, Any], heard: Heard) -> dict[int, np.ndarray]:
        return {int(i): d for i, d in zip(heard.common["silos"], heard.common["similarities"])}

    monkeypatch.setattr(fedcmc, "shown", believed)
    liar = make(_SILOS).enrol()
    with _fedcmc() as play:
        liar.sum(liar.gather())
        lie = _packed({i: s for i, s in play.said.items() if i != 6})
        told = dict.fromkeys(_FIRST_FIVE, lie)
        held = liar.gather(_second(liar, lie), told, exchange=CARRIED)
        assert same(liar.sum(held), liar.stage.data["silo-000"])
