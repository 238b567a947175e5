"""The coordinator as a program of its own, for silos that run elsewhere: the same coordinator that
a simulation forks (coordinator.process).
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from config.errors import UserError
from config.logs import log_to
from config.names import with_names
from config.study import StudyFile, read_study
from coordinator import process, rundir
from coordinator.exchange import NothingToSpend
from coordinator.waiting import FOR_EVER
from crypto.identity.roster import Roster
from privacy.second_opinion import Disagreement
from report.files import read_run
from report.write import write_report
from study.agreement import Agreed, agreed, page
from study.machine import (
    Machine,
    guarded,
    local_settings,
    names_of,
    one_thread,
    own_holding,
    pinned_roster,
)
from study.papers import papers_are_whole, write_run_papers
from study.prepare import prepare
from wire.keyring import Keyring
from wire.messages import VERSION
from wire.passphrase import open_keys

__all__ = ["coordinator_study", "run_coordinator", "show_study"]

log = logging.getLogger("coordinator")
_GRACE = 30.0  #: seconds for a silo whose connection ended to come back into the exchange it was in


def coordinator_study(
    study: StudyFile, roster: Roster, machine: Machine, scores: bool = True
) -> Agreed:
    """The study as this machine reads it. A coordinator needs no training data, and to know what a
    study is (`scores` false) none at all.
    """
    settings, holding = (
        local_settings(study, roster, machine),
        own_holding(study, machine, "", scores),
    )
    return agreed(study, roster, prepare(settings, None if holding is None else -1, holding))


def show_study(study: Path, machine: Machine, console: Console) -> None:
    """What a study discloses, its hash, and the `[hashes]` that its file may name."""
    one_thread()
    roster = pinned_roster(open_keys(machine.home))
    of = coordinator_study(read_study(study), roster, machine, scores=False)
    console.print(page(of), soft_wrap=True, highlight=False, markup=False)
    pins = {**of.prepared.agreement, "model": of.content["model"]}
    text = "\n".join(["", "[hashes]", *(f'"{name}" = "{value}"' for name, value in pins.items())])
    console.print(text, soft_wrap=True, highlight=False, markup=False)


def run_coordinator(
    study: Path,
    machine: Machine,
    *,
    listen: str,
    wait: float,
    patience: float,
    expect: str,
    console: Console,
) -> int:
    """Run the study, or go on with it. Returns an exit status. `wait`: seconds for all silos to
    come before the first round; `patience`: seconds for which a round that lacks silos waits, 0 for
    as long as the operator lets it; `expect`: the silos that have agreed, by name, empty for all.
    """
    one_thread()
    log_to(sys.stderr)
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise UserError(f'--listen must be HOST:PORT, not "{listen}".')
    keys = open_keys(machine.home)
    if keys.card.role != "coordinator":
        raise UserError(
            f"{machine.home} has the keys of a {keys.card.role}; a coordinator needs keys of its own."
        )
    roster = pinned_roster(keys)
    members = names_of(roster)
    log_to(sys.stderr, members)
    numbers = {name: number for number, name in members.items()}
    if unknown := [n for n in expect.split(",") if n and n not in numbers]:
        raise UserError(f"--expect names {', '.join(unknown)}, which the roster does not have.")
    of = coordinator_study(read_study(study), roster, machine)
    # A study is run once, so its hash names its run: a coordinator that is started again goes on
    # with that one.
    settings, name = replace(of.prepared.settings, port=int(port)), f"study-{of.hash.hex()[:12]}"
    run = Path(settings.out) / name
    if (run / "summary.json").is_file():
        if not papers_are_whole(run):  # killed after the last round
            _write_papers(run, keys, console)
        console.print(
            f"this study is finished; its report: {run / 'report.html'}",
            soft_wrap=True,
            highlight=False,
        )
        _agree(run)
        return 0
    console.print(page(of), soft_wrap=True, highlight=False, markup=False)
    run = rundir.create(settings, rundir.this_command("coordinator"), name)
    _write(run / "members.json", members)
    _write(run / "study.json", _which(of))
    try:
        status = guarded(process.serve, log, process.RoundFailed)(
            run,
            keys,
            settings=settings,
            task=of.prepared.task,
            method=of.prepared.method,
            study=of.hash,
            slots=settings.slots or settings.silos,
            host=host,
            bound=lambda port: console.print(f"listening on {host}:{port}", highlight=False),
            enrol_seconds=wait,
            agreed=of.content,
            grace=_GRACE,
            patience=patience or FOR_EVER,
            expected=tuple(numbers[n] for n in expect.split(",") if n),
        )
    except NothingToSpend as e:  # for its operator: started again, it would end the same way
        raise UserError(
            f"{e} Stop this study; their logs say which budget has how much left."
        ) from None
    except process.RoundFailed as e:
        text = f"{with_names(str(e), members)} Finished rounds are kept; start the program again to go on."
        console.print(text, soft_wrap=True, highlight=False, markup=False)
        return process.WAITED if isinstance(e, process.WaitedInVain) else process.FAILED
    if status == 0:
        _write_papers(run, keys, console)
        _agree(run)
    return status


def _agree(run: Path) -> None:
    """That two accountants do not is an error, but the model and the report are there."""
    if wrong := read_run(run).summary.get("disagreement"):
        raise Disagreement(wrong)


def _write_papers(run: Path, keys: Keyring, console: Console) -> None:
    write_report(run)
    for path in write_run_papers(run, read_run(run), keys.identity, keys.card.name):
        console.print(f"report: {path}", soft_wrap=True, highlight=False)


def _which(of: Agreed) -> dict[str, Any]:
    """Which study of which consortium this is: what a report must say on its first page."""
    return {
        "title": of.study.title,
        "consortium": of.roster.consortium,
        "coordinator": of.roster.coordinator.name,
        "silos": [card.name for card in of.roster.silos],
        "roster_version": of.roster.version,
        "roster_fingerprint": of.roster.fingerprint,
        "study_hash": of.hash.hex(),
        "program": VERSION,
    }


def _write(path: Path, table: Mapping[str, Any]) -> None:
    """Whole, or not at all: somebody may follow the run."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(json.dumps(table, indent=1) + "\n", "utf-8")
    beside.replace(path)
