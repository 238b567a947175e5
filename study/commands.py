"""The words of the two programs of a study, `silo` and `coordinator`, in one place: `sottovoce silo`
and `python -m silo` read the same options and say the same.

The programs themselves are handed in, and this module imports neither: a silo's machine loads
nothing of the coordinator, and a coordinator's nothing of the silo.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from config.errors import UserError
from config.program import as_program

__all__ = [
    "Checkpoint",
    "Mapped",
    "Own",
    "OwnCorpus",
    "PublicText",
    "coordinator_app",
    "named",
    "own_folder",
    "run_alone",
    "silo_app",
]

Own = Annotated[str, typer.Option(help="The party's own folder, made by `sottovoce keys new`.")]
OwnCorpus = Annotated[
    str, typer.Option(help="The folder to score on; nothing: the study's built-in corpus.")
]
Mapped = Annotated[
    str, typer.Option(help='A file with lines "mine = theirs": names of classes in your folder.')
]
Checkpoint = Annotated[str, typer.Option(help="This machine's copy, where the study uses one.")]
PublicText = Annotated[
    str, typer.Option(help="The folder of public text, where the study starts from some.")
]


def silo_app(run: Callable[..., int], serve: Callable[[Path], int]) -> typer.Typer:
    """`run` takes the silo's file, and by name the hash that it accepts or where to write what it
    sees; `serve` takes the file alone. Both return an exit status.
    """
    app = _app()

    @app.callback(invoke_without_command=True)
    def silo(
        ctx: typer.Context,
        config: Annotated[
            str, typer.Option(help="This silo's own file: study, folders, limits.")
        ] = "",
        accept: Annotated[
            str, typer.Option(metavar="HASH", help="Agree to the study with this hash, unasked.")
        ] = "",
        look: Annotated[
            str,
            typer.Option(
                metavar="FILE",
                help="Write what the study would disclose to this file, and take no part.",
                hidden=True,
            ),
        ] = "",
    ) -> None:
        """Run one silo of a study: it shows what would leave, asks, then dials out to the coordinator;
        it opens no port.
        """
        if ctx.invoked_subcommand is None:
            raise typer.Exit(run(named(config, "silo"), accept=accept, look=look))

    @app.command("serve")
    def silo_serve(
        config: Annotated[str, typer.Option(help="This silo's own file, which names no study.")],
    ) -> None:
        """Wait for studies of the consortium, show them to the operator, and take part in what was
        accepted.
        """
        raise typer.Exit(serve(named(config, "silo serve")))

    return app


def coordinator_app(run: Callable[..., int], serve: Callable[..., int]) -> typer.Typer:
    """`run` takes the study file and this machine, and by name where to listen, how many seconds to
    wait for all silos and how long a round that lacks silos waits; `serve` takes the machine, where
    to listen, and by name patience and slots. Both return an exit status.
    """
    app = _app()

    @app.callback(invoke_without_command=True)
    def coordinator(
        ctx: typer.Context,
        config: Annotated[
            str, typer.Option(help="The study file, as the consortium agreed on it.")
        ] = "",
        home: Own = "",
        listen: Annotated[str, typer.Option(help="HOST:PORT to listen on.")] = "127.0.0.1:5555",
        corpus: OwnCorpus = "",
        mapping: Mapped = "",
        encoder: Checkpoint = "",
        seq2seq: Checkpoint = "",
        vectors: Checkpoint = "",
        public: PublicText = "",
        out: Annotated[str, typer.Option(help="Where run folders are made.")] = "runs",
        wait: Annotated[
            float, typer.Option(help="Seconds to wait for all silos to enrol.")
        ] = 600.0,
        patience: Annotated[
            float,
            typer.Option(
                help="Seconds for which a round that lacks silos waits for them; 0: until you end it."
            ),
        ] = 0.0,
        expect: Annotated[
            str,
            typer.Option(help="Names of the silos to wait for, with commas; nothing: all of them."),
        ] = "",
        metrics: Annotated[
            str, typer.Option(help="PORT or HOST:PORT for Prometheus; nothing: off.")
        ] = "",
        device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "",
    ) -> None:
        """Run the coordinator of a study whose silos run elsewhere. Started again, it goes on with the
        same run.
        """
        if ctx.invoked_subcommand is not None:
            return
        from study.machine import Machine

        machine = Machine(
            own_folder(home),
            corpus=corpus,
            encoder=encoder,
            seq2seq=seq2seq,
            vectors=vectors,
            public=public,
            out=out,
            metrics=metrics,
            device=device,
            mapping=mapping,
        )
        raise typer.Exit(
            run(
                named(config, "coordinator"),
                machine,
                listen=listen,
                wait=wait,
                patience=patience,
                expect=expect,
            )
        )

    @app.command("serve")
    def coordinator_serve(
        home: Own,
        listen: Annotated[
            str,
            typer.Option(
                help="HOST:PORT of the board; studies have the ports after it. Nothing: the port of "
                "the invitations."
            ),
        ] = "",
        corpus: OwnCorpus = "",
        mapping: Mapped = "",
        encoder: Checkpoint = "",
        seq2seq: Checkpoint = "",
        vectors: Checkpoint = "",
        public: PublicText = "",
        out: Annotated[str, typer.Option(help="Where run folders are made.")] = "runs",
        patience: Annotated[
            float,
            typer.Option(
                help="Seconds after which a study that lacks silos is given up; 0: you stop it."
            ),
        ] = 0.0,
        slots: Annotated[
            int, typer.Option(help="Studies that may run at once, each on a port of its own.")
        ] = 1,
        metrics: Annotated[
            str, typer.Option(help="PORT or HOST:PORT for health and Prometheus; nothing: off.")
        ] = "",
    ) -> None:
        """Show the board of proposed studies to the silos, and run those that enough have accepted."""
        from study.machine import Machine
        from wire.enrolment import listening_place

        machine = Machine(
            own_folder(home),
            corpus=corpus,
            encoder=encoder,
            seq2seq=seq2seq,
            vectors=vectors,
            public=public,
            out=out,
            mapping=mapping,
            metrics=metrics,
        )
        place = listen or listening_place(machine.home)
        raise typer.Exit(serve(machine, place, patience=patience, slots=slots))

    return app


def named(config: str, word: str) -> Path:
    """The file that `--config` names, which must be there."""
    if not config:
        raise UserError(f'"sottovoce {word}" needs --config and a file; see --help.')
    if not Path(config).is_file():
        raise UserError(f"--config: there is no file {config}.")
    return Path(config)


def own_folder(home: str) -> Path:
    """The folder that `--home` names, which must be there."""
    if not home:
        raise UserError('--home is missing: the folder that "sottovoce keys new" or "join" made.')
    if not Path(home).is_dir():
        raise UserError(
            f'--home: there is no folder {Path(home).absolute()}; name the one that "sottovoce join", '
            '"consortium new" or "keys new" made.'
        )
    return Path(home)


def run_alone(app: typer.Typer, word: str) -> None:
    """`python -m WORD`, which is `sottovoce WORD` without the other commands."""
    with as_program():
        typer.main.get_command(app)(sys.argv[1:], prog_name=f"sottovoce {word}")


def _app() -> typer.Typer:
    return typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown"
    )
