"""Several connections of one silo: the last one that stands counts, what came on the others is counted,
and every change is told.
"""

from __future__ import annotations

import pytest

from tests.conftest import wait_for
from tests.wire.test_sockets import Place, _hello, dial, place
from wire import messages as m
from wire.dealer import Dealer
from wire.router import Gone

__all__ = ["place"]


def said(event: object) -> object:
    return getattr(event, "message", None)


def test_a_greeting_on_another_connection_is_told_as_a_loss_and_a_return(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """A silo is back before anybody looked whether it was gone; what it sent before is counted."""
    router, address, coordinator, a, b = place
    old, other = dial(address, a, coordinator.public), dial(address, b, coordinator.public)
    _hello(router, old)
    _hello(router, other)
    sent = m.SumStep("release", {"late": 1})
    for _ in range(3):
        old.send(sent)
    new = dial(address, a, coordinator.public)
    new.send(m.Hello("1", b""))
    happened: list[object] = []

    def released() -> int:
        happened.extend(iter(lambda: router.receive(0), None))
        lines = (x for x in router.counter.lines() if x["kind"] == sent.kind)
        return sum(int(x["messages"]) for x in lines)

    wait_for(lambda: released() == 3 and m.Hello("1", b"") in map(said, happened), seconds=10)
    lost = happened.index(Gone("silo-000"))
    assert said(happened[lost + 1]) == m.Hello("1", b"")
    assert happened.count(Gone("silo-000")) == 1 and Gone("silo-001") not in happened
    assert "before its greeting" not in caplog.text
    # the old connection still stands, and is not heard any more
    old.send(sent)
    new.send(m.Ready(1))
    wait_for(lambda: released() == 4 and len(happened) > lost + 2, seconds=10)
    assert [said(e) for e in happened[lost + 2 :]] == [m.Ready(1)]


def _stands(silo: Dealer) -> Dealer:
    def stands() -> bool:
        silo._watch()
        return silo.stood

    wait_for(stands, seconds=10)
    return silo


def test_a_greeting_that_is_read_after_a_later_one_does_not_cut_the_silo_off(place: Place) -> None:
    """Two connections ended and a third stands, all while nobody read. libzmq gives their greetings
    in an order of its own.
    """
    router, address, coordinator, a, _ = place
    first = dial(address, a, coordinator.public)
    _hello(router, first)
    assert router.receive(0.1) is None
    first.close()
    second, third = m.Hello("2", b""), m.Hello("3", b"")
    for hello in (second, third):
        silo = _stands(dial(address, a, coordinator.public))
        silo.send(hello)
        if hello is second:
            silo.close()
    happened: list[object] = []

    def greetings() -> int:
        if (event := router.receive(0.1)) is not None:
            happened.append(event)
        lines = (x for x in router.counter.lines() if x["kind"] == "hello")
        return sum(int(x["messages"]) for x in lines)

    wait_for(lambda: greetings() == 3, seconds=10)
    happened.extend(iter(lambda: router.receive(0), None))
    assert said(happened[-1]) == third
    assert router.send("silo-000", m.Go(1))
    heard = wait_for(lambda: (silo.receive(1) or (None,))[0] == m.Go(1), seconds=10)
    assert heard and Gone("silo-000") in happened


def test_a_second_connection_takes_nothing_from_another_silo(place: Place) -> None:
    """Whose a connection is, its key says, and not what is said on it."""
    router, address, coordinator, a, b = place
    honest, hostile = dial(address, a, coordinator.public), dial(address, b, coordinator.public)
    _hello(router, honest)
    _hello(router, hostile)
    before = [x for x in router.counter.lines() if x["silo"] == "silo-000"]
    again = dial(address, b, coordinator.public)
    again.send(m.Hello("0", b"", life=b"of another"))
    assert wait_for(lambda: router.receive(0.1), seconds=10) == Gone("silo-001")
    assert wait_for(lambda: router.receive(0.1), seconds=10).silo == "silo-001"
    assert router.connected == {"silo-000", "silo-001"}
    assert [x for x in router.counter.lines() if x["silo"] == "silo-000"] == before
    honest.send(m.Ready(1))
    event = wait_for(lambda: router.receive(0.1), seconds=10)
    assert (event.silo, event.message) == ("silo-000", m.Ready(1))
