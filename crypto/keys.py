"""A silo's signing identity (Ed25519), and the small text file that it is kept in.

The file has two lines: `sottovoce-identity-1` and the 32-byte seed in hexadecimal followed by the first 8 hex
digits of its checksum. It is made with mode 0600, is never overwritten, and is not loaded when others may read it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from crypto.derive import Label, digest

__all__ = ["Identity", "KeyFileError", "verify"]

_HEADER = "sottovoce-identity-1"
_MOST_BYTES = 4096


class KeyFileError(Exception):
    """A key file that cannot or must not be used; the message is one sentence."""


class Identity:
    """An Ed25519 key pair. Signs labelled, framed parts only, so that no signature serves two purposes."""

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

    def save(self, path: str | Path) -> None:
        """Write the key file, mode 0600. An existing file is never touched."""
        path = Path(path)
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise KeyFileError(f"{path} already exists; a key is never overwritten") from None
        except OSError as error:
            raise KeyFileError(f"{path} cannot be written: {error.strerror}") from None
        with os.fdopen(handle, "wb") as file:
            file.write(f"{_HEADER}\n{self._seed.hex()} {_checksum(self._seed)}\n".encode())
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def load(cls, path: str | Path) -> Identity:
        path = Path(path)
        try:
            with path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                content = file.read(_MOST_BYTES)
        except OSError as error:
            raise KeyFileError(f"{path} cannot be read: {error.strerror}") from None
        if mode & 0o077:
            raise KeyFileError(f"{path} is readable by others (mode {mode & 0o777:o}); run: chmod 600 {path}")
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
