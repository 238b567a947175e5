"""One lane of a stretch of words: floats to integers that are added into it, and back. The
arithmetic of `encoding`.

`finite`, `pack`, `pack_words`, `unpack` and `add_words` exist twice, with the same result bit for
bit: in numpy, below, and in C (`_kernel.c`), where each is a single pass. The C version is used
where there is one (see `compiled`), unless it gives another answer than numpy's to a few hard
questions on import.
"""

from __future__ import annotations

import threading

import numpy as np

from crypto.compiled import extension

__all__ = ["MOST_SINGLE", "PIECE", "add_words", "finite", "pack", "pack_words", "unpack"]

#: the most elements that `pack` and `unpack` take at a time: 256 KiB of float64 scratch
PIECE = 32768
#: steps up to which float32 is used: its rounding is then below a sixteenth of a step
MOST_SINGLE = 1 << 19

_CHECK = 1 << 18
# adding it leaves a float64's integer part in its low bits, rounded to nearest even
_MAGIC = float(1 << 52)
_MAGIC_BITS = np.uint64(0x433 << 52)
_MAGIC_SINGLE = float(1 << 23)  # the same for float32
_MAGIC_SINGLE_BITS = np.uint32(0x4B000000)
_U64 = np.dtype("<u8")


class _Scratch(threading.local):
    """Made once per thread: fresh memory costs more than the arithmetic."""

    def __init__(self) -> None:
        self.narrow = np.empty(PIECE, np.float32)
        self.wide = np.empty(PIECE, np.float64)
        self.dice = np.empty(PIECE, np.float64)


_scratch = _Scratch()


def finite_numpy(values: np.ndarray) -> bool:
    """Whether no value of a flat float32 array is a NaN or an infinity."""
    for at in range(0, values.size, _CHECK):
        part = values[at : at + _CHECK]
        with np.errstate(over="ignore", invalid="ignore"):
            # four times as fast; a NaN or infinity always shows in a sum
            suspect = not np.isfinite(part.sum())
        if suspect and not np.isfinite(part).all():
            return False
    return True


def pack_numpy(
    source: np.ndarray,
    scale: float,
    steps: int,
    single: bool,
    dice: np.ndarray | None,
    shift: int,
    out: np.ndarray,
) -> None:
    """Scale, clip to -steps … steps, offset by `steps` and round; the integers go to `out`, `shift`
    bits up.

    Every word has an element in its lowest lane (shift 0), which is written; the others are added
    to it. `single` computes in float32, which takes steps up to MOST_SINGLE and no dice. `dice` are
    uniform 32-bit integers, one per element: as numbers in (-1/2, 1/2) added before rounding to
    nearest, they make it stochastic.
    """
    whole = out if shift == 0 else _scratch.wide.view(_U64)[: out.size]
    with np.errstate(over="ignore"):  # an overflow is clipped
        if single:
            np.copyto(whole, _integers_single(source, scale, np.float32(steps)))
        else:
            _integers(source, scale, float(steps), dice, whole.view(np.float64))
            # otherwise every shift is 12 or more, and the magic bits fall off the top
            if shift == 0:
                np.subtract(whole, _MAGIC_BITS, out=whole)
    if shift:
        np.left_shift(whole, np.uint64(shift), out=whole)
        np.add(out, whole, out=out)


