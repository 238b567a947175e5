"""A thousand mutated frames at a silo's door. `make soak` sends a million."""

from __future__ import annotations

import logging

import pytest

from silo.session import Session
from tests.faults.fuzz import fuzz


def test_mutated_frames_are_refused_or_answered() -> None:
    logging.disable(logging.CRITICAL)
    try:
        taken = fuzz(1000, seed=7)
    finally:
        logging.disable(logging.NOTSET)
    assert sum(taken.values()) == 1000
    # every way of taking one is seen, or the frames would reach nothing
    assert {"bad", "answered", "replay", "wrong-shape"} <= set(taken), taken


def test_the_fuzz_finds_a_door_that_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a message ends the process, some frame does."""

    def ends(self: Session, message: object, payload: object) -> object:
        if getattr(message, "kind", "") == "round-over":
            raise KeyError("round-over")
        return iter(())

    monkeypatch.setattr(Session, "hear", ends)
    with pytest.raises(AssertionError, match="frame .* of seed 7"):
        fuzz(1000, seed=7)
