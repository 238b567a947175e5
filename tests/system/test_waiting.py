"""A coordinator that lacks silos waits for them: it says for whom, lets them in when they are back,
and tells of it in the report. Real programs.
"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.process import WAITED
from report.live import LiveRun
from tests.conftest import lines, sottovoce, summary, wait_for
from tests.consortium import Consortium

STUDY = {
    "method": "fedavg",
    "corpus": "distant:sentences=200",
    "rounds": 4,
    "epochs": 1,
    "minimum": 3,
    "seed": 1,
}


@pytest.fixture
def consortium(tmp_path: Path) -> Iterator[Consortium]:
    made = Consortium(tmp_path)
    made.study(**STUDY)
    try:
        yield made
    finally:
        made.close()


def _events(consortium: Consortium, kind: str) -> list[dict[str, Any]]:
    return [e for e in lines(consortium.run / "events.jsonl") if e["event"] == kind]


def _lose_east_after_a_round(consortium: Consortium) -> tuple[int, str]:
    """All three take part; east is killed in the second round, and the coordinator knows."""
    port, study = consortium.hub("--metrics", "0")
    for name in consortium.names:
        consortium.silo(name, port, study)
    wait_for(lambda: len(_events(consortium, "round")) > 1)  # scores come later, beside the rounds
    consortium.processes["east"].kill()
    consortium.processes["east"].wait()
    wait_for(lambda: _events(consortium, "waiting"))
    return port, study


def _figures(address: str) -> str:
    with urllib.request.urlopen(address) as answer:
        return answer.read().decode()


def test_a_silo_that_was_killed_and_started_again_is_waited_for(consortium: Consortium) -> None:
    port, study = _lose_east_after_a_round(consortium)
    metrics = re.search(r"Prometheus on port (\d+)", consortium.log("hub"))
    assert metrics is not None
    figures = _figures(f"http://127.0.0.1:{metrics[1]}/metrics")
    assert "sottovoce_waiting 1" in figures
    assert 'sottovoce_silo_missing{silo="east"} 1' in figures
    live = LiveRun(consortium.run)
    live.catch_up()
    shown = live.snapshot()
    assert shown["waiting"]["for"] == ["east"]
    assert (shown["waiting"]["here"], shown["waiting"]["needed"]) == (2, 3)
    assert shown["waiting"]["until"] == ""  # until its operator ends it
    assert shown["seconds_left"] is None
    assert "waits for east" in consortium.log("hub")

    consortium.silo("east", port, study)
    assert consortium.processes["hub"].wait(120) == 0, consortium.everything()
    rounds = lines(consortium.run / "rounds.jsonl")
    assert [len(r["survivors"]) for r in rounds] == [3, 3, 3, 3]
    page = (consortium.run / "report.html").read_text()
    assert "Losses and returns" in page and "When the run waited for silos" in page
    away = re.search(r'id="absences".*?</table>', page, re.DOTALL)
    assert away is not None and "east" in away[0] and "did not come back" not in away[0]
    text = (consortium.run / "report.md").read_text()
    assert "1 connection was lost and came back" in page and "1 connection was lost and" in text
    for words in ("nobody was lost", "Nobody:", "Nobody.\n"):
        assert words not in page + text, words
    assert re.search(r"## Losses and returns.*\| east \|", text, re.DOTALL)

    # whose study it was, and that it is not to be run again
    for said in ("A test", "a test", "north, east, south", "version 1", study):
        assert said in page, said
    assert "Run it again" not in page and "is run once" in text
    # as if nothing had happened
    given = [f"{key.upper()}={value}" for key, value in STUDY.items()]
    alone = consortium.path / "alone"
    sottovoce("simulate", *given, "SILOS=3", "RUNNER=inprocess", f"OUT={alone}")
    assert summary(consortium.run)["model_sha256"] == summary(alone / "latest")["model_sha256"]


def test_a_stated_deadline_that_expired_has_a_status_of_its_own(consortium: Consortium) -> None:
    """Only then may the program that serves end a study for good."""
    consortium.hub("--wait", "0.1", "--patience", "0.5")
    assert consortium.processes["hub"].wait(120) == WAITED, consortium.everything()
    (failed,) = _events(consortium, "failed")
    assert "did not come back within" in failed["why"]
