"""BRAT's stand-off files, and the BioNLP shared tasks', which have the same lines, as marked texts.

`x.txt` has the text. BRAT's `x.ann` has all marks; BioNLP's `x.a1` has the given entities, `x.a2`
(and `x.rel`) what was to be found. `corpora.brat` reads them. A folder that `sottovoce convert` wrote
has a file `sottovoce.json`, which says how its texts are laid out: sentences on lines, words between
blanks, names of files with `%` signs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from config.errors import UserError
from corpora.brat import read_standoff
from corpora.notes import Notes
from corpora.standoff.table import Link, Marked, Mention, Span

__all__ = ["LAYOUT", "bionlp", "brat", "read_layout", "stem"]

LAYOUT = "sottovoce.json"


def brat(path: Path, notes: Notes) -> Iterator[Marked]:
    """`x.txt` with the `x.ann` beside it."""
    yield from _document(path, (".ann",), notes)


def bionlp(path: Path, notes: Notes) -> Iterator[Marked]:
    """`x.txt` with `x.a1`, and `x.a2` and `x.rel` where they are."""
    yield from _document(path, (".a1", ".a2", ".rel"), notes)


def stem(path: Path) -> str:
    return re.sub(r"\.txt(\.gz)?$", "", path.name, flags=re.I)


def read_layout(folder: Path) -> dict[str, str]:
    """What `sottovoce convert` says of a folder that it wrote; empty elsewhere. The splits lie one
    folder below.
    """
    path = next((f / LAYOUT for f in (folder, folder.parent) if (f / LAYOUT).is_file()), None)
    if path is None:
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as e:
        raise UserError(f"{path}: cannot be read as JSON ({e}).") from None
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def _document(path: Path, endings: tuple[str, ...], notes: Notes) -> Iterator[Marked]:
    beside = [path.with_name(f"{stem(path)}{e}{gz}") for e in endings for gz in ("", ".gz")]
    files = [p for p in beside if p.is_file()]
    if not files:
        notes.add("skipped", f"texts without {endings[0]} beside them", place=str(path))
        return
    found = read_standoff(path, files[0], notes, files[1:])
    layout = read_layout(path.parent)
    lined = layout.get("sentences") == "lines"
    yield Marked(
        unquote(stem(path)) if layout else stem(path),
        found.text,
        tuple(
            Mention(m.id, m.type, m.pieces, found.concepts.get(m.id, ())) for m in found.entities
        ),
        tuple(Link(r.type, r.head, r.tail) for r in found.relations),
        sentences=_runs(r"[^\n]+", found.text) if lined else (),
        words=_runs(r"\S+", found.text) if lined else (),
        same=found.same,
        place=str(files[0]),
    )


def _runs(pattern: str, text: str) -> tuple[Span, ...]:
    return tuple(m.span() for m in re.finditer(pattern, text))
