"""The compiled loops and the numpy ones: the same bits for every input, and bad arguments
refused.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crypto.numbers import lanes
from crypto.numbers.encoding import FRAME_WORDS, LANES, Encoding

kernel = pytest.importorskip("crypto._kernel", reason="the C extension is not built; numpy is used")
if kernel.VERSION != lanes.KERNEL_VERSION:
    pytest.skip(
        "the C extension is of another version: install again to build it", allow_module_level=True
    )

#: Values at which rounding, clipping or the size of a float decides; as multiples of one step and
#: of the range.
IN_STEPS = (0.0, -0.0, 0.5, -0.5, 1.5, 2.5, 0.49999997, 0.50000006, 1.0, -1.0)
IN_RANGES = (1.0, -1.0, 0.99999994, 1.0000001, -0.99999994, -1.0000001, 1e6, -1e6)
ABSOLUTE = (1e-45, -1e-45, 1.1754942e-38, 1.1754944e-38, 3.4028235e38, -3.4028235e38)


def words_by(
    numpy: bool, encoding: Encoding, tensors: list[np.ndarray], seed: bytes
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The words of an encoding, and what they decode to, by one of the two."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("finite", "pack", "pack_words", "unpack"):
            patch.setattr(
                lanes, name, getattr(lanes, f"{name}_numpy") if numpy else getattr(kernel, name)
            )
        words = np.concatenate([frame.copy() for frame in encoding.encode(tensors, seed)])
        return words, list(encoding.decode(words, 1))


def vector(rng: np.random.Generator, size: int, r: float, step: float) -> np.ndarray:
    """Normal numbers, numbers of all sizes, ties, and every special value."""
    kinds = [rng.normal(0, r, size), rng.integers(-5, 6, size) * step / 2]
    kinds.append(rng.uniform(-1, 1, size) * 10.0 ** rng.integers(-44, 39, size))
    special = np.array([v * step for v in IN_STEPS] + [v * r for v in IN_RANGES] + list(ABSOLUTE))
    kinds.append(rng.choice(special, size))
    with np.errstate(over="ignore", under="ignore"):
        mixed = np.choose(rng.integers(0, len(kinds), size), kinds).astype(np.float32)
    return np.nan_to_num(mixed, posinf=3.4028235e38, neginf=-3.4028235e38)


@settings(max_examples=300, deadline=None)
@example(32, 1, "nearest", False, [(9, 1.0)], 0)
@example(21, 2, "nearest", False, [(70_000, 1.0)], 0)
@example(16, 10, "stochastic", True, [(33_000, 1e-3), (5, 1e3)], 0)
@example(21, 3, "nearest", False, [(3 * FRAME_WORDS + 17, 2.0), (40, 1e-25)], 0)  # two frames
@given(
    st.sampled_from(sorted(LANES)),
    st.integers(1, 4096),
    st.sampled_from(["nearest", "stochastic"]),
    st.booleans(),
    st.lists(
        st.tuples(
            st.integers(0, 300),
            st.one_of(
                st.floats(1e-3, 1e3),
                st.floats(1e-290, 1e300),
                st.sampled_from([1.0, 2.0**-126, 3.4e38]),
            ),
        ),
        min_size=1,
        max_size=5,
    ),
    st.integers(0, 2**32 - 1),
)
def test_both_give_the_same_bits(
    lane: int, parties: int, rounding: str, rotate: bool, shape: list[tuple[int, float]], seed: int
) -> None:
    sizes = tuple(size for size, _ in shape)
    if not sum(sizes):
        return
    encoding = Encoding(lane, parties, sizes, tuple(r for _, r in shape), rounding, rotate)
    rng = np.random.default_rng(seed)
    tensors = [vector(rng, size, r, r / encoding.steps) for size, r in shape]
    if rotate:
        # rotated, larger ones may leave float32: refused, see below
        tensors = [t.clip(-1e36, 1e36) for t in tensors]
    words, floats = words_by(False, encoding, tensors, b"seed")
    by_numpy, floats_by_numpy = words_by(True, encoding, tensors, b"seed")
    assert np.array_equal(words, by_numpy)
    for got, wanted in zip(floats, floats_by_numpy):
        assert np.array_equal(got.view(np.uint64), wanted.view(np.uint64))


@pytest.mark.parametrize("pack", [kernel.pack, lanes.pack_numpy])
def test_products_are_rounded_before_the_die_is_added(pack: Callable[..., None]) -> None:
    """A compiler that fuses x * scale + die rounds once, and finds 3 here."""
    x, scale, die = lanes._FUSED
    for count in (1, 7, 64):
        out = np.empty(count, np.uint64)
        pack(np.full(count, x, np.float32), scale, 2, False, np.full(count, die, np.uint32), 0, out)
        assert (out == 2).all()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(LANES)), st.integers(1, 4096))
def test_any_words_decode_to_the_same_floats(seed: int, lane: int, parties: int) -> None:
    """Also words that no honest sum holds."""
    encoding = Encoding(lane, parties, (200,), (0.3,))
    words = np.random.default_rng(seed).integers(0, 2**64, encoding.words, np.uint64)
    got, wanted = np.empty(encoding.words), np.empty(encoding.words)
    for shift in range(0, encoding.lanes * lane, lane):
        kernel.unpack(words, shift, lane, float(encoding.steps), 0.3 / encoding.steps, got)
        lanes.unpack_numpy(words, shift, lane, float(encoding.steps), 0.3 / encoding.steps, wanted)
        assert np.array_equal(got.view(np.uint64), wanted.view(np.uint64))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 300), st.integers(0, 9), st.integers(0, 9))
def test_words_are_added_modulo_two_to_the_64(seed: int, count: int, here: int, there: int) -> None:
    """Wherever the rows begin: those before a cache line's edge, whole lines, and those after;
    nothing beside them.
    """
    rng = np.random.default_rng(seed)
    one, other = (rng.integers(0, 2**64, count + 10, np.uint64) for _ in range(2))
    got, wanted = np.zeros(count + 20, np.uint64), np.zeros(count + 20, np.uint64)
    rows = (one[here : here + count], other[there : there + count])
    kernel.add_words(*rows, got[there : there + count])
    lanes.add_words_numpy(*rows, wanted[there : there + count])
    assert np.array_equal(got, wanted)


def test_every_float_but_nan_and_infinity_is_finite() -> None:
    for bits in (0, 1, 0x007FFFFF, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF):
        for sign in (0, 0x80000000):
            x = np.zeros(37, np.uint32)
            x[19] = bits | sign
            floats = x.view(np.float32)
            assert (
                kernel.finite(floats)
                == lanes.finite_numpy(floats)
                == bool(np.isfinite(floats).all())
            )
    assert kernel.finite(np.zeros(0, np.float32))


@pytest.mark.parametrize("numpy", [False, True])
def test_a_tensor_that_overflows_when_rotated_is_refused(numpy: bool) -> None:
    encoding = Encoding(16, 100, (4,), (1.0,), "stochastic", True)
    huge = np.full(4, 3e38, np.float32)
    with pytest.raises(ValueError, match="tensor 0"), np.errstate(over="ignore", invalid="ignore"):
        words_by(numpy, encoding, [huge], b"")


def test_unaligned_and_readonly_tensors_are_encoded() -> None:
    encoding = Encoding(21, 3, (50,), (1.0,))
    x = np.linspace(-1, 1, 50, dtype=np.float32)
    shifted = np.frombuffer(b"\0" + x.tobytes(), np.float32, offset=1)
    assert not shifted.flags.aligned and not shifted.flags.writeable
    assert np.array_equal(
        words_by(False, encoding, [shifted], b"")[0], words_by(True, encoding, [x], b"")[0]
    )


F, D, W, U = np.zeros(8, np.float32), np.zeros(8), np.zeros(8, np.uint64), np.zeros(8, np.uint32)
READ_ONLY = W.copy()
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    "call, values",
    [
        ("finite", (D,)), ("finite", (U,)), ("finite", (F.reshape(2, 4),)), ("finite", (F[::2],)), ("finite", (3,)),
        ("finite", (np.frombuffer(bytes(33), np.float32, offset=1),)), ("finite", (F.astype(">f4"),)),
        ("pack", ()), ("pack", (F, 1.0, 7, True, None, 0)), ("pack", (F, 1.0, 7, True, None, 0, W[:7])),
        ("pack", (F[:7], 1.0, 7, True, None, 0, W)), ("pack", (F, 1.0, 7, True, None, 64, W)),
        ("pack", (F, 1.0, 7, True, None, -1, W)), ("pack", (F, float("nan"), 7, True, None, 0, W)),
        ("pack", (F, 1.0, 0, True, None, 0, W)), ("pack", (F, 1.0, 2**23, True, None, 0, W)),
        ("pack", (F, 1.0, 2**40, False, None, 0, W)), ("pack", (F, 1.0, 7, True, U, 0, W)),
        ("pack", (F, 1.0, 7, False, U[:7], 0, W)), ("pack", (F, 1.0, 7, False, W, 0, W)),
        ("pack", (F, 1.0, 7, False, None, 0, READ_ONLY)), ("pack", (F, 1.0, 7, False, None, 0, D)),
        ("pack", (F, 1.0, 7, 2, None, 0, W)), ("pack", (D, 1.0, 7, False, None, 0, W)),
        ("pack", (F, "x", 7, False, None, 0, W)), ("pack", (F, 1.0, 7, False, None, 2**70, W)),
        ("pack_words", ()), ("pack_words", (F, 1.0, 7, True, 32, W)), ("pack_words", (F, 1.0, 7, True, 20, W[:4])),
        ("pack_words", (F, 1.0, 7, True, 21, W[:2])), ("pack_words", (F, 1.0, 2**15, True, 16, W[:2])),
        ("pack_words", (F, 1.0, 0, True, 16, W[:2])), ("pack_words", (F, 1.0, 7, True, 16, READ_ONLY[:2])),
        ("pack_words", (D, 1.0, 7, True, 32, W[:4])), ("pack_words", (F, float("inf"), 7, True, 32, W[:4])),
        ("unpack", ()), ("unpack", (W, 0, 21, 1.0, 1.0, D[:7])), ("unpack", (W, 0, 53, 1.0, 1.0, D)),
        ("unpack", (W, 0, 0, 1.0, 1.0, D)), ("unpack", (W, 64, 21, 1.0, 1.0, D)), ("unpack", (D, 0, 21, 1.0, 1.0, D)),
        ("add_words", (W, W)), ("add_words", (W, W, W[:7])), ("add_words", (W, W[:7], W)), ("add_words", (W[:7], W, W)),
        ("add_words", (W, W, READ_ONLY)), ("add_words", (W, D, W)), ("add_words", (W[::2], W[:4], W[:4])),
        ("add_words", (W[:2], np.frombuffer(bytes(17), np.uint64, offset=1), W[:2])),
        ("unpack", (W, 0, 21, 1.0, 1.0, F)), ("unpack", (W, 0, 21, 1.0, float("inf"), D)),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(call: str, values: tuple) -> None:
    with pytest.raises((ValueError, TypeError, OverflowError, BufferError)):
        getattr(kernel, call)(*values)


@pytest.mark.slow
def test_it_is_used_and_can_be_turned_off() -> None:
    script = "from crypto.numbers import lanes, prg; print(lanes.pack is lanes.pack_numpy, prg._keystream is None)"
    for setting, says in (("", "False False"), ("off", "True True"), ("OFF", "True True")):
        environment = os.environ | {"SOTTOVOCE_KERNEL": setting}
        told = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=environment
        )
        assert told.stdout.strip() == says, told.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, instead",
    [
        ("VERSION", "0"),
        ("finite", "lambda values: True"),
        ("pack_words", "lambda *values: None"),
        ("add_words", "lambda one, other, out: None"),
    ],
)
def test_a_kernel_that_is_stale_or_wrong_is_not_used(name: str, instead: str) -> None:
    """What an editable installation has after an update without a build, or a build with careless
    flags.
    """
    script = (
        "import crypto, sys, types; from crypto import _kernel as real\n"
        "fake = types.SimpleNamespace(**{n: getattr(real, n) for n in dir(real) if n[0] != '_'})\n"
        f"fake.{name} = {instead}\n"
        "crypto._kernel = sys.modules['crypto._kernel'] = fake\n"
        "from crypto.numbers import lanes; print(lanes.pack is lanes.pack_numpy)"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert told.stdout.strip() == "True", told.stderr


def test_threads_encode_at_the_same_time() -> None:
    encoding = Encoding(21, 10, (400_000,), (1.0,))
    inputs = [np.random.default_rng(i).normal(0, 1, 400_000).astype(np.float32) for i in range(4)]
    wanted = [np.concatenate([f.copy() for f in encoding.encode([x], b"")]) for x in inputs]
    made = [np.zeros(0)] * 4

    def work(i: int) -> None:
        for _ in range(3):
            made[i] = np.concatenate([f.copy() for f in encoding.encode([inputs[i]], b"")])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(got, want) for got, want in zip(made, wanted))
