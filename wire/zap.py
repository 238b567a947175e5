"""Whose connections are let in: an allow-list of CURVE keys behind ZeroMQ's authentication.

pyzmq's authenticator has a thread of its own, so that handshakes never wait for training.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils import z85

__all__ = ["Zap"]

log = logging.getLogger("wire")


class Zap(ThreadAuthenticator):
    def __init__(
        self,
        context: zmq.Context,
        domain: str,
        what: str,
        allowed: Mapping[bytes, str],
        revoked: Mapping[bytes, str],
    ) -> None:
        """`allowed`: CURVE key (Z85) -> who holds it; `revoked`: whose it was, for the log. `what`: a
        connection or a question, as the log calls it.
        """
        super().__init__(context, log=logging.getLogger("wire.zap"))
        self._roster, self._revoked, self._what = allowed, revoked, what
        self.configure_curve_callback(domain, credentials_provider=self)

    def callback(self, domain: str, key: bytes) -> bool:
        if key in self._revoked:
            log.warning(
                "refused (revoked-key): a %s with a key of %s that was revoked",
                self._what,
                self._revoked[key],
            )
        elif key not in self._roster:
            log.warning(
                "refused (unknown-silo): a %s with a key that is not in the roster", self._what
            )
        return key in self._roster

    def curve_user_id(self, client_public_key: bytes) -> str:
        return self._roster[z85.encode(client_public_key)]