def pack_words_numpy(
    source: np.ndarray, scale: float, steps: int, single: bool, lane_bits: int, out: np.ndarray
) -> None:
    """`pack` of all lanes of whole words, without dice: lane j of word i is source[j * len(out) +
    i].
    """
    width = len(out)
    for lane in range(source.size // width):
        for at in range(0, width, PIECE):
            part = source[lane * width + at : lane * width + min(at + PIECE, width)]
            pack_numpy(part, scale, steps, single, None, lane * lane_bits, out[at : at + PIECE])


def _integers_single(source: np.ndarray, scale: float, steps: np.float32) -> np.ndarray:
    out = _scratch.narrow[: source.size]
    np.multiply(source, np.float32(scale), out=out)
    np.clip(out, -steps, steps, out=out)
    np.add(out, np.float32(_MAGIC_SINGLE) + steps, out=out)
    bits = out.view(np.uint32)
    return np.subtract(bits, _MAGIC_SINGLE_BITS, out=bits)


def _integers(
    source: np.ndarray, scale: float, steps: float, dice: np.ndarray | None, out: np.ndarray
) -> None:
    """Leaves the integer in the low bits of each float64 of `out`."""
    np.multiply(source, scale, out=out, dtype=np.float64)
    if dice is not None:
        rolled = _scratch.dice[: out.size]
        np.multiply(dice, 2.0**-32, out=rolled)
        np.subtract(rolled, 0.5 - 2.0**-33, out=rolled)
        np.add(out, rolled, out=out)
    # Clipped last: below -Q by a whisker, the sum with the magic number would lose its exponent.
    np.clip(out, -steps, steps, out=out)
    np.add(out, _MAGIC + steps, out=out)


def unpack_numpy(
    words: np.ndarray, shift: int, lane_bits: int, offset: float, step: float, out: np.ndarray
) -> None:
    """(the lane's integer - offset) * step, as float64."""
    part = _scratch.wide.view(_U64)[: words.size]
    np.right_shift(words, np.uint64(shift), out=part)
    np.bitwise_and(part, np.uint64((1 << lane_bits) - 1), out=part)
    np.copyto(out, part.view(np.int64))
    np.subtract(out, offset, out=out)
    np.multiply(out, step, out=out)


def add_words_numpy(one: np.ndarray, other: np.ndarray, out: np.ndarray) -> None:
    """one + other, modulo 2**64, into a third row."""
    np.add(one, other, out=out)


# The same in C

KERNEL_VERSION = 3
_kernel = extension("_kernel", KERNEL_VERSION)

#: x, scale and a die for which x * scale + die, rounded twice as it must be, is half a step, and
#: rounded once is more.
_FUSED = (1 + 5 * 2.0**-23, float.fromhex("0x1.fffffc0000280p-34"), 2**32 - 1)


def _agrees() -> bool:
    """Whether the compiled functions round, clip and add as numpy does here: ties, edges, no fused
    multiply-add.
    """
    rng = np.random.default_rng(0)
    source = np.concatenate(
        [rng.normal(0, 0.4, 80), np.arange(-12, 12) / 8, [1e-45, -3e38, 3e38]]
    ).astype(np.float32)
    dice = rng.integers(0, 2**32, source.size, dtype=np.uint32)
    got, wanted = np.empty(source.size, _U64), np.empty(source.size, _U64)
    for steps, single, rolled in (
        (7, True, None),
        (104857, True, None),
        (2**31 - 1, False, None),
        (13, False, dice),
    ):
        for shift, scale in ((0, float(steps)), (21, 4.0)):
            _kernel.pack(source, scale, steps, single, rolled, shift, got)
            pack_numpy(source, scale, steps, single, rolled, shift, wanted)
            if not np.array_equal(got, wanted):
                return False
    for lane_bits, steps, single in (
        (16, 7, True),
        (21, 104857, True),
        (21, 2**20 - 1, False),
        (32, 2**31 - 1, False),
    ):
        width = source.size // (64 // lane_bits)
        _kernel.pack_words(
            source[: width * (64 // lane_bits)], steps * 0.7, steps, single, lane_bits, got[:width]
        )
        pack_words_numpy(
            source[: width * (64 // lane_bits)],
            steps * 0.7,
            steps,
            single,
            lane_bits,
            wanted[:width],
        )
        if not np.array_equal(got[:width], wanted[:width]):
            return False
    x, scale, die = _FUSED
    _kernel.pack(np.full_like(source, x), scale, 2, False, np.full_like(dice, die), 0, got)
    if not (got == 2).all():
        return False
    floats, expected = np.empty(source.size), np.empty(source.size)
    _kernel.unpack(wanted, 21, 21, 39.0, 0.1, floats)
    unpack_numpy(wanted, 21, 21, 39.0, 0.1, expected)
    _kernel.add_words(wanted[1:], wanted[:-1] << np.uint64(40), got[1:])
    if not np.array_equal(got[1:], wanted[1:] + (wanted[:-1] << np.uint64(40))):
        return False
    bad = np.append(source, np.float32(np.nan))
    return np.array_equal(floats, expected) and _kernel.finite(source) and not _kernel.finite(bad)


if _kernel is not None and _agrees():
    finite, pack, pack_words, unpack = (
        _kernel.finite,
        _kernel.pack,
        _kernel.pack_words,
        _kernel.unpack,
    )
    add_words = _kernel.add_words
else:
    finite, pack, pack_words, unpack = finite_numpy, pack_numpy, pack_words_numpy, unpack_numpy
    add_words = add_words_numpy
