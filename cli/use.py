"""A trained model in use: on new text, or scored on a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

__all__ = ["extract", "evaluate"]

console = Console()

_Device = Annotated[
    str,
    typer.Option(
        metavar="DEVICE",
        help="cpu, cuda or mps; auto: an accelerator if torch finds one.",
    ),
]


def extract(
    model: Annotated[str, typer.Argument(help="A run folder, or the model/ in one.")],
    sources: Annotated[
        list[str] | None, typer.Argument(help="Files or folders; - or nothing: standard input.")
    ] = None,
    output: Annotated[
        str, typer.Option(help="Write JSON lines to this file, or BRAT into this folder.")
    ] = "",
    format: Annotated[
        str, typer.Option(help="jsonl, brat or terminal; auto: terminal where there is one.")
    ] = "auto",
    least: Annotated[float, typer.Option(help="Leave out what scores below this.")] = 0.0,
    none: Annotated[
        bool, typer.Option("--none", help="Also pairs that the model says have no relation.")
    ] = False,
    device: _Device = "auto",
) -> None:
    """Find relations or entities in new text with a trained model.

    Sentences: a line each, `<e1:drug>A</e1> treats <e2:illness>B</e2>`. Documents: PubTator, BRAT
    or JSON lines, their entities given. Named entities: plain text.
    """
    from extract.command import run_extract

    raise typer.Exit(
        run_extract(
            Path(model),
            sources or ["-"],
            output=output,
            format=format,
            least=least,
            none=none,
            device=device,
        )
    )


def evaluate(
    model: Annotated[str, typer.Argument(help="A run folder, or the model/ in one.")],
    corpus: Annotated[
        str, typer.Argument(help="A built-in corpus or a folder; nothing: the run's own.")
    ] = "",
    split: Annotated[str, typer.Option(help="dev or test.")] = "test",
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object instead of a table.")
    ] = False,
    device: _Device = "auto",
) -> None:
    """Score a trained model on a corpus with the same classes."""
    from extract.evaluate import run_evaluate

    raise typer.Exit(
        run_evaluate(Path(model), corpus, split, as_json=json, device=device, console=console)
    )
