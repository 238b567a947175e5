"""An identity (Ed25519 to sign, and from the same seed X25519 to be sealed to), and the text file
it is kept in.

The file has two lines: `sottovoce-identity-1` and the 32-byte seed in hexadecimal followed by the
first 8 hex digits of its checksum; `keyfile` says how it is kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from crypto.derive import Label, derive, digest
from crypto.identity.keyfile import KeyFileError, read_secret, write_secret

__all__ = ["Identity", "KeyFileError", "verify"]

_HEADER = "sottovoce-identity-1"


class Identity:
    """An Ed25519 key pair. Signs labelled, framed parts only, so that no signature serves two
    purposes.
    """

    def __init__(self, seed: bytes) -> None:
        if len(seed) != 32:
            raise ValueError(f"an identity is made from 32 bytes, not {len(seed)}")
        self._seed = bytes(seed)
        self._key = Ed25519PrivateKey.from_private_bytes(self._seed)
        self._public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    def __repr__(self) -> str:
        return f"Identity(public={self._public.hex()[:16]}…)"

    @classmethod
    def generate(cls, random: Callable[[int], bytes] | None = None) -> Identity:
        return cls((random or os.urandom)(32))

    @property
    def public(self) -> bytes:
        return self._public

    def sign(self, label: str, *parts: bytes) -> bytes:
        return self._key.sign(digest(label, *parts))

    @property
    def box(self) -> X25519PrivateKey:
        """What secrets are sealed to. Derived, so that there is one secret to keep; never the
        signing key itself.
        """
        return X25519PrivateKey.from_private_bytes(derive(self._seed, Label.BOX))

    def own(self, *parts: bytes) -> bytes:
        """32 bytes that nobody else can make, the same whenever they are asked for."""
        return derive(self._seed, Label.OWN, *parts)

    def save(self, path: str | Path, passphrase: str = "") -> None:
        """Write the key file, mode 0600. An existing file is never touched."""
        content = f"{_HEADER}\n{self._seed.hex()} {_checksum(self._seed)}\n".encode()
        write_secret(Path(path), "identity", content, passphrase)

    @classmethod
    def load(cls, path: str | Path, passphrase: str = "") -> Identity:
        content = read_secret(Path(path), "identity", passphrase)
        try:
            header, line = content.decode("ascii").splitlines()
            seed_hex, check = line.split(" ")
            seed = bytes.fromhex(seed_hex)
            if header != _HEADER or len(seed) != 32 or check != _checksum(seed):
                raise ValueError
        except ValueError:
            raise KeyFileError(f"{path} is not a key file of this program, or is damaged") from None
        return cls(seed)


def verify(public: bytes, signature: bytes, label: str, *parts: bytes) -> bool:
    """Whether `signature` is `public`'s over exactly these parts under this label."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, digest(label, *parts))
    except (InvalidSignature, ValueError):
        return False
    return True


def _checksum(seed: bytes) -> str:
    return digest(Label.KEYFILE, seed).hex()[:8]
