"""Questions between parties outside of a study, over real sockets: who is answered, and what somebody
hears who is not.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

import wire.questions
from tests.conftest import free_ports, wait_for
from wire.keys import CurveKeys
from wire.questions import QuestionServer, Unreached, ask

HUB, NORTH, WEST, STRANGER = (CurveKeys.generate() for _ in range(4))


@contextmanager
def board() -> Iterator[tuple[str, ...]]:
    """North is in the roster, west was; says who asks, and what."""

    def answering(who: str, said: Any) -> Any:
        return [who, said]

    server = QuestionServer(HUB, answering, {NORTH.public: "north"}, {WEST.public: "west"})
    place, stop = f"127.0.0.1:{server.bind('127.0.0.1', 0)}", threading.Event()

    def serve() -> None:
        while not stop.is_set():
            server.serve(0.05)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield (place,)
    finally:
        stop.set()
        thread.join()
        server.close()


def _asked(places: tuple[str, ...], keys: CurveKeys) -> Any:
    return ask(places, keys, HUB.public, ["news"])


def test_a_key_of_the_roster_is_answered_by_name_and_others_are_told_why_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with board() as places, caplog.at_level(logging.WARNING, "wire"):
        assert _asked(places, NORTH) == ["north", ["news"]]
        for keys in (WEST, STRANGER):
            with pytest.raises(Unreached, match="does not let this key in"):
                _asked(places, keys)
        wait_for(lambda: "(revoked-key): a question with a key of west" in caplog.text)
        wait_for(lambda: "(unknown-silo)" in caplog.text)
        # the first address that answers counts, whatever another one said
        assert _asked(("127.0.0.1:1", *places), NORTH) == ["north", ["news"]]


def test_where_nobody_listens_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire.questions, "_ATTEMPT_MS", 100)
    place = f"127.0.0.1:{free_ports(1)}"
    with pytest.raises(Unreached, match=f"nobody answers at {place}"):
        _asked((place,), NORTH)


def test_questions_leave_no_descriptor_behind() -> None:
    """A silo that serves asks every two seconds, for weeks."""
    with board() as places:
        _asked(places, NORTH)
        before = psutil.Process().num_fds()
        for _ in range(20):
            _asked(places, NORTH)
        wait_for(lambda: psutil.Process().num_fds() <= before)
