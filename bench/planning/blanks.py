"""The records of a secure sum with blanks for secrets: as long as the true ones, and worth nothing.

Lengths follow from names, from the graph and from nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from crypto.numbers.shamir import SHARE_BYTES
from crypto.sum.dealing import blob_bytes
from crypto.sum.graph import Topology
from crypto.sum.records import (
    NONCE_BYTES,
    Endorsement,
    KeyList,
    KeyOffer,
    NonceList,
    NonceReveal,
    Proposal,
    ShareRelease,
    UnmaskRequest,
    UploadRecord,
)
from crypto.sum.setup_records import SIGNATURE_BYTES

__all__ = [
    "HASH",
    "endorsement",
    "keys",
    "nonces",
    "offer",
    "proposals",
    "release",
    "request",
    "reveal",
    "upload",
]

HASH, SIGNATURE = bytes(32), bytes(SIGNATURE_BYTES)


def offer(name: str) -> KeyOffer:
    return KeyOffer(name, HASH, HASH, SIGNATURE)


def reveal(name: str) -> NonceReveal:
    return NonceReveal(name, bytes(NONCE_BYTES), SIGNATURE)


def keys(names: Sequence[str]) -> KeyList:
    return KeyList(tuple(map(offer, names)))


def nonces(names: Sequence[str]) -> NonceList:
    return NonceList(tuple(map(reveal, names)))


def endorsement(name: str) -> Endorsement:
    return Endorsement(HASH, name, SIGNATURE)


def release(name: str, names: Sequence[str]) -> ShareRelease:
    """Of a sum in which nobody was lost: shares of self masks only."""
    return ShareRelease(HASH, name, tuple((dealer, bytes(SHARE_BYTES)) for dealer in names), ())


def _holders(graph: Topology, names: Sequence[str]) -> list[str]:
    return sorted(set(graph.holders) & set(names))


def _blob(graph: Topology, dealer: str) -> bytes:
    return bytes(blob_bytes(len(graph.neighbours(dealer)) + 1))


def upload(
    graph: Topology, name: str, names: Sequence[str], contributes: bool = False
) -> UploadRecord:
    blob = _blob(graph, name)
    blobs = tuple((holder, blob) for holder in _holders(graph, names) if holder != name)
    commitments = (HASH,) * (len(graph.neighbours(name)) + 1)
    word = SIGNATURE if contributes else None
    return UploadRecord(HASH, name, blobs, commitments, SIGNATURE, word)


def proposals(
    graph: Topology, names: tuple[str, ...], contributors: int = 0
) -> dict[str, Proposal]:
    """With the words of so many contributors."""
    blobs = {dealer: _blob(graph, dealer) for dealer in names}
    words = tuple((name, SIGNATURE) for name in names[:contributors])
    return {
        h: Proposal(HASH, names, tuple((d, b) for d, b in blobs.items() if d != h), words)
        for h in _holders(graph, names)
    }


def request(graph: Topology, names: tuple[str, ...]) -> UnmaskRequest:
    signers = _holders(graph, names)[: graph.parameters.threshold]
    return UnmaskRequest(HASH, names, tuple(map(endorsement, signers)), ())
