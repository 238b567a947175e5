"""Documents for officers: a silo's own and the consortium's, over one real study. Every figure that
both have is the same, and a changed figure is found.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import sottovoce
from tests.consortium import Consortium

KINDS = ("communication-cost", "privacy-budget")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consortium]:
    made = Consortium(tmp_path_factory.mktemp("documents"))
    made.study(
        title="Adverse drug events",
        method="fedavg",
        corpus="distant:sentences=300",
        rounds=2,
        dp="record",
        epsilon=8.0,
        seed=3,
    )
    try:
        port, study = made.hub()
        for name in made.names:
            made.silo(name, port, study)
        for process in made.processes.values():
            assert process.wait(200) == 0, made.everything()
        yield made
    finally:
        made.close()


def _hash(c: Consortium) -> str:
    return str(json.loads((c.run / "study.json").read_text())["study_hash"])


def _own(c: Consortium, name: str) -> dict[str, dict[str, Any]]:
    done = sottovoce("documents", _hash(c), "--home", str(c.path / name))
    assert done.returncode == 0, done.stderr
    folder = c.path / name / "records" / _hash(c)[:12]
    return {k: json.loads((folder / f"{k}.json").read_text()) for k in KINDS}


@pytest.mark.slow
def test_a_silos_figures_are_the_coordinators(finished: Consortium) -> None:
    whole = {k: json.loads((finished.run / f"{k}.json").read_text()) for k in KINDS}
    assert whole["communication-cost"]["signed_by"] == "hub"
    for name in finished.names:
        own = _own(finished, name)
        cost, budget = (own[k]["silos"][name] for k in KINDS)
        theirs = whole["communication-cost"]["silos"][name]
        assert cost["by_kind"] == theirs["by_kind"]
        for figure in ("bytes_up", "bytes_down", "messages_up", "messages_down", "by_channel"):
            assert cost[figure] == theirs[figure] and cost[figure]
        charged = whole["privacy-budget"]["silos"][name]
        assert budget["epsilon"] == charged["epsilon"] and 0 < budget["epsilon"] <= 8
        assert budget["by_round"] == charged["by_round"]
        for kind in KINDS:
            for key in ("title", "consortium", "study_hash", "roster_version", "silos"):
                assert own[kind]["about"][key] == whole[kind]["about"][key]
        assert own["privacy-budget"]["disclosed"] == whole["privacy-budget"]["disclosed"]
        lines = (finished.path / name / "ledger.jsonl").read_text().splitlines()
        assert own["privacy-budget"]["ledger_lines"] == len(lines)


@pytest.mark.slow
def test_a_signature_and_every_figure_can_be_checked(finished: Consortium, tmp_path: Path) -> None:
    _own(finished, "east")
    folder = finished.path / "east" / "records" / _hash(finished)[:12]
    home = ("--home", str(finished.path / "east"))
    for kind in KINDS:
        done = sottovoce("verify", str(folder / f"{kind}.json"), *home, "--logs", str(folder))
        assert done.returncode == 0 and "signed by east" in done.stdout, done.stderr
    # another party can check it too
    file = folder / "privacy-budget.json"
    north = ("--home", str(finished.path / "north"))
    assert sottovoce("verify", str(file), *north).returncode == 0
    table = json.loads(file.read_text())
    table["silos"]["east"]["epsilon"] = 0.1
    (tmp_path / "changed.json").write_text(json.dumps(table))
    done = sottovoce("verify", str(tmp_path / "changed.json"), *north)
    assert done.returncode == 2 and "not on this content" in done.stderr
    # signed, and yet not what the logs say
    done = sottovoce("verify", str(file), *home, "--logs", str(finished.run))
    assert done.returncode == 2 and "other figures" in done.stderr


@pytest.mark.slow
def test_the_pages_answer_an_officers_four_questions(finished: Consortium) -> None:
    page = (finished.run / "privacy-budget.html").read_text()
    for said in (
        "what left",
        "who could read it",
        "what the budget says",
        "what is not protected",
        "Adverse drug events",
        "north, east, south",
        _hash(finished),
    ):
        assert said in page, said
    assert "Bytes of all silos, by round" in (finished.run / "communication-cost.html").read_text()


@pytest.mark.slow
def test_the_ledger_says_what_was_spent_and_what_the_same_again_would_cost(
    finished: Consortium,
) -> None:
    home = ("--home", str(finished.path / "south"))
    own = _own(finished, "south")["privacy-budget"]
    spent = own["silos"]["south"]["epsilon"]
    done = sottovoce("ledger", "show", *home)
    assert f"epsilon {spent:.4g} at delta 1e-05, for a record" in done.stdout, done.stderr
    done = sottovoce("ledger", "forecast", "--config", str(finished.path / "south.toml"))
    assert done.returncode == 0, done.stderr
    lines = dict(
        line.strip().split("  epsilon ") for line in done.stdout.splitlines() if "  epsilon" in line
    )
    figures = {key.strip(): float(value) for key, value in lines.items()}
    assert figures["spent so far"] == float(f"{spent:.4g}")
    # the study that ran is the one that is forecast: alone, it costs what it did cost
    assert figures["this study alone"] == pytest.approx(spent, abs=0.02)
    assert figures["with this study"] > 1.2 * spent
    assert "would stop before its end" in done.stdout
    ledger = finished.path / "south" / "ledger.jsonl"
    text = ledger.read_text()
    try:
        ledger.write_text("no line\n" + text)
        done = sottovoce("ledger", "check", *home)
        assert done.returncode == 2 and "line 1" in done.stderr
    finally:
        ledger.write_text(text)
    assert sottovoce("ledger", "check", *home).returncode == 0
