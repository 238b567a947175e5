"""The silos' common secret, sealed to each silo's own key: one box per silo.

It keeps buckets of bags from a coordinator that no silo helps; names of bags do not rest on it alone
(crypto.oprf). It belongs to one version of the roster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from crypto.derive import Label, derive, digest
from crypto.identity.card import Card, RosterRefused, hexadecimal, only
from crypto.identity.keys import Identity, verify

__all__ = ["SECRET_BYTES", "Group"]

SECRET_BYTES = 32


@dataclass(frozen=True)
class Group:
    maker: str
    boxes: Mapping[str, bytes]
    signature: bytes

    @classmethod
    def seal(
        cls,
        maker: str,
        identity: Identity,
        silos: tuple[Card, ...],
        roster: bytes,
        secret: bytes,
    ) -> Group:
        """The secret for every silo of a roster (its digest), signed by the silo that made it."""
        boxes = {}
        for card in silos:
            once = X25519PrivateKey.generate()
            public = once.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
            key = _box_key(once, card.box, roster, card.name)
            # a key for one message
            boxes[card.name] = public + AESGCM(key).encrypt(bytes(12), secret, maker.encode())
        group = cls(maker, boxes, b"")
        return replace(group, signature=identity.sign(Label.GROUP, *group.parts(roster)))

    def open(self, name: str, identity: Identity, roster: bytes) -> bytes:
        """The secret, for one of the silos."""
        box = self.boxes[name]
        try:
            key = _box_key(identity.box, box[:32], roster, name)
            return AESGCM(key).decrypt(bytes(12), box[32:], self.maker.encode())
        except (InvalidTag, ValueError):
            raise RosterRefused(
                "key-substitution",
                f"the common secret in the roster is not sealed to the key of {name} here",
            ) from None

    def check(self, silos: tuple[Card, ...], signers: Mapping[str, bytes], roster: bytes) -> None:
        maker = next((c for c in silos if c.name == self.maker), None)
        names = {c.name for c in silos}
        if maker is None or set(self.boxes) != names or self.maker not in signers:
            raise RosterRefused(
                "tampered-roster", "the common secret is not for exactly the silos of this version"
            )
        if not verify(maker.identity, self.signature, Label.GROUP, *self.parts(roster)):
            raise RosterRefused(
                "tampered-roster", f"the silos' common secret is not signed by {self.maker}"
            )

    def parts(self, roster: bytes) -> tuple[bytes, ...]:
        boxes = [part for name in sorted(self.boxes) for part in (name.encode(), self.boxes[name])]
        return roster, self.maker.encode(), *boxes

    def digest(self, roster: bytes) -> bytes:
        return digest(Label.GROUP, *self.parts(roster), self.signature)

    def to_record(self) -> dict[str, object]:
        boxes = {name: box.hex() for name, box in sorted(self.boxes.items())}
        return {"maker": self.maker, "boxes": boxes, "signature": self.signature.hex()}

    @classmethod
    def from_record(cls, record: object) -> Group:
        g = only("roster", record, "maker", "boxes", "signature")
        if not isinstance(g["boxes"], dict):
            raise RosterRefused("wrong-shape", "it is not a roster")
        boxes = {str(k): hexadecimal(v, 32 + SECRET_BYTES + 16) for k, v in g["boxes"].items()}
        return cls(str(g["maker"]), boxes, hexadecimal(g["signature"], 64))


def _box_key(private: X25519PrivateKey, public: bytes, roster: bytes, name: str) -> bytes:
    shared = private.exchange(X25519PublicKey.from_public_bytes(public))
    return derive(shared, Label.GROUP, roster, name.encode())
