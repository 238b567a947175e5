"""What `sottovoce extract` found, as JSON lines, as BRAT files, or in colour on a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.text import Text

from config.errors import UserError
from extract.pairs import Found
from extract.read_pairs import Candidate
from extract.texts import Link, Passage, Thing

__all__ = [
    "found_lines",
    "found_view",
    "kept",
    "passage_lines",
    "passage_of",
    "passage_view",
    "write_brat",
]

_HEAD, _TAIL, _BOTH = "bold cyan", "bold magenta", "bold yellow"
_COLOURS = ("bold cyan", "bold magenta", "bold green", "bold yellow", "bold blue", "bold red")


# A pair in a sentence, or in a bag of sentences
# ------------------------------------------------------------------


def found_lines(found: Sequence[Found]) -> Iterator[str]:
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


def found_view(f: Found) -> Text:
    c = f.candidates[0]
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
    return Text("\n").join([_coloured(c), line])


def _coloured(c: Candidate) -> Text:
    e = c.example
    text = Text(e.text)
    text.stylize(_HEAD, *e.head)
    text.stylize(_TAIL, *e.tail)
    start, end = max(e.head[0], e.tail[0]), min(e.head[1], e.tail[1])
    if start < end:
        text.stylize(_BOTH, start, end)
    return text


def passage_of(f: Found) -> Passage:
    """The most telling sentence of a pair, for BRAT."""
    c = f.candidates[0]
    e = c.example
    things = (Thing("E1", e.head_type, (e.head,)), Thing("E2", e.tail_type, (e.tail,)))
    return Passage(c.id, e.text, things, (Link(0, 1, f.relation, f.score),))


# A text with all that is in it
# -----------------------------------------------------------------------------------


def kept(p: Passage, least: float, none: bool) -> Passage:
    """Without what scores below `least`, and without pairs that have no relation unless they are
    wanted.
    """
    entities = tuple(e for e in p.entities if e.score is None or e.score >= least)
    links = tuple(x for x in p.links if x.score >= least and (none or x.relation is not None))
    return replace(p, entities=entities, links=links)


def passage_lines(passages: Sequence[Passage], relations: bool) -> Iterator[str]:
    """One line a text. `relations`: the model judges pairs of given entities; else it finds
    entities.
    """
    for p in passages:
        line: dict[str, Any] = {
            "id": p.id,
            "text": p.text,
            "entities": [_entity(p.text, e) for e in p.entities],
        }
        if relations:
            line["relations"] = [
                {
                    "head": p.entities[x.head].id,
                    "tail": p.entities[x.tail].id,
                    "relation": x.relation,
                    "score": round(x.score, 6),
                }
                for x in p.links
            ]
        yield json.dumps(line, ensure_ascii=False) + "\n"


def _entity(text: str, e: Thing) -> dict[str, Any]:
    if e.score is not None:
        start, end = e.mentions[0]
        return {
            "start": start,
            "end": end,
            "text": text[start:end],
            "type": e.type,
            "score": round(e.score, 6),
        }
    mentions = [{"start": a, "end": b, "text": text[a:b]} for a, b in e.mentions]
    return {"id": e.id, "type": e.type, "mentions": mentions}


def passage_view(p: Passage) -> Text:
    text = Text(p.text.rstrip("\n"))
    colours = {
        kind: _COLOURS[k % len(_COLOURS)]
        for k, kind in enumerate(sorted({e.type for e in p.entities}))
    }
    for e in p.entities:
        for span in e.mentions:
            text.stylize(colours[e.type], *span)
    lines = [Text(p.id, "dim"), text]
    for e in p.entities:
        if e.score is not None:
            said = p.text[slice(*e.mentions[0])].replace("\n", " ")
            lines.append(
                Text.assemble(
                    "  ", (said, colours[e.type]), f"  {e.type}", (f"  {e.score:.3f}", "dim")
                )
            )
    for x in p.links:
        head, tail = p.entities[x.head], p.entities[x.tail]
        lines.append(
            Text.assemble(
                "  ",
                (p.text[slice(*head.mentions[0])], colours[head.type]),
                (f"  {x.relation or 'no relation'}  ", "bold green" if x.relation else "dim"),
                (p.text[slice(*tail.mentions[0])], colours[tail.type]),
                (f"  {x.score:.3f}", "dim"),
            )
        )
    return Text("\n").join(lines)


# BRAT
# ------------------------------------------------------------------------------------------------------------


def write_brat(folder: Path, passages: Sequence[Passage]) -> None:
    """A .txt and a .ann for every text. Scores stand in notes, since BRAT has no place of its own
    for them.
    """
    used: dict[str, int] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for p in passages:
            name = re.sub(r"[^\w.-]+", "_", p.id).strip("._") or "text"
            used[name] = used.get(name, 0) + 1
            name += f"-{used[name]}" if used[name] > 1 else ""
            (folder / f"{name}.txt").write_bytes(p.text.encode())
            (folder / f"{name}.ann").write_text("".join(_standoff(p)), "utf-8")
    except OSError as e:
        raise UserError(f'"{folder}" cannot be written ({e.strerror}).') from None


def _word(name: str) -> str:
    """A type as BRAT allows it: no spaces or other signs."""
    return re.sub(r"[^\w-]+", "_", name)


def _standoff(p: Passage) -> Iterator[str]:
    first: dict[int, str] = {}
    number, notes = 0, 0
    for k, e in enumerate(p.entities):
        for a, b in e.mentions:
            number += 1
            first.setdefault(k, f"T{number}")
            yield f"T{number}\t{_word(e.type)} {_span(p.text, a, b)}\n"
            if e.score is not None:
                notes += 1
                yield f"#{notes}\tAnnotatorNotes T{number}\tscore {e.score:.6f}\n"
    relation = 0
    for x in p.links:
        if x.relation is not None and x.head in first and x.tail in first:
            relation, notes = relation + 1, notes + 1
            yield f"R{relation}\t{_word(x.relation)} Arg1:{first[x.head]} Arg2:{first[x.tail]}\n"
            yield f"#{notes}\tAnnotatorNotes R{relation}\tscore {x.score:.6f}\n"


def _span(text: str, start: int, end: int) -> str:
    """Offsets and words; a mention over a line break is told in parts, as BRAT wants it."""
    parts = [(start + m.start(), start + m.end()) for m in re.finditer(r"[^\n]+", text[start:end])]
    where = ";".join(f"{a} {b}" for a, b in parts)
    words = " ".join(text[a:b] for a, b in parts)
    return f"{where}\t{words}"
