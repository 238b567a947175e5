"""Random consortia, deaths at random steps, messages in random order: the exact sum of the
survivors, or nothing.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crypto.errors import Refusal
from crypto.numbers.encoding import FRAME_WORDS, LANES, Encoding
from crypto.numbers.prg import PIECE_WORDS, Mask, add_masks, keystream
from crypto.sum.coordinator import OpenSum, SumFailed
from crypto.sum.params import Policy
from tests.crypto.world import World, plain, vectors

#: Complete graphs; a ring where everybody holds; a ring with a committee. Weak numbers, so that
#: rings are small.
POLICIES = (
    Policy(),
    Policy(complete_up_to=5, security=8, correctness=4, ring_corrupt=0.1, dropout=0.2),
    Policy(
        complete_up_to=5, security=2, correctness=2, ring_corrupt=0.1, dropout=0.1, holders_up_to=9
    ),
)
DEATHS = ("never", "before upload", "during upload", "before signing", "before shares")
#: Mostly alive, so that about half of the sums succeed.
FATES = st.sampled_from(("never",) * 12 + DEATHS[1:])


@pytest.mark.slow
@settings(max_examples=70, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_exact_or_clean_failure(data: st.DataObject) -> None:
    policy = data.draw(st.sampled_from(POLICIES))
    n = data.draw(st.integers(3, 24))
    world = World(n, seed=str(data.draw(st.integers(0, 2**32))), policy=policy).enrol()
    lane = data.draw(st.sampled_from(sorted(LANES)))
    sizes = tuple(data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=3))) + (1,)
    encoding = Encoding(
        lane,
        n,
        sizes,
        (0.5,) * len(sizes),
        data.draw(st.sampled_from(("nearest", "stochastic"))),
        data.draw(st.booleans()),
    )
    inputs = vectors(world.names, sizes, n)
    fate = {name: data.draw(FATES) for name in world.names}
    header = world.header(encoding, round=data.draw(st.integers(0, 3)))
    for name in world.names:
        world.silos[name].begin(header, header.broadcast, sizes)
    opened = OpenSum(header, world.setup, staging=data.draw(st.integers(1, 3)))

    for name in data.draw(st.permutations(world.names)):
        if fate[name] == "before upload":
            opened.lost(name)
        else:
            world.upload(
                opened, name, inputs[name], frames=0 if fate[name] == "during upload" else None
            )
    survivors = tuple(name for name in world.names if fate[name] not in DEATHS[1:3])
    assert opened.uploaded == survivors

    released = 0
    t = opened.topology.parameters.threshold
    holders = set(opened.topology.holders)
    try:
        proposals = opened.propose()
        for name in data.draw(st.permutations(sorted(holders))):
            if fate[name] in ("never", "before shares"):
                opened.receive_endorsement(world.silos[name].endorse(proposals[name]))
        requests = opened.unmask_requests()
        for name in data.draw(st.permutations(sorted(requests))):
            if fate[name] == "never":
                opened.receive_release(world.silos[name].release(requests[name]))
                released += 1
        assert opened.released_enough == (released >= t)
        said, total = opened.result()
    except SumFailed:
        signers = sum(fate[name] in ("never", "before shares") for name in holders)
        givers = sum(fate[name] == "never" for name in holders)
        assert released < t
        assert min(signers, givers) < t or refused_set(opened, survivors)
        return
    assert said == survivors
    assert len(survivors) >= t
    for got, wanted in zip(total, plain(encoding, inputs, survivors), strict=True):
        assert np.array_equal(got, wanted)


def refused_set(opened: OpenSum, survivors: tuple[str, ...]) -> bool:
    try:
        opened.topology.check_survivors(survivors, 3)
    except Refusal:
        return True
    return len(opened.reachable) < opened.needed


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_uploads_interleaved_in_any_way_give_the_plain_sum(data: st.DataObject) -> None:
    """Frames of up to three silos in any order, some of whom die between two frames; others take
    their places.
    """
    world = World(6).enrol()
    sizes = (FRAME_WORDS * 2 * 2 + 11,)
    encoding = Encoding(32, 6, sizes, (1.0,))
    inputs = vectors(world.names, sizes)
    header = world.header(encoding)
    for name in world.names:
        world.silos[name].begin(header, header.broadcast, sizes)
    opened = OpenSum(header, world.setup, staging=data.draw(st.integers(1, 3)))
    waiting = list(data.draw(st.permutations(world.names)))
    dead = data.draw(st.sets(st.sampled_from(world.names), max_size=2))
    dying = {name: data.draw(st.integers(0, encoding.frames)) for name in dead}
    streams: dict = {}
    while waiting or streams:
        while waiting and opened.can_begin:
            name = waiting.pop()
            record, frames = world.silos[name].upload(inputs[name])
            opened.begin_upload(record)
            streams[name] = enumerate(frames)
        name = data.draw(st.sampled_from(sorted(streams)))
        index, words = next(streams[name], (encoding.frames, None))
        if dying.get(name) == index:
            opened.lost(name)
            del streams[name]
        elif words is not None:
            opened.add_frame(name, index, words)
        else:
            opened.finish_upload(name)
            del streams[name]
    survivors = tuple(name for name in world.names if name not in dying)
    assert opened.uploaded == survivors
    said, total = world.finish(opened, dead=tuple(dying))
    assert said == survivors
    for got, wanted in zip(total, plain(encoding, inputs, survivors), strict=True):
        assert np.array_equal(got, wanted)


def test_uploads_of_many_frames_interleave() -> None:
    """Frames of two silos in turn, one dies in its last frame, and the other's place is taken by a
    third.
    """
    world = World(4).enrol()
    sizes = (FRAME_WORDS * 3 * 2 + 11,)
    encoding = Encoding(21, 4, sizes, (1.0,))
    inputs = vectors(world.names, sizes)
    opened = world.begin(world.header(encoding))
    a, b, c, d = world.names
    streams = {}
    for name in (a, b):
        record, frames = world.silos[name].upload(inputs[name])
        opened.begin_upload(record)
        streams[name] = frames
    assert not opened.can_begin
    for index in range(encoding.frames):
        for name in (a, b):
            words = next(streams[name])
            if name == b and index == encoding.frames - 1:
                opened.lost(b)
            else:
                opened.add_frame(name, index, words)
    assert opened.can_begin
    opened.finish_upload(a)
    world.upload(opened, c, inputs[c])
    world.upload(opened, d, inputs[d])
    survivors, total = world.finish(opened, dead=(b,))
    assert survivors == (a, c, d)
    assert np.array_equal(total[0], plain(encoding, inputs, survivors)[0])


def test_two_threads_give_the_same_words() -> None:
    one, two = np.zeros(FRAME_WORDS + 5, np.uint64), np.zeros(FRAME_WORDS + 5, np.uint64)
    masks = [Mask(bytes([i]) * 16, 1 - 2 * (i % 2)) for i in range(5)]
    add_masks(one, masks, 4 * FRAME_WORDS, threads=1)
    add_masks(two, masks, 4 * FRAME_WORDS, threads=2)
    assert np.array_equal(one, two)
    assert one.any()


def test_a_mask_is_the_same_whole_or_in_stretches() -> None:
    seed = b"k" * 16
    size = 5 * PIECE_WORDS + 7
    whole = keystream(seed, size)
    parts = np.zeros(size, np.uint64)
    for at in range(0, size, 4 * PIECE_WORDS):
        add_masks(parts[at : at + 4 * PIECE_WORDS], [Mask(seed, 1)], at)
    assert np.array_equal(whole, parts)
    assert len(np.unique(whole)) == size  # no counter twice
    add_masks(parts, [Mask(seed, -1)])
    assert not parts.any()
    with pytest.raises(ValueError):
        add_masks(parts[::2], [Mask(seed, 1)])
    with pytest.raises(ValueError):
        add_masks(parts, [Mask(seed, 1)], first_word=2)
    with pytest.raises(ValueError):
        Mask(b"short", 1)


def test_30_percent_killed_at_random_steps() -> None:
    """The sum of the survivors, exactly. (`python -m bench.speed.secagg` does the same with 200
    silos.)
    """
    rng = np.random.default_rng(0)
    world = World(60).enrol()
    encoding = Encoding(21, 60, (20,), (1.0,))
    inputs = vectors(world.names, (20,))
    killed = [str(name) for name in rng.permutation(world.names)[:18]]
    step = {name: DEATHS[1 + i % 4] for i, name in enumerate(killed)}
    opened = world.begin(world.header(encoding))
    for name in world.names:
        if step.get(name) == "before upload":
            opened.lost(name)
        else:
            world.upload(
                opened, name, inputs[name], frames=0 if step.get(name) == "during upload" else None
            )
    proposals = opened.propose()
    for name in world.names:
        if step.get(name) in (None, "before shares"):
            opened.receive_endorsement(world.silos[name].endorse(proposals[name]))
    requests = opened.unmask_requests()
    for name in world.names:
        if name not in step:
            opened.receive_release(world.silos[name].release(requests[name]))
    survivors, total = opened.result()
    assert len(survivors) == 50
    assert np.array_equal(total[0], plain(encoding, inputs, survivors)[0])
