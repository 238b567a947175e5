"""What there is to run, and how the small built-in encoders are made."""

from __future__ import annotations

import textwrap
from typing import Annotated

import typer
from rich.console import Console

__all__ = ["methods", "pretrain"]

console = Console()


def methods() -> None:
    """List the methods, what each is for and where it was published."""
    import methods as registry

    for name in registry.names():
        about = registry.describe(name)
        console.print(f"[bold]{name}[/bold] ({', '.join(about.tasks)})", highlight=False)
        for text in (about.summary, f"Published in: {about.citation}"):
            lines = textwrap.fill(
                text, console.width, initial_indent="    ", subsequent_indent="    "
            )
            console.print(lines, highlight=False, soft_wrap=True, markup=False)


def pretrain(
    kind: Annotated[
        str, typer.Argument(help="Which: bert (for sentences), document or bart.")
    ] = "bert",
    check: Annotated[
        bool, typer.Option("--check", help="Make it again elsewhere and compare hashes.")
    ] = False,
) -> None:
    """Make the small built-in encoder again, from nothing but the generators' text. Takes
    minutes.
    """
    from bench.pretrain.make import run

    raise typer.Exit(
        run(kind, check, lambda line: console.print(line, highlight=False, soft_wrap=True))
    )
