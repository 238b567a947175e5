"""How a silo sets a session up: its own key and nonce, and what it checks of everybody else's.

`SiloSum` says when each step may be taken; this knows what is done in it. A refusal changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from crypto.derive import Label, derive, digest
from crypto.errors import Refusal
from crypto.identity.keys import Identity, verify
from crypto.sum.records import (
    NONCE_BYTES,
    KeyList,
    KeyOffer,
    NonceList,
    NonceReveal,
    agreement,
    session_id,
)
from crypto.sum.silo_limits import Limits
from crypto.sum.spot_checks import drawn

__all__ = ["SiloSetup"]


class SiloSetup:
    """One silo's part in setting up one session."""

    def __init__(
        self,
        silo: str,
        identity: Identity,
        roster: Mapping[str, bytes],
        run_id: bytes,
        limits: Limits,
        random: Callable[[int], bytes],
    ) -> None:
        self.sid: bytes | None = None
        #: The key of this session, until the pair secrets are derived from it.
        self.key: X25519PrivateKey | None = None
        self.commitments: dict[str, bytes] = {}
        self.offered: KeyOffer | None = None
        self._silo, self._identity, self._roster = silo, identity, roster
        self._run_id, self._limits, self._random = run_id, limits, random
        self._agreed = agreement(limits.policy.digest, roster)
        self._nonce = b""
        self._unchecked: dict[str, KeyOffer] = {}
        #: What the dice found in this setup. They are not thrown again until they miss it.
        self._found: Refusal | None = None

    def offer(self) -> KeyOffer:
        self.key = X25519PrivateKey.from_private_bytes(self._random(32))
        self._nonce = self._random(NONCE_BYTES)
        public = self.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        commitment = digest(Label.NONCE, self._silo.encode(), self._nonce)
        parts = KeyOffer.signed_parts(self._run_id, self._agreed, self._silo, public, commitment)
        signature = self._identity.sign(Label.OFFER, *parts)
        self.offered = KeyOffer(self._silo, public, commitment, signature)
        return self.offered

    def agree(self, keys: KeyList) -> tuple[NonceReveal, dict[str, bytes]]:
        """This silo's nonce, and the secret it shares with each other member of the session.
        `check_list` comes before.
        """
        offers = {offer.silo: offer for offer in keys.offers}
        checked = self._check_drawn(offers, lambda name: self._check_offer(offers[name]))
        sid = session_id(self._run_id, keys.offers)
        pairs = self._pairs(sid, offers)
        self.sid = sid
        self.commitments = {name: offer.commitment for name, offer in offers.items()}
        self._unchecked = {n: offer for n, offer in offers.items() if n not in checked}
        self.key = None  # a key stolen later must open nothing earlier
        signature = self._identity.sign(
            Label.REVEAL, *NonceReveal.signed_parts(sid, self._silo, self._nonce)
        )
        return NonceReveal(self._silo, self._nonce, signature), pairs

    def check(self, names: Collection[str]) -> None:
        """That these members' keys are signed by their identities, if it was not checked before."""
        for name in sorted(self._unchecked.keys() & names):
            self._check_offer(self._unchecked[name])
            del self._unchecked[name]

    def _check_offer(self, offer: KeyOffer) -> None:
        name = offer.silo
        parts = KeyOffer.signed_parts(
            self._run_id, self._agreed, name, offer.public, offer.commitment
        )
        if not verify(self._roster[name], offer.signature, Label.OFFER, *parts):
            raise Refusal(
                "key-substitution", f"the key of {name} is not signed by its identity", name
            )

    def _check_drawn(self, names: Collection[str], check: Callable[[str], None]) -> set[str]:
        """Returns who was checked: all, or of many so many that the others need not be.

        Where dice decide who, the first refusal ends this setup. Shown the same list again, a silo
        would draw others, and a coordinator could ask until the draw suits it.
        """
        if self._found is not None:
            found = self._found
            raise Refusal(found.attack, f"{found.detail}; this setup is over", found.culprit)
        chosen = drawn(names, self._silo, len(self._roster), self._limits.policy)
        try:
            for name in sorted(chosen):
                check(name)
        except Refusal as refusal:
            if len(chosen) < len(names):
                self._found = refusal
            raise
        return chosen

    def check_list(self, keys: KeyList) -> None:
        """All that a list must be, but for the signatures."""
        offers = {offer.silo: offer for offer in keys.offers}
        for name in offers:
            if name not in self._roster:
                raise Refusal("unknown-silo", f"{name} is not in the roster", name)
        if offers.get(self._silo) != self.offered:
            raise Refusal(
                "key-substitution",
                "the list does not have the key that this silo offered",
                self._silo,
            )
        if len(offers) != len(keys.offers) or len({o.public for o in offers.values()}) != len(
            offers
        ):
            raise Refusal("sybil-majority", "a silo or a key stands twice in the list")
        if len(offers) < self._limits.floor:
            raise Refusal(
                "tiny-sum",
                f"a session of {len(offers)} silos, below the floor of {self._limits.floor}",
            )
        if len(offers) < self._limits.min_roster_share * len(self._roster):
            raise Refusal(
                "sybil-majority",
                f"only {len(offers)} of the {len(self._roster)} silos of the roster",
            )

    def _pairs(self, sid: bytes, offers: Mapping[str, KeyOffer]) -> dict[str, bytes]:
        assert self.key is not None
        pairs = {}
        for name, offer in offers.items():
            if name == self._silo:
                continue
            try:
                shared = self.key.exchange(X25519PublicKey.from_public_bytes(offer.public))
            except ValueError:
                raise Refusal(
                    "key-substitution", f"{name} offered a key of low order", name
                ) from None
            low, high = sorted((self._silo, name))
            pairs[name] = derive(shared, Label.PAIR, sid, low.encode(), high.encode())
        return pairs

    def nonces(self, nonces: NonceList) -> dict[str, bytes]:
        """Everybody's nonce: each is the one committed to, shown by one who signed this session."""
        assert self.sid is not None
        shown = {reveal.silo: reveal for reveal in nonces.reveals}
        if set(shown) != set(self.commitments) or len(shown) != len(nonces.reveals):
            raise Refusal(
                "graph-steering", "not exactly one nonce from every member of the session"
            )
        for name, reveal in shown.items():
            reveal.check(self.sid, self.commitments[name], None)
        sid = self.sid
        self._check_drawn(
            shown, lambda n: shown[n].check(sid, self.commitments[n], self._roster[n])
        )
        return {name: reveal.nonce for name, reveal in shown.items()}
