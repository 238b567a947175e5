"""NER corpora as they are published: CoNLL columns (IOB, IOB2, BIOES), CoNLL-2012, BRAT stand-off,
ADE version 2.

Every reader yields `Found`: a sentence and the document it comes from. What cannot be said of words
that stand side by side in one sentence (discontinuous spans, spans across sentences, strings that
are not where they should be) is counted and reported, never guessed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from config.errors import UserError
from corpora.lines import lines
from corpora.ner.table import Entity, Sentence

__all__ = ["Found", "Losses", "ade", "brat", "conll", "conll2012", "entities_of_tags", "words_of"]

_WORD = re.compile(r"\w+|[^\w\s]")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\[(])|\n+")
_TAG = re.compile(r"([BIESLU])-(.+)")
_BRACKETS = re.compile(r"\(([^()*]+)|\*|\)")
_STANDOFF = re.compile(r"(T\d+)\t(\S+) ([\d ;]+)(?:\t.*)?$")


@dataclass(frozen=True)
class Found:
    sentence: Sentence
    document: str  #: sentences of one document stay on one side of a split that we make


@dataclass
class Losses:
    """Annotations that could not be read as a run of words in one sentence."""

    count: int = 0
    why: set[str] = field(default_factory=set)

    def add(self, why: str) -> None:
        self.count += 1
        self.why.add(why)


def words_of(text: str) -> list[tuple[int, int]]:
    """Where the words of a text stand: runs of letters and digits, and every other sign on its
    own.
    """
    return [m.span() for m in _WORD.finditer(text)]


def entities_of_tags(tags: Sequence[str]) -> list[Entity]:
    """Runs of tags as entities; one rule reads IOB, IOB2 and BIOES (and BILOU).

    A tag begins an entity if it says so (B, S, U), if the tag before was O or of another type, or
    if the one before said that it was the last (E, S, L, U). Raises ValueError at a tag that is
    none of these.
    """
    found: list[Entity] = []
    begin, kind, closed = 0, "", True
    for i, tag in enumerate([*tags, "O"]):
        match = _TAG.fullmatch(tag)
        if match is None and tag != "O":
            raise ValueError(f'the tag "{tag}" is neither O nor B-, I-, E- or S- and a type')
        letter, this = (match[1], match[2]) if match else ("O", "")
        if kind and (closed or this != kind or letter in "BSU"):
            found.append((begin, i, kind))
            kind = ""
        if this and not kind:
            begin, kind = i, this
        closed = letter in "ESLU"
    return found


def conll(path: Path, domain: str) -> Iterator[Found]:
    """A word and, in the last column, its tag on every line; a blank line after every sentence."""
    words: list[str] = []
    tags: list[str] = []
    first, document = 0, 0

    def finished() -> Iterator[Found]:
        if words:
            try:
                entities = entities_of_tags(tags)
            except ValueError as e:
                raise UserError(f"{path}, sentence at line {first}: {e}.") from None
            yield Found(
                Sentence(tuple(words), tuple(entities), domain), f"{path.name}/{document}/{first}"
            )

    for number, line in lines(path):
        if not line.strip():
            yield from finished()
            words, tags = [], []
            continue
        columns = line.split("\t") if "\t" in line else line.split()
        if columns[0].strip() == "-DOCSTART-":
            document += 1
            continue
        if len(columns) < 2 or not columns[0].strip():
            raise UserError(
                f"{path}, line {number}: a word and its tag are expected, as in CoNLL columns."
            )
        first = number if not words else first
        words.append("_".join(columns[0].split()))
        tags.append(columns[-1].strip())
    yield from finished()


def conll2012(path: Path, losses: Losses) -> Iterator[Found]:
    """OntoNotes as the CoNLL-2012 task has it: word in column 4, names in column 11; the genre is
    the domain.
    """
    words: list[str] = []
    entities: list[Entity] = []
    open_: list[tuple[int, str]] = []
    document = ""
    # the last sentence may lack its blank line
    for number, line in itertools.chain(lines(path), [(0, "")]):
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
                    Sentence(tuple(words), _outermost(entities, losses), document.split("/")[0]),
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


def _outermost(entities: list[Entity], losses: Losses) -> tuple[Entity, ...]:
    """Names inside names are left out: the task that this format is for has none."""
    kept: list[Entity] = []
    for e in sorted(entities, key=lambda e: (e[0], -e[1])):
        if kept and e[0] < kept[-1][1]:
            losses.add("names inside names")
        else:
            kept.append(e)
    return tuple(kept)


def _to_words(spans: list[tuple[int, int]], start: int, end: int) -> tuple[int, int] | None:
    """The words that a run of characters touches, half-open."""
    touched = [i for i, (a, b) in enumerate(spans) if a < end and start < b]
    return (touched[0], touched[-1] + 1) if touched else None


def brat(text_file: Path, domain: str, losses: Losses) -> Iterator[Found]:
    """`x.txt` and its `x.ann`. Sentences end at line breaks and where a sign that ends one is
    followed by a capital.
    """
    text = "\n".join(line for _, line in lines(text_file))
    name = text_file.name.removesuffix(".gz")
    candidates = [
        text_file.with_name(name.removesuffix(".txt") + end) for end in (".ann", ".ann.gz")
    ]
    notes = next((c for c in candidates if c.is_file()), None)
    if notes is None:
        raise UserError(
            f"{text_file} has no annotation beside it: {candidates[0].name} is expected."
        )
    marked: list[tuple[int, int, str]] = []
    for number, line in lines(notes):
        if not line.startswith("T"):
            continue  # relations, attributes, notes
        match = _STANDOFF.match(line)
        if match is None:
            raise UserError(
                f'{notes}, line {number}: not an entity of BRAT ("T1", type, start and end).'
            )
        if ";" in match[3]:
            losses.add("discontinuous spans")
            continue
        start, end = (int(x) for x in match[3].split())
        if not 0 <= start < end <= len(text):
            raise UserError(
                f"{notes}, line {number}: the span {start}-{end} does not lie in {text_file.name}."
            )
        marked.append((start, end, match[2]))
    at = 0
    for cut in [*_SENTENCE_END.finditer(text), None]:
        begin, stop = at, cut.start() if cut else len(text)
        at = cut.end() if cut else len(text)
        spans = [(a + begin, b + begin) for a, b in words_of(text[begin:stop])]
        entities = []
        for start, end, kind in marked:
            if not begin <= start < stop:
                continue
            found = _to_words(spans, start, end)
            if end > stop or found is None:
                losses.add("spans across sentences")
                continue
            entities.append((*found, kind))
        if spans:
            yield Found(
                Sentence(tuple(text[a:b] for a, b in spans), tuple(sorted(set(entities))), domain),
                name,
            )


def ade(path: Path, domain: str, losses: Losses) -> Iterator[Found]:
    """DRUG-AE.rel: document, sentence, effect, its span, drug, its span. The spans count from the
    document's beginning, which is not published, so the strings are looked for in the sentence: at
    a distance from each other that the spans give, and where there is no such place, at their
    first.
    """
    rows: dict[tuple[str, str], list[tuple[str, int, str, int]]] = {}
    for number, line in lines(path):
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
                found = None if at is None else _to_words(spans, at, at + len(string))
                if found is None:
                    losses.add("strings that are not in their sentence")
                else:
                    entities.add((*found, kind))
        if spans:
            yield Found(
                Sentence(tuple(sentence[a:b] for a, b in spans), tuple(sorted(entities)), domain),
                document,
            )


def _places(text: str, string: str) -> list[int]:
    return [m.start() for m in re.finditer(re.escape(string), text)] if string.strip() else []
