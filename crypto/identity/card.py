"""A card: the public keys of one party, signed by itself. What people compare over the telephone is
its fingerprint.

A card travels as JSON. Whoever replaces its keys signs the new card with the old ones too
(`successor`), so that a roster can take it over without anybody having to meet again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from crypto.derive import Label, digest
from crypto.identity.keys import Identity, verify

__all__ = ["ROLES", "Card", "RosterRefused", "fingerprint", "hexadecimal", "make_card", "only"]

ROLES = ("silo", "coordinator")
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,39}")
_CURVE = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")  # Z85


class RosterRefused(Exception):
    """A card or a roster that must not be used, under the name of what it would have been."""

    def __init__(self, attack: str, detail: str) -> None:
        super().__init__(attack, detail)
        self.attack, self.detail = attack, detail

    def __str__(self) -> str:
        return f"refused ({self.attack}): {self.detail}"


def fingerprint(value: bytes) -> str:
    """The first 128 bits in groups of four: short enough to be read aloud, too long to be matched
    by trying.
    """
    text = value.hex()[:32]
    return " ".join(text[i : i + 4] for i in range(0, 32, 4))


@dataclass(frozen=True)
class Card:
    name: str
    role: str  #: silo or coordinator
    identity: bytes  #: Ed25519
    box: bytes  #: X25519, from the same seed
    curve: str  #: the transport's key, Z85
    signature: bytes  #: by the identity, over all of the above
    replaces: bytes = b""  #: the identity that this one succeeds
    endorsed: bytes = b""  #: that identity's signature

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            allowed = "lower-case letters, digits, dots and dashes, 40 at most"
            raise RosterRefused("wrong-shape", f'"{self.name[:60]}" is not a name: {allowed}')
        if self.role not in ROLES or not _CURVE.fullmatch(self.curve):
            raise RosterRefused(
                "wrong-shape", f"the card of {self.name} has no role, or no transport key"
            )

    @property
    def parts(self) -> tuple[bytes, ...]:
        return self.name.encode(), self.role.encode(), self.identity, self.box, self.curve.encode()

    @property
    def digest(self) -> bytes:
        return digest(Label.CARD, *self.parts)

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.digest)

    def check(self) -> None:
        """That the keys belong together, and that a successor was named by its predecessor."""
        if not verify(self.identity, self.signature, Label.CARD, *self.parts):
            raise RosterRefused(
                "key-substitution", f"the card of {self.name} is not signed by its own identity"
            )
        if bool(self.replaces) != bool(self.endorsed) or (
            self.replaces and not verify(self.replaces, self.endorsed, Label.SUCCESSOR, self.digest)
        ):
            raise RosterRefused(
                "key-substitution", f"the new card of {self.name} is not signed with its old key"
            )

    def succeeding(self, old: Identity) -> Card:
        return replace(self, replaces=old.public, endorsed=old.sign(Label.SUCCESSOR, self.digest))

    def to_record(self) -> dict[str, str]:
        record = {
            "name": self.name,
            "role": self.role,
            "identity": self.identity.hex(),
            "box": self.box.hex(),
        }
        record |= {"curve": self.curve, "signature": self.signature.hex()}
        if self.replaces:
            record |= {"replaces": self.replaces.hex(), "endorsed": self.endorsed.hex()}
        return record

    @classmethod
    def from_record(cls, record: Any) -> Card:
        fields = ("name", "role", "identity", "box", "curve", "signature")
        extra = (
            ("replaces", "endorsed") if isinstance(record, Mapping) and "replaces" in record else ()
        )
        r = only("card", record, *fields, *extra)
        for key in ("name", "role", "curve"):
            if not isinstance(r[key], str):
                raise RosterRefused("wrong-shape", f"a card whose {key} is not text")
        return cls(
            r["name"],
            r["role"],
            identity=hexadecimal(r["identity"], 32),
            box=hexadecimal(r["box"], 32),
            curve=r["curve"],
            signature=hexadecimal(r["signature"], 64),
            replaces=hexadecimal(r["replaces"], 32) if extra else b"",
            endorsed=hexadecimal(r["endorsed"], 64) if extra else b"",
        )


def make_card(name: str, role: str, identity: Identity, curve: str) -> Card:
    box = identity.box.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    unsigned = Card(name, role, identity=identity.public, box=box, curve=curve, signature=bytes(64))
    return replace(unsigned, signature=identity.sign(Label.CARD, *unsigned.parts))


def only(kind: str, record: Any, *fields: str) -> Mapping[str, Any]:
    """The record, if it is a mapping with exactly these fields."""
    if not isinstance(record, Mapping) or set(record) != set(fields):
        raise RosterRefused(
            "wrong-shape", f"it is not a {kind}, or not one of this version of the program"
        )
    return record


def hexadecimal(value: Any, length: int) -> bytes:
    """Lower case only: one value has one spelling, or a hash over the file would not be over its
    meaning.
    """
    if not isinstance(value, str) or not re.fullmatch(f"[0-9a-f]{{{2 * length}}}", value):
        raise RosterRefused(
            "wrong-shape", f"a field that should be {2 * length} hexadecimal digits is not"
        )
    return bytes.fromhex(value)
