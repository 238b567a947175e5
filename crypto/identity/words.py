"""A fingerprint as twelve English words, to be read aloud over the telephone.

The list and the coding are those of BIP-39, which were made for this: no two words share their first
four letters, and the last word holds a checksum.
"""

from __future__ import annotations

from mnemonic import Mnemonic

__all__ = ["same_words", "words"]

_BYTES = 16  #: 128 bits, as in the fingerprint that hexadecimal digits show


def words(digest: bytes) -> str:
    return Mnemonic("english").to_mnemonic(digest[:_BYTES])


def same_words(digest: bytes, told: str) -> bool:
    """Whether somebody read these words; spelling of case and spaces does not matter."""
    return " ".join(told.lower().split()) == words(digest)
