"""One document a line with its candidate pairs: the form in which CHR, GDA and CDR are passed on.

Christopoulou et al. 2019 made it, ATLOP and FedLCC read it. Between tabs: an identifier; the
sentences, joined by `|`, of words separated by blanks; then seventeen columns per pair: label,
direction, whether it crosses sentences, two columns of the nearest mentions, and for each of the
two entities its identifier, names, type, first words, last words (exclusive) and sentences, lists
being joined by `|` or `:`. `not_include` marks a pair that is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from config.errors import UserError
from corpora.document.table import Document, Entity, Pair
from corpora.lines import lines
from corpora.notes import Notes

__all__ = ["COLUMNS", "read"]

COLUMNS = 17
_NONE, _LEFT_OUT = "NR", "not_include"


def read(path: Path, notes: Notes) -> Iterator[Document]:
    for number, line in lines(path, notes):
        if not line.strip():
            continue
        try:
            yield _document(line)
        except (ValueError, IndexError) as e:
            raise UserError(f"{path}, line {number}: not a document of this format: {e}.") from None


def _label(column: str) -> str:
    """`1:CID:2` -> CID."""
    parts = column.split(":")
    return parts[1] if len(parts) == 3 else column


def _document(line: str) -> Document:
    fields = line.split("\t")
    if len(fields) < 2 or (len(fields) - 2) % COLUMNS:
        raise ValueError(f"{len(fields)} columns where 2 and a multiple of {COLUMNS} are expected")
    text, sentences, words = "", [], []
    for sentence in fields[1].split("|"):
        begin = len(text) + bool(text)
        for word in sentence.split(" "):
            start = len(text) + bool(text)
            text = f"{text} {word}" if text else word
            words.append((start, len(text)))
        sentences.append((begin, len(text)))
    entities: dict[str, Entity] = {}
    pairs: dict[tuple[str, str], Pair] = {}
    order: dict[str, int] = {}
    for at in range(2, len(fields), COLUMNS):
        column = fields[at : at + COLUMNS]
        ends = []
        for first in (5, 11):
            name, kind = column[first], column[first + 2]
            starts, afters = ([int(n) for n in column[first + k].split(":")] for k in (3, 4))
            if len(starts) != len(afters) or min(starts) < 0 or max(afters) > len(words):
                raise ValueError(
                    f"mentions of {name} that do not lie in a text of {len(words)} words"
                )
            spans = sorted({(words[a][0], words[b - 1][1]) for a, b in zip(starts, afters)})
            entities.setdefault(name, Entity(name, kind, tuple(spans)))
            ends.append(order.setdefault(name, len(order)))
        label = _label(column[0])
        counted = label != _LEFT_OUT
        relations = (label,) if counted and label != _NONE else ()
        key = (column[5], column[11])
        before = pairs[key].relations if key in pairs else ()
        pairs[key] = Pair(ends[0], ends[1], tuple(dict.fromkeys((*before, *relations))), counted)
    return Document(
        fields[0], text, tuple(sentences), tuple(entities.values()), tuple(pairs.values())
    )
