"""Arrays that wait on the disk: the same numbers, and no memory."""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from methods.common.arrays import model_sha256
from methods.common.training import apply_update
from wire.bundle import Inbox, pack, packed_like, pieces
from wire.messages import FRAME_BYTES, BadMessage
from wire.stored import Lazily, Stored, give_back, keep_freed, stored

LARGE: dict[str, np.ndarray] = {
    "words": np.arange(700_001, dtype=np.float32),
    "nothing": np.zeros((0, 3), np.float32),
    "numbers": np.arange(12, dtype=np.int64).reshape(3, 4),
}


def _received(folder: Path | None) -> Inbox:
    bundle = pack(LARGE)
    inbox = Inbox(bundle.layout, 1 << 24, folder)
    for k, piece in enumerate(pieces(bundle.buffer)):
        inbox.add(k, piece)
    return inbox


def test_a_bundle_in_a_file_is_the_bundle_in_memory(tmp_path: Path) -> None:
    here, there = _received(None), _received(tmp_path)
    assert isinstance(there.arrays(), Lazily) and isinstance(here.arrays(), dict)
    assert list(there.arrays()) == list(LARGE)
    for name, array in LARGE.items():
        got = there.arrays()[name]
        assert got.dtype == array.dtype and np.array_equal(got, array)
    assert there.bundle().digest == here.bundle().digest == pack(LARGE).digest
    again = Inbox.of(there.bundle())
    assert again.complete and np.array_equal(again.arrays()["words"], LARGE["words"])
    assert os.listdir(tmp_path) == []  # a crash leaves nothing
    with pytest.raises(KeyError):
        there.arrays()["other"]


def test_who_writes_into_an_array_changes_nobody_elses(tmp_path: Path) -> None:
    arrays = _received(tmp_path).arrays()
    mine = arrays["words"]
    mine[:] = 7
    assert arrays["words"][1] == 1


def test_pieces_of_a_file_are_checked_as_in_memory(tmp_path: Path) -> None:
    bundle = pack(LARGE)
    inbox = Inbox(bundle.layout, 1 << 24, tmp_path)
    with pytest.raises(BadMessage):
        inbox.add(1, bytes(FRAME_BYTES))
    with pytest.raises(BadMessage):
        inbox.add(0, bytes(FRAME_BYTES - 1))
    assert not inbox.complete


def test_what_waits_takes_no_memory(tmp_path: Path) -> None:
    """A hundred megabytes, in a process that has let go of them."""
    process, size = psutil.Process(), 100 << 20
    before = process.memory_full_info().uss
    kept = stored({"a": np.ones(size // 4, np.float32)}, tmp_path)
    give_back()  # another test may have had this process keep what it frees
    assert process.memory_full_info().uss - before < size // 4
    assert kept["a"].sum() == size // 4
    assert process.memory_full_info().uss - before < size // 4  # unmapped again


def test_small_arrays_stay_where_they_are(tmp_path: Path) -> None:
    few = {"a": np.ones(3, np.float32)}
    assert stored(few, tmp_path) is few and stored(LARGE, None) is LARGE
    kept = stored(LARGE, tmp_path)
    assert kept is not LARGE and model_sha256(kept) == model_sha256(LARGE)


def test_what_is_written_anywhere_is_read_in_pieces(tmp_path: Path) -> None:
    file = Stored(4096, tmp_path)
    file.write(4000, b"x" * 96)
    assert b"".join(file.pieces(1000)) == bytes(4000) + b"x" * 96


_SHAPES = st.lists(st.lists(st.integers(0, 5), max_size=3).map(tuple), min_size=1, max_size=6)


@given(_SHAPES)
def test_arrays_made_to_travel_are_packed_without_a_copy(shapes: list[tuple[int, ...]]) -> None:
    plain = {
        str(i): np.random.default_rng(i).normal(size=s).astype(np.float32)
        for i, s in enumerate(shapes)
    }
    made = packed_like(plain)
    for name, a in plain.items():
        made[name][...] = a
    fast, slow = pack(made), pack(plain)
    assert fast.layout == slow.layout and fast.digest == slow.digest
    if len(fast.buffer):
        assert isinstance(fast.buffer, np.ndarray)
        assert np.shares_memory(fast.buffer, next(a for a in made.values() if a.size))
    some = dict(list(made.items())[1:])  # part of a buffer is copied, and is what it was
    part = {k: plain[k] for k in some}
    assert pack(some).digest == pack(part).digest


def test_a_mean_in_pieces_is_the_mean(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    start = {"a": rng.normal(size=(600, 1000)).astype(np.float32), "b": np.ones(3, np.float32)}
    total = {f"update/{k}": rng.normal(size=v.shape) for k, v in start.items()}
    got = apply_update(start, total, 3.0)
    for name, value in start.items():
        exact = (value.astype(np.float64) + total[f"update/{name}"] / 3.0).astype(np.float32)
        assert np.array_equal(got[name], exact)
    assert np.shares_memory(np.asarray(pack(got).buffer), got["a"])


def test_what_is_freed_is_used_again_until_it_is_given_back() -> None:
    """In a child: it is the process's. Counted are pages that the machine had to give."""
    if not hasattr(ctypes.CDLL(None), "mallopt"):
        pytest.skip("this C library returns memory by its own rules")
    size, times = 64 << 20, 8

    def faults() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(times):
            torch.empty(size, dtype=torch.uint8)[:: resource.getpagesize()] = 1
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        plain = faults()
        keep_freed()
        kept = faults()
        held = psutil.Process().memory_info().rss
        give_back()
        told = [plain, kept, held - psutil.Process().memory_info().rss]
        os.write(writer, " ".join(map(str, told)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as f:
        plain, kept, returned = map(int, f.read().split())
    os.waitpid(child, 0)
    if plain < 100 * times:
        pytest.skip("this machine gives memory in huge pages")
    assert kept < plain / 3
    assert returned > size / 2
