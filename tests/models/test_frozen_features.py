"""Features of the frozen part: kept by text, whole or not at all, and the same however they were
had.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.frozen_features import FrozenFeatures, text_hash

PART = bytes(range(32))


def _text(i: int) -> bytes:
    return text_hash(np.array([i]))


def _made(i: int) -> torch.Tensor:
    """(1 + i mod 3, 4), and no two texts alike."""
    return (torch.arange(4.0) + 8 * i).expand(1 + i % 3, 4)


def _fill(store: FrozenFeatures, numbers: list[int]) -> int:
    return store.fill([_text(i) for i in numbers], lambda at: _made(numbers[at]))


@given(
    batches=st.lists(st.lists(st.integers(0, 30), max_size=8), max_size=5),
    asked=st.lists(st.integers(0, 30), max_size=6),
)
def test_whatever_was_filled_before_a_text_has_its_own_features(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], asked: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("features")
    store, memory = FrozenFeatures(folder, PART, 4), FrozenFeatures(None, PART, 4)
    known: set[int] = set()
    for batch in batches:
        assert _fill(store, batch) == _fill(memory, batch) == len(set(batch) - known)
        known |= set(batch)
        store = FrozenFeatures(folder, PART, 4)  # another process
    _fill(store, asked)
    _fill(memory, asked)
    texts = [_text(i) for i in asked]
    expected = torch.cat([torch.zeros(0, 4), *map(_made, asked)])
    assert torch.equal(store.rows(texts), expected) and torch.equal(memory.rows(texts), expected)
    padded = store.padded(texts, 3)
    for i, row in zip(asked, padded):
        assert torch.equal(row[: 1 + i % 3], _made(i)) and not row[1 + i % 3 :].any()


def test_numbers_are_kept_in_bfloat16(tmp_path: Path) -> None:
    store = FrozenFeatures(tmp_path, PART, 2)
    store.fill([b"x" * 16], lambda _: torch.tensor([[1.0 + 2**-9, -3.14159]]))
    assert store.rows([b"x" * 16]).tolist() == [[1.0, -3.140625]]
    (data,) = tmp_path.glob("*.bf16")
    assert data.stat().st_size == 4


def test_features_on_disk_are_mapped_and_not_read(tmp_path: Path) -> None:
    store, memory = FrozenFeatures(tmp_path, PART, 4), FrozenFeatures(None, PART, 4)
    _fill(store, [1, 2])
    _fill(memory, [1, 2])
    for kept in (store, FrozenFeatures(tmp_path, PART, 4)):
        assert isinstance(kept._rows, np.memmap) and not kept._rows.flags.writeable
    assert not isinstance(memory._rows, np.memmap)


def test_what_a_killed_process_wrote_behind_the_index_is_never_read(tmp_path: Path) -> None:
    store = FrozenFeatures(tmp_path, PART, 4)
    _fill(store, [1, 2])
    (data,), (index,) = tmp_path.glob("*.bf16"), tmp_path.glob("*.npy")
    with data.open("ab") as f:  # killed while it appended
        f.write(b"\xff" * 13)
    index.with_suffix(".new").write_bytes(index.read_bytes()[:50])  # killed before it was renamed
    again = FrozenFeatures(tmp_path, PART, 4)
    assert again.have(_text(1)) and _fill(again, [1, 2, 5]) == 1
    assert torch.equal(again.rows([_text(5), _text(2)]), torch.cat([_made(5), _made(2)]))


@pytest.mark.parametrize("damage", ["data short", "data gone", "index short", "index other"])
def test_a_damaged_file_is_as_none(tmp_path: Path, damage: str) -> None:
    _fill(FrozenFeatures(tmp_path, PART, 4), [1, 2])
    (data,), (index,) = tmp_path.glob("*.bf16"), tmp_path.glob("*.npy")
    if damage == "data short":
        os.truncate(data, data.stat().st_size - 1)
    elif damage == "data gone":
        data.unlink()
    elif damage == "index short":
        os.truncate(index, index.stat().st_size - 9)
    else:
        np.save(index, np.arange(3))
    again = FrozenFeatures(tmp_path, PART, 4)
    assert not again.have(_text(1)) and _fill(again, [2, 1]) == 2
    assert torch.equal(again.rows([_text(1)]), _made(1))


def test_another_frozen_part_has_other_features_and_others_may_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "features"
    store = FrozenFeatures(folder, PART, 4)
    _fill(store, [1])
    assert not FrozenFeatures(folder, PART[::-1], 4).have(_text(1))
    assert folder.stat().st_mode & 0o077 == 0
    assert all(p.stat().st_mode & 0o077 == 0 for p in folder.iterdir())
    store.forget()
    assert not folder.exists() and not store.have(_text(1))
    _fill(store, [1])  # a run that goes on all the same
    assert torch.equal(store.rows([_text(1)]), _made(1))


def test_two_writers_take_turns_and_use_each_others_work(tmp_path: Path) -> None:
    one, two = FrozenFeatures(tmp_path, PART, 4), FrozenFeatures(tmp_path, PART, 4)
    _fill(one, [1, 2])
    assert _fill(two, [2, 3]) == 1 and _fill(one, [3, 1]) == 0
    for store in (one, two):
        assert torch.equal(store.rows([_text(3), _text(1)]), torch.cat([_made(3), _made(1)]))
