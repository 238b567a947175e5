"""Coordinator and silo as programs of their own, on one machine or on many: the same code that `simulate` forks."""

from __future__ import annotations

import json
import logging
import secrets
from pathlib import Path

from rich.console import Console

from bench import rundir
from bench.prepare import prepare
from bench.report import write_report
from config.errors import UserError
from config.settings import Settings
from coordinator import process as coordinator_process
from methods.base import silo_name
from silo import process as silo_process
from silo.process import study_hash

__all__ = ["run_coordinator", "run_silo"]


def _log() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")


def run_coordinator(settings: Settings, keys: Path, host: str, wait: float, console: Console) -> int:
    import torch

    torch.set_num_threads(1)
    _log()
    study = prepare(settings)
    settings = study.settings
    if not keys.exists():
        rundir.make_keys(keys, keys / "silos", settings.silos, secrets.token_bytes(32))
        console.print(
            f"made new keys in {keys}; carry each folder {keys}/silos/silo-NNN to its silo, and to nobody else",
            soft_wrap=True,
            highlight=False,
        )
    roster = json.loads((keys / "roster.json").read_text("utf-8"))
    if set(roster["silos"]) != {silo_name(i) for i in range(settings.silos)}:
        raise UserError(f"The keys in {keys} are for {len(roster['silos'])} silos, not {settings.silos}.")
    run = rundir.create(settings, rundir.this_command())
    try:
        status = coordinator_process.serve(
            run,
            keys,
            settings,
            study.task,
            study.method,
            study_hash(settings, study.task.agreement()),
            settings.slots or settings.silos,
            host=host,
            bound=lambda port: console.print(f"listening on {host}:{port}", highlight=False),
            enrol_seconds=wait,
        )
    except coordinator_process.RoundFailed as e:
        console.print(str(e), soft_wrap=True, highlight=False)
        return coordinator_process.FAILED
    if status == 0:
        console.print(f"report: {write_report(run)}", soft_wrap=True, highlight=False)
    return status


def run_silo(settings: Settings, index: int, address: str, home: Path, console: Console) -> int:
    import torch

    torch.set_num_threads(1)
    _log()
    if ":" not in address:
        raise UserError(f'--address must be HOST:PORT, not "{address}".')
    place = silo_process.Home(home)
    study = prepare(settings)
    silos = study.settings.silos
    if not 0 <= index < silos:
        raise UserError(f"--index {index} is not in this study of {silos} silos (0 to {silos - 1}).")
    data = study.task.subset(study.partition.indices[index])
    return silo_process.serve(
        place, index, silo_name(index), f"tcp://{address}", study.settings, study.task, data, study.method
    )
