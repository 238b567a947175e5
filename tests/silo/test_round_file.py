"""What a silo that is killed between two sums of a round finds on its disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from silo.round_file import KeptRound, RoundFile


def _kept(**carry: object) -> KeptRound:
    return KeptRound(3, {0: b"d" * 32}, {0: carry}, {0: (0, 2)}, {b"h" * 32: 0})


def test_what_is_kept_is_read_as_it_was(tmp_path: Path) -> None:
    file = RoundFile(tmp_path / "round.safetensors")
    table: dict[str, np.ndarray] = {"b": np.ones((2, 3), np.float32), "a": np.arange(4)}
    file.write(_kept(context=b"c", rows=np.eye(2), table=table, empty={}))
    kept = RoundFile(tmp_path / "round.safetensors").read()
    assert kept is not None
    assert (kept.round, kept.answered) == (3, {0: b"d" * 32})
    assert (kept.certified, kept.sums) == ({0: (0, 2)}, {b"h" * 32: 0})
    carry = kept.carried[0]
    assert carry["context"] == b"c" and carry["empty"] == {}
    assert np.array_equal(carry["rows"], np.eye(2))
    assert list(carry["table"]) == ["b", "a"]  # a model's arrays have an order
    assert all(np.array_equal(carry["table"][k], a) for k, a in table.items())
    assert (tmp_path / "round.safetensors").stat().st_mode & 0o777 == 0o600
    file.forget()
    assert file.read() is None and not list(tmp_path.iterdir())


def test_what_cannot_be_kept_leaves_nothing_that_could_be_taken_for_it(tmp_path: Path) -> None:
    file = RoundFile(tmp_path / "round.safetensors")
    file.write(_kept(rows=np.eye(2)))
    file.write(_kept(rows=np.eye(2), data=object()))
    assert file.read() is None
    file.write(_kept(words=np.array(["a"])))
    assert file.read() is None


@pytest.mark.parametrize("damage", [b"", b"x", b"\0" * 100])
def test_a_damaged_file_is_as_none(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "round.safetensors"
    path.write_bytes(damage)
    assert RoundFile(path).read() is None


def test_a_simulation_keeps_nothing() -> None:
    file = RoundFile(None)
    file.write(_kept(rows=np.eye(2)))
    assert file.read() is None and not file.keeps
    file.forget()
