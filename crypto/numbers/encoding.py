"""From floats to 64-bit words whose sums decode to the sums of the floats, and back.

Every coordinate is clipped to its tensor's public range r, scaled so that r becomes the integer Q,
moved up by Q (offset binary: 0 … 2Q) and rounded, ties to even. Two, three or four such integers
("lanes" of 32, 21 or 16 bits) share a word. Q is the largest with parties * 2Q < 2**lane, so adding
up to `parties` words can never carry from one lane into the next: overflow is impossible by
construction.

Words travel in frames of 1 MiB. Lanes are planar within a frame: with w words, lane j holds
elements j*w … (j+1)*w of that frame's stretch, so every step is one pass over contiguous memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np

from crypto.derive import Label, digest, number
from crypto.errors import Refusal
from crypto.numbers import lanes
from crypto.numbers.rotation import rotate, unrotate
from crypto.numbers.rounding import ROUNDINGS, Dice

__all__ = ["FRAME_WORDS", "LANES", "Decoded", "Encoding", "steps_of"]

FRAME_WORDS = 131072
#: Lane width in bits -> lanes in a word. 3 x 21 leaves the top bit unused.
LANES: Mapping[int, int] = {32: 2, 21: 3, 16: 4}

_MOST_TENSORS = 1 << 16
_MOST_ELEMENTS = 1 << 40
_MOST_PARTIES = 4096
_U64 = np.dtype("<u8")
Seed = bytes  # within the class below, `bytes` is a size


def steps_of(lane_bits: int, parties: int) -> int:
    """Q, with which 2**lane > parties * 2Q."""
    return ((1 << lane_bits) - 1) // (2 * parties)


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
            raise ValueError(
                "there must be one size and one range per tensor, and at least one tensor"
            )
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
        return steps_of(self.lane_bits, self.parties)

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
        """Per tensor: the most by which one party's in-range coordinate is off after encoding and
        decoding.

        Half a step to nearest, one step when stochastic; with `rotate`, of a rotated coordinate:
        the error of a block of length B, as a vector, is then at most sqrt(B) times this. A sum
        over c parties is off by at most c times this. The last term covers floating-point rounding.
        """
        part = 0.5 if self.rounding == "nearest" else 1.0
        floats = (2.0**-23 if self._single(i) else 2.0**-48 for i in range(len(self.ranges)))
        return tuple(r * (part / self.steps + slack) for r, slack in zip(self.ranges, floats))

    # Floats to words

    def encode(self, tensors: Sequence[np.ndarray], seed: Seed) -> Iterator[np.ndarray]:
        """One array of 64-bit words per frame. The SAME buffer is yielded each time: use it before
        the next.

        `seed` decides stochastic rounding and nothing else. NaN, infinities and wrong sizes raise
        ValueError naming the tensor, before anything is encoded.
        """
        flats = [self._checked(i, tensor) for i, tensor in enumerate(tensors)]
        if len(flats) != len(self.sizes):
            raise ValueError(f"{len(flats)} tensors where {len(self.sizes)} are declared")
        if self.rotate:
            flats = [rotate(flat, self.rotation_seed, i) for i, flat in enumerate(flats)]
            for i, flat in enumerate(flats):  # the largest floats may have grown beyond all bounds
                self._refuse_infinite(i, flat)
        return self._frames(flats, seed)

    def _checked(self, index: int, tensor: np.ndarray) -> np.ndarray:
        flat = np.require(tensor, np.float32, ["C", "ALIGNED"]).reshape(-1)
        if index >= len(self.sizes) or flat.size != self.sizes[index]:
            declared = self.sizes[index] if index < len(self.sizes) else "no"
            raise ValueError(
                f"tensor {index} has {flat.size} elements where {declared} are declared"
            )
        self._refuse_infinite(index, flat)
        return flat

    def _refuse_infinite(self, index: int, flat: np.ndarray) -> None:
        if not lanes.finite(flat):
            raise ValueError(f"tensor {index} has a NaN or an infinity; nothing was encoded")

    def _frames(self, flats: Sequence[np.ndarray], seed: Seed) -> Iterator[np.ndarray]:
        buffer = np.empty(min(FRAME_WORDS, self.words), _U64)
        dice = Dice(seed) if self.rounding == "stochastic" else None
        for index in range(self.frames):
            out = buffer[: self.frame_words(index)]
            if dice is None and (inside := self._inside(index)):
                tensor, low, high = inside
                scale, single = self._scales[tensor], self._single(tensor)
                lanes.pack_words(
                    flats[tensor][low:high], scale, self.steps, single, self.lane_bits, out
                )
                yield out
                continue
            for lane, first, last in self._lane_spans(index):
                shift = lane * self.lane_bits
                for tensor, low, high, at in self._segments(first, last):
                    rolled = dice.roll(high - low) if dice else None
                    source, target = flats[tensor][low:high], out[at : at + high - low]
                    lanes.pack(
                        source,
                        self._scales[tensor],
                        self.steps,
                        self._single(tensor),
                        rolled,
                        shift,
                        target,
                    )
            yield out

    def _single(self, tensor: int) -> bool:
        """Whether float32 is precise enough for a tensor: it is exact up to 2**24, and half as much
        to move.
        """
        return (
            self.rounding == "nearest"
            and self.steps <= lanes.MOST_SINGLE
            and 1e-30 < self._scales[tensor] < 1e30
        )

    def _inside(self, frame: int) -> tuple[int, int, int] | None:
        """(tensor, low, high) of a frame that is full and lies within one tensor: most frames of
        large models.
        """
        first = frame * FRAME_WORDS * self.lanes
        last = first + self.frame_words(frame) * self.lanes
        tensor = int(np.searchsorted(self._ends, first, side="right"))
        if last > self._ends[tensor]:
            return None
        begin = int(self._ends[tensor]) - self.sizes[tensor]
        return tensor, first - begin, last - begin

    def _lane_spans(self, frame: int) -> Iterator[tuple[int, int, int]]:
        """(lane, first element, last element) of a frame; the last lanes of the last frame may be
        short.
        """
        width = self.frame_words(frame)
        start = frame * FRAME_WORDS * self.lanes
        for lane in range(self.lanes):
            first = min(start + lane * width, self.elements)
            yield lane, first, min(start + (lane + 1) * width, self.elements)

    def _segments(self, first: int, last: int) -> Iterator[tuple[int, int, int, int]]:
        """Elements first … last of the whole as (tensor, low, high, offset from first), in
        cache-sized pieces.
        """
        tensor = int(np.searchsorted(self._ends, first, side="right"))
        at = first
        while at < last:
            begin = int(self._ends[tensor]) - self.sizes[tensor]
            end = min(int(self._ends[tensor]), last, at + lanes.PIECE)
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

    def room(self) -> np.ndarray:
        """Words for a sum, unset."""
        return np.empty(self.words, _U64)

    def decode(self, words: np.ndarray, count: int) -> Decoded:
        """The sum of `count` encoded vectors as flat float64 arrays, one per tensor. Each is decoded
        when it is looked up: all of them take up to four times the memory of the words, which must
        stay as they are.
        """
        if words.shape != (self.words,) or words.dtype != _U64:
            raise ValueError(f"{words.shape} words where ({self.words},) are declared")
        if not 1 <= count <= self.parties:
            raise ValueError(f"a sum of {count} vectors in an encoding for at most {self.parties}")
        return Decoded(self, np.require(words, requirements=["C", "ALIGNED"]), count)

    def decode_one(self, words: np.ndarray, count: int, tensor: int) -> np.ndarray:
        end = int(self._ends[tensor])
        begin = end - self.sizes[tensor]
        floats, per_frame = np.empty(end - begin, np.float64), FRAME_WORDS * self.lanes
        offset, step = float(count * self.steps), self.ranges[tensor] / self.steps
        for index in range(begin // per_frame, -(-end // per_frame)):
            frame = words[index * FRAME_WORDS : index * FRAME_WORDS + self.frame_words(index)]
            for lane, first, last in self._lane_spans(index):
                low, high = max(first, begin), min(last, end)
                for at in range(low, high, lanes.PIECE):
                    to = min(at + lanes.PIECE, high)
                    part, target = frame[at - first : to - first], floats[at - begin : to - begin]
                    lanes.unpack(part, lane * self.lane_bits, self.lane_bits, offset, step, target)
        return unrotate(floats, self.rotation_seed, tensor) if self.rotate else floats

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
        if any(type(value) is not int for value in whole) or any(
            type(r) is not float for r in ranges
        ):
            raise Refusal(
                "wrong-shape", "an encoding's sizes must be whole numbers and its ranges floats"
            )
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


class Decoded(Sequence[np.ndarray]):
    """The tensors of a sum, each decoded when it is looked up."""

    def __init__(self, encoding: Encoding, words: np.ndarray, count: int) -> None:
        self._encoding, self._words, self._count = encoding, words, count

    def __len__(self) -> int:
        return len(self._encoding.sizes)

    @overload
    def __getitem__(self, index: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[np.ndarray]: ...
    def __getitem__(self, index: int | slice) -> np.ndarray | Sequence[np.ndarray]:
        which = range(len(self))[index]
        if isinstance(which, range):
            return [self[i] for i in which]
        return self._encoding.decode_one(self._words, self._count, which)
