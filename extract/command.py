"""`sottovoce extract`: relations or entities in new text, by a model that a run left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from config.errors import UserError
from corpora.notes import Notes, sentence_of
from extract.pairs import Extractor, open_extractor
from extract.read_pairs import read_candidates
from extract.read_texts import Given, read_texts
from extract.texts import Passage, TextExtractor
from extract.write import (
    found_lines,
    found_view,
    kept,
    passage_lines,
    passage_of,
    passage_view,
    write_brat,
)
from models.device import use_device

__all__ = ["Result", "judge", "run_extract"]


class Result:
    """What was found, ready for any form of output."""

    def __init__(
        self, lines: Iterator[str], views: Iterator[Text], passages: Sequence[Passage], closing: str
    ) -> None:
        self.lines, self.views, self.passages, self.closing = lines, views, passages, closing


def run_extract(
    model: Path,
    sources: Sequence[str],
    *,
    output: str,
    format: str,
    least: float,
    none: bool,
    device: str,
) -> int:
    """Read, judge, write. Progress goes to standard error, so that standard output can be piped."""
    if format not in ("auto", "jsonl", "brat", "terminal"):
        raise UserError(f'--format must be jsonl, brat, terminal or auto, not "{format}".')
    if format == "brat" and not output:
        raise UserError("--format brat writes files: say into which folder, with --output.")
    use_device(device)
    extractor = open_extractor(model)
    shown, said = Console(soft_wrap=True, highlight=False), Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=said,
        transient=True,
        disable=not said.is_terminal,
    )
    result = judge(extractor, sources, bar, least, none)
    if format == "brat":
        write_brat(Path(output), result.passages)
    elif output:
        try:
            Path(output).write_text("".join(result.lines), "utf-8")
        except OSError as e:
            raise UserError(f'"{output}" cannot be written ({e.strerror}).') from None
    elif format == "jsonl" or (format == "auto" and not shown.is_terminal):
        for line in result.lines:
            print(line, end="")
    else:
        for view in result.views:
            shown.print(view)
    said.print(result.closing, highlight=False)
    return 0


def judge(
    extractor: Extractor | TextExtractor,
    sources: Sequence[str | Given],
    bar: Progress,
    least: float = 0.0,
    none: bool = False,
) -> Result:
    """Read the sources as this model needs them, and let it say what is in them."""
    if isinstance(extractor, TextExtractor):
        return _texts(extractor, sources, bar, least, none)
    return _sentences(extractor, sources, bar, least, none)


def _sentences(
    extractor: Extractor, sources: Sequence[str | Given], bar: Progress, least: float, none: bool
) -> Result:
    notes = Notes()
    candidates = read_candidates(sources, notes)
    with bar:
        task = bar.add_task("sentences", total=len(candidates))
        found = extractor.extract(candidates, lambda n: bar.advance(task, n))
    good = [f for f in found if f.score >= least and (none or f.relation is not None)]
    pairs = sum(f.relation is not None for f in found)
    closing = f"{len(candidates)} sentences, {len(found)} pairs, {pairs} with a relation"
    closing = "; ".join(filter(None, (closing, sentence_of(notes.all()))))
    return Result(found_lines(good), map(found_view, good), [passage_of(f) for f in good], closing)


def _texts(
    extractor: TextExtractor,
    sources: Sequence[str | Given],
    bar: Progress,
    least: float,
    none: bool,
) -> Result:
    notes = Notes()
    texts = read_texts(sources, notes)
    with bar:
        task = bar.add_task("texts", total=len(texts))
        found = extractor.extract(texts, lambda n: bar.advance(task, n))
    good = [kept(p, least, none) for p in found]
    if extractor.finds == "entities":
        closing = f"{len(texts)} texts, {sum(len(p.entities) for p in good)} entities"
    else:
        related = sum(x.relation is not None for p in good for x in p.links)
        closing = f"{len(texts)} texts, {sum(len(p.entities) for p in good)} entities given, {related} relations"
    closing = "; ".join(filter(None, (closing, sentence_of(notes.all()))))
    lines = passage_lines(good, extractor.finds == "relations")
    return Result(lines, map(passage_view, good), good, closing)
