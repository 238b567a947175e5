"""What silos say to each other under their pinned identities, through a coordinator that may lie.

A statement is signed with its purpose and the name of the silo that makes it, so that none serves
another purpose or another silo. Whatever else it must be bound to (the run, the round, what was
broadcast) is in its data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache

from crypto.derive import Label
from crypto.identity.keys import Identity, verify

__all__ = ["SIGNATURE_BYTES", "Signer", "simulated_signer"]

SIGNATURE_BYTES = 64


class Signer:
    """One silo's pen, and everybody's public keys. `roster`: silo -> Ed25519 public key."""

    def __init__(self, silo: str, identity: Identity, roster: Mapping[str, bytes]) -> None:
        self._silo, self._identity, self._roster = silo, identity, dict(roster)

    def sign(self, purpose: str, data: bytes) -> bytes:
        parts = _parts(self._silo, purpose, data)
        return self._identity.sign(Label.STATEMENT, *parts)

    def verify(self, silo: str, purpose: str, data: bytes, signature: bytes) -> bool:
        """Whether this silo of the roster made this statement."""
        public = self._roster.get(silo)
        parts = _parts(silo, purpose, data)
        return public is not None and verify(public, signature, Label.STATEMENT, *parts)


def _parts(silo: str, purpose: str, data: bytes) -> tuple[bytes, ...]:
    return purpose.encode(), silo.encode(), data


@lru_cache(maxsize=8)
def _identities(seed: int, silos: tuple[str, ...]) -> dict[str, Identity]:
    made = (hashlib.sha256(f"{seed}/identity/{name}".encode()).digest() for name in silos)
    return dict(zip(silos, map(Identity, made)))


def simulated_signer(seed: int, silo: str, silos: tuple[str, ...]) -> Signer:
    """With identities from a run's seed, which is right in a simulation and nowhere else: whoever
    knows the seed can sign for everybody.
    """
    identities = _identities(seed, silos)
    roster = {name: identity.public for name, identity in identities.items()}
    return Signer(silo, identities[silo], roster)
