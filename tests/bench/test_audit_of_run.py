"""`make audit` puts what it found into the folder of the run that it attacked: its own, or a finished
simulation's, which is played again as it was.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench.audit.__main__ import main
from report.audit import Bound, read_audit
from report.files import read_lines
from tests.conftest import sottovoce, summary

pytestmark = pytest.mark.slow  # runs of a small study

CORPUS = "CORPUS=distant:sentences=150,dev=40,test=40"
SMALL = [CORPUS, "METHOD=fedavg", "SILOS=3", "ROUNDS=2", "EPOCHS=2", "DP=record", "EPSILON=6"]
QUICK = ["SHADOWS=0", "PLAYS=20"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of real processes, whose silos' ledgers go on from run to run."""
    out = tmp_path_factory.mktemp("runs")
    ledger = f"LEDGER={out / 'ledgers'}"
    done = sottovoce("simulate", *SMALL, f"OUT={out}", ledger)
    assert done.returncode == 0, done.stdout + done.stderr
    return out / "latest"


def bounds_of(run: Path) -> tuple[Bound, ...]:
    found = read_audit(run, summary(run))
    assert found is not None and not found.ignored and found.played_again
    return found.bounds


def same(found: dict[str, Any], bounds: tuple[Bound, ...]) -> None:
    """The report has every bound of the audit, beside the promise that was attacked."""
    member, (release,) = found["membership"], found["releases"]
    assert [(b.promised, b.proved) for b in bounds] == [
        *((m["epsilon_at_most"], m["epsilon_at_least"]) for m in member),
        (release["epsilon_at_most"], release["epsilon_at_least"]),
    ]
    assert 0 < release["epsilon_at_most"] < found["epsilon_at_most"] <= 6


def test_the_run_of_an_audits_own_has_a_report_with_the_bounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([*SMALL, "SHADOWS=2", "PLAYS=20", f"AUDITS={tmp_path}"])
    folder = tmp_path / "fedavg-distant-record"
    own = folder / "runs" / "latest"
    assert str(own.resolve() / "report.html") in capsys.readouterr().out
    found = json.loads((folder / "audit.json").read_text("utf-8"))
    bounds = bounds_of(own)
    same(found, bounds)
    assert len(bounds) == 3 and found["plays"] == 20 and found["shadows"] == 2
    for name in ("report.md", "report.html", "privacy-budget.html"):
        page = (own / name).read_text("utf-8")
        assert "not audited" not in page, name
        assert all(f"{b.proved:.4f}" in page for b in bounds), name
    # another run with the file of this one leaves it out
    other = tmp_path / "other"
    shutil.copytree(own, other)
    (other / "summary.json").write_text(json.dumps(summary(own) | {"seed": 5}), "utf-8")
    ignored = read_audit(other, summary(other))
    assert ignored is not None and "it is of another run (seed)" in ignored.ignored


def test_a_finished_simulation_is_played_again_and_its_ledgers_are_not_charged(run: Path) -> None:
    ledgers = {p: p.read_bytes() for p in (run.parent / "ledgers").rglob("*.jsonl")}
    privacy = (run / "privacy.jsonl").read_bytes()
    assert len(ledgers) == 3
    assert "This run was not audited" in (run / "report.md").read_text("utf-8")
    main([f"RUN={run}", *QUICK])
    found = json.loads((run / "audit.json").read_text("utf-8"))
    same(found, bounds_of(run))  # `played_again`: the model of the processes, bit for bit
    assert "not audited" not in (run / "report.md").read_text("utf-8")
    assert found["command"] == f"make audit RUN={run} {' '.join(QUICK)}"
    assert {p: p.read_bytes() for p in ledgers} == ledgers
    assert (run / "privacy.jsonl").read_bytes() == privacy
    assert len(list(run.parent.glob("2*"))) == 1  # no run was made beside it


def test_another_model_than_the_runs_is_said(run: Path, tmp_path: Path) -> None:
    """As where silos were lost: the attacked models are of the same settings and no more."""
    other = tmp_path / "run"
    shutil.copytree(run, other)
    (other / "summary.json").write_text(json.dumps(summary(run) | {"model_sha256": "0" * 64}))
    main([f"RUN={other}", "SHADOWS=0", "PLAYS=0"])
    found = read_audit(other, summary(other))
    assert found is not None and not found.ignored and not found.played_again
    assert "ended with another model" in (other / "report.md").read_text("utf-8")


def test_what_cannot_be_attacked_is_one_sentence(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*words: str) -> str:
        with pytest.raises(SystemExit) as end:
            main([*words, *QUICK])
        said = capsys.readouterr().err.strip()
        assert end.value.code == 2 and said.count("\n") == 0
        return said

    assert "leave out METHOD" in refused(f"RUN={run}", "METHOD=fedavg")
    assert "not a finished run" in refused(f"RUN={tmp_path}")
    other = tmp_path / "run"
    shutil.copytree(run, other)
    (other / "audit.json").unlink(missing_ok=True)
    changed = summary(run) | {"corpus_sha256": "0" * 64}
    (other / "summary.json").write_text(json.dumps(changed), "utf-8")
    assert "no longer what it was" in refused(f"RUN={other}")
    (other / "study.json").write_text(json.dumps({"title": "x"}), "utf-8")
    assert "a run of a consortium" in refused(f"RUN={other}")
    (other / "study.json").unlink()
    config = (other / "config.toml").read_text("utf-8")
    (other / "config.toml").write_text(config.replace('"fedavg"', '"local"'), "utf-8")
    assert "is a reference" in refused(f"RUN={other}")
    assert not (other / "audit.json").exists()
    assert read_lines(other / "privacy.jsonl")
