"""The parties of a study on machines of their own, and what each can see before it takes part.

Every program is imported by its own function: a silo must load nothing of the coordinator, of
reports or of the bench.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

__all__ = ["coordinator", "silo", "study", "doctor"]

console = Console()

Own = Annotated[str, typer.Option(help="The party's own folder, made by `sottovoce keys new`.")]
OwnCorpus = Annotated[
    str, typer.Option(help="The folder to score on; nothing: the study's built-in corpus.")
]
Checkpoint = Annotated[str, typer.Option(help="This machine's copy, where the study uses one.")]


def coordinator(
    config: Annotated[str, typer.Option(help="The study file, as the consortium agreed on it.")],
    home: Own,
    listen: Annotated[str, typer.Option(help="HOST:PORT to listen on.")] = "127.0.0.1:5555",
    corpus: OwnCorpus = "",
    encoder: Checkpoint = "",
    seq2seq: Checkpoint = "",
    vectors: Checkpoint = "",
    out: Annotated[str, typer.Option(help="Where run folders are made.")] = "runs",
    wait: Annotated[float, typer.Option(help="Seconds to wait for all silos to enrol.")] = 600.0,
    metrics: Annotated[
        str, typer.Option(help="PORT or HOST:PORT for Prometheus; nothing: off.")
    ] = "",
) -> None:
    """Run the coordinator of a study whose silos run elsewhere. Started again, it goes on with the
    same run.
    """
    from cli.consortium import Machine, run_coordinator

    own = {"corpus": corpus, "encoder": encoder, "seq2seq": seq2seq, "vectors": vectors, "out": out}
    machine = Machine(Path(home), **own, metrics=metrics)
    raise typer.Exit(run_coordinator(Path(config), machine, listen, wait, console))


def silo(
    config: Annotated[str, typer.Option(help="This silo's own file: study, folders, limits.")],
    accept: Annotated[
        str, typer.Option(metavar="HASH", help="Agree to the study with this hash, unasked.")
    ] = "",
) -> None:
    """Run one silo of a study: it shows what would leave, asks, then dials out to the coordinator;
    it opens no port.
    """
    from cli.consortium import run_silo

    raise typer.Exit(run_silo(Path(config), accept, console))


def study(
    config: Annotated[str, typer.Option(help="The study file.")],
    home: Own,
    corpus: OwnCorpus = "",
    encoder: Checkpoint = "",
    seq2seq: Checkpoint = "",
    vectors: Checkpoint = "",
) -> None:
    """Show what a study discloses, its hash, and the [hashes] that its file may name."""
    from cli.consortium import Machine, show_study

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
    from cli.consortium import Machine
    from cli.doctor import examine

    machine = Machine(
        Path(home), corpus=corpus, encoder=encoder, seq2seq=seq2seq, vectors=vectors, out=out
    )
    raise typer.Exit(examine(Path(config), machine, listen, console))
