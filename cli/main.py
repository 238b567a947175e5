"""The `sottovoce` command. Parses words, starts programs, turns a user's mistake into one sentence
and status 2.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from cli import convert, make, parties, runs, use
from cli.consortium import consortium_app
from cli.corpus import corpus
from cli.documents import documents, verify_app
from cli.join import join
from cli.keys import keys_app, roster_app
from cli.ledger import ledger_app
from cli.studies import study_app
from config.errors import UserError, nearest
from config.program import as_program
from wire.messages import VERSION

__all__ = ["app", "main"]

app = typer.Typer(
    name="sottovoce",
    help="Train information-extraction models across hospitals without moving a single sentence.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # with "rich", every "[default: …]" would be taken for a style and vanish
    rich_markup_mode="markdown",
)

#: Every command, in the order of the help. Each program is imported when its command is called.
COMMANDS: dict[str, Callable[..., None]] = {
    "corpus": corpus,
    "simulate": runs.simulate,
    "plan": runs.plan,
    "join": join,
    "doctor": parties.doctor,
    "page": parties.page,
    "methods": make.methods,
    "report": runs.report,
    "documents": documents,
    "export": runs.export,
    "watch": runs.watch,
    "compare": runs.compare,
    "extract": use.extract,
    "evaluate": use.evaluate,
    "convert": convert.convert,
    "pretrain": make.pretrain,
}
for _name, _function in COMMANDS.items():
    app.command(_name)(_function)
app.add_typer(parties.coordinator, name="coordinator")
app.add_typer(parties.silo, name="silo")
app.add_typer(study_app, name="study")
app.add_typer(consortium_app, name="consortium")
app.add_typer(keys_app, name="keys")
app.add_typer(roster_app, name="roster")
app.add_typer(ledger_app, name="ledger")
app.add_typer(verify_app, name="verify")


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"sottovoce {VERSION}")
        raise typer.Exit


@app.callback()
def _before_any_command(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """The options of `sottovoce` itself."""


def main(arguments: list[str] | None = None) -> None:
    command = typer.main.get_command(app)
    words = sys.argv[1:] if arguments is None else arguments
    with as_program():
        known = getattr(command, "commands", {})
        if words and not words[0].startswith("-") and words[0] not in known:
            raise UserError(f'Unknown command "{words[0]}".{nearest(words[0], known)}')
        command(words, prog_name="sottovoce")


if __name__ == "__main__":
    main()
