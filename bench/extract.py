"""`sottovoce extract`: relations in new text, by a model that a run left; as JSON lines, or in colour on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from bench.extract_input import Candidate, read_candidates
from bench.extractors import Found, open_extractor
from config.errors import UserError

__all__ = ["run_extract"]

_HEAD, _TAIL, _BOTH = "bold cyan", "bold magenta", "bold yellow"


def run_extract(model: Path, sources: Sequence[str], output: str, format: str, least: float, none: bool) -> int:
    """Read, judge, write. Progress goes to standard error, so that standard output can be piped."""
    if format not in ("auto", "jsonl", "terminal"):
        raise UserError(f'--format must be jsonl, terminal or auto, not "{format}".')
    extractor = open_extractor(model)
    candidates = read_candidates(sources)
    shown, said = Console(soft_wrap=True, highlight=False), Console(stderr=True)
    bar = Progress(
        TextColumn("sentences"),
        BarColumn(),
        MofNCompleteColumn(),
        console=said,
        transient=True,
        disable=not said.is_terminal,
    )
    with bar:
        task = bar.add_task("", total=len(candidates))
        found = extractor.extract(candidates, lambda n: bar.advance(task, n))
    kept = [f for f in found if f.score >= least and (none or f.relation is not None)]
    if output:
        try:
            Path(output).write_text("".join(_lines(kept)), "utf-8")
        except OSError as e:
            raise UserError(f'"{output}" cannot be written ({e.strerror}).') from None
    elif format == "jsonl" or (format == "auto" and not shown.is_terminal):
        for line in _lines(kept):
            print(line, end="")
    else:
        for f in kept:
            shown.print(_view(f))
    pairs = sum(f.relation is not None for f in found)
    said.print(f"{len(candidates)} sentences, {len(found)} pairs, {pairs} with a relation", highlight=False)
    return 0


def _lines(found: Sequence[Found]) -> Iterator[str]:
    for f in found:
        e = f.candidates[0].example
        entities = {
            name: {"text": e.text[slice(*span)], "start": span[0], "end": span[1], "type": kind}
            for name, span, kind in (("head", e.head, e.head_type), ("tail", e.tail, e.tail_type))
        }
        line: dict[str, Any] = {"id": f.candidates[0].id, "text": e.text, **entities}
        line |= {"relation": f.relation, "score": round(f.score, 6)}
        line["scores"] = {r: round(p, 6) for r, p in f.scores.items()}
        if len(f.candidates) > 1:
            line["sentences"] = [c.id for c in f.candidates]
        yield json.dumps(line, ensure_ascii=False) + "\n"


def _view(f: Found) -> Text:
    c = f.candidates[0]
    text = _coloured(c)
    e = c.example
    said = f.relation or "no relation"
    line = Text.assemble(
        ("  ", ""),
        (e.text[slice(*e.head)], _HEAD),
        (f"  {said}  ", "bold green" if f.relation else "dim"),
        (e.text[slice(*e.tail)], _TAIL),
        (f"  {f.score:.3f}", "dim"),
        (f"  ({len(f.candidates)} sentences)" if len(f.candidates) > 1 else "", "dim"),
    )
    return Text("\n").join([text, line])


def _coloured(c: Candidate) -> Text:
    e = c.example
    text = Text(e.text)
    text.stylize(_HEAD, *e.head)
    text.stylize(_TAIL, *e.tail)
    start, end = max(e.head[0], e.tail[0]), min(e.head[1], e.tail[1])
    if start < end:
        text.stylize(_BOTH, start, end)
    return text
