"""Real sockets, real strangers: only enrolled keys get in, and nothing they send disturbs
anybody.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
import zmq

from tests.conftest import wait_for
from wire import backlog
from wire import messages as m
from wire.counter import ByteCounter
from wire.dealer import Cut, Dealer
from wire.keys import CurveKeys
from wire.order import InOrder, numbered
from wire.router import Bad, Gone, Received, Router

Place = tuple[Router, str, CurveKeys, CurveKeys, CurveKeys]
_OPEN: list[Dealer] = []


def dial(address: str, keys: CurveKeys, coordinator: bytes) -> Dealer:
    """A silo's end that is closed when the test is over, however it ends."""
    _OPEN.append(Dealer(address, keys, coordinator))
    return _OPEN[-1]


@pytest.fixture
def place() -> Iterator[Place]:
    coordinator, a, b = CurveKeys.generate(), CurveKeys.generate(), CurveKeys.generate()
    router = Router(coordinator, {a.public: "silo-000", b.public: "silo-001"}, ByteCounter())
    address = f"tcp://127.0.0.1:{router.bind('127.0.0.1', 0)}"
    yield router, address, coordinator, a, b
    for dealer in _OPEN:
        dealer.close()
    _OPEN.clear()
    router.close()


def _hello(router: Router, dealer: Dealer) -> Received:
    dealer.send(m.Hello("0", b""))
    event = wait_for(lambda: router.receive(0.1), seconds=10)
    assert isinstance(event, Received)
    return event


def test_a_silo_is_who_its_key_says(place: Place) -> None:
    router, address, coordinator, a, b = place
    first, second = dial(address, a, coordinator.public), dial(address, b, coordinator.public)
    assert _hello(router, first).silo == "silo-000"
    assert _hello(router, second).silo == "silo-001"
    assert router.send("silo-001", m.Go(7))
    assert second.receive(5) == (m.Go(7), None)
    assert first.receive(0.05) is None


def test_where_the_system_does_not_say_what_came_messages_cross_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """macOS has no TCP_INFO: both threads that look at connections live on, and one sentence says
    that they see nothing.
    """
    monkeypatch.delattr(socket, "TCP_INFO")
    backlog._warn_once.cache_clear()
    keys, own = CurveKeys.generate(), CurveKeys.generate()
    router = Router(keys, {own.public: "silo-000"}, ByteCounter(), unread=1 << 20)
    try:
        dealer = dial(f"tcp://127.0.0.1:{router.bind('127.0.0.1', 0)}", own, keys.public)
        assert _hello(router, dealer).silo == "silo-000"
        looked = [0, 0]
        for k, end in enumerate((router._backlog, dealer._backlog)):
            look = end.look

            def counted(k: int = k, look: Callable[[], None] = look) -> None:
                look()
                looked[k] += 1

            monkeypatch.setattr(end, "look", counted)
        dealer.send(m.Ready(7))
        assert router.send("silo-000", m.Go(7)) and dealer.receive(5) == (m.Go(7), None)
        assert isinstance(wait_for(lambda: router.receive(0.1), seconds=10), Received)
        wait_for(lambda: min(looked) > 2, seconds=10)
    finally:
        router.close()
    assert caplog.text.count("this system does not say how much has come") == 1


