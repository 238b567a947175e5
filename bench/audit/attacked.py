"""The run that is attacked, and what its folder gets of it: audit.json, audit.md, and its report and
documents written again with the bounds in them.

Either a finished simulation (RUN=runs/x), whose settings are read from its config.toml and which is
played again; or a run that the audit makes for itself. Attacks charge no ledger that lasts.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.simulation.inprocess import run_inprocess
from config.errors import UserError
from config.load import load
from config.settings import Settings
from coordinator import rundir
from methods import describe
from report.audit import FILE, FORMAT, which_run
from report.files import read_run
from report.write import write_report
from study.papers import write_run_papers
from study.prepare import Study, prepare, write_partition
from wire.messages import VERSION

__all__ = ["as_audited", "keep", "make_run", "play_again", "refuse_reference", "study_of_run"]


def as_audited(settings: Settings) -> Settings:
    """In one process on this machine, and with ledgers that begin empty."""
    return replace(
        settings, runner="inprocess", launcher="local", hosts="", ledger="", metrics="", target=0.0
    )


def refuse_reference(method: str) -> None:
    if describe(method).reference:
        raise UserError(f'"{method}" is a reference, not a federation; audit a method.')


def study_of_run(run: Path) -> Study:
    """What a finished simulation was, from its config.toml; on the same data, or a sentence."""
    files = read_run(run)
    if files.study is not None:
        raise UserError(
            f'"{run}" is a run of a consortium, whose records are not on this machine; audit a simulation '
            "with its settings: METHOD, DP, EPSILON."
        )
    settings = load(run / "config.toml", {})
    refuse_reference(settings.method)
    study = prepare(as_audited(settings))
    if study.task.corpus_hash != files.summary["corpus_sha256"]:
        raise UserError(
            f'The corpus of "{run}" is no longer what it was (its hash is another): another run would be attacked.'
        )
    return study


def make_run(study: Study, folder: Path, command: str) -> Path:
    """A run folder like that of a simulation, with all its files but the report."""
    run = rundir.create(replace(study.settings, out=str(folder / "runs")), command)
    write_partition(run, study)
    _finish(run, study)
    return run


def play_again(study: Study) -> dict[str, Any]:
    """summary.json of the study's run."""
    with tempfile.TemporaryDirectory() as folder:
        return _finish(Path(folder), study)


def _finish(run: Path, study: Study) -> dict[str, Any]:
    if run_inprocess(run, study) != 0:
        raise UserError(
            "The study of this audit does not finish; raise EPSILON, or give more records."
        )
    summary: dict[str, Any] = json.loads((run / "summary.json").read_text("utf-8"))
    return summary


def keep(run: Path, found: Mapping[str, Any], page: str, attacked: Mapping[str, Any]) -> Path:
    """`attacked`: summary.json of the run that the attacks were on. Returns the report's path."""
    of = json.loads((run / "summary.json").read_text("utf-8"))
    played_again = attacked["model_sha256"] == of["model_sha256"]
    written = {
        "format": FORMAT,
        "made": round(time.time(), 3),
        "program": VERSION,
        "played_again": played_again,
        "of": which_run(of),
        **found,
    }
    for name, text in (("audit.md", page), (FILE, json.dumps(written, indent=2) + "\n")):
        beside = run / f"{name}.new"  # whole, or not at all
        beside.write_text(text, "utf-8")
        beside.replace(run / name)
    path = write_report(run)
    write_run_papers(run, read_run(run))
    return path
