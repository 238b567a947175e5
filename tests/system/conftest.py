"""The two stages on which attacks are played; what was put up is taken down, whatever happens."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import coordinator.serving
from tests.system.liar import Liar
from tests.system.play import Play
from tests.system.serving import Acted
from tests.system.stage import Stage


def _take_down(stages: list[Stage], expected: list[type[BaseException]]) -> None:
    for stage in stages:
        stage.close()
    crashes = [crash for stage in stages for crash in stage.crashes]
    assert len(crashes) == len(expected) and all(map(isinstance, crashes, expected)), crashes


@pytest.fixture
def crashes() -> list[type[BaseException]]:
    """What a test expects silos to end with: nothing, unless it says so."""
    return []


@pytest.fixture
def make(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, crashes: list[type[BaseException]]
) -> Iterator[Callable[..., Liar]]:
    """A lying coordinator and its silos, greeted and waiting."""
    stages: list[Stage] = []

    def build(*args: Any, start: bool = True, **changes: Any) -> Liar:
        stages.append(Stage(tmp_path, monkeypatch, *args, **changes))
        if start:
            stages[-1].start()
        return Liar(stages[-1])

    yield build
    _take_down(stages, crashes)


@pytest.fixture
def perform(
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    crashes: list[type[BaseException]],
) -> Iterator[Callable[[], Play]]:
    """The real coordinator and five silos, of which one may lie."""
    stages: list[Stage] = []

    def build() -> Play:
        caplog.set_level(logging.DEBUG, "coordinator")
        stages.append(Stage(tmp_path, monkeypatch, 5))
        stages[-1].start()
        return Play(stages[-1], caplog)

    yield build
    _take_down(stages, crashes)


@pytest.fixture
def acted(monkeypatch: pytest.MonkeyPatch) -> list[Acted]:
    """Every process that a coordinator's or a silo's serving program started, acted."""
    Acted.every = []
    monkeypatch.setattr(coordinator.serving, "Child", Acted)
    return Acted.every
