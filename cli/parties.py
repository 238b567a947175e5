"""The parties of a study on machines of their own, and what each can see before it takes part.

Every program is imported by its own function: a silo must load nothing of the coordinator, of
reports or of the bench.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from study.commands import (
    Checkpoint,
    Own,
    OwnCorpus,
    coordinator_command,
    named,
    own_folder,
    silo_command,
)

if TYPE_CHECKING:
    from silo.home import Home
    from study.machine import Machine

__all__ = ["coordinator_app", "doctor", "silo_app"]

console = Console()


def _run_silo(config: Path, *, accept: str, look: str) -> int:
    from silo.program import look_at, run_silo

    if look:
        return look_at(config, Path(look))
    return run_silo(config, accept, console, _papers)


def _papers(home: Home, study: bytes) -> None:
    """The silo's own documents. A silo that serves has them made by a program of its own."""
    from cli.documents import write_own

    for page in write_own(home.path, study.hex(), home.keys):
        console.print(f"report: {page}", soft_wrap=True, highlight=False)


def _run_coordinator(config: Path, machine: Machine, **how: Any) -> int:
    from coordinator.program import run_coordinator

    return run_coordinator(config, machine, console=console, **how)


silo_app = typer.Typer(invoke_without_command=True)
silo_app.callback()(silo_command(_run_silo))
coordinator_app = typer.Typer(invoke_without_command=True)
coordinator_app.callback()(coordinator_command(_run_coordinator))


@silo_app.command("serve")
def silo_serve(
    config: Annotated[str, typer.Option(help="This silo's own file, which names no study.")],
) -> None:
    """Wait for studies of the consortium, show them to the operator, and take part in what was
    accepted.
    """
    from silo.serving import serve_studies

    raise typer.Exit(serve_studies(named(config, "silo serve"), console))


@coordinator_app.command("serve")
def coordinator_serve(
    home: Own,
    listen: Annotated[
        str, typer.Option(help="HOST:PORT of the board; studies have the next port.")
    ] = "0.0.0.0:5555",
    corpus: OwnCorpus = "",
    encoder: Checkpoint = "",
    seq2seq: Checkpoint = "",
    vectors: Checkpoint = "",
    out: Annotated[str, typer.Option(help="Where run folders are made.")] = "runs",
) -> None:
    """Show the board of proposed studies to the silos, and run one study after another."""
    from coordinator.serving import serve_board
    from study.machine import Machine

    machine = Machine(
        own_folder(home),
        corpus=corpus,
        encoder=encoder,
        seq2seq=seq2seq,
        vectors=vectors,
        out=out,
    )
    raise typer.Exit(serve_board(machine, listen, console))


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
        Path(home), corpus=corpus, encoder=encoder, seq2seq=seq2seq, vectors=vectors, out=out
    )
    raise typer.Exit(examine(Path(config), machine, listen, console))
