"""Sealed blobs: AES-128-GCM under a key that exists for one sender, one holder and one sum.

The key is used for exactly one message, so the nonce is constant. Sender, holder, sum and whatever
else is public about a blob stand in the associated data: a blob cannot be delivered to another
holder, sum or direction.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from crypto.derive import Label, derive, frame

__all__ = ["TAG_BYTES", "open_blob", "seal_blob"]

TAG_BYTES = 16
_NONCE = bytes(12)


def _key(secret: bytes, h: bytes, sender: str, holder: str) -> bytes:
    return derive(secret, Label.SEAL, h, sender.encode(), holder.encode(), length=16)


def _context(h: bytes, sender: str, holder: str, public: bytes) -> bytes:
    return frame(Label.SEAL, h, sender.encode(), holder.encode(), public)


def seal_blob(
    secret: bytes, h: bytes, sender: str, holder: str, content: bytes, public: bytes = b""
) -> bytes:
    """`content` readable by `holder` alone; `public` travels beside it in the clear and cannot be
    altered.
    """
    cipher = AESGCM(_key(secret, h, sender, holder))
    return cipher.encrypt(_NONCE, content, _context(h, sender, holder, public))


def open_blob(
    secret: bytes, h: bytes, sender: str, holder: str, blob: bytes, public: bytes = b""
) -> bytes | None:
    """The content, or None when anything about it is not as it was sealed."""
    try:
        cipher = AESGCM(_key(secret, h, sender, holder))
        return cipher.decrypt(_NONCE, blob, _context(h, sender, holder, public))
    except InvalidTag:
        return None
