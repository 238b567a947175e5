"""What a silo that is killed between two sums of a round finds on its disk."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from silo.in_round import InRound
from silo.round_file import KeptRound, RoundFile
from silo.told import ToldRound


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


class _Gate:
    """Carries an array per exchange; three exchanges."""

    last = 2

    def __init__(self) -> None:
        self.carried: dict[int, Any] = {0: {"a": np.ones(1)}, 1: {"a": np.zeros(1)}}
        self.signed: dict[int, tuple[int, ...]] = {}

    def kept(self) -> Any:
        return self.carried, self.signed

    def restore(self, carried: Any, certified: Any) -> None:
        self.carried, self.signed = carried, certified

    def ask_again(self, index: int) -> None:
        self.carried = {k: v for k, v in self.carried.items() if k < index}

    def certified(self, index: int, survivors: Any) -> None:
        self.signed[index] = survivors

    def end_round(self) -> None:
        self.carried = {}


def _in_round(path: Path) -> tuple[InRound, ToldRound, _Gate]:
    told, gate = ToldRound(), _Gate()
    return InRound(told, gate, RoundFile(path)), told, gate  # type: ignore[arg-type]


def _answer(kept: InRound, told: ToldRound, exchange: int) -> None:
    told.number = 7
    message = SimpleNamespace(round=7, exchange=exchange)
    said = SimpleNamespace(message=message, digest=b"%d" % exchange)
    header = SimpleNamespace(h=b"h%d" % exchange)
    kept.answered(said, header)  # type: ignore[arg-type]


def test_a_killed_silo_has_what_it_had_and_who_was_certified(tmp_path: Path) -> None:
    path = tmp_path / "round.safetensors"
    kept, told, _ = _in_round(path)
    _answer(kept, told, 0)
    kept.certified(SimpleNamespace(h=b"h0", survivors=(0, 1)))  # type: ignore[arg-type]
    again, heard, gate = _in_round(path)
    assert (heard.number, heard.answered) == (7, [[7, 0]])
    assert gate.signed == {0: (0, 1)} and gate.carried[0]["a"] == 1
    # asked for its shares once more, it knows which exchange they are of; of another sum, nothing
    again.certified(SimpleNamespace(h=b"h0", survivors=(0, 2)))  # type: ignore[arg-type]
    again.certified(SimpleNamespace(h=b"other", survivors=(5,)))  # type: ignore[arg-type]
    assert gate.signed == {0: (0, 2)}


def test_what_is_told_again_is_gone_from_the_disk_at_once(tmp_path: Path) -> None:
    path = tmp_path / "round.safetensors"
    kept, told, _ = _in_round(path)
    _answer(kept, told, 0)
    _answer(kept, told, 1)
    assert _in_round(path)[1].answered == [[7, 0], [7, 1]]
    kept.ask_again(1)
    assert _in_round(path)[1].answered == [[7, 0]]
    kept.ask_again(1 << 60)  # a number that no study has
    assert _in_round(path)[1].answered == [[7, 0]]
    kept.ask_again(0)
    assert not path.exists()
    _answer(kept, told, 0)
    kept.over()
    assert not path.exists()
