"""Marked texts, sentence by sentence: as words with named entities, or as examples of a relation.

Where a format does not say, sentences end as `corpora.splitting` has it and at line breaks, but never
inside of a mention; words are runs of letters and digits, and every other sign on its own. What
cannot be said of words that stand side by side in one sentence is counted and left out. A mention
that begins or ends inside of a word is read as the whole word, and counted.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator, Sequence

from corpora.ner.formats import whole_words, words_of
from corpora.ner.table import Found, Sentence
from corpora.notes import Notes
from corpora.sentence.table import Example
from corpora.splitting import apart, sentence_ends
from corpora.standoff.candidates import Rule
from corpora.standoff.table import Marked, Mention, Span

__all__ = ["directions", "examples", "ner_sentences", "sentences_of"]

_BREAKS = re.compile(r"[\r\n]\s*")
_HELD = "sentence or line breaks lie inside a span"


def sentences_of(document: Marked, notes: Notes | None = None) -> list[Span]:
    """Where the sentences stand, without blanks at their ends. `notes` are told of breaks that are
    none because a span lies over them.
    """
    text = document.text
    if document.sentences:
        found = list(document.sentences)
    else:
        whole = [(m.start, m.end) for m in document.mentions if len(m.spans) == 1]
        breaks = sorted({*sentence_ends(text), *(b.end() for b in _BREAKS.finditer(text))})
        free, held = apart(breaks, whole)
        if notes is not None:
            for a, b in held:
                shown = f"{document.id}: {text[a:b]}"
                notes.add("merged", _HELD, example=shown, place=document.place)
        edges = sorted({0, len(text), *free})
        found = list(itertools.pairwise(edges))
    trimmed = []
    for a, b in found:
        part = text[a:b]
        if part.strip():
            start = a + len(part) - len(part.lstrip())
            trimmed.append((start, start + len(part.strip())))
    return trimmed


def _home(sentences: Sequence[Span], mention: Mention) -> int | None:
    """The sentence that a mention lies in; None: in no single one."""
    at = bisect.bisect_right(sentences, (mention.start, 1 << 60)) - 1
    if at < 0 or mention.end > sentences[at][1]:
        return None
    return at


def _skip(notes: Notes, document: Marked, what: str, example: str) -> None:
    notes.add("skipped", what, example=f"{document.id}: {example}", place=document.place)


def _words(document: Marked, sentence: Span) -> list[Span]:
    """The words of a sentence; no word holds a blank."""
    a, b = sentence
    if not document.words:
        return [(a + x, a + y) for x, y in words_of(document.text[a:b])]
    found = []
    for x, y in itertools.islice(document.words, bisect.bisect_left(document.words, (a, 0)), None):
        if x >= b:
            break
        if y <= b:
            inner = re.finditer(r"\S+", document.text[x:y])
            found += [(x + m.start(), x + m.end()) for m in inner]
    return found


def ner_sentences(document: Marked, domain: str, notes: Notes) -> Iterator[Found]:
    sentences = sentences_of(document, notes)
    inside: list[list[Mention]] = [[] for _ in sentences]
    for m in document.mentions:
        if len(m.spans) > 1:
            _skip(notes, document, "discontinuous spans", document.quoted(m))
            continue
        at = _home(sentences, m)
        if at is None:
            _skip(notes, document, "spans across sentences", document.quoted(m))
        else:
            inside[at].append(m)
    for sentence, mentions in zip(sentences, inside):
        words = _words(document, sentence)
        entities: dict[tuple[int, int, str], str] = {}
        for m in mentions:
            found = whole_words(document.text, words, (m.start, m.end), document.place, notes)
            if found is None:
                _skip(notes, document, "spans without a word", document.quoted(m))
                continue
            key = (*found, m.type)
            if key in entities:
                said = "spans of the same words and type became one"
                notes.add(
                    "merged",
                    said,
                    example=f"{document.id}: {document.quoted(m)}",
                    place=document.place,
                )
            entities[key] = m.id
        if words:
            texts = tuple(document.text[a:b] for a, b in words)
            yield Found(Sentence(texts, tuple(sorted(entities)), domain), document.id)


def _linked(document: Marked, sentences: Sequence[Span]) -> dict[tuple[str, str], list[str]]:
    """(head, tail) -> relations, for mentions of one sentence."""
    known = document.by_id()
    pairs = [(link.name, known[link.head], known[link.tail]) for link in document.links]
    for fact in document.facts:  # a relation of concepts holds for their mentions in one sentence
        heads = [m for m in document.mentions if fact.head in m.concepts]
        tails = [m for m in document.mentions if fact.tail in m.concepts]
        pairs += [(fact.name, a, b) for a in heads for b in tails if a.id != b.id]
    found: dict[tuple[str, str], list[str]] = {}
    for name, a, b in pairs:
        home = _home(sentences, a)
        if home is not None and home == _home(sentences, b):
            names = found.setdefault((a.id, b.id), [])
            if name not in names:
                names.append(name)
    return found


def directions(document: Marked) -> Iterator[tuple[tuple[str, str], bool]]:
    """For `candidates.rule_of`."""
    known = document.by_id()
    for head, tail in _linked(document, sentences_of(document)):
        a, b = known[head], known[tail]
        yield (a.type, b.type), a.start <= b.start


def examples(document: Marked, rule: Rule, none: str, notes: Notes) -> Iterator[Example]:
    """Every candidate pair of every sentence."""
    sentences = sentences_of(document, notes)
    relations = _linked(document, sentences)
    inside: list[list[Mention]] = [[] for _ in sentences]
    for m in document.mentions:
        at = _home(sentences, m)
        if len(m.spans) > 1:
            said = "spans with gaps, read from their first word to their last"
            notes.add("repaired", said, example=document.quoted(m), place=document.place)
        if at is None:
            _skip(notes, document, "spans across sentences", document.quoted(m))
        else:
            inside[at].append(m)
    known = document.by_id()
    for link in document.links:
        if (link.head, link.tail) not in relations:
            ends = [document.quoted(known[e]) for e in (link.head, link.tail)]
            said = "relations across sentences"
            _skip(notes, document, said, f"{link.name} of {ends[0]} and {ends[1]}")
    _facts_left(document, relations, notes)
    for (begin, end), mentions in zip(sentences, inside):
        text = document.text[begin:end]
        ordered = sorted(mentions, key=lambda m: (m.start, m.end, m.id))
        for i, a in enumerate(ordered):
            for j, b in enumerate(ordered):
                names = relations.get((a.id, b.id), [])
                if i == j or not rule.asks((a.type, b.type), i < j):
                    for name in names:
                        said = "relations of types that have none in the training split"
                        _skip(notes, document, said, f"{name} of {a.type} and {b.type}")
                    continue
                if len(names) > 1:
                    said = "pairs have several relations and became an example for each"
                    notes.add("repaired", said, example=", ".join(names), place=document.place)
                spans = ((a.start - begin, a.end - begin), (b.start - begin, b.end - begin))
                for name in names or [none]:
                    yield Example(text, *spans, a.type, b.type, name)


def _facts_left(
    document: Marked, relations: dict[tuple[str, str], list[str]], notes: Notes
) -> None:
    concepts = {m.id: m.concepts for m in document.mentions}
    held = {
        (name, c, d)
        for (a, b), names in relations.items()
        for name in names
        for c in concepts[a]
        for d in concepts[b]
    }
    for fact in document.facts:
        if (fact.name, fact.head, fact.tail) not in held:
            said = "relations of concepts that no sentence mentions together"
            _skip(notes, document, said, f"{fact.name} of {fact.head} and {fact.tail}")
