"""The coordinator's part of a session's setup: gather keys, show them to all, gather nonces, show
them to all.
"""

from __future__ import annotations

from collections.abc import Mapping

from crypto.derive import Label
from crypto.errors import Refusal, SumFailed
from crypto.identity.keys import verify
from crypto.sum.graph import beacon
from crypto.sum.params import Policy
from crypto.sum.records import KeyList, KeyOffer, NonceList, NonceReveal, agreement, session_id

__all__ = ["CoordinatorSetup"]


class CoordinatorSetup:
    """OFFERS -key_list-> REVEALS -nonce_list-> READY. The silos check all of it again; this only
    keeps order.

    Silos that have offered when `key_list` is first called are the members. Every member must then
    show its nonce: leaving one out would let a coordinator choose between graphs. If one dies in
    between, a new setup is begun.
    """

    def __init__(
        self, roster: Mapping[str, bytes], run_id: bytes, policy: Policy | None = None
    ) -> None:
        self.roster = dict(roster)
        self.run_id = run_id
        self.policy = policy or Policy()
        self._agreed = agreement(self.policy.digest, roster)
        self._offers: dict[str, KeyOffer] = {}
        self._reveals: dict[str, NonceReveal] = {}
        self._keys: KeyList | None = None
        self._nonces: NonceList | None = None
        self._sid: bytes | None = None
        self._beacon = b""

    def receive_offer(self, offer: KeyOffer) -> None:
        """A silo's offer; a later one of the same silo (it restarted) replaces the earlier."""
        if self._keys is not None:
            raise Refusal(
                "key-substitution",
                f"{offer.silo} offers a key after the list was closed",
                offer.silo,
            )
        if offer.silo not in self.roster:
            raise Refusal("unknown-silo", f"{offer.silo} is not in the roster", offer.silo)
        parts = KeyOffer.signed_parts(
            self.run_id, self._agreed, offer.silo, offer.public, offer.commitment
        )
        if not verify(self.roster[offer.silo], offer.signature, Label.OFFER, *parts):
            raise Refusal(
                "key-substitution",
                f"the key of {offer.silo} is not signed by its identity",
                offer.silo,
            )
        self._offers[offer.silo] = offer

    @property
    def members(self) -> tuple[str, ...]:
        """The silos of this session: whoever had offered when the list was closed."""
        return tuple(sorted(self._offers))

    def key_list(self) -> KeyList:
        if self._keys is None:
            if len(self._offers) < 3:
                raise SumFailed(
                    f"a session needs at least 3 silos, and {len(self._offers)} have offered keys"
                )
            self._keys = KeyList(tuple(self._offers[name] for name in sorted(self._offers)))
            self._sid = session_id(self.run_id, self._keys.offers)
        return self._keys

    @property
    def sid(self) -> bytes:
        if self._sid is None:
            raise RuntimeError("the session id is known when the key list is closed")
        return self._sid

    def receive_reveal(self, reveal: NonceReveal) -> None:
        silo = reveal.silo
        if self._sid is None or silo not in self._offers:
            raise Refusal("unknown-silo", f"a nonce of {silo}, which is no member", silo)
        if self._nonces is not None or silo in self._reveals:
            raise Refusal("graph-steering", f"a second nonce of {silo}", silo)
        reveal.check(self._sid, self._offers[silo].commitment, self.roster[silo])
        self._reveals[silo] = reveal

    @property
    def missing(self) -> tuple[str, ...]:
        """Members that have not shown their nonce."""
        return tuple(name for name in self.members if name not in self._reveals)

    def nonce_list(self) -> NonceList:
        if self._nonces is None:
            if self._keys is None or self.missing:
                raise SumFailed(
                    f"no nonce from {', '.join(self.missing) or 'anybody'}: begin a new setup"
                )
            self._nonces = NonceList(tuple(self._reveals[name] for name in self.members))
            nonces = {name: reveal.nonce for name, reveal in self._reveals.items()}
            self._beacon = beacon(self.sid, nonces)
        return self._nonces

    @property
    def beacon(self) -> bytes:
        """What the graph is drawn from; known when all nonces are."""
        if not self._beacon:
            raise RuntimeError("the graph is known when all nonces are")
        return self._beacon
