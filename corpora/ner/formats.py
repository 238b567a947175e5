"""NER corpora as they are published: CoNLL-2012 and ADE version 2. CoNLL columns are in
`corpora.ner.conll`, texts with marks on them in `corpora.standoff`.

Every reader yields `Found`: a sentence and the document it comes from. What cannot be said of words
that stand side by side in one sentence (discontinuous spans, spans across sentences, strings that
are not where they should be) is counted and reported, never guessed.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path

from config.errors import UserError
from corpora.lines import lines
from corpora.ner.table import Entity, Found, Sentence
from corpora.notes import Notes

__all__ = ["ade", "conll2012", "whole_words", "words_of"]

_WORD = re.compile(r"\w+|[^\w\s]")
_BRACKETS = re.compile(r"\(([^()*]+)|\*|\)")
_GROWN = "spans begin or end inside a word and grew to whole words"


def words_of(text: str) -> list[tuple[int, int]]:
    """Where the words of a text stand: runs of letters and digits, and every other sign on its
    own.
    """
    return [m.span() for m in _WORD.finditer(text)]


def conll2012(path: Path, notes: Notes) -> Iterator[Found]:
    """OntoNotes as the CoNLL-2012 task has it: word in column 4, names in column 11; the genre is
    the domain.
    """
    words: list[str] = []
    entities: list[Entity] = []
    open_: list[tuple[int, str]] = []
    document = ""
    # the last sentence may lack its blank line
    for number, line in itertools.chain(lines(path, notes), [(0, "")]):
        if line.startswith("#"):
            continue
        columns = line.split()
        if not columns:
            if open_:
                where = f"line {number}" if number else "at its end"
                raise UserError(
                    f'{path}, {where}: the name "{open_[-1][1]}" is not closed in its sentence.'
                )
            if words:
                yield Found(
                    Sentence(
                        tuple(words),
                        _outermost(entities, words, path, notes),
                        document.split("/")[0],
                    ),
                    document,
                )
            words, entities = [], []
            continue
        if len(columns) < 11:
            raise UserError(
                f"{path}, line {number}: {len(columns)} columns; CoNLL-2012 has eleven or more."
            )
        document = columns[0]
        for match in _BRACKETS.finditer(columns[10]):
            if match[1]:
                open_.append((len(words), match[1]))
        words.append(columns[3])
        for _ in range(columns[10].count(")")):
            if not open_:
                raise UserError(f"{path}, line {number}: a name is closed that was not opened.")
            start, kind = open_.pop()
            entities.append((start, len(words), kind))


def _outermost(
    entities: list[Entity], words: list[str], path: Path, notes: Notes
) -> tuple[Entity, ...]:
    """Names inside names are left out: the task that this format is for has none."""
    kept: list[Entity] = []
    for e in sorted(entities, key=lambda e: (e[0], -e[1])):
        if kept and e[0] < kept[-1][1]:
            notes.add(
                "skipped",
                "names inside names",
                example=" ".join(words[e[0] : e[1]]),
                place=str(path),
            )
        else:
            kept.append(e)
    return tuple(kept)


def whole_words(
    text: str, words: list[tuple[int, int]], span: tuple[int, int], place: str, notes: Notes
) -> tuple[int, int] | None:
    """The words that a run of characters touches, half-open."""
    start, end = span
    first = bisect_right(words, start, key=lambda w: w[1])
    after = bisect_left(words, end, key=lambda w: w[0])
    if first >= after:
        return None
    whole = text[words[first][0] : words[after - 1][1]]
    if text[start:end].strip() != whole:
        notes.add("repaired", _GROWN, example=f"{text[start:end]!r} became {whole!r}", place=place)
    return first, after


def ade(path: Path, domain: str, notes: Notes) -> Iterator[Found]:
    """DRUG-AE.rel: document, sentence, effect, its span, drug, its span. The spans count from the
    document's beginning, which is not published, so the strings are looked for in the sentence: at
    a distance from each other that the spans give, and where there is no such place, at their
    first.
    """
    rows: dict[tuple[str, str], list[tuple[str, int, str, int]]] = {}
    for number, line in lines(path, notes):
        if not line.strip():
            continue
        columns = line.split("|")
        if len(columns) != 8 or not all(
            c.strip().isdigit() for c in (columns[3], columns[4], columns[6], columns[7])
        ):
            raise UserError(
                f"{path}, line {number}: eight fields between | are expected, as in DRUG-AE.rel."
            )
        pair = (columns[2], int(columns[3]), columns[5], int(columns[6]))
        rows.setdefault((columns[0], columns[1]), []).append(pair)
    for (document, sentence), pairs in rows.items():
        spans = words_of(sentence)
        entities: set[Entity] = set()
        for effect, effect_at, drug, drug_at in pairs:
            effects, drugs = _places(sentence, effect), _places(sentence, drug)
            both = [(e, d) for e in effects for d in drugs if d - e == drug_at - effect_at]
            e, d = both[0] if both else (next(iter(effects), None), next(iter(drugs), None))
            for at, string, kind in ((e, effect, "ADE"), (d, drug, "Drug")):
                found = None
                if at is not None:
                    span = (at, at + len(string))
                    found = whole_words(sentence, spans, span, str(path), notes)
                if found is None:
                    notes.add(
                        "skipped",
                        "strings that are not in their sentence",
                        example=f"{string!r} in {sentence!r}",
                        place=str(path),
                    )
                else:
                    entities.add((*found, kind))
        if spans:
            yield Found(
                Sentence(tuple(sentence[a:b] for a, b in spans), tuple(sorted(entities)), domain),
                document,
            )


def _places(text: str, string: str) -> list[int]:
    return [m.start() for m in re.finditer(re.escape(string), text)] if string.strip() else []
