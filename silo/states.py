"""The states of a silo's conversation, and what may be heard in which. What is not in the table is
refused.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["LEGAL", "State"]


class State(Enum):
    GREETED = "greeted"  # said hello
    KEYS = "keys"  # offered a key, waits for everybody's
    NONCES = "nonces"  # revealed its nonce, waits for everybody's
    IDLE = "idle"
    HEARING = "hearing"  # an exchange's arrays are arriving
    TOLD = "told"  # has them all, waits for a core
    READY = "ready"  # has its answer, waits to upload
    SENT = "sent"  # uploaded
    STOPPED = "stopped"


_S = State
#: kind of message -> the states in which it may be heard. A new broadcast abandons the exchange
#: before it.
LEGAL: dict[str, frozenset[State]] = {
    "welcome": frozenset(_S) - {_S.STOPPED},
    "sum:keys": frozenset({_S.KEYS}),
    "sum:nonces": frozenset({_S.NONCES}),
    "broadcast": frozenset({_S.IDLE, _S.HEARING, _S.TOLD, _S.READY, _S.SENT}),
    "chunk": frozenset({_S.HEARING}),
    "go": frozenset({_S.TOLD}),
    "send": frozenset({_S.READY}),
    # not uploaded: refused by name (crypto.sum.silo)
    "sum:propose": frozenset({_S.TOLD, _S.READY, _S.SENT}),
    "sum:unmask": frozenset({_S.TOLD, _S.READY, _S.SENT}),
    "closed": frozenset({_S.IDLE, _S.HEARING, _S.TOLD, _S.READY, _S.SENT}),
    "round-over": frozenset({_S.IDLE}),
    "ping": frozenset(_S),
    "stop": frozenset(_S),
}
