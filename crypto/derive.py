"""Hashing and key derivation: every label in one place, every input framed so that no two tuples
collide.

A label says what a value is for; a value derived or signed for one purpose can then never be taken
for another. Parts are length-prefixed, so ("ab", "c") and ("a", "bc") differ. SHA-256 and
HKDF-SHA-256 (RFC 5869) throughout.
"""

from __future__ import annotations

import hashlib
import hmac
from enum import StrEnum

__all__ = ["DIGEST", "Label", "derive", "digest", "frame", "name_list", "number"]

DIGEST = 32
_SALT = b"sottovoce/secagg/1"


class Label(StrEnum):
    """What a hash, a key or a signature is for."""

    # Signed with a silo's Ed25519 identity
    OFFER = "offer"  # an X25519 key and a nonce commitment, for one run
    REVEAL = "reveal"  # a nonce, and with it agreement on the session id
    UPLOAD = "upload"  # the sealed blobs and seed commitments of one sum
    ENDORSE = "endorse"  # one survivor set for one sum
    CONTRIBUTES = "contributes"  # a silo put something real into one sum
    CARD = "card"  # a party's own public keys
    # the card with which a party replaces its keys, signed with the old ones
    SUCCESSOR = "successor"
    ROSTER = "roster"  # one version of the list of parties
    CONSENT = "consent"  # a silo's word that it takes part in one study
    DOCUMENT = "document"  # what a party says of a study, for an officer's files
    STATEMENT = "statement"  # what a method has one silo say to the others
    GROUP = "group-secret"  # the boxes in which one silo sent the silos' common secret
    OPRF_KEY = "oprf-key"  # a holder's public part of the key of names
    OPRF_ASK = "oprf-ask"  # the blinded points that one silo wants evaluated
    # Hashes
    NONCE = "nonce-commitment"
    SESSION = "session-id"
    HEARD = "heard"  # run and broadcasts of a round: what a statement is made on
    BEACON = "beacon"  # session id and all nonces: what graph and committee are drawn from
    RING = "ring-order"
    COMMITTEE = "committee-order"
    COHORT = "cohort-order"
    CONTEXT = "sum-context"  # h
    SEED_COMMITMENT = "seed-commitment"
    SHARE_TAG = "share-tag"
    SURVIVORS = "survivors"
    POLICY = "policy"
    MASK = "mask-key"
    ROTATION = "rotation-signs"
    ROUNDING = "rounding-key"
    KEYFILE = "key-file"
    PEERS = "peers"  # a run and the identities of its silos
    OPRF_PROOF = "oprf-proof"  # what a proof of evaluation is bound to
    # Keys, by HKDF
    PAIR = "pair-secret"
    RATCHET = "ratchet"
    EDGE = "edge-seed"  # r_uv
    SEAL = "seal-key"
    BOX = "box-key"  # an identity's X25519 half
    OWN = "own-secret"  # what a silo keeps to itself in one run, the same after a restart


def frame(label: str, *parts: bytes) -> bytes:
    """One byte string that determines the label and every part: each is preceded by its length in 8
    bytes.
    """
    name = Label(label).value.encode()
    pieces = [len(parts).to_bytes(8, "big"), len(name).to_bytes(8, "big"), name]
    for part in parts:
        pieces.append(len(part).to_bytes(8, "big"))
        pieces.append(part)
    return b"".join(pieces)


def digest(label: str, *parts: bytes) -> bytes:
    """SHA-256 of the framed parts: 32 bytes."""
    return hashlib.sha256(_SALT + frame(label, *parts)).digest()


def derive(secret: bytes, label: str, *parts: bytes, length: int = 32) -> bytes:
    """HKDF-SHA-256 of `secret` with the framed label and parts as info; at most 32 bytes."""
    if not 1 <= length <= DIGEST:
        raise ValueError(f"derive gives 1 to {DIGEST} bytes, not {length}")
    key = hmac.digest(_SALT, secret, "sha256")
    return hmac.digest(key, frame(label, *parts) + b"\x01", "sha256")[:length]


def number(value: int) -> bytes:
    """A non-negative integer below 2**64 as 8 bytes, for use as a part."""
    return value.to_bytes(8, "big")


def name_list(names: tuple[str, ...]) -> bytes:
    """A list of silo names as one part."""
    encoded = [name.encode() for name in names]
    return b"".join([number(len(encoded)), *(number(len(e)) + e for e in encoded)])
