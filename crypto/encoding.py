"""From floats to 64-bit words whose sums decode to the sums of the floats, and back.

Every coordinate is clipped to its tensor's public range r, scaled so that r becomes the integer Q, moved up by Q
(offset binary: 0 … 2Q) and rounded, ties to even. Two, three or four such integers ("lanes" of 32, 21 or 16 bits)
share a word. Q is the largest with parties * 2Q < 2**lane, so adding up to `parties` words can never carry from one
lane into the next: overflow is impossible by construction.

Words travel in frames of 1 MiB. Lanes are planar within a frame: with w words, lane j holds elements
j*w … (j+1)*w of that frame's stretch, so every step is one pass over contiguous memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from crypto.derive import Label, digest, number
from crypto.errors import Refusal
from crypto.prg import stream
from crypto.rotation import rotate, unrotate

__all__ = ["FRAME_WORDS", "LANES", "Encoding", "default_rounding"]

FRAME_WORDS = 131072
#: Lane width in bits -> lanes in a word. 3 x 21 leaves the top bit unused.
LANES: Mapping[int, int] = {32: 2, 21: 3, 16: 4}
ROUNDINGS = ("nearest", "stochastic")

_PIECE = 32768  # elements worked on at a time: 256 KiB of float64 scratch
_CHECK = 1 << 18
_MAGIC = float(1 << 52)  # adding it leaves a float64's integer part in its low bits, rounded to nearest even
_MAGIC_BITS = np.uint64(0x433 << 52)
_MAGIC_SINGLE = float(1 << 23)  # the same for float32
_MAGIC_SINGLE_BITS = np.uint32(0x4B000000)
_MOST_SINGLE = 1 << 19  # steps up to which float32 is used: its rounding is then below a sixteenth of a step
_MOST_TENSORS = 1 << 16
_MOST_ELEMENTS = 1 << 40
_MOST_PARTIES = 4096
_U64 = np.dtype("<u8")
Seed = bytes  # within the class below, `bytes` is a size


def default_rounding(lane_bits: int, parties: int) -> tuple[str, bool]:
    """(rounding, rotate) that suit a lane: below 12 value bits, stochastic rounding and a rotation."""
    value_bits = lane_bits - math.ceil(math.log2(max(parties, 2)))
    return ("stochastic", True) if value_bits < 12 else ("nearest", False)


@dataclass(frozen=True)
class Encoding:
    """How tensors become words. Public, part of every sum's context, the same for every silo."""

    lane_bits: int
    parties: int  #: the most vectors that are ever added
    sizes: tuple[int, ...]  #: elements of each tensor
    #: Clip range of each tensor's coordinates; with `rotate`, of its rotated coordinates.
    ranges: tuple[float, ...]
    rounding: str = "nearest"
    rotate: bool = False

    def __post_init__(self) -> None:
        if self.lane_bits not in LANES:
            raise ValueError(f"lanes are {', '.join(map(str, LANES))} bits, not {self.lane_bits}")
        if not 1 <= self.parties <= _MOST_PARTIES:
            raise ValueError(f"a sum is over 1 to {_MOST_PARTIES} vectors, not {self.parties}")
        if len(self.sizes) != len(self.ranges) or not self.sizes or len(self.sizes) > _MOST_TENSORS:
            raise ValueError("there must be one size and one range per tensor, and at least one tensor")
        if any(size < 0 for size in self.sizes) or not 1 <= sum(self.sizes) <= _MOST_ELEMENTS:
            raise ValueError("tensor sizes must not be negative, and not all be zero or too large")
        if not all(math.isfinite(r) and r > 0 for r in self.ranges):
            raise ValueError("clip ranges must be finite and above zero")
        if not all(math.isfinite(s) for s in self._scales):
            raise ValueError("a clip range is too small to scale by")
        if self.rounding not in ROUNDINGS:
            raise ValueError(f"rounding is {' or '.join(ROUNDINGS)}, not {self.rounding!r}")

    # How large

    @property
    def lanes(self) -> int:
        return LANES[self.lane_bits]

    @property
    def steps(self) -> int:
        """Q: the integer that a coordinate at its clip range becomes. 2**lane > parties * 2Q."""
        return ((1 << self.lane_bits) - 1) // (2 * self.parties)

    @cached_property
    def elements(self) -> int:
        return sum(self.sizes)

    @cached_property
    def frames(self) -> int:
        return -(-self.elements // (FRAME_WORDS * self.lanes))

    @cached_property
    def words(self) -> int:
        full = self.frames - 1
        return full * FRAME_WORDS + self.frame_words(full)

    @property
    def bytes(self) -> int:
        return self.words * 8

    def frame_words(self, index: int) -> int:
        if not 0 <= index < self.frames:
            raise IndexError(f"there is no frame {index} of {self.frames}")
        rest = self.elements - index * FRAME_WORDS * self.lanes
        return min(FRAME_WORDS, -(-rest // self.lanes))

    def error_bound(self) -> tuple[float, ...]:
        """Per tensor: the most by which one party's in-range coordinate is off after encoding and decoding.

        Half a step to nearest, one step when stochastic; with `rotate`, of a rotated coordinate: the error of a
        block of length B, as a vector, is then at most sqrt(B) times this. A sum over c parties is off by at most
        c times this. The last term covers floating-point rounding.
        """
        part = 0.5 if self.rounding == "nearest" else 1.0
        floats = (2.0**-23 if self._single(i) else 2.0**-48 for i in range(len(self.ranges)))
        return tuple(r * (part / self.steps + slack) for r, slack in zip(self.ranges, floats))

    # Floats to words

    def encode(self, tensors: Sequence[np.ndarray], seed: Seed) -> Iterator[np.ndarray]:
        """One array of 64-bit words per frame. The SAME buffer is yielded each time: use it before the next.

        `seed` decides stochastic rounding and nothing else. NaN, infinities and wrong sizes raise ValueError
        naming the tensor, before anything is encoded.
        """
        flats = [self._checked(i, tensor) for i, tensor in enumerate(tensors)]
        if len(flats) != len(self.sizes):
            raise ValueError(f"{len(flats)} tensors where {len(self.sizes)} are declared")
        if self.rotate:
            flats = [rotate(flat, self.rotation_seed, i) for i, flat in enumerate(flats)]
        return self._frames(flats, seed)

    def _checked(self, index: int, tensor: np.ndarray) -> np.ndarray:
        flat = np.ascontiguousarray(tensor, dtype=np.float32).reshape(-1)
        if index >= len(self.sizes) or flat.size != self.sizes[index]:
            declared = self.sizes[index] if index < len(self.sizes) else "no"
            raise ValueError(f"tensor {index} has {flat.size} elements where {declared} are declared")
        for at in range(0, flat.size, _CHECK):
            part = flat[at : at + _CHECK]
            with np.errstate(over="ignore", invalid="ignore"):
                suspect = not np.isfinite(part.sum())  # four times as fast; a NaN or infinity always shows in a sum
            if suspect and not np.isfinite(part).all():
                raise ValueError(f"tensor {index} has a NaN or an infinity; nothing was encoded")
        return flat

    def _frames(self, flats: Sequence[np.ndarray], seed: Seed) -> Iterator[np.ndarray]:
        buffer = np.empty(min(FRAME_WORDS, self.words), _U64)
        wide, narrow = np.empty(_PIECE, np.float64), np.empty(_PIECE, np.float32)
        dice = _Dice(seed) if self.rounding == "stochastic" else None
        for index in range(self.frames):
            out = buffer[: self.frame_words(index)]
            for lane, first, last in self._lane_spans(index):
                shift = np.uint64(lane * self.lane_bits)
                for tensor, low, high, at in self._segments(first, last):
                    source, target = flats[tensor][low:high], out[at : at + high - low]
                    # Every word has an element in its lowest lane, which is written; the others are added to it.
                    whole = target if lane == 0 else wide.view(_U64)[: high - low]
                    if self._single(tensor):
                        bits = self._integers_single(source, self._scales[tensor], narrow[: high - low])
                        np.copyto(whole, bits)
                    else:
                        self._integers(source, self._scales[tensor], whole.view(np.float64), dice)
                        if lane == 0:  # above, every shift is 12 or more, and the magic bits fall off the top
                            np.subtract(whole, _MAGIC_BITS, out=whole)
                    if lane:
                        np.left_shift(whole, shift, out=whole)
                        np.add(target, whole, out=target)
            yield out

    def _single(self, tensor: int) -> bool:
        """Whether float32 is precise enough for a tensor: it is exact up to 2**24, and half as much to move."""
        return self.rounding == "nearest" and self.steps <= _MOST_SINGLE and 1e-30 < self._scales[tensor] < 1e30

    def _integers_single(self, source: np.ndarray, scale: float, out: np.ndarray) -> np.ndarray:
        """Clip, scale, round and offset in float32; the integers, as 32-bit words."""
        steps = np.float32(self.steps)
        with np.errstate(over="ignore"):  # an overflow is clipped in the next line
            np.multiply(source, np.float32(scale), out=out)
        np.clip(out, -steps, steps, out=out)
        np.add(out, np.float32(_MAGIC_SINGLE) + steps, out=out)
        bits = out.view(np.uint32)
        return np.subtract(bits, _MAGIC_SINGLE_BITS, out=bits)

    def _integers(self, source: np.ndarray, scale: float, out: np.ndarray, dice: _Dice | None) -> None:
        """Clip, scale, round and offset; leaves the integer in the low bits of each float64 of `out`."""
        steps = float(self.steps)
        np.multiply(source, scale, out=out, dtype=np.float64)
        if dice is not None:
            out += dice.roll(out.size)
        # Clipped last: below -Q by a whisker, the sum with the magic number would lose its exponent.
        np.clip(out, -steps, steps, out=out)
        np.add(out, _MAGIC + steps, out=out)

    def _lane_spans(self, frame: int) -> Iterator[tuple[int, int, int]]:
        """(lane, first element, last element) of a frame; the last lanes of the last frame may be short."""
        width = self.frame_words(frame)
        start = frame * FRAME_WORDS * self.lanes
        for lane in range(self.lanes):
            first = min(start + lane * width, self.elements)
            yield lane, first, min(start + (lane + 1) * width, self.elements)

    def _segments(self, first: int, last: int) -> Iterator[tuple[int, int, int, int]]:
        """Elements first … last of the whole as (tensor, low, high, offset from first), in cache-sized pieces."""
        tensor = int(np.searchsorted(self._ends, first, side="right"))
        at = first
        while at < last:
            begin = int(self._ends[tensor]) - self.sizes[tensor]
            end = min(int(self._ends[tensor]), last, at + _PIECE)
            if end > at:
                yield tensor, at - begin, end - begin, at - first
            at = end
            if at >= self._ends[tensor]:
                tensor += 1

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum(np.array(self.sizes, np.int64))

    @cached_property
    def _scales(self) -> tuple[float, ...]:
        return tuple(self.steps / r for r in self.ranges)

    @cached_property
    def rotation_seed(self) -> Seed:
        """Where the public signs of the rotation come from: the tensor sizes and nothing else."""
        return digest(Label.ROTATION, *(number(size) for size in self.sizes))

    # Words to floats

    def decode(self, words: np.ndarray, count: int) -> list[np.ndarray]:
        """The sum of `count` encoded vectors as flat float64 arrays, one per tensor."""
        if words.shape != (self.words,) or words.dtype != _U64:
            raise ValueError(f"{words.shape} words where ({self.words},) are declared")
        if not 1 <= count <= self.parties:
            raise ValueError(f"a sum of {count} vectors in an encoding for at most {self.parties}")
        tensors = [np.empty(size, np.float64) for size in self.sizes]
        mask = np.uint64((1 << self.lane_bits) - 1)
        scratch = np.empty(_PIECE, _U64)
        for index in range(self.frames):
            base = index * FRAME_WORDS
            for lane, first, last in self._lane_spans(index):
                shift = np.uint64(lane * self.lane_bits)
                for tensor, low, high, at in self._segments(first, last):
                    part = scratch[: high - low]
                    np.right_shift(words[base + at : base + at + high - low], shift, out=part)
                    np.bitwise_and(part, mask, out=part)
                    target = tensors[tensor][low:high]
                    np.copyto(target, part.view(np.int64))
                    np.subtract(target, float(count * self.steps), out=target)
                    np.multiply(target, self.ranges[tensor] / self.steps, out=target)
        if self.rotate:
            tensors = [unrotate(flat, self.rotation_seed, i) for i, flat in enumerate(tensors)]
        return tensors

    # To and from the wire

    def to_record(self) -> dict[str, Any]:
        return {
            "lane_bits": self.lane_bits,
            "parties": self.parties,
            "sizes": list(self.sizes),
            "ranges": [float(r) for r in self.ranges],
            "rounding": self.rounding,
            "rotate": self.rotate,
        }

    @classmethod
    def from_record(cls, record: Any) -> Encoding:
        """An encoding from the wire; anything not exactly as `to_record` makes it is refused."""
        names = {"lane_bits", "parties", "sizes", "ranges", "rounding", "rotate"}
        if not isinstance(record, Mapping) or set(record) != names:
            raise Refusal("wrong-shape", "an encoding does not have the declared fields")
        sizes, ranges = record["sizes"], record["ranges"]
        if not isinstance(sizes, list | tuple) or not isinstance(ranges, list | tuple):
            raise Refusal("wrong-shape", "an encoding's sizes and ranges must be lists")
        if len(sizes) > _MOST_TENSORS or len(ranges) > _MOST_TENSORS:
            raise Refusal("oversize", f"an encoding of more than {_MOST_TENSORS} tensors")
        whole = [record["lane_bits"], record["parties"], *sizes]
        if any(type(value) is not int for value in whole) or any(type(r) is not float for r in ranges):
            raise Refusal("wrong-shape", "an encoding's sizes must be whole numbers and its ranges floats")
        if type(record["rotate"]) is not bool or type(record["rounding"]) is not str:
            raise Refusal("wrong-shape", "an encoding's rounding or rotation has the wrong type")
        try:
            return cls(
                record["lane_bits"],
                record["parties"],
                tuple(sizes),
                tuple(ranges),
                record["rounding"],
                record["rotate"],
            )
        except ValueError as error:
            raise Refusal("wrong-shape", str(error)) from None


class _Dice:
    """Uniform numbers in (-1/2, 1/2) from a seed: added before rounding to nearest, they make it stochastic."""

    def __init__(self, seed: Seed) -> None:
        self._stream = stream(digest(Label.ROUNDING, seed)[:16])
        self._raw = np.empty(_PIECE + 4, np.uint32)
        self._zeros = bytes(_PIECE * 4)
        self._out = np.empty(_PIECE, np.float64)

    def roll(self, count: int) -> np.ndarray:
        self._stream.update_into(memoryview(self._zeros)[: count * 4], self._raw.data.cast("B"))
        out = self._out[:count]
        np.multiply(self._raw[:count], 2.0**-32, out=out)
        np.subtract(out, 0.5 - 2.0**-33, out=out)
        return out
