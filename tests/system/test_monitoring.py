"""Health and figures of programs that serve: one address, with the figures of the study that runs
beside the program's own; and the example of alerts names figures that exist.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from config.errors import UserError
from coordinator.board import Board
from coordinator.prometheus import CoordinatorMetrics
from coordinator.serving import watched
from silo.prometheus import SiloMetrics
from study.monitoring import Monitor, ServingMetrics, figures_beside, together
from study.presence import Presence
from tests.conftest import ROOT
from tests.consortium import Consortium
from wire.prometheus import MetricsServer


def _get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def _neighbours(board: Board, presence: Presence) -> tuple[MetricsServer, Monitor]:
    """A study's figures on the port after the serving program's; both must be free."""
    while True:
        inside = MetricsServer(CoordinatorMetrics(5, 3), "127.0.0.1", 0)
        try:
            return inside, watched(f"127.0.0.1:{inside.port - 1}", board, presence)
        except UserError:
            inside.close()


def test_one_address_tells_health_presence_and_the_study(tmp_path: Path) -> None:
    parties = Consortium(tmp_path)
    board = Board(tmp_path / "hub", parties.roster)
    posted = board.post(title="A", text='title = "A"', hash="ab" * 32, enough=3)
    presence = Presence(tmp_path / "hub")
    inside, monitor = _neighbours(board, presence)
    try:
        assert figures_beside(f"127.0.0.1:{monitor.port}", 1) == f"127.0.0.1:{inside.port}"
        # it has not gone round yet: somebody should look
        assert _get(monitor.port, "/health")[0] == 503
        presence.heard("north")
        presence.beat({})
        status, said = _get(monitor.port, "/health")
        assert status == 200
        told = json.loads(said)
        assert (told["status"], told["role"], told["name"]) == ("ok", "coordinator", "hub")
        _, text = _get(monitor.port, "/metrics")
        assert f'sottovoce_last_heard{{party="north"}} {presence.seen.heard["north"]!r}' in text
        assert 'sottovoce_studies{state="proposed"} 1.0' in text
        assert "sottovoce_rounds_planned" not in text  # nothing runs
        presence.beat({posted.id: 5556})
        _, text = _get(monitor.port, "/metrics")
        assert 'sottovoce_rounds_planned{slot="1"} 5.0' in text
        assert 'sottovoce_studies{state="running"} 1.0' in text
        assert _get(monitor.port, "/other")[0] == 404
        with pytest.raises(UserError, match="cannot be listened on"):
            Monitor(
                f"127.0.0.1:{monitor.port}",
                role="silo",
                name="x",
                presence=presence,
                studies=dict,
            )
    finally:
        monitor.close()
        inside.close()


def test_two_studies_at_once_are_told_apart() -> None:
    first, second = CoordinatorMetrics(5, 3), CoordinatorMetrics(7, 3, {"silo-000": "north"})
    second.set("silo_missing", 1, silo="north of the river")
    lines = together({1: first.text(), 2: second.text()}).splitlines()
    at = lines.index("# TYPE sottovoce_rounds_planned gauge")
    assert lines[at + 1 : at + 3] == [
        'sottovoce_rounds_planned{slot="1"} 5.0',
        'sottovoce_rounds_planned{slot="2"} 7.0',
    ]
    assert lines.count("# TYPE sottovoce_rounds_planned gauge") == 1
    assert 'sottovoce_silo_missing{slot="2",silo="north of the river"} 1.0' in lines


def test_the_alerts_name_figures_that_exist(tmp_path: Path) -> None:
    every = "".join(
        m.text()
        for m in (
            CoordinatorMetrics(1, 3),
            SiloMetrics("x"),
            ServingMetrics("silo", "x", Presence(tmp_path), dict),
        )
    )
    known = set(re.findall(r"# TYPE (sottovoce_\w+)", every))
    table = yaml.safe_load((ROOT / "ops/prometheus/alerts.yml").read_text())
    rules = [rule for group in table["groups"] for rule in group["rules"]]
    used = {n for rule in rules for n in re.findall(r"sottovoce_\w+", rule["expr"])}
    assert len(used) >= 6 and used <= known
    words = " ".join(rule["annotations"]["summary"] for rule in rules)
    assert set(re.findall(r"sottovoce_\w+", words)) <= known
    (job,) = yaml.safe_load((ROOT / "ops/prometheus/scrape.yml").read_text())["scrape_configs"]
    assert f'job="{job["job_name"]}"' in rules[0]["expr"]
