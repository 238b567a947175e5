"""The parties of a study on machines of their own, and what each can see before it takes part.

Every program is imported by its own function: a silo must load nothing of the coordinator, of
reports or of the bench.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from config.parent import forks
from study.commands import (
    Checkpoint,
    Mapped,
    Own,
    OwnCorpus,
    coordinator_app,
    own_folder,
    silo_app,
)

if TYPE_CHECKING:
    from silo.home import Home
    from study.machine import Machine

__all__ = ["coordinator", "doctor", "page", "silo"]

console = Console()


def _run_silo(config: Path, *, accept: str, look: str) -> int:
    from silo.program import look_at, run_silo

    if look:
        return look_at(config, Path(look))
    return run_silo(config, accept, console, _papers)


def _papers(home: Home, study: bytes) -> None:
    """The silo's own documents, in a process of their own: the one that had the data loads nothing
    of reports. It is forked, so that nobody is asked for a passphrase a second time; where fork is
    not safe, they are written here.
    """
    if not forks():
        _write_papers(home, study)
        return
    if child := os.fork():
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            say = f"its documents could not be written; later: sottovoce documents {study.hex()}"
            console.print(say, soft_wrap=True, highlight=False)
        return
    status = 1
    try:
        _write_papers(home, study)
        status = 0
    finally:
        sys.stdout.flush()
        os._exit(status)  # nothing of the parent's is ended a second time


def _write_papers(home: Home, study: bytes) -> None:
    from cli.documents import write_own

    for page in write_own(home.path, study.hex(), home.keys):
        console.print(f"report: {page}", soft_wrap=True, highlight=False)


def _serve_silo(config: Path) -> int:
    from silo.serving import serve_studies

    return serve_studies(config, console)


def _run_coordinator(config: Path, machine: Machine, **how: Any) -> int:
    from coordinator.program import run_coordinator

    return run_coordinator(config, machine, console=console, **how)


def _serve_coordinator(machine: Machine, listen: str, **how: Any) -> int:
    from coordinator.serving import serve_board

    return serve_board(machine, listen, console=console, **how)


silo = silo_app(_run_silo, _serve_silo)
coordinator = coordinator_app(_run_coordinator, _serve_coordinator)


def page(
    home: Own,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 0,
    corpus: OwnCorpus = "",
    encoder: Checkpoint = "",
    seq2seq: Checkpoint = "",
    vectors: Checkpoint = "",
    out: Annotated[str, typer.Option(help="Where a coordinator's run folders are made.")] = "runs",
) -> None:
    """Serve the operator's page on this machine: studies, consent, rounds, budget, who is missing."""
    from report.operator import Party, run_page_for
    from study.machine import Machine, pinned_roster
    from wire.passphrase import open_keys

    keys = open_keys(own_folder(home))
    roster = pinned_roster(keys)
    party: Party
    if keys.card.role == "silo":
        from silo.operator_page import SiloPage

        party = SiloPage(Path(home), keys.card.name, roster)
    else:
        from coordinator.operator_page import CoordinatorPage

        machine = Machine(
            Path(home), corpus=corpus, encoder=encoder, seq2seq=seq2seq, vectors=vectors, out=out
        )
        party = CoordinatorPage(machine, roster)
    raise typer.Exit(run_page_for(party, port, console))


def doctor(
    config: Annotated[
        str, typer.Option(help="A silo's own file, or, for a coordinator, the study file.")
    ],
    home: Annotated[
        str, typer.Option(help="The coordinator's folder; a silo's file names its own.")
    ] = "",
    listen: Annotated[
        str, typer.Option(help="Where the coordinator will listen.")
    ] = "127.0.0.1:5555",
    corpus: OwnCorpus = "",
    mapping: Mapped = "",
    encoder: Checkpoint = "",
    seq2seq: Checkpoint = "",
    vectors: Checkpoint = "",
    out: Annotated[str, typer.Option(help="Where a coordinator's run folders are made.")] = "runs",
) -> None:
    """Check this machine: version, keys, roster, clock, reachability, corpus, checkpoint, disk,
    memory.
    """
    from cli.doctor import examine
    from study.machine import Machine

    machine = Machine(
        Path(home),
        corpus=corpus,
        encoder=encoder,
        seq2seq=seq2seq,
        vectors=vectors,
        out=out,
        mapping=mapping,
    )
    raise typer.Exit(examine(Path(config), machine, listen, console))
