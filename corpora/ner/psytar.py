"""PsyTAR (Zolnoori et al. 2019): drug reviews in CSV, a row for each sentence, and beside it a file
for each kind of annotation with the annotated strings.

`psytar_sentences.csv` has all sentences; `psytar_adr.csv`, `psytar_disease.csv` and
`psytar_symptoms.csv` those with annotations. A review (`drug_id`) is a document. Offsets are not
published: a string is looked for in its sentence, whole words first, capitals not minded. Annotators
also wrote strings together from several places; these stand nowhere, are left out and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from config.errors import UserError
from corpora.lines import plain_name
from corpora.ner.table import Found
from corpora.notes import Notes
from corpora.records import records
from corpora.splits import data_files
from corpora.standoff.table import Marked, Mention
from corpora.standoff.to_sentences import ner_sentences

__all__ = ["is_psytar", "psytar"]

_SENTENCES = "psytar_sentences.csv"
#: file -> (column prefix, type)
_KINDS = {
    "psytar_adr.csv": ("ADR", "ADR"),
    "psytar_disease.csv": ("DI", "Disease"),
    "psytar_symptoms.csv": ("SSI", "Symptom"),
    "psytar_withdrawal.csv": ("WD", "Withdrawal"),
}


def is_psytar(folder: Path) -> bool:
    return any(plain_name(p) == _SENTENCES for p in data_files(folder))


def psytar(folder: Path, domain: str, notes: Notes) -> Iterator[Found]:
    files = {plain_name(p): p for p in data_files(folder)}
    texts: dict[tuple[str, str], list[str]] = {}
    for place, row in records(files[_SENTENCES], notes):
        review, number, text = _key(row, place)
        texts.setdefault((review, number), []).append(text)
    strings: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for name, (prefix, kind) in _KINDS.items():
        if name not in files:
            continue
        for place, row in records(files[name], notes):
            review, number, _ = _key(row, place)
            if (review, number) not in texts:
                raise UserError(
                    f"{place}: the sentence {number} of {review} is not in {_SENTENCES}."
                )
            for column, value in row.items():
                if re.fullmatch(rf"{prefix}\d+", column) and value.strip():
                    strings.setdefault((review, number), []).append((kind, value.strip(), place))
    for (review, number), some in texts.items():
        if len(some) > 1:
            said = "sentences share a number; strings are looked for in the first that has them"
            notes.add("repaired", said, example=f"{review}, {number}")
        found = strings.get((review, number), [])
        for i, text in enumerate(some):
            last = i + 1 == len(some)
            here = [s for s in found if _places(text, s[1]) or last]
            found = [s for s in found if s not in here]
            yield from _found(review, number, text, here, domain, notes)


def _key(row: dict[str, str], place: str) -> tuple[str, str, str]:
    try:
        return row["drug_id"].strip(), row["sentence_index"].strip(), row["sentences"]
    except KeyError as e:
        raise UserError(f"{place}: PsyTAR has a column {e}, and this file has none.") from None


def _found(
    review: str,
    number: str,
    text: str,
    strings: Sequence[tuple[str, str, str]],
    domain: str,
    notes: Notes,
) -> Iterator[Found]:
    taken: dict[tuple[str, str], int] = {}
    mentions = []
    for i, (kind, words, place) in enumerate(strings):
        places = _places(text, words)
        if not places:
            said = f"{kind} strings that do not stand in their sentence as they are written"
            notes.add("skipped", said, example=f'"{words}" in: {text}', place=place)
            continue
        at = taken.get((kind, words.lower()), 0)
        taken[kind, words.lower()] = at + 1
        if at >= len(places):
            said = f"{kind} strings that stand in their sentence less often than they are written"
            notes.add("skipped", said, example=f'"{words}" in: {text}', place=place)
            continue
        if len(places) > 1 and at == 0:
            said = "strings stand several times in their sentence and are read at the first place"
            notes.add("repaired", said, example=f'"{words}" in: {text}', place=place)
        mentions.append(Mention(f"m{i}", kind, (places[at],)))
    if not text.strip():
        notes.add("skipped", "sentences without any words", example=f"{review}, {number}")
        return
    whole = ((0, len(text)),)
    document = Marked(
        review, text, tuple(mentions), sentences=whole, place=f"{_SENTENCES}, {review} {number}"
    )
    yield from ner_sentences(document, domain, notes)


def _places(text: str, words: str) -> list[tuple[int, int]]:
    """Where a string stands: as whole words, else inside of some; in its own capitals, else in any."""
    plain = re.escape(words)
    for flags in (0, re.I):
        for pattern in (rf"(?<!\w){plain}(?!\w)", plain):
            found = [m.span() for m in re.finditer(pattern, text, flags)]
            if found:
                return found
    return []
