"""Masks: AES-128-CTR keystream, added to 64-bit words in place, in pieces that stay in the cache.

A seed of 16 bytes stands for an endless vector of uniform 64-bit words (little-endian). One AES key per seed and
one seed per (pair, sum) or (silo, sum): the counter is the position in the vector and nothing else, so that any
stretch can be made on its own, by any thread, in any order.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from crypto.derive import Label, digest

__all__ = ["PIECE_WORDS", "add_masks", "keystream", "mask_key", "stream"]

#: 256 KiB: scratch, zeros and accumulator together stay in a core's second-level cache.
PIECE_WORDS = 32768
_PIECE_BYTES = PIECE_WORDS * 8
_BLOCK = 16
_ZEROS = bytes(_PIECE_BYTES)
_local = threading.local()
_pool: list[ThreadPoolExecutor] = []
_U64 = np.dtype("<u8")


def mask_key(seed: bytes) -> bytes:
    """The AES key of a mask seed. The seed itself is shared and committed to, so it is never a key directly."""
    if len(seed) != 16:
        raise ValueError(f"a mask seed is 16 bytes, not {len(seed)}")
    return digest(Label.MASK, seed)[:16]


def stream(key: bytes, first_byte: int = 0):  # type: ignore[no-untyped-def]  # the library names no public type
    """An AES-CTR context that stands at byte `first_byte` (a multiple of 16) of a key's keystream."""
    counter, rest = divmod(first_byte, _BLOCK)
    if rest:
        raise ValueError("a keystream is entered at a multiple of 16 bytes")
    return Cipher(algorithms.AES(key), modes.CTR(counter.to_bytes(16, "big"))).encryptor()


def keystream(key: bytes, words: int, first_word: int = 0) -> np.ndarray:
    """Words of a key's keystream as a new array. `first_word` is even."""
    out = np.empty(words + 2, _U64)  # the library asks for room for one more block
    if words:
        stream(key, first_word * 8).update_into(bytes(words * 8), out.data.cast("B"))
    return out[:words]


def add_masks(
    words: np.ndarray, masks: Iterable[tuple[bytes, int]], first_word: int = 0, threads: int = 1
) -> None:
    """Add (sign +1) or subtract (sign -1) each key's keystream to `words`, in place, modulo 2**64.

    `words` is the stretch of the whole vector that begins at `first_word` (even).
    """
    if words.dtype != _U64 or not words.flags.c_contiguous or words.ndim != 1:
        raise ValueError("masks are added to one contiguous row of 64-bit words")
    masks = tuple(masks)
    if threads <= 1 or len(words) < 2 * PIECE_WORDS:
        _add(words, masks, first_word)
        return
    step = -(-len(words) // (threads * PIECE_WORDS)) * PIECE_WORDS
    jobs = [
        _threads(threads).submit(_add, words[at : at + step], masks, first_word + at)
        for at in range(step, len(words), step)
    ]
    _add(words[:step], masks, first_word)
    for job in jobs:
        job.result()


def _add(words: np.ndarray, masks: Sequence[tuple[bytes, int]], first_word: int) -> None:
    scratch = _scratch()
    view = scratch.data.cast("B")
    for start in range(0, len(words), 4 * PIECE_WORDS):
        block = words[start : start + 4 * PIECE_WORDS]
        for key, sign in masks:
            update = stream(key, (first_word + start) * 8).update_into
            apply = np.add if sign > 0 else np.subtract
            for at in range(0, len(block), PIECE_WORDS):
                piece = block[at : at + PIECE_WORDS]
                size = len(piece) * 8
                if size == _PIECE_BYTES:
                    update(_ZEROS, view)
                else:
                    update(memoryview(_ZEROS)[:size], view)
                apply(piece, scratch[: len(piece)], out=piece)


def _scratch() -> np.ndarray:
    """One piece of scratch per thread, made once: fresh memory costs more than the cipher."""
    made = getattr(_local, "scratch", None)
    if made is None:
        # A little longer than a piece: the library asks for room for one more block.
        made = _local.scratch = np.empty(PIECE_WORDS + 2, _U64)
    return made


def _threads(count: int) -> ThreadPoolExecutor:
    if not _pool:
        _pool.append(ThreadPoolExecutor(max(count - 1, 1), thread_name_prefix="mask"))
    return _pool[0]
