"""A corpus in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from corpora.convert.run import Converted

__all__ = ["convert"]

console = Console()


def convert(
    folder: Annotated[
        str, typer.Argument(help="A corpus as CORPUS= names it: a folder, or format:folder.")
    ],
    out: Annotated[Path, typer.Argument(help="The new folder.")],
    to: Annotated[str, typer.Option(help="jsonl, brat or conll.")] = "jsonl",
    task: Annotated[
        str,
        typer.Option(help="ner, sentence, document or distant; nothing: what the folder is first."),
    ] = "",
    partly: Annotated[
        bool,
        typer.Option("--partly", help="Write what the format can hold, and say what it cannot."),
    ] = False,
    columns: Annotated[str, typer.Option(help="As SET=columns= in a run.")] = "",
    mapping: Annotated[str, typer.Option(help="As SET=mapping= in a run.")] = "",
    entity: Annotated[str, typer.Option(help="As SET=entity= in a run.")] = "",
) -> None:
    """Write a corpus in our own JSON lines, as BRAT or as CoNLL columns.

    The new folder is read back and compared before it is handed over. A format that cannot hold the
    corpus is refused; then nothing is written.
    """
    from corpora.convert import run

    done = run.convert(
        folder,
        out,
        to,
        task=task,
        partly=partly,
        columns=columns,
        mapping=mapping,
        entity=entity,
    )
    _say(done, out)


def _say(done: Converted, out: Path) -> None:
    def line(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True, markup=False)

    source = done.source
    counts = ", ".join(f"{len(items)} {split}" for split, items in source.splits.items() if items)
    line(f"{source.name}: {source.task}, {source.note}")
    line(f"{out}: {len(done.files)} files as {done.target}: {counts}")
    for note in done.notes:
        line(f"  not written: {note.count} {note.what}, such as {note.example}")
    for d in done.differences:
        line(f"  {d.split}: {d.lost} lost, {d.added} other after reading back, such as {d.example}")
    if not done.differences:
        line("  read back, and the same in every item")
