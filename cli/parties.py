"""The parties of a study on machines of their own, and what each can see before it takes part.

Every program is imported by its own function: a silo must load nothing of the coordinator, of
reports or of the bench.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from study.commands import Checkpoint, Own, OwnCorpus, coordinator_command, silo_command

if TYPE_CHECKING:
    from study.machine import Machine

__all__ = ["coordinator", "silo", "study", "doctor"]

console = Console()


def _run_silo(config: Path, accept: str) -> int:
    from silo.program import run_silo

    return run_silo(config, accept, console)


def _run_coordinator(config: Path, machine: Machine, listen: str, wait: float) -> int:
    from coordinator.program import run_coordinator

    return run_coordinator(config, machine, listen, wait, console)


silo = silo_command(_run_silo)
coordinator = coordinator_command(_run_coordinator)


def study(
    config: Annotated[str, typer.Option(help="The study file.")],
    home: Own,
    corpus: OwnCorpus = "",
    encoder: Checkpoint = "",
    seq2seq: Checkpoint = "",
    vectors: Checkpoint = "",
) -> None:
    """Show what a study discloses, its hash, and the [hashes] that its file may name."""
    from coordinator.program import show_study
    from study.machine import Machine

    machine = Machine(Path(home), corpus=corpus, encoder=encoder, seq2seq=seq2seq, vectors=vectors)
    show_study(Path(config), machine, console)


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
