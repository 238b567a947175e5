"""One question, one answer, over CURVE: what the parties say to each other outside of a study.

A server answers small messages from a ROUTER; a client asks with a connection of its own each time,
so nothing is lost with one. A question that is none is refused by name and changes nothing. Who asks
is known by its CURVE key, or not at all (`allowed=None`, for enrolment, where nobody knows anybody).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgpack
import zmq
from zmq.auth import CURVE_ALLOW_ANY
from zmq.auth.thread import ThreadAuthenticator

from crypto.identity.card import RosterRefused
from wire.keys import CurveKeys
from wire.zap import Zap

__all__ = ["QuestionServer", "Unreached", "ask"]

log = logging.getLogger("wire")
_DOMAIN = "questions"
_LARGEST = 8 << 20  #: a roster of two thousand silos with everybody's signature and box
_ATTEMPT_MS = 5_000
_OK, _REFUSED = "ok", "refused"
_LOCKED_OUT = b""

#: (who asks, or "" where anybody may; the question) -> the answer. Raises RosterRefused.
Answering = Callable[[str, Any], Any]


NOBODY: Mapping[bytes, str] = {}


class Unreached(Exception):
    """Nobody answered at the address."""


class QuestionServer:
    def __init__(
        self,
        keys: CurveKeys,
        answering: Answering,
        allowed: Mapping[bytes, str] | None,
        revoked: Mapping[bytes, str] = NOBODY,
    ) -> None:
        self._answering, self._named = answering, allowed is not None
        self._context = zmq.Context()
        self._zap = (
            ThreadAuthenticator(self._context, log=logging.getLogger("wire.zap"))
            if allowed is None
            else Zap(self._context, _DOMAIN, "question", allowed, revoked)
        )
        self._zap.start()
        if allowed is None:
            self._zap.configure_curve(domain=_DOMAIN, location=CURVE_ALLOW_ANY)
        s = self._socket = self._context.socket(zmq.ROUTER)
        s.curve_server = True
        s.curve_secretkey, s.curve_publickey = keys.secret, keys.public
        s.zap_domain = _DOMAIN.encode()
        s.linger = 1000
        s.setsockopt(zmq.MAXMSGSIZE, _LARGEST)
        s.setsockopt(zmq.HANDSHAKE_IVL, 10_000)
        s.setsockopt(zmq.RCVHWM, 16)
        s.setsockopt(zmq.SNDHWM, 16)

    def bind(self, host: str, port: int) -> int:
        """Returns the port. Raises zmq.ZMQError when it is taken."""
        if port == 0:
            return int(self._socket.bind_to_random_port(f"tcp://{host}"))
        self._socket.bind(f"tcp://{host}:{port}")
        return port

    def serve(self, seconds: float) -> bool:
        """Answer one question, if one comes within `seconds`. Returns whether one came."""
        if not self._socket.poll(int(seconds * 1000)):
            return False
        frames = self._socket.recv_multipart(copy=False)
        if len(frames) != 2:
            log.warning("refused (wrong-shape): a question of %d frames", len(frames))
            return True
        try:
            who = str(frames[0].get("User-Id")) if self._named else ""
            said = msgpack.unpackb(frames[1].bytes, max_str_len=_LARGEST)
            reply = msgpack.packb([_OK, self._answering(who, said)])
        except RosterRefused as e:
            log.warning("refused (%s): %s", e.attack, e.detail)
            reply = msgpack.packb([_REFUSED, e.attack, e.detail])
        except Exception as e:  # whatever somebody's bytes make of this program, it goes on
            log.warning("refused (bad-field): a question (%s)", type(e).__name__)
            reply = msgpack.packb([_REFUSED, "bad-field", "it cannot be read"])
        self._socket.send_multipart([frames[0].bytes, reply], zmq.DONTWAIT)
        return True

    def close(self) -> None:
        self._socket.close()
        self._zap.stop()
        self._context.destroy(linger=1000)


def ask(addresses: tuple[str, ...], keys: CurveKeys, server: bytes, question: Any) -> Any:
    """The answer of the first address (HOST:PORT) that gives one. Raises RosterRefused with what
    the other end said, `Unreached` where none answers.
    """
    why = f"nobody answers at {', '.join(addresses)}"
    for place in addresses:
        reply = _once(f"tcp://{place}", keys, server, msgpack.packb(question))
        if reply is not None and reply != _LOCKED_OUT:
            return _read(reply)
        if reply == _LOCKED_OUT:
            why = f"{place} does not let this key in: it was revoked, or replaced by a newer one"
    raise Unreached(why)


def _once(address: str, keys: CurveKeys, server: bytes, question: bytes) -> bytes | None:
    """None: nobody answered. `_LOCKED_OUT`: whoever listens does not accept these keys."""
    context = zmq.Context()
    try:
        s = context.socket(zmq.DEALER)
        s.curve_serverkey = server
        s.curve_secretkey, s.curve_publickey = keys.secret, keys.public
        s.setsockopt(zmq.MAXMSGSIZE, _LARGEST)
        s.linger = 0
        ended = s.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
        s.connect(address)
        s.send(question)
        poller = zmq.Poller()
        poller.register(s, zmq.POLLIN)
        poller.register(ended, zmq.POLLIN)
        heard = dict(poller.poll(_ATTEMPT_MS))
        if s in heard:
            return s.recv()
        return _LOCKED_OUT if ended in heard else None
    finally:
        context.destroy(linger=0)


def _read(reply: bytes) -> Any:
    try:
        said = msgpack.unpackb(reply, max_str_len=_LARGEST)
        if said[0] == _OK and len(said) == 2:
            return said[1]
        _, attack, detail = said
    except (ValueError, TypeError, IndexError, KeyError):
        raise RosterRefused("wrong-shape", "the answer cannot be read") from None
    raise RosterRefused(str(attack)[:40], str(detail)[:300])
