"""The measurements of large encoders, of a thousand silos and of other frameworks: what they print
is computed from what was measured, and mistakes are a sentence.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench.speed import crowd, frames, large
from bench.speed.peers import PeerFailed, environment, run_there


def _said(run: dict[str, Any], rounds: list[dict[str, Any]], alone: list[dict[str, float]]) -> str:
    out = io.StringIO()
    large._say(Console(file=out, width=400), run, rounds, alone)
    return out.getvalue()


def test_the_ratio_of_a_round_to_the_plain_loop() -> None:
    """By hand: rounds of 22 and 24 s beside a loop of 20 s; 46 of 50 s are rounds."""
    rounds = [
        {"seconds": 22.0, "phases": {"telling": 1.0, "unmasking": 1.0, "evaluating": 9.0}},
        {"seconds": 24.0, "phases": {"telling": 1.0, "unmasking": 3.0, "evaluating": 11.0}},
    ]
    run = {"wall_seconds": 50.0, "peak_rss_mb": 6580.0, "cpu_seconds": 90.0, "silos": 4}
    said = _said(run, rounds, [{"seconds": 19.0}, {"seconds": 21.0}])
    assert "1.15 times the plain loop (23.0 s and 20.0 s; 1.00 times loop" in said
    assert "scoring beside it 10.0 s" in said
    assert "6.90 GB at most in all processes (wanted: 7); 8 % of 50 s lie outside of rounds" in said


def test_a_crowd_that_learnt_something_else_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both runs are given; their models differ."""
    runs = iter(({"model_sha256": "a"}, {"model_sha256": "b"}))
    monkeypatch.setattr(crowd, "run_once", lambda *_: next(runs))
    with pytest.raises(SystemExit, match="different models"):
        crowd.main([])


def test_an_unknown_peer_and_one_that_fails_are_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match='PEER must be pfl or flower, not "fedml"'):
        frames.main(["PEER=fedml"])
    with pytest.raises(PeerFailed, match="it did not finish: .*no such thing"):
        run_there(["sh", "-c", "echo no such thing >&2; exit 3"], "it did not finish")
    assert run_there(["sh", "-c", "echo $PYTHONPATH done"], "it failed").split() == ["done"]
    (tmp_path / "pfl").mkdir()
    (tmp_path / "pfl" / "installed").touch()  # made before: nothing is installed again
    assert environment(tmp_path, "pfl") == tmp_path / "pfl" / "bin" / "python"


@pytest.mark.slow
def test_the_plain_loop_trains_what_a_round_trains(capsys: pytest.CaptureFixture[str]) -> None:
    """As many processes as silos, and none that failed; seconds and CPU time are there."""
    large.main(["plain", "METHOD=fedavg", "CORPUS=sentence:sentences=60,dev=20,test=20", "SILOS=3"])
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["seconds"] > 0 and said["cpu"] > 0
