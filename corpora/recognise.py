"""Which tasks can read what a user names, and as which format."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from config.errors import UserError
from corpora.distant import read as distant
from corpora.document import read as document
from corpora.formats import MARKED, TASKS, unknown_format
from corpora.ner import read as ner
from corpora.ner.conll import DEFAULT, Layout
from corpora.sentence import read as sentence
from corpora.standoff.read import has_relations

__all__ = ["choose", "recognised"]


def recognised(
    spec: str, columns: str = "", tasks: Container[str] = tuple(TASKS)
) -> dict[str, str]:
    """task -> format, in the order in which tasks are tried; only of these `tasks`. A format that is named before the
    folder is believed; where it is a name of several tasks, all of them are meant. Marked texts are
    relations only if they have some. `columns`: as the user says, of a table or of CoNLL files.
    """
    named = spec.partition(":")[0].partition(",")[0]
    place = Path(spec.rpartition(":")[2])
    found: dict[str, str] = {}
    if ":" in spec and not Path(spec).exists():
        for task, formats in (
            ("document", document.FORMATS),
            ("sentence", sentence.FORMATS),
            ("ner", ner.FORMATS),
        ):
            if named in formats:
                found[task] = named
        if named in MARKED and place.is_dir() and not has_relations(place, named):
            return {"ner": named}
        return found
    parts = [Path(p) for p in spec.split(",") if p]
    if not parts or not all(p.is_dir() for p in parts):
        return {}
    one = parts[0] if len(parts) == 1 else None
    if one is not None and "document" in tasks:
        found["document"] = document.recognise(one)
    if one is not None and "sentence" in tasks:
        found["sentence"] = sentence.recognise(one, columns if ":" in columns else "")
    if "ner" in tasks:
        layout = DEFAULT if ":" in columns else Layout.of(columns)
        try:
            found["ner"] = ", ".join(dict.fromkeys(kind for kind, _ in ner.places(spec, layout)))
        except UserError:
            found["ner"] = ""
    if one is not None and "distant" in tasks:
        found["distant"] = distant.recognise(one)
    return {task: kind for task, kind in found.items() if kind}


def choose(spec: str, possible: tuple[str, ...], columns: str = "") -> str:
    """The one of `possible` tasks that a folder is for. An error that says why, if it is none."""
    mine = [task for task in recognised(spec, columns, possible) if task in possible]
    # PGR is bags of sentences or single ones: the method's own task decides
    if {"sentence", "distant"} <= set(mine):
        return possible[0] if possible[0] in mine else "distant"
    if mine:
        return mine[0]
    parts = [Path(p) for p in spec.split(",") if p]
    missing = next((p for p in parts if not p.is_dir()), None)
    if missing is not None:
        raise UserError(f'The corpus "{missing}" is not a folder.')
    found = recognised(spec, columns)
    if found:
        what = " and ".join(f"{kind}, of the task {task}" for task, kind in found.items())
        raise UserError(
            f'"{spec}" is read as {what}; the method is for {" and ".join(possible)}. '
            "Name another METHOD, or the format before the folder."
        )
    if len(parts) > 1:
        ner.places(spec)  # names the one that is no corpus
    raise unknown_format(parts[0], possible)