def test_an_unknown_key_is_refused_and_logged(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    router, address, coordinator, a, _ = place
    stranger = dial(address, CurveKeys.generate(), coordinator.public)
    with caplog.at_level(logging.WARNING):
        stranger.send(m.Hello("0", b""))
        wait_for(lambda: "unknown-silo" in caplog.text or router.receive(0.05), seconds=10)
    assert "refused (unknown-silo)" in caplog.text
    assert router.connected == frozenset()


def test_a_silo_refuses_a_coordinator_with_another_key(place: Place) -> None:
    router, address, _, a, _ = place
    silo = dial(address, a, CurveKeys.generate().public)
    with suppress(Cut):  # it may have seen by now that this is somebody else
        silo.send(m.Hello("0", b""))
    assert router.receive(0.5) is None


def test_nobody_without_curve_gets_in(place: Place) -> None:
    router, address, _, _, _ = place
    context = zmq.Context()
    plain = context.socket(zmq.DEALER)
    plain.linger = 0
    plain.connect(address)
    plain.send(m.encode(m.Hello("0", b"")))
    assert router.receive(0.5) is None
    context.destroy(linger=0)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" + b"\0" * 8 + b"\x7f" + os.urandom(4096),
        os.urandom(100_000),
        b"\0" * 64,
    ],
    ids=["http", "zmtp-like", "random", "zeros"],
)
def test_random_bytes_on_the_port_disturb_nobody(place: Place, garbage: bytes) -> None:
    router, address, coordinator, a, _ = place
    silo = dial(address, a, coordinator.public)
    _hello(router, silo)
    host, port = address.removeprefix("tcp://").split(":")
    for _ in range(5):
        with socket.create_connection((host, int(port))) as s:
            try:
                s.sendall(garbage)
            except OSError:
                pass  # hung up on, as it should be
    silo.send(m.Ready(1))
    event = wait_for(lambda: router.receive(0.1), seconds=10)
    assert isinstance(event, Received) and event.message == m.Ready(1)


