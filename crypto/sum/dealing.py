"""What a silo deals with its masked vector: shares of every seed behind it, sealed, tagged and
committed to.

The seeds of an upload are b (its self mask) and then one r per neighbour, in order of names. A
holder's blob is

    8-byte tag of every share, in the clear  |  all shares, sealed for that holder

and the dealer signs all blobs. The tags bind both ends: a holder that releases another share than
it was dealt is named by the coordinator, and a dealer cannot frame a holder, because the holder
checks the tags when it opens the blob and releases nothing that does not fit. The 32-byte
commitments bind the dealer to the seeds themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

from crypto.derive import Label, digest
from crypto.numbers.shamir import SHARE_BYTES, split
from crypto.sum.fields import MOST_SILOS
from crypto.sum.seal import TAG_BYTES, open_blob, seal_blob

__all__ = [
    "SHARE_TAG_BYTES",
    "blob_bytes",
    "deal",
    "open_dealt",
    "release_shares",
    "seed_commitment",
    "share_tags",
    "tag_of",
]

SHARE_TAG_BYTES = 8
_INDEX = [index.to_bytes(8, "big") for index in range(MOST_SILOS + 1)]


def seed_commitment(h: bytes, silo: str, index: int, seed: bytes) -> bytes:
    """A dealer's commitment to the seed at `index` of its upload. Seeds are uniform, so a plain
    hash hides them.
    """
    return digest(Label.SEED_COMMITMENT, h, silo.encode(), index.to_bytes(8, "big"), seed)


def share_tags(
    h: bytes, dealer: str, holder: str, shares: Sequence[tuple[int, bytes]]
) -> list[bytes]:
    """The tags of (index, share) pairs of one dealer and holder. What they have in common is hashed
    once.
    """
    prefix = digest(Label.SHARE_TAG, h, dealer.encode(), holder.encode())
    sha256 = hashlib.sha256
    return [
        sha256(prefix + _INDEX[index] + share).digest()[:SHARE_TAG_BYTES] for index, share in shares
    ]


def blob_bytes(seeds: int) -> int:
    """Bytes of a blob that carries shares of so many seeds."""
    return seeds * (SHARE_TAG_BYTES + SHARE_BYTES) + TAG_BYTES


def deal(
    h: bytes,
    silo: str,
    *,
    seeds: Sequence[bytes],
    holders: Sequence[str],
    threshold: int,
    secrets: Mapping[str, bytes],
    random: Callable[[int], bytes],
) -> tuple[tuple[tuple[str, bytes], ...], tuple[bytes, ...], list[bytes]]:
    """(blobs sorted by holder, commitments, the dealer's own shares).

    `secrets` holds the pair secret of every holder that a blob is wanted for; the others keep their
    points empty.
    """
    blobs = []
    own: list[bytes] = []
    for holder, content in zip(holders, split(seeds, threshold, len(holders), random)):
        if holder != silo and holder not in secrets:
            continue
        shares = _shares(content)
        if holder == silo:
            own = shares
            continue
        tags = b"".join(share_tags(h, silo, holder, list(enumerate(shares))))
        blobs.append((holder, tags + seal_blob(secrets[holder], h, silo, holder, content, tags)))
    commitments = tuple(seed_commitment(h, silo, index, seed) for index, seed in enumerate(seeds))
    return tuple(sorted(blobs)), commitments, own


def tag_of(blob: bytes, index: int) -> bytes:
    """The tag of one share, from the clear part of a blob."""
    return blob[index * SHARE_TAG_BYTES : (index + 1) * SHARE_TAG_BYTES]


def open_dealt(
    secret: bytes,
    h: bytes,
    *,
    dealer: str,
    holder: str,
    blob: bytes,
    seeds: int,
    wanted: Sequence[int],
) -> list[bytes] | None:
    """The shares at the `wanted` indices; None when anything about them is not what an honest
    dealer sends.
    """
    if len(blob) != blob_bytes(seeds):
        return None
    public = blob[: seeds * SHARE_TAG_BYTES]
    content = open_blob(secret, h, dealer, holder, blob[len(public) :], public)
    if content is None:
        return None
    shares = [content[index * SHARE_BYTES : (index + 1) * SHARE_BYTES] for index in wanted]
    tags = share_tags(h, dealer, holder, list(zip(wanted, shares)))
    return shares if all(tag == tag_of(blob, index) for tag, index in zip(tags, wanted)) else None


def release_shares(
    h: bytes,
    holder: str,
    *,
    survivors: Sequence[str],
    neighbours: Callable[[str], tuple[str, ...]],
    blobs: Mapping[str, bytes],
    secrets: Mapping[str, bytes],
    own_shares: Sequence[bytes],
) -> tuple[list[tuple[str, bytes]], list[tuple[str, str, bytes]], list[str]]:
    """What a holder releases for a survivor set: shares of (the survivors' self masks, their edges
    to the dropped).

    Last, the dealers whose blobs did not open.
    """
    own: list[tuple[str, bytes]] = []
    edges: list[tuple[str, str, bytes]] = []
    bad: list[str] = []
    present = frozenset(survivors)
    for dealer in survivors:
        around = neighbours(dealer)
        dropped = [(i, v) for i, v in enumerate(around, start=1) if v not in present]
        wanted = [0, *(i for i, _ in dropped)]
        shares: list[bytes] | None
        if dealer == holder:
            shares = [own_shares[i] for i in wanted]
        elif dealer in blobs:
            shares = open_dealt(
                secrets[dealer],
                h,
                dealer=dealer,
                holder=holder,
                blob=blobs[dealer],
                seeds=len(around) + 1,
                wanted=wanted,
            )
        else:
            continue
        if shares is None:
            bad.append(dealer)
            continue
        own.append((dealer, shares[0]))
        edges += [(dealer, v, share) for (_, v), share in zip(dropped, shares[1:])]
    return own, edges, bad


def _shares(content: bytes) -> list[bytes]:
    return [content[at : at + SHARE_BYTES] for at in range(0, len(content), SHARE_BYTES)]
