"""Fixed point: error bounds, no overflow, equal lanes, refusals, and a slow reference beside the
fast path.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crypto.errors import Refusal
from crypto.numbers.encoding import FRAME_WORDS, LANES, Encoding
from crypto.numbers.rotation import blocks, rotate, unrotate
from crypto.numbers.rounding import default_rounding
from crypto.sum.plain import PlainSum


def whole(encoding: Encoding, tensors: list[np.ndarray], seed: bytes = b"s") -> np.ndarray:
    return np.concatenate([frame.copy() for frame in encoding.encode(tensors, seed)])


def slow(encoding: Encoding, tensors: list[np.ndarray]) -> list[int]:
    """Nearest rounding, element by element, from the docstring's words alone."""
    q = encoding.steps
    # single precision where a coordinate has few bits
    real = np.float32 if q <= 2**19 else np.float64
    flat = [(real(x), real(q / r)) for t, r in zip(tensors, encoding.ranges) for x in t.reshape(-1)]
    # ties to even, after the offset
    integers = [round(float(min(max(x * scale, -q), q)) + q) for x, scale in flat]
    words: list[int] = []
    per_frame = FRAME_WORDS * encoding.lanes
    for start in range(0, len(integers), per_frame):
        part = integers[start : start + per_frame]
        width = -(-len(part) // encoding.lanes)
        frame = [0] * width
        for i, value in enumerate(part):
            frame[i % width] += value << (i // width * encoding.lane_bits)
        words += frame
    return words


@settings(max_examples=80, deadline=None)
# an exact tie with an odd Q: rounding before the offset would go the other way
@example(21, 3, [(3, 1.0)], 200)
@given(
    st.sampled_from(sorted(LANES)),
    st.integers(1, 300),
    st.lists(st.tuples(st.integers(0, 40), st.floats(1e-3, 1e3)), min_size=1, max_size=5),
    st.integers(0, 2**32 - 1),
)
def test_fast_path_is_the_slow_one(
    lane: int, parties: int, shape: list[tuple[int, float]], seed: int
) -> None:
    sizes = tuple(size for size, _ in shape)
    if not sum(sizes):
        return
    encoding = Encoding(lane, parties, sizes, tuple(r for _, r in shape))
    rng = np.random.default_rng(seed)
    tensors = [(rng.normal(0, r, size)).astype(np.float32) for size, r in shape]
    words = whole(encoding, tensors)
    assert words.tolist() == slow(encoding, tensors)
    assert (
        len(words) == encoding.words == sum(encoding.frame_words(i) for i in range(encoding.frames))
    )


@pytest.mark.parametrize("lane", sorted(LANES))
@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize("elements", [1, 5, FRAME_WORDS * 4 + 3, FRAME_WORDS * 2])
def test_error_stays_within_the_bound_and_reaches_it(
    lane: int, rounding: str, elements: int
) -> None:
    encoding = Encoding(lane, 10, (elements,), (0.75,), rounding)
    x = np.random.default_rng(1).uniform(-0.75, 0.75, elements).astype(np.float32)
    (back,) = encoding.decode(whole(encoding, [x]), 1)
    (bound,) = encoding.error_bound()
    worst = np.abs(back - x.astype(np.float64)).max()
    assert worst <= bound
    if elements > 1000:
        assert worst > 0.9 * bound  # a bound ten times too wide would be no bound


@pytest.mark.parametrize("lane", sorted(LANES))
@pytest.mark.parametrize("frames", [0, 1, 2, 3])
@pytest.mark.parametrize("more", [-1, 0, 1, 2, 7])
def test_a_tensor_decoded_alone_is_that_part_of_the_whole(
    lane: int, frames: int, more: int
) -> None:
    """Around every frame's edge, in tensors that end anywhere, an empty one among them; against the
    definition, a number at a time.
    """
    elements = frames * FRAME_WORDS * LANES[lane] + more
    if elements < 1:
        return
    sizes = (elements // 3, 0, elements - elements // 3)
    encoding = Encoding(lane, 5, sizes, (1.0, 1.0, 2.0))
    words = encoding.room()
    words[:] = np.random.default_rng(more + 1).integers(0, 2**63, len(words), np.uint64)
    got = encoding.decode(words, 3)
    assert [a.size for a in got] == list(sizes)
    places = np.random.default_rng(more + 2).integers(0, elements, 50).tolist()
    for place in [0, elements - 1, *places]:
        frame, within = divmod(place, FRAME_WORDS * LANES[lane])
        width = encoding.frame_words(frame)
        word = int(words[frame * FRAME_WORDS + within % width])
        number = word >> (within // width * lane) & ((1 << lane) - 1)
        tensor, at = (0, place) if place < sizes[0] else (2, place - sizes[0])
        step = encoding.ranges[tensor] / encoding.steps
        assert got[tensor][at] == (number - 3 * encoding.steps) * step


@pytest.mark.parametrize("lane", sorted(LANES))
@pytest.mark.parametrize("parties", [2, 3, 10, 64, 100, 1000])
def test_lanes_never_touch_each_other(lane: int, parties: int) -> None:
    """All parties at the top of the range in one lane and at the bottom in the others, and all at
    the top.
    """
    encoding = Encoding(lane, parties, (LANES[lane] * 2,), (1.0,))
    for pattern in range(LANES[lane] + 1):
        x = np.full(encoding.sizes[0], -9.0, np.float32)  # clipped to -1
        x[2 * pattern : 2 * pattern + 2] = 9.0
        if pattern == LANES[lane]:
            x[:] = 9.0
        total = PlainSum(encoding)
        for _ in range(parties):
            total.add(encoding.encode([x], b""))
        assert np.array_equal(total.result()[0], parties * np.clip(x, -1, 1))
    with pytest.raises(ValueError, match="room for"):
        total.add(encoding.encode([x], b""))


def test_value_bits_are_the_ones_promised() -> None:
    for parties, bits in ((10, (28, 17, 12)), (100, (25, 14, 9))):
        for lane, least in zip((32, 21, 16), bits):
            assert 2 * Encoding(lane, parties, (1,), (1.0,)).steps + 1 >= 2**least


def test_sums_of_all_lanes_agree_within_their_bounds() -> None:
    rng = np.random.default_rng(2)
    data = [rng.normal(0, 0.3, 5000).clip(-1, 1).astype(np.float32) for _ in range(10)]
    exact = np.sum(np.array(data, np.float64), axis=0)
    for lane in LANES:
        encoding = Encoding(lane, 10, (5000,), (1.0,))
        total = PlainSum(encoding)
        for x in data:
            total.add(encoding.encode([x], b""))
        assert np.abs(total.result()[0] - exact).max() <= 10 * encoding.error_bound()[0]


def test_stochastic_rounding_is_unbiased_and_decided_by_the_seed() -> None:
    encoding = Encoding(16, 1000, (200_000,), (1.0,), "stochastic")
    # 0.3 of a step: to nearest, it would vanish
    x = np.full(200_000, 0.3 / encoding.steps, np.float32)
    words = whole(encoding, [x], b"one")
    (back,) = encoding.decode(words, 1)
    assert set(np.unique(np.round(back * encoding.steps))) == {0.0, 1.0}
    # Mean 0.3 with a standard error of sqrt(0.21 / 200000) = 0.001: five of them.
    assert abs(back.mean() * encoding.steps - 0.3) < 0.0052
    assert np.array_equal(words, whole(encoding, [x], b"one"))
    assert not np.array_equal(words, whole(encoding, [x], b"two"))


def test_the_buffer_is_reused_between_frames() -> None:
    encoding = Encoding(32, 3, (FRAME_WORDS * 4,), (1.0,))
    frames = encoding.encode([np.zeros(FRAME_WORDS * 4, np.float32)], b"")
    assert next(frames).ctypes.data == next(frames).ctypes.data


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", [0, 299_999])
def test_nan_and_infinity_are_refused_before_anything(bad: float, where: int) -> None:
    encoding = Encoding(21, 3, (4, 300_000), (1.0, 1.0))
    x = np.zeros(300_000, np.float32)
    x[where] = bad
    with pytest.raises(ValueError, match="tensor 1"):
        encoding.encode([np.zeros(4, np.float32), x], b"")


def test_large_finite_numbers_are_clipped_not_refused() -> None:
    for lane in LANES:
        encoding = Encoding(lane, 3, (4,), (1.0,))
        x = np.array([3e38, 3e38, -3e38, 1e-45], np.float32)
        (back,) = encoding.decode(whole(encoding, [x]), 1)
        assert back.tolist() == [1.0, 1.0, -1.0, 0.0]


def test_wrong_sizes_are_refused() -> None:
    encoding = Encoding(21, 3, (4, 5), (1.0, 1.0))
    with pytest.raises(ValueError, match="tensor 1 has 6"):
        encoding.encode([np.zeros(4, np.float32), np.zeros(6, np.float32)], b"")
    with pytest.raises(ValueError, match="1 tensors where 2"):
        encoding.encode([np.zeros(4, np.float32)], b"")
    with pytest.raises(ValueError, match="tensor 2 has 1"):
        encoding.encode(
            [np.zeros(4, np.float32), np.zeros(5, np.float32), np.zeros(1, np.float32)], b""
        )
    with pytest.raises(ValueError):
        encoding.decode(np.zeros(1, np.uint64), 1)
    with pytest.raises(ValueError):
        encoding.decode(np.zeros(encoding.words, np.uint64), 4)


def test_any_shape_and_layout() -> None:
    encoding = Encoding(32, 1, (12,), (1.0,))
    x = np.linspace(-1, 1, 12, dtype=np.float32)
    for form in (x.reshape(3, 4), np.asfortranarray(x.reshape(3, 4)), x.astype(np.float64)):
        assert np.array_equal(whole(encoding, [form]), whole(encoding, [x]))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 20_000), st.integers(0, 9))
def test_rotation_is_orthonormal_and_undone(size: int, tensor: int) -> None:
    x = np.random.default_rng(size).normal(size=size)
    turned = rotate(x, b"seed", tensor)
    assert np.isclose(np.linalg.norm(turned), np.linalg.norm(x))
    assert np.allclose(unrotate(turned, b"seed", tensor), x, atol=1e-12 * size)
    assert sum(length * count for _, length, count in blocks(size)) == size


def test_rotation_spreads_a_single_spike() -> None:
    x = np.zeros(4096)
    x[17] = 1.0
    assert np.allclose(np.abs(rotate(x, b"s", 0)), 1 / 64)


def test_rotation_halves_the_error_where_one_coordinate_dominates() -> None:
    """What it is for: with one coordinate in a thousand large, the range can follow the spread, not
    the largest.
    """
    rng = np.random.default_rng(3)
    x = rng.normal(0, 0.01, 4096).astype(np.float32)
    x[::1024] = 1.0
    errors = []
    for turn, r in ((False, 1.0), (True, 0.2)):
        encoding = Encoding(16, 100, (4096,), (r,), "stochastic", turn)
        (back,) = encoding.decode(whole(encoding, [x]), 1)
        errors.append(float(np.sqrt(np.mean((back - x) ** 2))))
    assert errors[1] < errors[0] / 2


def test_rounding_policy() -> None:
    assert default_rounding(32, 100) == ("nearest", False)
    assert default_rounding(16, 10) == ("nearest", False)
    assert default_rounding(16, 100) == ("stochastic", True)


@pytest.mark.parametrize(
    "change",
    [
        {"lane_bits": 20}, {"parties": 0}, {"parties": 5000}, {"sizes": ()}, {"sizes": (0, 0)}, {"sizes": (-1, 3)},
        {"ranges": (1.0,)}, {"ranges": (0.0, 1.0)}, {"ranges": (math.nan, 1.0)}, {"ranges": (math.inf, 1.0)},
        {"ranges": (5e-324, 1.0)}, {"rounding": "up"}, {"sizes": (2**40, 2**40)},
    ],
)  # fmt: skip
def test_impossible_encodings(change: dict) -> None:
    good: dict[str, Any] = {
        "lane_bits": 21,
        "parties": 4,
        "sizes": (3, 4),
        "ranges": (1.0, 1.0),
        "rounding": "nearest",
    }
    Encoding(**good)
    with pytest.raises(ValueError):
        Encoding(**(good | change))
    record = Encoding(**good).to_record() | {
        k: list(v) if isinstance(v, tuple) else v for k, v in change.items()
    }
    with pytest.raises(Refusal):
        Encoding.from_record(record)


@pytest.mark.parametrize(
    "change",
    [{"lane_bits": "21"}, {"lane_bits": True}, {"sizes": "ab"}, {"sizes": [1.5, 2]}, {"ranges": [1, 1]},
     {"rotate": 1}, {"rounding": None}, {"extra": 1}, {"sizes": [1] * 70_000}],
)  # fmt: skip
def test_records_with_wrong_types(change: dict) -> None:
    record = Encoding(21, 4, (3, 4), (1.0, 1.0)).to_record()
    assert Encoding.from_record(record) == Encoding(21, 4, (3, 4), (1.0, 1.0))
    with pytest.raises(Refusal):
        Encoding.from_record(record | change)
    nothing: tuple[Any, ...] = (None, [], {}, 3)
    for broken in nothing:
        with pytest.raises(Refusal):
            Encoding.from_record(broken)


def test_a_plain_sum_refuses_vectors_of_another_length() -> None:
    encoding = Encoding(32, 3, (4,), (1.0,))
    with pytest.raises(ValueError, match="0 frames"):
        PlainSum(encoding).add([])
    with pytest.raises(ValueError, match="words"):
        PlainSum(encoding).add([np.zeros(9, np.uint64)])
