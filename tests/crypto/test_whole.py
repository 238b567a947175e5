"""Whole sums: exact over the survivors, in every graph, encoding and order of deaths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import crypto.sum.running
from crypto.errors import SumFailed
from crypto.numbers.encoding import FRAME_WORDS, Encoding
from tests.crypto.world import World, plain, vectors

SIZES = (300_000, 7, 0, 1001)


def same(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("n,dead", [(3, 0), (4, 1), (10, 0), (10, 3)])
@pytest.mark.parametrize("lane", [32, 21, 16])
def test_exact_sum_of_survivors(n: int, dead: int, lane: int) -> None:
    world = World(n).enrol()
    encoding = Encoding(
        lane, n, SIZES, (2.0, 1.0, 1.0, 0.5), "stochastic" if lane == 16 else "nearest", lane == 16
    )
    data = vectors(world.names, SIZES)
    gone = world.names[1 : 1 + dead]
    survivors, total = world.whole(encoding, data, gone)
    assert survivors == tuple(name for name in world.names if name not in gone)
    assert same(total, plain(encoding, data, survivors))


def test_too_many_deaths_fail_cleanly() -> None:
    world = World(10).enrol()
    encoding = Encoding(32, 10, (5,), (1.0,))
    with pytest.raises(SumFailed, match="below the floor of 7"):
        world.whole(encoding, vectors(world.names, (5,)), world.names[:4])


def test_many_rounds_and_cohorts() -> None:
    world = World(8).enrol()
    encoding = Encoding(21, 8, (50,), (1.0,))
    for round in range(4):
        alive = [name for i, name in enumerate(world.names) if (i + round) % 4]
        data = vectors(world.names, (50,), round)
        survivors, total = world.whole(encoding, data, alive=alive, round=round)
        assert same(total, plain(encoding, data, survivors))
        for name in alive:
            world.silos[name].end_round()


def test_large_sums_are_added_past_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same sum by the loop for vectors that do not fit into it, also of frames that lie askew
    in memory.
    """
    monkeypatch.setattr(crypto.sum.running, "_BEYOND_CACHE", 0)
    size = 3 * FRAME_WORDS + 77
    world, encoding = World(4).enrol(), Encoding(21, 4, (size,), (2.0,))
    data = vectors(world.names, (size,))
    opened = world.begin(world.header(encoding))
    for name in world.names:
        record, frames = world.silos[name].upload(data[name], rounding_seed=name.encode())
        opened.begin_upload(record)
        for index, words in enumerate(frames):
            askew = np.frombuffer(b"\0" + words.tobytes(), "<u8", offset=1)
            opened.add_frame(name, index, askew if name == "silo-002" else words)
        opened.finish_upload(name)
    survivors, total = world.finish(opened)
    assert np.array_equal(total[0], plain(encoding, data, survivors)[0])


def test_no_buffer_of_a_large_sum_is_held_while_nobody_sends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = FRAME_WORDS + 5
    encoding = Encoding(32, 4, (size,), (2.0,))
    for large, held in ((0, 0), (1 << 40, 1)):
        monkeypatch.setattr(crypto.sum.running, "_LARGE", large)
        world = World(4).enrol()
        data = vectors(world.names, (size,))
        opened = world.begin(world.header(encoding))
        for name in world.names:
            record, frames = world.silos[name].upload(data[name], rounding_seed=name.encode())
            opened.begin_upload(record)
            for index, words in enumerate(frames):
                opened.add_frame(name, index, words)
            opened.finish_upload(name)
        assert len(opened._running._free) == held
        survivors, total = world.finish(opened)
        assert np.array_equal(total[0], plain(encoding, data, survivors)[0])
