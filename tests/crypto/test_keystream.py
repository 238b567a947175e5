"""The compiled keystream and the library's: the same words for every key, sign, length and
position.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crypto.numbers import prg
from crypto.numbers.prg import PIECE_WORDS, Mask, add_masks

keystream = pytest.importorskip(
    "crypto._keystream", reason="the C extension is not built; the library is used"
)
WIDTHS = [blocks for blocks in (1, 2, 4) if blocks <= keystream.widest()]
needs_aes = pytest.mark.skipif(not WIDTHS, reason="this processor has no AES instructions")
every_width = pytest.mark.parametrize("blocks", WIDTHS)

LENGTHS = st.one_of(
    st.integers(0, 200), st.integers(PIECE_WORDS - 70, PIECE_WORDS + 70), st.just(4 * PIECE_WORDS)
)


@every_width
@settings(max_examples=100, deadline=None)
@example(2 * PIECE_WORDS + 1, [(bytes(16), -1)], 2**32 - 1, 0)  # the position passes 32 bits
@given(
    LENGTHS,
    st.lists(st.tuples(st.binary(min_size=16, max_size=16), st.sampled_from([1, -1])), max_size=12),
    st.integers(0, 2**50),
    st.integers(0, 2**32 - 1),
)
def test_both_make_the_same_words(
    blocks: int, length: int, given: list[tuple[bytes, int]], piece: int, seed: int
) -> None:
    masks = [Mask(value, sign) for value, sign in given]
    got = np.random.default_rng(seed).integers(0, 2**64, length, np.uint64)
    wanted = got.copy()
    keystream.add(
        got, b"".join(m.key for m in masks), bytes(m.sign & 255 for m in masks), piece, blocks
    )
    prg._add_library(wanted, masks, piece)
    assert np.array_equal(got, wanted)


@every_width
def test_it_is_aes_in_counter_mode(blocks: int) -> None:
    """Block by block, with the position written down as the docs say."""
    for key in (bytes(16), bytes(range(16)), bytes([255]) * 16):
        words = np.zeros(130, np.uint64)
        keystream.add(words, key, b"\1", 0x0102030405060708, blocks)
        cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
        wanted = [bytes(4) + bytes(range(1, 9)) + (j + 2).to_bytes(4, "big") for j in range(65)]
        assert words.tobytes() == b"".join(cipher.update(block) for block in wanted)


@needs_aes
def test_masks_added_in_threads_and_in_parts_are_the_same() -> None:
    masks = [Mask(bytes([i]) * 16, 1 - 2 * (i % 2)) for i in range(5)]
    whole, parts, threaded = (np.zeros(5 * PIECE_WORDS + 9, np.uint64) for _ in range(3))
    prg._add_library(whole, masks, 0)
    for at in range(0, len(parts), 2 * PIECE_WORDS):
        add_masks(parts[at : at + 2 * PIECE_WORDS], masks, at)
    add_masks(threaded, masks, threads=3)
    assert np.array_equal(parts, whole) and np.array_equal(threaded, whole)


READ_ONLY = np.zeros(4, np.uint64)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    "values",
    [
        (), (np.zeros(4, np.uint64), bytes(15), b"\1", 0, 1), (np.zeros(4, np.uint64), bytes(32), b"\1", 0, 1),
        (np.zeros(4, np.uint64), bytes(16), b"\1\1", 0, 1), (np.zeros(4, np.uint64), bytes(16), b"\0", 0, 1),
        (np.zeros(4, np.uint64), bytes(16), b"\2", 0, 1), (np.zeros(9, np.uint8), bytes(16), b"\1", 0, 1),
        (np.zeros(17, np.uint8)[1:], bytes(16), b"\1", 0, 1), (READ_ONLY, bytes(16), b"\1", 0, 1),
        (np.zeros(8, np.uint64)[::2], bytes(16), b"\1", 0, 1), (np.zeros(4, np.uint64), "key", b"\1", 0, 1),
        (np.zeros(4, np.uint64), bytes(16), b"\1", None, 1), (np.zeros(4, np.uint64), bytes(16), b"\1", 0),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(values: tuple) -> None:
    with pytest.raises((ValueError, TypeError, BufferError)):
        keystream.add(*values)


@pytest.mark.parametrize("blocks", [-1, 0, 3, 5, 8])
def test_other_widths_are_refused(blocks: int) -> None:
    with pytest.raises(RuntimeError):
        keystream.add(np.zeros(4, np.uint64), bytes(16), b"\1", 0, blocks)


@pytest.mark.parametrize("sign", [0, 2, -2, 255])
def test_a_mask_is_added_or_subtracted(sign: int) -> None:
    with pytest.raises(ValueError):
        Mask(bytes(16), sign)


@pytest.mark.slow
@needs_aes
@pytest.mark.parametrize(
    "name, instead", [("VERSION", "0"), ("add", "lambda *a: 0"), ("widest", "lambda: 0")]
)
def test_one_that_is_stale_wrong_or_useless_is_not_used(name: str, instead: str) -> None:
    script = (
        "import crypto, sys, types; from crypto import _keystream as real\n"
        "fake = types.SimpleNamespace(**{n: getattr(real, n) for n in ('VERSION', 'add', 'widest')})\n"
        "{change}crypto._keystream = sys.modules['crypto._keystream'] = fake\n"
        "from crypto.numbers import prg; print(prg._add is prg._add_library)"
    )
    for change, says in ((f"fake.{name} = {instead}\n", "True"), ("", "False")):
        code = script.replace("{change}", change)
        told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert told.stdout.strip() == says, told.stderr
