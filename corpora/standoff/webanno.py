r"""WebAnno TSV 3, the format that WebAnno and INCEpTION export.

    #FORMAT=WebAnno TSV 3.3
    #T_SP=webanno.custom.Entity|value          a layer of marks and its features: a column each
    #T_RL=webanno.custom.Relation|role|BT_webanno.custom.Entity      relations between such marks

    #Text=Xolidan eased the dry cough.
    1-1 <tab> 0-7 <tab> Xolidan <tab> Drug <tab> _ <tab> _
    1-4 <tab> 18-21 <tab> dry <tab> Symptom[1] <tab> eases <tab> 1-1[0_1]

A mark over several words has a number in brackets; `|` stacks marks on one word; `_` is none, `*` a
mark whose feature is empty. A relation stands on the line of its target and names the word of its
source. Features come in the order of the alphabet: a type is the one called `value` or `label`, or
the first that is no identifier (INCEpTION's entities have `identifier|value`). Offsets count UTF-16
units. Chains (T_CH), slots, and the layers of parts of speech, lemmas and syntax are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from config.errors import UserError
from corpora.lines import first_line, lines, plain_name
from corpora.notes import Notes
from corpora.standoff.offsets import from_utf16
from corpora.standoff.table import Link, Marked, Mention, Span

__all__ = ["is_webanno", "webanno"]

_ESCAPED = re.compile(r"\\(->|.)")
_NUMBERED = re.compile(r"(.*?)\[(\d+)\]$", re.S)
_SOURCE = re.compile(r"(\d+-\d+(?:\.\d+)?)(?:\[(\d+)_(\d+)\])?$")


#: features by which a mark has its type, the likeliest first; and those that are concepts
_TYPES = ("value", "label", "type", "category", "class", "tag", "kind", "role", "name")
_CONCEPTS = ("identifier", "concept", "conceptid", "iri", "kbid")
_EMPTY = ("*", "_", "")  #: a feature that nobody filled in; some writers put the sign for no mark
_GRAMMAR = re.compile(
    r"de\.tudarmstadt\.ukp\.dkpro\.core\.api\.(lexmorph|segmentation|syntax|transform)\."
)


@dataclass(frozen=True)
class _Layer:
    kind: str  #: SP, RL, or empty where it is not read
    name: str
    type: int  #: the column of its type; -1: it has none
    concept: int = -1  #: the column of a mark's concept
    base: int = -1  #: the column of a relation's source
    ends: str = ""  #: the layer of a relation's ends


@dataclass(frozen=True)
class _Mark:
    type: str
    concept: str
    spans: list[Span]


@dataclass
class _Read:
    layers: list[_Layer] = field(default_factory=list)
    width: int = 3
    text: str = ""
    sentences: list[Span] = field(default_factory=list)
    words: list[Span] = field(default_factory=list)
    #: (layer, number, or the word's name and the place in the stack) -> the mark
    marks: dict[tuple[str, str], _Mark] = field(default_factory=dict)
    at_word: dict[tuple[str, str], list[tuple[str, str]]] = field(default_factory=dict)
    #: name, layer of the ends, source word, number of source and target, target word, place
    relations: list[tuple[str, str, str, str, str, str, str]] = field(default_factory=list)


def is_webanno(path: Path) -> bool:
    if not plain_name(path).endswith((".tsv", ".txt")):
        return False
    try:
        first = first_line(path)
    except UserError:
        return False
    return first.lstrip("\ufeff").startswith("#FORMAT=WebAnno TSV 3")


def webanno(path: Path, notes: Notes) -> Iterator[Marked]:
    """One document: a file."""
    found = _Read()
    sentence: list[str] = []
    begun = (0, 0)  # where the sentence begins, in UTF-16 units and in characters
    units: dict[str, Span] = {}
    fresh = False
    for number, line in lines(path, notes):
        place = f"{path}, line {number}"
        if line.startswith("#T_"):
            _layer(found, line, place, notes)
        elif line.startswith("#Text="):
            sentence = [*sentence, line[6:]] if fresh else [line[6:]]
            fresh = True
        elif line.startswith("#") or not line.strip():
            continue
        else:
            fields = line.rstrip("\t").split("\t") if line.endswith("\t") else line.split("\t")
            if len(fields) != found.width or not re.fullmatch(r"\d+-\d+", fields[1]):
                raise UserError(
                    f"{place}: {len(fields)} columns, and the layers of the head need {found.width}."
                )
            start, end = (int(x) for x in fields[1].split("-"))
            if fresh:
                begun = (start, _begin(found, sentence))
                fresh = False
            span = _word(found, fields, (start, end), begun, place)
            units[fields[0]] = span
            _marks(found, fields, span, place, notes)
    yield _marked(path, found, units, notes)


def _layer(found: _Read, line: str, place: str, notes: Notes) -> None:
    kind, _, rest = line[3:].partition("=")
    name, *features = rest.split("|")
    columns = dict(zip(features, range(found.width, found.width + len(features))))
    # a layer without features still has one column
    found.width += max(len(features), 1)
    base = next((f for f in features if f.startswith("BT_")), "")
    if kind == "RL" and not base:
        raise UserError(f"{place}: a layer of relations names its ends with BT_.")
    if kind == "CH" or any(f.startswith("ROLE_") for f in features):
        notes.add("skipped", "layers of chains or slots", example=line, place=place)
        kind = ""
    elif _GRAMMAR.match(name) or _GRAMMAR.match(base[3:]):
        notes.add(
            "skipped", "layers of parts of speech, lemmas or syntax", example=line, place=place
        )
        kind = ""
    own = [f for f in features if f and f != base]
    concept = next((f for f in own if f.lower() in _CONCEPTS), "")
    said = [f for f in own if f != concept]
    chosen = next((f for t in _TYPES for f in said if f.lower() == t), said[0] if said else "")
    for other in said if kind else ():
        if other != chosen:
            text = f'the feature "{chosen}" of the layer {name} is read, "{other}" is not'
            notes.add("said", text, place=place)
    found.layers.append(
        _Layer(
            kind,
            name,
            columns.get(chosen, -1 if own or kind == "RL" else found.width - 1),
            columns.get(concept, -1),
            columns.get(base, -1),
            base[3:],
        )
    )


def _begin(found: _Read, sentence: list[str]) -> int:
    text = _plain("\n".join(sentence))
    begin = len(found.text) + bool(found.text)
    found.text = f"{found.text}\n{text}" if found.text else text
    found.sentences.append((begin, len(found.text)))
    return begin


def _word(
    found: _Read, fields: list[str], at: tuple[int, int], begun: tuple[int, int], place: str
) -> Span:
    if not found.sentences:
        raise UserError(f"{place}: a word before any #Text= line.")
    begin, end = found.sentences[-1]
    character = from_utf16(found.text[begin:end])
    span = (begin + character(at[0] - begun[0]), begin + character(at[1] - begun[0]))
    word = _plain(fields[2])
    if found.text[slice(*span)] != word:
        raise UserError(f'{place}: the word "{word}" is not where its offsets say in #Text=.')
    if "." not in fields[0]:
        found.words.append(span)
    return span


def _plain(text: str) -> str:
    names = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
    return _ESCAPED.sub(lambda m: names.get(m[1], m[1]), text)


def _stack(field_: str) -> list[str]:
    return re.split(r"(?<!\\)\|", field_)


def _marks(found: _Read, fields: list[str], span: Span, place: str, notes: Notes) -> None:
    for layer in found.layers:
        if layer.kind == "RL":
            _relation(found, layer, fields, place, notes)
        elif layer.kind:
            _span(found, layer, fields, span)


def _span(found: _Read, layer: _Layer, fields: list[str], span: Span) -> None:
    short = layer.name.rpartition(".")[2]
    concepts = _stack(fields[layer.concept]) if layer.concept >= 0 else []
    types = _stack(fields[layer.type]) if layer.type >= 0 else ["*"] * len(concepts)
    if {*types, *concepts} == {"_"}:
        return
    for i, value in enumerate(types):
        said = concepts[i] if i < len(concepts) else "*"
        (kind, number), (concept, other) = _numbered(value), _numbered(said)
        number = number or other
        key = (layer.name, f"[{number}]" if number else f"{fields[0]}/{i}")
        mark = _Mark(short if kind in _EMPTY else kind, "" if concept in _EMPTY else concept, [])
        found.marks.setdefault(key, mark).spans.append(span)
        found.at_word.setdefault((layer.name, fields[0]), []).append(key)


def _numbered(value: str) -> tuple[str, str]:
    """The value of a feature, and the number of its mark; empty where it has none."""
    match = _NUMBERED.match(value)
    return (_plain(match[1]), match[2]) if match else (_plain(value), "")


def _relation(found: _Read, layer: _Layer, fields: list[str], place: str, notes: Notes) -> None:
    if fields[layer.base] == "_":
        return
    sources = _stack(fields[layer.base])
    names = _stack(fields[layer.type]) if layer.type >= 0 else ["*"] * len(sources)
    for name, source in zip(names, sources):
        match = _SOURCE.match(source)
        if match is None:
            notes.add(
                "skipped", "relations whose source cannot be read", example=source, place=place
            )
            continue
        plain, _ = _numbered(name)
        said = layer.name.rpartition(".")[2] if plain in _EMPTY else plain
        ends = (match[1], match[2] or "0", match[3] or "0", fields[0])
        found.relations.append((said, layer.ends, *ends, place))


def _end(found: _Read, layer: str, number: str, word: str) -> tuple[str, str] | None:
    """The mark that one end of a relation means: by its number, or the only one on its word."""
    if number != "0":
        return (layer, f"[{number}]") if (layer, f"[{number}]") in found.marks else None
    here = found.at_word.get((layer, word), [])
    return here[0] if len(here) == 1 else None


def _marked(path: Path, found: _Read, units: dict[str, Span], notes: Notes) -> Marked:
    ids = {key: f"m{i}" for i, key in enumerate(found.marks)}
    links = []
    for name, layer, source, from_, to, target, place in found.relations:
        head, tail = _end(found, layer, from_, source), _end(found, layer, to, target)
        if head is None or tail is None:
            said = "relations between words that are not marked, or not by one mark"
            notes.add("skipped", said, example=f"{name} {source} {target}", place=place)
        else:
            links.append(Link(name, ids[head], ids[tail]))
    mentions = tuple(
        Mention(ids[key], m.type, _joined(found.text, m.spans), (m.concept,) if m.concept else ())
        for key, m in found.marks.items()
    )
    return Marked(
        path.name,
        found.text,
        mentions,
        tuple(links),
        sentences=tuple(found.sentences),
        words=tuple(found.words),
        place=str(path),
    )


def _joined(text: str, spans: list[Span]) -> tuple[Span, ...]:
    """Neighbouring words are one run."""
    whole: list[Span] = []
    for a, b in sorted(set(spans)):
        if whole and (a <= whole[-1][1] or not text[whole[-1][1] : a].strip()):
            whole[-1] = (whole[-1][0], max(b, whole[-1][1]))
        else:
            whole.append((a, b))
    return tuple(whole)
