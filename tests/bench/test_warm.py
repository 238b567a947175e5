"""Commands in children of one warmed process: what they print and how they end is as elsewhere."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.papers.warm import Warm
from bench.speed import large

COMMAND = [sys.executable, "-m", "cli.main"]


@pytest.mark.slow
def test_a_command_ends_as_in_a_process_of_its_own() -> None:
    warm = Warm()
    try:
        own = subprocess.run([*COMMAND, "methods"], capture_output=True, text=True)
        assert warm([*COMMAND, "methods"]) == (0, own.stdout)
        status, said = warm([*COMMAND, "simulate", "METHOD=fedcm"])
        assert status == 2 and 'Did you mean "fedcmc"?' in said
        assert warm([sys.executable, "-m", "bench.no_such"])[0] == 1
        assert warm([*COMMAND, "methods"])[0] == 0  # the one before harmed nobody
        assert warm._process is not None
        warm._process.kill()
        assert warm([*COMMAND, "methods"])[0] != 0
    finally:
        warm.close()


@pytest.mark.slow
def test_where_fork_is_not_safe_every_command_has_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOTTOVOCE_START", "spawn")
    warm = Warm()
    status, said = warm([*COMMAND, "simulate", "METHOD=fedcm"])
    assert status == 2 and 'Did you mean "fedcmc"?' in said
    assert warm([sys.executable, "-m", "bench.no_such"])[0] == 1
    assert warm._process is None  # nothing that could be forked was started
    warm.close()


def test_a_measurement_that_forks_is_refused_where_fork_is_not_safe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOTTOVOCE_START", "spawn")
    monkeypatch.setattr(large, "make_encoder", lambda folder: pytest.fail("it was begun"))
    with pytest.raises(SystemExit, match="where fork is safe"):
        large.main([])
