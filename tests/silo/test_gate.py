"""The gate that only declared arrays pass, and what it keeps from one answer to the next."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crypto.errors import Refusal
from methods.base import (
    Answer,
    Heard,
    SiloView,
)
from silo.memory import MemoryFile
from tests.silo.talk import SEALED, new_gate


def test_memory_is_of_one_study(tmp_path: Path) -> None:
    """What a study without noise left behind must not reach one that promises it."""
    path = tmp_path / "memory.safetensors"
    kept = MemoryFile(path, "one").kept({"model": np.ones(2, np.float32)})
    assert kept["model"].tolist() == [1.0, 1.0]
    assert MemoryFile(path, "one").read()["model"].tolist() == [1.0, 1.0]
    assert MemoryFile(path, "another").read() == {}


ONE = {"number": np.zeros(2, np.float32)}
NOTE = {"note": np.zeros(3, np.uint8)}


@pytest.mark.parametrize(
    ("answer", "attack"),
    [
        (Answer(ONE, NOTE | {"text": np.zeros(1, np.uint8)}), "undeclared-upload"),
        (Answer(ONE | {"more": np.zeros(1, np.float32)}, NOTE), "undeclared-upload"),
        (Answer({}, NOTE), "undeclared-upload"),
        (Answer({}, NOTE | ONE), "undeclared-upload"),
        (Answer({"number": np.zeros(3, np.float32)}, NOTE), "wrong-shape"),
        (Answer({"number": np.zeros(2)}, NOTE), "wrong-shape"),
        (Answer(ONE, {"note": np.zeros((3, 1), np.uint8)}), "wrong-shape"),
        (Answer(ONE, {"note": np.zeros(3, np.float32)}), "wrong-shape"),
        (Answer({"number": np.array([0, np.nan], np.float32)}, NOTE), "wrong-shape"),
        (Answer({"number": np.array([0, np.inf], np.float32)}, NOTE), "wrong-shape"),
    ],
)
def test_only_what_was_declared_leaves_the_desk(answer: Answer, attack: str) -> None:
    with pytest.raises(Refusal) as refused:
        new_gate(lambda silo, heard: answer).answer(0, Heard(0, (0,), {}), b"")
    assert refused.value.attack == attack


def test_an_array_that_no_disclosure_covers_does_not_leave() -> None:
    with pytest.raises(Refusal, match="no disclosure covers"):
        new_gate(disclosures=(SEALED,)).answer(0, Heard(0, (0,), {}), b"")


def test_the_desk_keeps_carry_for_the_round_memory_for_good_and_its_answer_for_a_second_try(
    tmp_path: Path,
) -> None:
    calls: list[tuple[dict, dict]] = []

    def remember(silo: SiloView, heard: Heard) -> Answer:
        calls.append((dict(silo.carry), {k: v.tolist() for k, v in silo.memory.items()}))
        return Answer(ONE, NOTE, carry={"n": len(calls)}, memory={"kept": np.array([heard.round])})

    gate = new_gate(remember, tmp_path / "memory.safetensors")
    first = gate.answer(0, Heard(0, (0,), {}), b"a")
    assert gate.answer(0, Heard(0, (0,), {}), b"a") is first and len(calls) == 1
    gate.answer(0, Heard(0, (0,), {}), b"b")
    gate.end_round()
    gate.answer(0, Heard(1, (0,), {}), b"a")
    again = new_gate(remember, tmp_path / "memory.safetensors")  # a restart
    again.answer(0, Heard(2, (0,), {}), b"a")
    # Asked again on other grounds, an exchange stands on those before it, of which there are none.
    assert calls == [({}, {}), ({}, {"kept": [0]}), ({}, {"kept": [0]}), ({}, {"kept": [1]})]
