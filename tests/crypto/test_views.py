"""What a coordinator sees tells it nothing but the sum, as far as a test can tell."""

from __future__ import annotations

import msgpack
import numpy as np
import pytest

from crypto.numbers.encoding import Encoding
from tests.crypto.world import World, vectors

SIZES = (30_000,)


def chi_square(words: np.ndarray) -> float:
    """Of the bytes against uniform, in standard deviations from its mean (255 degrees of
    freedom).
    """
    counts = np.bincount(words.view(np.uint8), minlength=256)
    expected = words.nbytes / 256
    value = ((counts - expected) ** 2 / expected).sum()
    return float((value - 255) / np.sqrt(2 * 255))


def bit_bias(words: np.ndarray) -> float:
    """The most any of the 64 bit positions departs from one half, in standard deviations."""
    ones = np.unpackbits(words.view(np.uint8).reshape(-1, 8), axis=1, bitorder="little").mean(
        axis=0
    )
    return float(np.abs(ones - 0.5).max() * 2 * np.sqrt(len(words)))


def repeats(words: np.ndarray) -> int:
    return len(words) - len(np.unique(words))


def looks_uniform(words: np.ndarray) -> bool:
    # 64 positions at 6 standard deviations: a false alarm in a hundred million runs; the coins are
    # fixed anyway.
    return abs(chi_square(words)) < 6 and bit_bias(words) < 6 and repeats(words) == 0


def masked(
    world: World, encoding: Encoding, data: dict[str, list[np.ndarray]]
) -> dict[str, np.ndarray]:
    header = world.header(encoding)
    out = {}
    for name in world.names:
        world.silos[name].begin(header, header.broadcast, encoding.sizes)
        _, frames = world.silos[name].upload(data[name], b"rounding")
        out[name] = np.concatenate([frame.copy() for frame in frames])
    return out


@pytest.mark.parametrize("lane", [32, 21, 16])
@pytest.mark.parametrize("kind", ["zeros", "constant", "normal", "clipped"])
def test_every_masked_vector_looks_uniform(lane: int, kind: str) -> None:
    world = World(4).enrol()
    encoding = Encoding(lane, 4, SIZES, (1.0,))
    make = {
        "zeros": lambda: np.zeros(SIZES[0], np.float32),
        "constant": lambda: np.full(SIZES[0], 0.7, np.float32),
        "normal": lambda: np.random.default_rng(0).normal(0, 0.1, SIZES[0]).astype(np.float32),
        "clipped": lambda: np.full(SIZES[0], 99.0, np.float32),
    }[kind]
    data = {name: [make()] for name in world.names}
    sent = masked(world, encoding, data)
    for name in world.names:
        assert looks_uniform(sent[name])
        # The control: the same check sees an unmasked vector for what it is.
        bare = np.concatenate([frame.copy() for frame in encoding.encode(data[name], b"")])
        assert not looks_uniform(bare)
    # Nor does any smaller combination show anything: only all of them, with the self masks removed,
    # do.
    first, second, third, _ = sent.values()
    for mix in (first + second, first - second, first + second + third):
        assert looks_uniform(mix)


def whole_view(
    seed: str, encoding: Encoding, data: dict[str, list[np.ndarray]], dead: tuple[str, ...] = ()
) -> dict:
    """Everything the coordinator receives in one sum, with all coins fixed by `seed`."""
    world = World(6, seed=seed).enrol()
    opened = world.begin(world.header(encoding))
    view: dict = {"records": [], "frames": [], "endorsements": [], "releases": []}
    for name in world.names:
        record, frames = world.silos[name].upload(data[name], b"rounding")
        view["records"].append(msgpack.packb(record.to_record()))
        words = next(frames).copy()
        view["frames"].append(words)
        if name in dead:
            opened.lost(name)
            continue
        opened.begin_upload(record)
        opened.add_frame(name, 0, words)
        opened.finish_upload(name)
    proposals = opened.propose()
    for name in opened.reachable:
        endorsement = world.silos[name].endorse(proposals[name])
        opened.receive_endorsement(endorsement)
        view["endorsements"].append(msgpack.packb(endorsement.to_record()))
    for name, request in opened.unmask_requests().items():
        release = world.silos[name].release(request)
        opened.receive_release(release)
        view["releases"].append(msgpack.packb(release.to_record()))
    view["result"] = opened.result()[1][0]
    return view


@pytest.mark.parametrize("dead", [(), ("silo-002",)])
def test_inputs_touch_nothing_but_the_masked_vectors(dead: tuple[str, ...]) -> None:
    """With all coins fixed, other inputs change no byte of any record, signature or share, and
    change a masked vector by exactly the difference of the encodings: all that could tell inputs
    apart is under a uniform pad.
    """
    encoding = Encoding(32, 6, (50,), (1.0,))
    one, two = vectors(World(6).names, (50,), 1), vectors(World(6).names, (50,), 2)
    first, second = whole_view("v", encoding, one, dead), whole_view("v", encoding, two, dead)
    for kind in ("records", "endorsements", "releases"):
        assert first[kind] == second[kind]
    for name, a, b in zip(one, first["frames"], second["frames"], strict=True):
        (x,), (y,) = (list(encoding.encode(data[name], b"rounding")) for data in (one, two))
        assert np.array_equal(a - b, x - y)
        assert (a != b).any()
    assert not np.array_equal(first["result"], second["result"])


def test_moving_weight_between_two_silos_leaves_the_view_as_it_was() -> None:
    """Two silos exchange their inputs, everybody else's are fixed: same sum, and over many coins
    the distribution of what they send does not move (two-sample chi-square on the top bytes, which
    an unmasked run fails at once).
    """
    encoding = Encoding(16, 6, (4,), (1.0,))
    names = World(6).names
    low = {name: [np.zeros(4, np.float32)] for name in names}
    swapped = dict(low)
    low[names[0]], low[names[1]] = [np.full(4, -0.9, np.float32)], [np.full(4, 0.9, np.float32)]
    swapped[names[0]], swapped[names[1]] = low[names[1]], low[names[0]]

    def sample(data: dict[str, list[np.ndarray]], label: str) -> tuple[np.ndarray, np.ndarray]:
        sent, bare = [], []
        for trial in range(150):
            world = _session(trial % 5)
            world.number = trial + (1000 if label == "b" else 0)
            header = world.header(encoding, exchange=f"{label}{trial}", number=_number())
            world.silos[names[0]].begin(header, header.broadcast, (4,))
            _, frames = world.silos[names[0]].upload(data[names[0]], b"r")
            sent.append(next(frames).copy())
            bare.append(next(encoding.encode(data[names[0]], b"r")).copy())
        return np.array(sent).view(np.uint8).reshape(-1) >> 5, np.array(bare).view(
            np.uint8
        ).reshape(-1) >> 5

    a, bare_a = sample(low, "a")
    b, bare_b = sample(swapped, "b")
    assert two_sample(a, b) < 5 < two_sample(bare_a, bare_b)


_sessions: dict[int, World] = {}
_numbers = iter(range(1, 10**6))


def _session(index: int) -> World:
    if index not in _sessions:
        _sessions[index] = World(6, seed=f"view{index}").enrol()
    return _sessions[index]


def _number() -> int:
    return next(_numbers)


def two_sample(a: np.ndarray, b: np.ndarray) -> float:
    """Chi-square of two equally large samples of 3-bit values, in standard deviations above its
    mean.
    """
    x, y = np.bincount(a, minlength=8), np.bincount(b, minlength=8)
    both = x + y
    value = ((x - y) ** 2 / np.maximum(both, 1)).sum()
    return float((value - 7) / np.sqrt(14))
