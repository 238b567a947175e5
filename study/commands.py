"""The words of the two programs of a study, `silo` and `coordinator`, in one place: `sottovoce silo`
and `python -m silo` read the same options and say the same.

The programs themselves are handed in, and this module imports neither: a silo's machine loads
nothing of the coordinator, and a coordinator's nothing of the silo.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from config.program import as_program

if TYPE_CHECKING:  # it takes a second to load, and a wrong word is told before
    from study.machine import Machine

__all__ = ["Checkpoint", "Own", "OwnCorpus", "coordinator_command", "run_alone", "silo_command"]

Own = Annotated[str, typer.Option(help="The party's own folder, made by `sottovoce keys new`.")]
OwnCorpus = Annotated[
    str, typer.Option(help="The folder to score on; nothing: the study's built-in corpus.")
]
Checkpoint = Annotated[str, typer.Option(help="This machine's copy, where the study uses one.")]


def silo_command(program: Callable[[Path, str], int]) -> Callable[..., None]:
    """`program` takes the silo's file and the hash that it accepts, and returns an exit status."""

    def silo(
        config: Annotated[str, typer.Option(help="This silo's own file: study, folders, limits.")],
        accept: Annotated[
            str, typer.Option(metavar="HASH", help="Agree to the study with this hash, unasked.")
        ] = "",
    ) -> None:
        """Run one silo of a study: it shows what would leave, asks, then dials out to the coordinator;
        it opens no port.
        """
        raise typer.Exit(program(Path(config), accept))

    return silo


def coordinator_command(
    program: Callable[[Path, Machine, str, float], int],
) -> Callable[..., None]:
    """`program` takes the study file, this machine, where to listen and how many seconds to wait
    for silos, and returns an exit status.
    """

    def coordinator(
        config: Annotated[
            str, typer.Option(help="The study file, as the consortium agreed on it.")
        ],
        home: Own,
        listen: Annotated[str, typer.Option(help="HOST:PORT to listen on.")] = "127.0.0.1:5555",
        corpus: OwnCorpus = "",
        encoder: Checkpoint = "",
        seq2seq: Checkpoint = "",
        vectors: Checkpoint = "",
        out: Annotated[str, typer.Option(help="Where run folders are made.")] = "runs",
        wait: Annotated[
            float, typer.Option(help="Seconds to wait for all silos to enrol.")
        ] = 600.0,
        metrics: Annotated[
            str, typer.Option(help="PORT or HOST:PORT for Prometheus; nothing: off.")
        ] = "",
    ) -> None:
        """Run the coordinator of a study whose silos run elsewhere. Started again, it goes on with the
        same run.
        """
        from study.machine import Machine

        machine = Machine(
            Path(home),
            corpus=corpus,
            encoder=encoder,
            seq2seq=seq2seq,
            vectors=vectors,
            out=out,
            metrics=metrics,
        )
        raise typer.Exit(program(Path(config), machine, listen, wait))

    return coordinator


def run_alone(command: Callable[..., None], word: str) -> None:
    """`python -m WORD`, which is `sottovoce WORD` without the other commands."""
    app = typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown"
    )
    app.command(word)(command)
    with as_program():
        typer.main.get_command(app)(sys.argv[1:], prog_name=f"sottovoce {word}")
