"""Files with a secret in them: made with mode 0600, never overwritten, not read when others may;
with or without a passphrase.

With one, the content is sealed with AES-256-GCM under a key that scrypt makes of it (N = 2**15, r =
8: 32 MB and about a tenth of a second per guess), and the kind of file is bound to it, so that one
key file cannot stand in for another.
"""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

__all__ = ["KeyFileError", "PassphraseNeeded", "is_sealed", "read_secret", "write_secret"]

_SEALED = b"sottovoce-sealed-1"
_MOST_BYTES = 4096
_SALT, _NONCE = 16, 12


class KeyFileError(Exception):
    """A key file that cannot or must not be used; the message is one sentence without its full
    stop.
    """


class PassphraseNeeded(KeyFileError):
    """The file is sealed, and no passphrase was given."""


def write_secret(path: Path, kind: str, content: bytes, passphrase: str = "") -> None:
    """Create `path` readable by its owner alone; it never exists with wider rights, nor half
    written.
    """
    if passphrase:
        salt, nonce = os.urandom(_SALT), os.urandom(_NONCE)
        sealed = AESGCM(_key(passphrase, salt)).encrypt(nonce, content, kind.encode())
        content = (
            _SEALED + b" " + kind.encode() + b"\n" + (salt + nonce + sealed).hex().encode() + b"\n"
        )
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise KeyFileError(f"{path} already exists; a key is never overwritten") from None
    except OSError as error:
        raise KeyFileError(f"{path} cannot be written: {error.strerror}") from None
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read_secret(path: Path, kind: str, passphrase: str = "") -> bytes:
    """The content that was written, unsealed where it was sealed."""
    content = _read(path)
    if not content.startswith(_SEALED):
        return content
    try:
        header, body = content.splitlines()
        if header != _SEALED + b" " + kind.encode():
            raise ValueError
        raw = bytes.fromhex(body.decode("ascii"))
    except ValueError:
        raise KeyFileError(f"{path} is not a key file of this program, or is damaged") from None
    if not passphrase:
        raise PassphraseNeeded(f"{path} is sealed with a passphrase, and none was given")
    salt, nonce, sealed = raw[:_SALT], raw[_SALT : _SALT + _NONCE], raw[_SALT + _NONCE :]
    try:
        return AESGCM(_key(passphrase, salt)).decrypt(nonce, sealed, kind.encode())
    except (InvalidTag, ValueError):
        raise KeyFileError(f"{path} does not open with this passphrase, or is damaged") from None


def is_sealed(path: Path) -> bool:
    return _read(path).startswith(_SEALED)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_MOST_BYTES)
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}") from None
    if mode & 0o077:
        raise KeyFileError(
            f"{path} is readable by others (mode {mode & 0o777:o}); run: chmod 600 {path}"
        )
    return content


def _key(passphrase: str, salt: bytes) -> bytes:
    return Scrypt(salt=salt, length=32, n=1 << 15, r=8, p=1).derive(passphrase.encode())
