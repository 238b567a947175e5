"""`sottovoce corpus`: what was read of a folder, shown to its owner before anything is trained."""

from __future__ import annotations

import json as as_text
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.runs import Set, settle

if TYPE_CHECKING:
    from methods.tasks.base import Task
    from study.corpus import Shown, SplitCounts
    from study.prepare import Study

__all__ = ["corpus"]

console = Console()
_COLOURS = ("green", "cyan", "magenta", "yellow", "blue", "red")
_LABELS = 8  #: labels of a split that are listed
_SILOS = 20  #: silos of a partition that are listed
_PARTITION = ("partition", "silos", "seed")


def corpus(
    folder: Annotated[str, typer.Argument(help="A folder, or FORMAT:FOLDER.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=VALUE]...",
            help="METHOD=, TASK=sentence|document|ner|distant, SET=; PARTITION= and SILOS= show who would hold what.",
            show_default=False,
        ),
    ] = None,
    set_: Set = None,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object instead of tables.")
    ] = False,
) -> None:
    """What a run would be given of your data: files, format, splits, counts, all that was repaired,
    cut, skipped or merged, and a look at three examples. Nothing is trained, nothing is written.
    """
    overrides, _ = settle(words, {}, set_, None)
    from corpora.formats import TASKS
    from corpora.recognise import recognised
    from study.corpus import as_json, counts, domains, examples, open_corpus
    from study.prepare import prepare

    settings, task = open_corpus(folder, overrides)
    study = prepare(settings) if any(key in overrides for key in _PARTITION) else None
    if json:
        told = as_json(task)
        if study is not None:
            told["partition"] = {"spec": study.partition.spec, "sizes": study.partition.sizes}
        print(as_text.dumps(told, ensure_ascii=False))
        return
    _files(task)
    for other in sorted(set(recognised(folder)) - {task.name}):
        _say(f"It can be read for another task too: TASK={other} ({TASKS[other]})", "dim")
    found = counts(task)
    _counts(task, found, domains(task))
    _notes(task)
    _examples(examples(task))
    if study is not None:
        _partition(study)
    if found["test"].units:
        _say(f"Train on it: make simulate METHOD={settings.method_name} CORPUS={folder}", "dim")
        return
    _say("There is no test file, so this was read as a silo's folder, all of it to train on.")
    listed = ", ".join(f'"{name}"' for name in task.labels)
    _say(f"A study on it names its classes, in this or another order: classes = [{listed}]", "dim")


def _say(text: str, style: str = "") -> None:
    console.print(Text(text, style=style), highlight=False, soft_wrap=True)


def _files(task: Task) -> None:
    from corpora.formats import TASKS
    from methods.tasks.words import file_line, warning_lines

    _say(f"{task.corpus_name}: {TASKS[task.name]}", "bold")
    _say(file_line(task) or task.corpus_about)
    for line in warning_lines(task):
        _say(line, "bold yellow")


def _counts(task: Task, found: dict[str, SplitCounts], domains: dict[str, int]) -> None:
    documents = task.name == "document"
    table = Table("split", f"{task.record_unit}s")
    columns = [] if documents else ["documents"]
    columns += ["mentions", "relations", "labels"]
    for name in columns:
        table.add_column(name)
    for split, c in found.items():
        ordered = sorted(c.labels.items(), key=lambda kv: (-kv[1], kv[0]))
        labels = ", ".join(f"{name} {n:,}" for name, n in ordered[:_LABELS])
        labels += f" and {len(ordered) - _LABELS} more" * (len(ordered) > _LABELS)
        row = [split, f"{c.units:,}"]
        if not documents:
            row.append("" if c.documents is None else f"{c.documents:,}")
        table.add_row(*row, f"{c.mentions:,}", f"{c.relations:,}", Text(labels))
    console.print(table)
    if domains:
        _say("domains: " + ", ".join(f"{name} {n:,}" for name, n in domains.items()))


def _notes(task: Task) -> None:
    for note in task.notes():
        _say(note.sentence())
        shown = " ".join(filter(None, (note.place and f"{note.place}:", note.example)))
        if shown:
            _say(f"    {shown}", "dim")


def _examples(some: list[Shown]) -> None:
    kinds = sorted({kind for s in some for *_, kind in s.entities})
    colours = {kind: _COLOURS[i % len(_COLOURS)] for i, kind in enumerate(kinds)}
    legend = Text("three examples: ")
    for kind in kinds:
        legend.append(f" {kind} ", style=f"reverse {colours[kind]}")
        legend.append(" ")
    console.print(legend)
    for s in some:
        text = Text(s.text)
        for start, end, kind in s.entities:
            text.stylize(f"bold {colours[kind]}", start, end)
        console.print(Text("  "), text, sep="", highlight=False)
        for line in s.said:
            _say(f"      {line}", "dim")


def _partition(study: Study) -> None:
    task, partition = study.task, study.partition
    note = f" ({partition.note})" if partition.note else ""
    _say(
        f"partition {partition.spec}, {study.settings.silos} silos, seed {study.settings.seed}{note}"
    )
    table = Table("silo", f"{task.record_unit}s", "labels")
    for i, indices in enumerate(partition.indices[:_SILOS]):
        there = sorted(zip(task.label_counts(indices).tolist(), task.labels), reverse=True)
        labels = ", ".join(f"{name} {n:,}" for n, name in there[:_LABELS] if n)
        table.add_row(str(i + 1), f"{len(indices):,}", Text(labels))
    console.print(table)
    left = len(partition.indices) - _SILOS
    if left > 0:
        _say(f"and {left} more silos")
