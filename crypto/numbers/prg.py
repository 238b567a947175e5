"""Masks: AES-128 keystream, added to 64-bit words in place, in pieces that stay in the cache.

A seed of 16 bytes stands for an endless vector of uniform 64-bit words (little-endian), made in
pieces of 32768 words: block j of piece p is AES(key, p as 12 bytes || j + 2 as 4 bytes,
big-endian). That is counter mode, with the position as the counter and nothing else in it, so any
piece can be made on its own, by any thread, in any order; the key belongs to one seed, and a seed
to one (pair, sum) or (silo, sum).

It is also what AES-GCM adds to a message under the nonce p. So the pieces are made by encrypting
zeros with GCM and dropping the tag: on processors with wide AES instructions OpenSSL's GCM is twice
as fast as its plain counter mode (15.9 against 8.6 GB/s, measured), and an implementation that has
only counter mode makes the same words.

Where the C extension is (see `compiled`) and the processor has AES instructions, `_keystream.c`
makes the same words and adds them in the same pass, as many blocks at once as the processor can,
two to five times as fast again. It is compared with the library on import, and not used if it
differs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from crypto.compiled import extension
from crypto.derive import Label, digest

__all__ = ["PIECE_WORDS", "Mask", "add_masks", "keystream", "mask_key", "masked", "stream"]

#: 256 KiB: scratch, zeros and accumulator together stay in a core's second-level cache.
PIECE_WORDS = 32768
_PIECE_BYTES = PIECE_WORDS * 8
_TAG = 16
_ZEROS = memoryview(bytes(_PIECE_BYTES))
_U64 = np.dtype("<u8")
_local = threading.local()
_pool: list[ThreadPoolExecutor] = []


def mask_key(seed: bytes) -> bytes:
    """The AES key of a mask seed. The seed itself is shared and committed to, so it is never a key
    directly.
    """
    if len(seed) != 16:
        raise ValueError(f"a mask seed is 16 bytes, not {len(seed)}")
    return digest(Label.MASK, seed)[:16]


@dataclass(frozen=True)
class Mask:
    """The mask of one seed, and whether it is added (+1) or subtracted (-1)."""

    seed: bytes = field(repr=False)
    sign: int
    key: bytes = field(init=False, repr=False, compare=False)
    _cipher: AESGCM = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.sign not in (1, -1):
            raise ValueError(f"a mask is added (1) or subtracted (-1), not {self.sign}")
        object.__setattr__(self, "key", mask_key(self.seed))
        object.__setattr__(self, "_cipher", AESGCM(self.key))

    def fill(self, piece: int, words: np.ndarray, room: memoryview) -> None:
        """Write a piece's first words to `words`, whose memory `room` is, with 16 bytes to spare
        after it.
        """
        size = words.nbytes
        self._cipher.encrypt_into(
            piece.to_bytes(12, "big"), _ZEROS[:size], None, room[: size + _TAG]
        )


def keystream(seed: bytes, words: int) -> np.ndarray:
    """The first words of a seed's mask, as a new array."""
    out = np.zeros(words, _U64)
    add_masks(out, [Mask(seed, 1)])
    return out


def masked(
    frames: Iterable[np.ndarray], masks: Sequence[Mask], threads: int = 1
) -> Iterator[np.ndarray]:
    """Each frame of one vector with its stretch of every mask added, in place."""
    first = 0
    for frame in frames:
        add_masks(frame, masks, first, threads)
        first += len(frame)
        yield frame


def add_masks(
    words: np.ndarray, masks: Sequence[Mask], first_word: int = 0, threads: int = 1
) -> None:
    """Add each mask to `words` in place, modulo 2**64.

    `words` is the stretch of the whole vector that begins at `first_word`, a multiple of
    PIECE_WORDS.
    """
    if words.dtype != _U64 or not words.flags.carray or words.ndim != 1:
        raise ValueError("masks are added to one contiguous row of 64-bit words")
    first_piece, rest = divmod(first_word, PIECE_WORDS)
    if rest:
        raise ValueError(f"masks are added from a multiple of {PIECE_WORDS} words on")
    if threads <= 1 or len(words) < 2 * PIECE_WORDS:
        _add(words, masks, first_piece)
        return
    pieces = -(-len(words) // PIECE_WORDS)
    share = -(-pieces // threads)
    jobs = [
        _threads(threads).submit(
            _add, words[at * PIECE_WORDS : (at + share) * PIECE_WORDS], masks, first_piece + at
        )
        for at in range(share, pieces, share)
    ]
    _add(words[: share * PIECE_WORDS], masks, first_piece)
    for job in jobs:
        job.result()


def _add_library(words: np.ndarray, masks: Sequence[Mask], first_piece: int) -> None:
    """Piece by piece and mask by mask, with the platform's cryptographic library."""
    scratch, room = _scratch()
    for index, at in enumerate(range(0, len(words), PIECE_WORDS), start=first_piece):
        piece = words[at : at + PIECE_WORDS]
        made = scratch[: len(piece)]
        for mask in masks:
            mask.fill(index, made, room)
            if mask.sign > 0:
                np.add(piece, made, out=piece)
            else:
                np.subtract(piece, made, out=piece)


def _add_compiled(words: np.ndarray, masks: Sequence[Mask], first_piece: int) -> None:
    """All masks in one pass."""
    keys, signs = b"".join(mask.key for mask in masks), bytes(mask.sign & 255 for mask in masks)
    _keystream.add(words, keys, signs, first_piece, _blocks)


def _scratch() -> tuple[np.ndarray, memoryview]:
    """One piece of scratch per thread, made once: fresh memory costs more than the cipher."""
    kept = getattr(_local, "scratch", None)
    if kept is None:
        words = np.empty(PIECE_WORDS + _TAG // 8, _U64)
        kept = _local.scratch = (words, words.data.cast("B"))
    return kept


def _threads(count: int) -> ThreadPoolExecutor:
    if not _pool:
        _pool.append(ThreadPoolExecutor(max(count - 1, 1), thread_name_prefix="mask"))
    return _pool[0]


def stream(key: bytes):  # type: ignore[no-untyped-def]  # the library names no public type
    """Plain AES-CTR from counter 0, for what is read from front to back (stochastic rounding,
    public signs).
    """
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()


_keystream = extension("_keystream", version=2)
_blocks: int = _keystream.widest() if _keystream is not None else 0


def _agrees() -> bool:
    """Whether the compiled keystream is the library's: both signs, two pieces, an odd end, a high
    position.
    """
    masks = [Mask(bytes([i]) * 16, sign) for i, sign in enumerate((1, -1, 1))]
    for first_piece in (0, (1 << 40) + 7):
        got, wanted = (np.arange(PIECE_WORDS + 77, dtype=_U64) for _ in range(2))
        _add_compiled(got, masks, first_piece)
        _add_library(wanted, masks, first_piece)
        if not np.array_equal(got, wanted):
            return False
    return True


_add = _add_compiled if _blocks and _agrees() else _add_library
