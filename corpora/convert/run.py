"""`sottovoce convert`: a corpus in another format, read back and compared before it is handed over.

The new folder is written beside its place and read again with the same reader that a run would use. If
the two differ in one item, nothing is left behind and the error says what differs, how often and where,
unless the user asked for what can be kept (`partly`).
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from config.errors import UserError, check_choice
from corpora.convert.items import TASKS, Difference, Loaded, difference, load
from corpora.convert.write import WRITERS
from corpora.notes import Note, Notes
from corpora.recognise import choose

__all__ = ["Converted", "convert"]

#: target -> task -> the format that reads it back
_READ_AS = {
    ("jsonl", "ner"): "entities",
    ("jsonl", "sentence"): "jsonl",
    ("jsonl", "document"): "documents",
    ("jsonl", "distant"): "",
    ("brat", "ner"): "brat",
    ("brat", "sentence"): "brat",
    ("brat", "document"): "brat",
    ("conll", "ner"): "conll",
}


@dataclass(frozen=True)
class Converted:
    source: Loaded
    target: str
    files: tuple[str, ...]
    notes: tuple[Note, ...]  #: what the target could not hold
    differences: tuple[Difference, ...]  #: after reading it back


def convert(
    spec: str,
    out: Path,
    to: str,
    *,
    task: str = "",
    partly: bool = False,
    columns: str = "",
    mapping: str = "",
    entity: str = "",
) -> Converted:
    """`columns`, `mapping` and `entity` as the options of the same names in a run."""
    check_choice("to", to, WRITERS)
    task = task or choose(spec, TASKS, columns)
    check_choice("task", task, TASKS)
    tasks, write = WRITERS[to]
    if task not in tasks:
        raise UserError(
            f"{to} cannot hold this task ({task}); it is for {', '.join(tasks)}. JSON lines hold all."
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is there already; name a folder that is new or empty.")
    source = load(spec, task, columns=columns, mapping=mapping, entity=entity)
    out.parent.mkdir(parents=True, exist_ok=True)
    # the folder's name is a corpus's name, so it is kept
    beside = Path(tempfile.mkdtemp(prefix=".convert-", dir=out.parent))
    try:
        fresh = beside / out.name
        fresh.mkdir()
        notes = Notes()
        write(source, fresh, notes)
        found = _compared(source, fresh, to, task)
        if found and not partly:
            raise UserError(_refusal(to, notes, found))
        files = tuple(str(p.relative_to(fresh)) for p in sorted(fresh.rglob("*")) if p.is_file())
        if out.exists():
            out.rmdir()
        fresh.rename(out)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return Converted(source, to, files, notes.all(), tuple(found))


def _compared(source: Loaded, folder: Path, to: str, task: str) -> list[Difference]:
    kind = _READ_AS[to, task]
    try:
        again = load(f"{kind}:{folder}" if kind else str(folder), task)
    except UserError as e:
        return [Difference("all", sum(map(len, source.splits.values())), 0, str(e))]
    return difference(source, again)


def _refusal(to: str, notes: Notes, found: list[Difference]) -> str:
    why = [f'{n.count} {n.what}, such as "{n.example}"' for n in notes.all()]
    for d in found[:3]:
        why.append(f"{d.split}: {d.lost} lost and {d.added} other after reading back ({d.example})")
    return (
        f"{to} cannot hold this corpus without loss: {'; '.join(why)}. Nothing was written; --partly "
        "writes what can be kept, --to jsonl keeps all."
    )