def test_bad_frames_from_an_enrolled_silo_are_logged_and_skipped(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    router, address, coordinator, a, _ = place
    silo = dial(address, a, coordinator.public)
    _hello(router, silo)
    with caplog.at_level(logging.WARNING):
        silo._socket.send(numbered(1, b"not msgpack at all"))
        silo._socket.send_multipart([b"a", b"b", b"c", b"d"])
        silo._socket.send(b"short")
        silo._socket.send(numbered(2, m.encode(m.Ready(1))))
        events = [wait_for(lambda: router.receive(0.1), seconds=10) for _ in range(4)]
    assert [type(e) for e in events] == [Bad, Bad, Bad, Received] and events[3].message == m.Ready(
        1
    )
    assert caplog.text.count("refused (wrong-shape)") == 3


def test_frames_that_are_too_large_are_refused_by_name(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    router, address, coordinator, a, _ = place
    silo = dial(address, a, coordinator.public)
    _hello(router, silo)
    silo._socket.send(numbered(1, bytes(m.HEADER_BYTES + 1)))
    silo._socket.send_multipart([numbered(2, m.encode(m.Ready(1))), bytes(m.FRAME_BYTES + 1)])
    silo._socket.send(numbered(3, m.encode(m.Ready(2))))
    events = [wait_for(lambda: router.receive(0.1), seconds=10) for _ in range(3)]
    assert [getattr(e, "attack", None) for e in events] == ["oversize", "oversize", None]
    assert events[2].message == m.Ready(2)
    assert caplog.text.count("refused (oversize): silo-000 sent ") == 2


def test_far_too_large_a_frame_costs_the_sender_its_connection(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """libzmq hangs up before it keeps a byte of it; that this may have been the reason is all that
    can be said.
    """
    router, address, coordinator, a, b = place
    bad, good = dial(address, a, coordinator.public), dial(address, b, coordinator.public)
    _hello(router, bad)
    _hello(router, good)
    bad._socket.send(bytes(m.HANG_UP_BYTES + 1))
    assert wait_for(lambda: router.receive(0.1), seconds=10) == Gone("silo-000")
    assert "lost silo-000: its connection ended" in caplog.text
    good.send(m.Ready(1))
    assert wait_for(lambda: router.receive(0.1), seconds=10).message == m.Ready(1)


def test_a_message_before_the_greeting_is_refused(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    router, address, coordinator, a, _ = place
    silo = dial(address, a, coordinator.public)
    with caplog.at_level(logging.WARNING):
        silo.send(m.Ready(1))
        assert router.receive(1.0) is None
    assert "before its greeting" in caplog.text


def test_a_closed_connection_is_noticed_and_a_greeting_reopens_it(place: Place) -> None:
    router, address, coordinator, a, _ = place
    silo = dial(address, a, coordinator.public)
    _hello(router, silo)
    silo.close()
    assert wait_for(lambda: router.receive(0.1), seconds=10) == Gone("silo-000")
    assert not router.send("silo-000", m.Go(1))
    back = dial(address, a, coordinator.public)
    assert _hello(router, back).silo == "silo-000"
    assert router.send("silo-000", m.Go(2))
    assert back.receive(5) == (m.Go(2), None)


def test_keys_never_show_their_secret_half() -> None:
    keys = CurveKeys.generate()
    assert keys.secret.decode() not in repr(keys) and keys.public.decode() in repr(keys)


def test_each_message_once_and_in_order() -> None:
    row = InOrder[str]()
    assert [
        row.take(n, x) for n, x in [(0, "a"), (2, "c"), (2, "c"), (0, "a"), (1, "b"), (1, "b")]
    ] == [
        ["a"],
        [],
        [],
        [],
        ["b", "c"],
        [],
    ]
    with pytest.raises(m.BadMessage, match="ahead"):
        row.take(1000, "z")


def test_repeated_and_swapped_messages_arrive_once_and_in_order(place: Place) -> None:
    router, address, coordinator, a, _ = place
    silo = dial(address, a, coordinator.public)
    _hello(router, silo)
    for number in (2, 2, 1, 1, 3, 2):
        silo._transmit([numbered(number, m.encode(m.Ready(number)))])
    heard = [wait_for(lambda: router.receive(0.1), seconds=10) for _ in range(3)]
    assert [e.message for e in heard] == [m.Ready(1), m.Ready(2), m.Ready(3)] and router.receive(
        0.1
    ) is None
    route = router._route["silo-000"]
    for number in (1, 0, 0, 1):
        router._transmit([route, numbered(number, m.encode(m.Go(number)))])
    assert [silo.receive(5), silo.receive(5), silo.receive(0.1)] == [
        (m.Go(0), None),
        (m.Go(1), None),
        None,
    ]


def test_a_silo_notices_the_end_of_a_connection_and_dials_the_next_address(place: Place) -> None:
    router, address, coordinator, a, _ = place
    with socket.create_server(("127.0.0.1", 0)) as s:
        nobody = f"tcp://127.0.0.1:{s.getsockname()[1]}"
    silo = dial(f"{nobody},{address}", a, coordinator.public)
    silo.send(m.Hello("0", b""))
    with pytest.raises(Cut):
        silo.receive(10)
    silo.redial()
    assert _hello(router, silo).silo == "silo-000"
    assert router.send("silo-000", m.Stop("over"))
    assert silo.receive(5) == (m.Stop("over"), None)


def test_what_a_silo_that_was_told_to_stop_will_never_read_is_not_counted(place: Place) -> None:
    """When one silo hangs up, all others are pinged, and some of them are hanging up too."""
    router, address, coordinator, a, _ = place
    silo = dial(address, a, coordinator.public)
    _hello(router, silo)

    def pings() -> int:
        lines = (x for x in router.counter.lines() if x["kind"] == "ping")
        return sum(int(x["messages"]) for x in lines)

    assert router.send("silo-000", m.Ping()) and pings() == 1
    assert router.send("silo-000", m.Stop("over"))
    assert router.send("silo-000", m.Ping()) and pings() == 1
    silo.close()
    assert wait_for(lambda: router.receive(0.1), seconds=10) == Gone("silo-000")
    back = dial(address, a, coordinator.public)
    _hello(router, back)
    assert router.send("silo-000", m.Ping()) and pings() == 2


def test_what_was_sent_before_a_silo_hung_up_is_counted_though_it_is_reported_as_gone(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """A release that nobody needs any more arrives while the silo is told that the run is over."""
    router, address, coordinator, a, _ = place
    silo = dial(address, a, coordinator.public)
    _hello(router, silo)
    sent = m.SumStep("release", {"late": 1})
    silo.send(sent)
    silo.close()
    wait_for(lambda: not router.send("silo-000", m.Ping()), seconds=10)  # nothing was read yet
    assert router.receive(0.1) == Gone("silo-000")
    assert router.receive(0.5) is None  # it is too late to be heard
    (line,) = (x for x in router.counter.lines() if x["kind"] == sent.kind)
    assert (line["messages"], line["wire_bytes"] > len(m.encode(sent))) == (1, True)
    assert "before its greeting" not in caplog.text
