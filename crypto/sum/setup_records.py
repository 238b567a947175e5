"""What is said once per session, before any sum. `records`, which has these too, says how records
are checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crypto.derive import Label, digest
from crypto.errors import Refusal
from crypto.identity.keys import verify
from crypto.sum import fields

__all__ = [
    "NONCE_BYTES",
    "KeyList",
    "KeyOffer",
    "NonceList",
    "NonceReveal",
    "agreement",
    "session_id",
]

NONCE_BYTES = 32
SIGNATURE_BYTES = 64


def agreement(policy: bytes, roster: Mapping[str, bytes]) -> bytes:
    """What all must have in common before they begin: the policy and the roster. Signed into every
    key offer.
    """
    return digest(
        Label.POLICY,
        policy,
        *(part for name in sorted(roster) for part in (name.encode(), roster[name])),
    )


@dataclass(frozen=True)
class KeyOffer:
    """A silo's X25519 key for one session and its commitment to a nonce, signed with its pinned
    identity.
    """

    silo: str
    public: bytes
    commitment: bytes
    signature: bytes

    @staticmethod
    def signed_parts(
        run_id: bytes, agreed: bytes, silo: str, public: bytes, commitment: bytes
    ) -> tuple[bytes, ...]:
        return run_id, agreed, silo.encode(), public, commitment

    def to_record(self) -> dict[str, Any]:
        return {
            "silo": self.silo,
            "public": self.public,
            "commitment": self.commitment,
            "signature": self.signature,
        }

    @classmethod
    def from_record(cls, record: Any) -> KeyOffer:
        r = fields.only("key offer", record, "silo", "public", "commitment", "signature")
        return cls(
            fields.silo_name(r["silo"]),
            fields.blob("an X25519 key", r["public"], 32),
            fields.blob("a nonce commitment", r["commitment"], 32),
            fields.blob("a signature", r["signature"], SIGNATURE_BYTES),
        )


@dataclass(frozen=True)
class KeyList:
    """All offers of a session, sorted by silo. Their hash is the session id."""

    offers: tuple[KeyOffer, ...]

    def to_record(self) -> dict[str, Any]:
        return {"offers": [offer.to_record() for offer in self.offers]}

    @classmethod
    def from_record(cls, record: Any) -> KeyList:
        r = fields.only("key list", record, "offers")
        offers = fields.items("a key list", r["offers"], KeyOffer.from_record)
        fields.names("a key list", [offer.silo for offer in offers])
        return cls(offers)


def session_id(run_id: bytes, offers: Sequence[KeyOffer]) -> bytes:
    """sid: the hash of the run and of the whole list of offers, signatures included."""
    parts = [run_id]
    for offer in sorted(offers, key=lambda o: o.silo):
        parts += [offer.silo.encode(), offer.public, offer.commitment, offer.signature]
    return digest(Label.SESSION, *parts)


@dataclass(frozen=True)
class NonceReveal:
    """The nonce behind a commitment, with a signature that also says: I saw the key list with this
    session id.
    """

    silo: str
    nonce: bytes
    signature: bytes

    @staticmethod
    def signed_parts(sid: bytes, silo: str, nonce: bytes) -> tuple[bytes, ...]:
        return sid, silo.encode(), nonce

    def check(self, sid: bytes, commitment: bytes, identity: bytes | None) -> None:
        """That it is the nonce committed to, shown by one who signed this session. `identity`: None
        to leave the signature to others (crypto.sum.spot_checks).
        """
        silo = self.silo
        if digest(Label.NONCE, silo.encode(), self.nonce) != commitment:
            raise Refusal(
                "graph-steering", f"{silo} shows another nonce than it committed to", silo
            )
        parts = self.signed_parts(sid, silo, self.nonce)
        if identity is not None and not verify(identity, self.signature, Label.REVEAL, *parts):
            raise Refusal(
                "key-substitution", f"{silo} did not sign this session's list of keys", silo
            )

    def to_record(self) -> dict[str, Any]:
        return {"silo": self.silo, "nonce": self.nonce, "signature": self.signature}

    @classmethod
    def from_record(cls, record: Any) -> NonceReveal:
        r = fields.only("nonce reveal", record, "silo", "nonce", "signature")
        return cls(
            fields.silo_name(r["silo"]),
            fields.blob("a nonce", r["nonce"], NONCE_BYTES),
            fields.blob("a signature", r["signature"], SIGNATURE_BYTES),
        )


@dataclass(frozen=True)
class NonceList:
    reveals: tuple[NonceReveal, ...]

    def to_record(self) -> dict[str, Any]:
        return {"reveals": [reveal.to_record() for reveal in self.reveals]}

    @classmethod
    def from_record(cls, record: Any) -> NonceList:
        r = fields.only("nonce list", record, "reveals")
        reveals = fields.items("a nonce list", r["reveals"], NonceReveal.from_record)
        fields.names("a nonce list", [reveal.silo for reveal in reveals])
        return cls(reveals)
